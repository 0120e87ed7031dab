-- Settlements: how items leave their worker, and how their jobs end.

-- name: settle_items
-- Settles claimed items with the same outcome. Guarded by state and fence: an item missing from the answer was lost.
-- The state is compared inside CASE, so that PostgreSQL cannot estimate how many rows match. From old statistics it would
-- estimate that hardly any item is leased, and join every leased item, or every item, with every row of the batch, instead
-- of one probe of the primary key for each row.
-- After a settlement the item has no lease. So the same settlement, sent again because its answer was lost, changes nothing.
UPDATE items SET
    {settled_values}
FROM {batch SettledItem}
WHERE items.id = batch.id AND items.fence = batch.fence AND {settled_guard}
RETURNING {columns FencedItem of items};

-- name: settle_ended
-- The same for items that have no next time and no task, as most have: with half the values it takes less time.
UPDATE items SET
    {settled_values}
FROM (SELECT id, fence, CAST(NULL AS bigint) AS delay_ms, CAST(NULL AS text) AS provider_task_id FROM {batch FencedItem}) AS batch
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

-- name: settle_few.postgres
-- why: a few items with the same outcome in one round trip: settle_items, their attempts and count_items in one statement.
-- Jobs are locked in the order of their ids, as everywhere. Items that go back into the queue are not settled here, because
-- they need a hint.
WITH {few_settled}, counted AS (
    UPDATE jobs SET
        processing = jobs.processing + moved.processing, succeeded = jobs.succeeded + moved.succeeded,
        failed = jobs.failed + moved.failed, skipped = jobs.skipped + moved.skipped,
        cancelled = jobs.cancelled + moved.cancelled,
        {job_end}
    FROM moved WHERE jobs.id = moved.job_id
    RETURNING jobs.id, jobs.state, {items_left} AS items_left
)
SELECT settled.id, settled.fence, settled.job_id, counted.state, counted.items_left
FROM settled LEFT JOIN counted ON counted.id = settled.job_id;

-- name: settle_few_apart.postgres
-- why: the same for jobs with many items left: their rows are not touched.
WITH {few_settled}, locked AS MATERIALIZED (
    SELECT job_id, pg_advisory_xact_lock_shared({counts_lock}) FROM moved
), counted AS (
    INSERT INTO job_counts (job_id, processing, succeeded, failed, skipped, cancelled)
    SELECT moved.job_id, processing, succeeded, failed, skipped, cancelled FROM moved JOIN locked ON locked.job_id = moved.job_id
)
SELECT id, fence, job_id, NULL AS state, NULL AS items_left FROM settled;
