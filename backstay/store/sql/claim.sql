-- How workers claim items and keep them. States are literals: with a bound state PostgreSQL would not use the partial indexes.

-- name: promote
-- Items whose waiting time is over become ready again.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE state = 'queued' AND due_at IS NOT NULL AND due_at <= {now} AND due_at > {now} - CAST(:back_ms AS bigint)
    ORDER BY due_at LIMIT :n {skip_locked}
)
UPDATE items SET due_at = NULL
WHERE id {in picked}
  AND state = 'queued'
RETURNING id;

-- name: claim
-- The ready items of one handler, in order, for one worker. The worker owns exactly the items that this returns.
{claim_ready};

-- name: claim.postgres
-- why: the jobs are marked as running in the same statement, so that a claim is one round trip and one commit.
-- The ready items of one handler, in order, for one worker. The worker owns exactly the items that this returns.
WITH {ready_picked}, claimed AS (
    UPDATE items SET
        {take}
    WHERE id {in picked}
    RETURNING {taken}
), {jobs_started}
{claimed_with_terms};

-- name: claim_known.postgres
-- why: the same where the jobs are known to be running. A statement that may change jobs locks all their indexes, which are
-- more than PostgreSQL locks cheaply; with many workers these locks are what they wait for.
{claim_ready};

-- name: claim_named
-- Those of some named items of one handler that can be claimed now, wherever they are in the order, also due ones that are
-- not promoted yet. The conditions are inside CASE for the reason given at settle_items.
WITH {named_picked}
UPDATE items SET
    {take}, due_at = NULL
WHERE id {in picked}
RETURNING {taken};

-- name: claim_named.postgres
-- why: as in claim, the jobs are marked as running in the same statement.
WITH {named_picked}, claimed AS (
    UPDATE items SET
        {take}, due_at = NULL
    WHERE id {in picked}
    RETURNING {taken}
), {jobs_started}
{claimed_with_terms};

-- name: in_flight
-- How many items of one handler are claimed and not settled, by any worker. If all workers died now, these would be sent again.
-- One whose lease ended more than a minute ago is no longer under way.
SELECT count(*) AS items FROM items WHERE state = 'submitting' AND lease_expires_at > {now} - 60000 AND handler = :handler;

-- name: pick
-- The ready items of one handler, in order, with the most that each may cost: the claim chooses among them by that.
SELECT {columns Picked} FROM items
WHERE state = 'queued' AND due_at IS NULL AND handler = :handler AND order_key >= :from_key
  AND {in_time}
  AND {job_not_held}
  AND {job_not_short}
ORDER BY order_key LIMIT :n {skip_locked};

-- name: pick_of_job
-- The same for a worker that runs one job alone. The job's keys bound the range of the index. Items of other jobs in between
-- are skipped; the plus is explained at under_way.
SELECT {columns Picked} FROM items
WHERE state = 'queued' AND due_at IS NULL AND handler = :handler AND order_key >= :from_key
  AND order_key >= (SELECT first_key FROM jobs WHERE id = :job_id)
  AND order_key <= (SELECT last_key FROM jobs WHERE id = :job_id)
  AND +id >= :first AND +id < :after
  AND {in_time}
  AND {job_not_held}
  AND {job_not_short}
ORDER BY order_key LIMIT :n {skip_locked};

-- name: queue_edges
-- The first and the last key in the queue of a handler.
SELECT
    (SELECT order_key FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
     ORDER BY order_key LIMIT 1) AS low,
    (SELECT order_key FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
     ORDER BY order_key DESC LIMIT 1) AS high;

-- name: job_edges
SELECT first_key AS low, last_key AS high FROM jobs WHERE id = :job_id;

-- name: advance_turns
-- How far the queues have been served: where new jobs start.
INSERT INTO turns (handler, level_key, served_key)
SELECT handler, level_key, served_key FROM {batch(handler text, level_key bigint, served_key bigint)} WHERE true
ON CONFLICT (handler, level_key) DO UPDATE SET served_key = excluded.served_key WHERE turns.served_key < excluded.served_key;

-- name: claim_picked
-- Claims items that were picked, with the money that is set aside for each.
UPDATE items SET
    {take}, reserved_micros = batch.reserved
FROM {batch(id bigint, reserved bigint)}
WHERE items.id = batch.id AND CASE WHEN items.state = 'queued' THEN 1 ELSE 0 END <> 0
RETURNING {taken};

-- name: job_ceilings
-- What the jobs have left, if they have a ceiling, and whether a budget that they share covers the handler. No row
-- is locked, so this only tells which way to claim.
SELECT {no_new_budget} id, {left_micros} AS left_micros, CASE WHEN {shares_budget} THEN 1 ELSE 0 END AS shares
FROM jobs WHERE id IN (SELECT id FROM {batch(id bigint)});

