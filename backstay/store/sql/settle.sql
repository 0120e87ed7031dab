-- Settlements: how items leave their worker, and how their jobs end.

-- name: settle_items
-- Settles claimed items with the same outcome. Guarded by state and fence: an item missing from the answer was lost.
-- The state is compared inside CASE, so that PostgreSQL cannot estimate how many rows match. From old statistics it would
-- estimate that hardly any item is leased, and join every leased item, or every item, with every row of the batch, instead
-- of one probe of the primary key for each row.
-- After a settlement the item has no lease. So the same settlement, sent again because its answer was lost, changes nothing.
UPDATE items SET
    state = :state,
    handler = coalesce(CAST(:handler_next AS text), items.handler),
    -- Another handler has another cost, unless it sends the same request elsewhere: then the cost covers that, and its time starts.
    cost_micros = CASE WHEN {same_cost} THEN items.cost_micros END,
    tokens = CASE WHEN {same_cost} THEN items.tokens ELSE 0 END,
    output_tokens = CASE WHEN {same_cost} THEN items.output_tokens ELSE 0 END,
    queued_at = CASE WHEN :same_request = 1 THEN {now} ELSE items.queued_at END,
    attempt_count = :attempt_count, calls = :calls, round = :round, rescues = :rescues, repeats = :repeats,
    due_at = {now} + batch.delay_ms,
    leased_by = NULL,
    lease_expires_at = CASE WHEN :state = 'submitting' THEN {now} END,
    reserved_micros = CASE WHEN :state IN ('submitting', 'processing') OR (:timed_out = 1 AND :was = 'processing')
                           THEN items.reserved_micros ELSE 0 END,
    provider_task_id = batch.provider_task_id, account = :account, error_code = :error_code,
    refused_at = CASE WHEN :state = 'queued' AND :error_code = 'FORBIDDEN' AND CAST(:handler_next AS text) IS NULL THEN {now} END,
    progress = CASE WHEN :state = 'succeeded' THEN 100
                    WHEN :state = 'queued' THEN 0
                    ELSE coalesce(CAST(:progress AS bigint), items.progress) END,
    finished_at = CASE WHEN :state IN {ITEM_ENDED} THEN {now} END,
    timed_out_at = CASE WHEN :timed_out = 1 THEN {now} END,
    flaw = :flaw
FROM {batch SettledItem}
WHERE items.id = batch.id AND items.fence = batch.fence AND {settled_guard}
RETURNING {columns FencedItem of items};

-- name: hand_over
-- Queued items of one handler go to another, which costs at most the same.
UPDATE items SET handler = batch.handler_then
FROM {batch(id bigint, handler text, handler_then text)}
WHERE items.id = batch.id AND items.handler = batch.handler AND items.state = 'queued'
RETURNING items.id;

-- name: join_queue
-- Items that went to another handler take the turns that its queue has reached. The caller widens the keys of their jobs.
UPDATE items SET order_key = batch.turn + (
        SELECT coalesce((SELECT served_key FROM turns WHERE turns.handler = items.handler AND turns.level_key = jobs.level_key), jobs.level_key)
        FROM jobs WHERE jobs.id = items.job_id)
FROM {batch(id bigint, turn bigint)} WHERE items.id = batch.id
RETURNING items.job_id, items.order_key;

-- name: lock_moved
-- Locks jobs before they are changed one by one: rows of jobs are locked in the order of their ids, against deadlocks.
SELECT id FROM jobs WHERE id IN (SELECT id FROM {batch(id bigint)}) ORDER BY id {for_update};

-- name: widen_keys
-- Widens the key range of a job, some of whose items got new places in the queue.
UPDATE jobs SET first_key = CASE WHEN first_key > :low THEN :low ELSE first_key END,
    last_key = CASE WHEN last_key < :high THEN :high ELSE last_key END
WHERE id = :job_id;

-- name: write_events
-- Rare acts, for the timelines.
INSERT INTO events (subject, at, act, detail)
SELECT subject, {now}, act, detail FROM {batch(subject text, act text, detail text)};