-- name: claim_fitting.postgres
-- why: the claim of items that fit under the ceilings of their jobs, and the money for them, in one round trip. The jobs
-- come last, so their rows are not locked while the items are written: settlements need those rows. The ceilings are
-- those of the row that is updated. If one is too low by now, or job_ceilings waited for a budget that was being
-- made, this returns nothing, and the transaction must be rolled back.
WITH claimed AS (
    UPDATE items SET
        {take}, reserved_micros = batch.reserved
    FROM {batch(id bigint, reserved bigint)}
    WHERE items.id = batch.id AND CASE WHEN items.state = 'queued' THEN 1 ELSE 0 END <> 0
    RETURNING {taken}
), wanted AS MATERIALIZED (
    SELECT job_id, CAST(sum(reserved) AS bigint) AS reserved FROM claimed GROUP BY job_id ORDER BY job_id
), paid AS (
    UPDATE jobs SET reserved_micros = reserved_micros + wanted.reserved, short = {short_elsewhere},
        state = CASE WHEN state = 'queued' THEN 'running' ELSE state END, started_at = coalesce(started_at, {now})
    FROM wanted
    WHERE jobs.id = wanted.job_id AND (budget_micros IS NULL OR {left_micros} >= wanted.reserved) AND NOT {shares_budget}
    RETURNING jobs.id
)
SELECT {columns Claimed of claimed} FROM claimed WHERE (SELECT count(*) FROM paid) = (SELECT count(*) FROM wanted);

-- name: purses
-- The money that jobs have left, if they have a budget. The rows are locked, because two claims must not spend the same
-- money; all of them and in order, because the claim changes them all.
SELECT {no_new_budget} id, owner, {left_micros} AS left_micros
FROM jobs WHERE id IN (SELECT id FROM {batch(id bigint)}) ORDER BY id {for_update};

-- name: reserve
-- Sets money aside for calls about to be made, and marks the jobs whose next item does not fit under the ceiling.
UPDATE jobs SET reserved_micros = reserved_micros + batch.reserved,
    short = CASE WHEN batch.short = 1 THEN 1 ELSE {short_elsewhere} END,
    short_of = CASE WHEN batch.short = 1 THEN batch.short_of ELSE jobs.short_of END,
    short_renewals = CASE WHEN batch.short = 1 THEN batch.short_renewals ELSE jobs.short_renewals END,
    state = CASE WHEN state = 'queued' AND batch.started = 1 THEN 'running' ELSE state END,
    started_at = CASE WHEN started_at IS NULL AND batch.started = 1 THEN {now} ELSE started_at END
FROM {batch(id bigint, reserved bigint, short bigint, started bigint, short_of bigint, short_renewals bigint)}
WHERE jobs.id = batch.id;

-- name: start_jobs
-- Jobs whose first items were just claimed are running; gives the terms of each.
UPDATE jobs SET
    state = CASE WHEN state = 'queued' THEN 'running' ELSE state END,
    started_at = CASE WHEN started_at IS NULL THEN {now} ELSE started_at END
WHERE id IN (SELECT id FROM {batch(id bigint)})
RETURNING {columns JobTerms, {items_left} AS items_left};

-- name: start_jobs.postgres
-- why: mostly the claim itself has marked them, and only their terms are wanted.
WITH started AS (
    UPDATE jobs SET state = 'running', started_at = coalesce(started_at, {now})
    WHERE id = ANY(ARRAY(SELECT id FROM {batch(id bigint)})) AND state = 'queued'
)
SELECT {columns JobTerms, {items_left} AS items_left} FROM jobs WHERE id = ANY(ARRAY(SELECT id FROM {batch(id bigint)}));

-- name: poll
-- The provider's tasks of one handler and account that are due to be asked about. The later due_at is the lease.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE state = 'processing' AND handler = :handler AND due_at <= {now} AND due_at > {now} - CAST(:back_ms AS bigint)
      AND coalesce(account, '') = :account
    ORDER BY due_at LIMIT :n {skip_locked}
)
UPDATE items SET fence = fence + 1, leased_by = :worker, due_at = {now} + :lease_ms
WHERE id {in picked}
RETURNING {columns Claimed of items, {now} AS claimed_at, items.last_attempt_at AS started_at,
    (SELECT CASE WHEN stop_reason IS NULL AND (move_at <= {now} OR (:time_shares > 1 AND {share_over})) THEN 'move'
                 WHEN stop_reason = 'cancel' AND stopped_at <= {now} - :grace_ms THEN 'cancel_over' ELSE stop_reason END
     FROM jobs WHERE jobs.id = items.job_id) AS stop_reason, '' AS body, items.reserved_micros AS reserved, CAST(NULL AS text) AS terms};

-- name: poll_late
-- Tasks of items that have run out of time: their results are paid for. The later due_at is the lease.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE state = 'failed' AND due_at IS NOT NULL AND handler = :handler AND due_at <= {now} AND due_at > {now} - CAST(:back_ms AS bigint)
      AND coalesce(account, '') = :account AND archive_id IS NULL AND timed_out_at > {now} - :late_ms
    ORDER BY due_at LIMIT :n {skip_locked}
)
UPDATE items SET due_at = {now} + :lease_ms
WHERE id {in picked} AND state = 'failed'
RETURNING {columns Claimed of items, {now} AS claimed_at, items.last_attempt_at AS started_at,
    CAST(NULL AS text) AS stop_reason, '' AS body, items.reserved_micros AS reserved, CAST(NULL AS text) AS terms};

-- name: put_off_polls
-- The next poll of tasks; none, for those that have ended.
UPDATE items SET leased_by = NULL, due_at = {now} + batch.delay_ms FROM {batch(id bigint, fence bigint, delay_ms bigint)}
WHERE items.id = batch.id AND items.fence = batch.fence AND CASE WHEN items.state IN ('processing', 'failed') THEN 1 ELSE 0 END <> 0;

-- name: forget_late
-- Tasks whose time is completely over are no longer polled.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE state = 'failed' AND due_at IS NOT NULL AND handler = :handler AND due_at <= {now} AND timed_out_at <= {now} - :late_ms
    ORDER BY due_at LIMIT :n {skip_locked}
)
UPDATE items SET due_at = NULL WHERE id {in picked} AND state = 'failed';

-- name: rescue
-- Items whose worker is gone. If the provider can be asked, an item waits until a request of the lost worker must have arrived.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE state = 'submitting' AND lease_expires_at <= {now} AND lease_expires_at > {now} - CAST(:back_ms AS bigint) AND handler = :handler
      AND (reconcile_after <= {now} OR :askable = 0)
    ORDER BY lease_expires_at LIMIT :n {skip_locked}
)
UPDATE items SET fence = fence + 1, leased_by = :worker, lease_expires_at = {now} + :lease_ms
WHERE id {in picked}
RETURNING {columns Claimed of items, {now} AS claimed_at, items.last_attempt_at AS started_at,
    (SELECT stop_reason FROM jobs WHERE jobs.id = items.job_id) AS stop_reason,
    (SELECT body FROM requests WHERE item_id = items.id) AS body, items.reserved_micros AS reserved, CAST(NULL AS text) AS terms};

-- name: return_lost_claim
-- The items of a claim whose answer never reached its worker: nothing was sent, so they are queued as before.
UPDATE items SET state = 'queued', fence = fence + 1, leased_by = NULL, lease_expires_at = NULL
WHERE state = 'submitting' AND leased_by = :worker AND lease_expires_at IS NOT NULL
RETURNING id, job_id, handler, reserved_micros;

-- name: free_disowned
-- Clears the money set aside for them: otherwise their end would give it back a second time.
UPDATE items SET reserved_micros = 0 FROM {batch(id bigint)} WHERE items.id = batch.id;

-- name: extend
-- Extends the leases of running items. Rows that another transaction has locked, most often the item's settlement, are
-- skipped: that transaction may need the rows locked here next, and each would wait for the other.
WITH picked AS MATERIALIZED (
    SELECT items.id FROM items JOIN {batch(id bigint, fence bigint)} ON items.id = batch.id AND items.fence = batch.fence
    WHERE CASE WHEN items.state = 'submitting' THEN 1 ELSE 0 END <> 0 {skip_locked}
)
UPDATE items SET lease_expires_at = {now} + :lease_ms
WHERE id {in picked}
RETURNING {columns FencedItem};

-- name: held_still
-- Which of these items their worker still holds. An item that is not returned is lost.
SELECT {columns FencedItem of items} FROM items JOIN {batch(id bigint, fence bigint)} ON items.id = batch.id AND items.fence = batch.fence
WHERE CASE WHEN items.state = 'submitting' THEN 1 ELSE 0 END <> 0;

-- name: out_of_time
-- Which of these items a time limit ended while their worker ran them, and no other worker has claimed since.
SELECT {columns FencedItem of batch} FROM items JOIN {batch(id bigint, fence bigint)} ON items.id = batch.id AND items.fence = batch.fence + 1
WHERE CASE WHEN items.state = 'failed' AND items.timed_out_at IS NOT NULL THEN 1 ELSE 0 END <> 0;

-- name: report_progress
-- The progress of running items, from their holder. Rows that another transaction has locked are skipped, as in extend.
WITH picked AS MATERIALIZED (
    SELECT items.id, batch.progress FROM items
    JOIN {batch(id bigint, fence bigint, progress bigint)} ON items.id = batch.id AND items.fence = batch.fence
    WHERE CASE WHEN items.state = 'submitting' THEN 1 ELSE 0 END <> 0 {skip_locked}
)
UPDATE items SET progress = picked.progress
FROM picked
WHERE items.id = picked.id
RETURNING items.id;

-- name: extend_polls
-- The later due_at is the lease of a poll. Items with another fence, or locked by another transaction, are skipped.
WITH picked AS MATERIALIZED (
    SELECT items.id FROM items JOIN {batch(id bigint, fence bigint)} ON items.id = batch.id AND items.fence = batch.fence
    WHERE CASE WHEN items.state = 'processing' AND items.leased_by IS NOT NULL THEN 1 ELSE 0 END <> 0 {skip_locked}
)
UPDATE items SET due_at = {now} + :lease_ms
WHERE id {in picked}
RETURNING id;

-- name: weigh_new
-- The figures of items that were submitted without them.
UPDATE items SET cost_micros = batch.cost, tokens = batch.tokens FROM {batch(id bigint, cost bigint, tokens bigint)}
WHERE items.id = batch.id AND items.cost_micros IS NULL;