-- name: count_items
-- Updates the jobs' counters in the transaction of their items, and ends a job with its last item. Rows are locked in the
-- order of their ids, against deadlocks. The sums use the row that is being updated: values that were read before a wait for
-- the lock are stale, and writing them would undo another worker's count. Sums that handlers and replies report are limited:
-- a number too large for the database would keep all items of the group from being settled.
WITH locked AS MATERIALIZED (
    SELECT id FROM jobs WHERE id IN (SELECT job_id FROM {batch JobCounts})
    ORDER BY id {for_update}
)
UPDATE jobs SET
    processing = jobs.processing + moved.processing, succeeded = jobs.succeeded + moved.succeeded,
    failed = jobs.failed + moved.failed, skipped = jobs.skipped + moved.skipped,
    cancelled = jobs.cancelled + moved.cancelled, repeats = jobs.repeats + moved.repeats,
    reserved_micros = jobs.reserved_micros - moved.freed, unknown_micros = jobs.unknown_micros + moved.unknown,
    short = CASE WHEN moved.freed > 0 THEN 0 ELSE jobs.short END,
    spent_micros = CASE WHEN jobs.spent_micros > CAST(:sum_max AS bigint) - moved.spent THEN CAST(:sum_max AS bigint)
                        ELSE jobs.spent_micros + moved.spent END,
    input_tokens = CASE WHEN jobs.input_tokens > CAST(:sum_max AS bigint) - moved.input_tokens THEN CAST(:sum_max AS bigint)
                        ELSE jobs.input_tokens + moved.input_tokens END,
    output_tokens = CASE WHEN jobs.output_tokens > CAST(:sum_max AS bigint) - moved.output_tokens THEN CAST(:sum_max AS bigint)
                         ELSE jobs.output_tokens + moved.output_tokens END,
    truncated = jobs.truncated + moved.truncated, refused = jobs.refused + moved.refused,
    filtered = jobs.filtered + moved.filtered, unfinished = jobs.unfinished + moved.unfinished,
    {job_end}
FROM (SELECT batch.*, batch.succeeded + batch.failed + batch.skipped + batch.cancelled AS ended, 0 AS sealed
      FROM locked JOIN {batch JobCounts} ON batch.job_id = locked.id) AS moved
WHERE jobs.id = moved.job_id
RETURNING jobs.id, jobs.state, jobs.owner, jobs.handler;

-- name: settle_few.postgres
-- why: a few items with the same outcome in one round trip: settle_items, their attempts and count_items in one statement.
-- Jobs are locked in the order of their ids, as everywhere. Items that go back into the queue are not settled here, because
-- they need a hint.
WITH few AS MATERIALIZED (
    SELECT * FROM {batch SettledAttempt}
), settled AS (
    UPDATE items SET
        state = :state,
        attempt_count = :attempt_count, calls = :calls, round = :round, rescues = :rescues, repeats = :repeats,
        due_at = {now} + few.delay_ms, leased_by = NULL,
        lease_expires_at = CASE WHEN :state = 'submitting' THEN {now} END,
        provider_task_id = few.provider_task_id, account = :account, error_code = :error_code,
        progress = CASE WHEN :state = 'succeeded' THEN 100
                        ELSE coalesce(CAST(:progress AS bigint), items.progress) END,
        finished_at = CASE WHEN :state IN {ITEM_ENDED} THEN {now} END,
        timed_out_at = CASE WHEN :timed_out = 1 THEN {now} END
    FROM few
    WHERE items.id = few.id AND items.fence = few.fence AND {settled_guard}
    RETURNING items.id, items.fence, items.job_id
), tried AS (
    INSERT INTO attempts ({fields Attempt})
    SELECT {fields Attempt of few.attempt_}
    FROM few JOIN settled ON settled.id = few.id AND settled.fence = few.fence WHERE few.attempt_item_id IS NOT NULL
), moved AS (
    SELECT job_id, count(*) AS items,
        CASE WHEN :state IN {ITEM_ENDED} THEN count(*) ELSE 0 END AS ended,
        CASE WHEN :state = 'succeeded' THEN count(*) ELSE 0 END AS succeeded, 0 AS sealed
    FROM settled GROUP BY job_id ORDER BY job_id
), counted AS (
    UPDATE jobs SET
        processing = jobs.processing + CASE WHEN :state = 'processing' THEN moved.items ELSE 0 END
                                     - CASE WHEN :was = 'processing' THEN moved.items ELSE 0 END,
        succeeded = jobs.succeeded + moved.succeeded,
        failed = jobs.failed + CASE WHEN :state = 'failed' THEN moved.items ELSE 0 END,
        skipped = jobs.skipped + CASE WHEN :state = 'skipped' THEN moved.items ELSE 0 END,
        cancelled = jobs.cancelled + CASE WHEN :state = 'cancelled' THEN moved.items ELSE 0 END,
        {job_end}
    FROM moved WHERE jobs.id = moved.job_id
    RETURNING jobs.id, jobs.state
)
SELECT settled.id, settled.fence, settled.job_id, counted.state FROM settled LEFT JOIN counted ON counted.id = settled.job_id;
