-- Sweeps: changes because of time (deadlines, job time-outs, moves to another handler), and the end of stopped jobs.

-- name: expire_waiting
-- Items past their deadline that have no task at a provider.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE deadline_at IS NOT NULL AND state IN {ITEM_OPEN} AND deadline_at <= {now}
    AND deadline_at > {now} - CAST(:back_ms AS bigint) AND state IN ('queued', 'submitting')
    ORDER BY deadline_at LIMIT :n {skip_locked}
)
UPDATE items SET state = 'failed', fence = fence + 1, error_code = 'GW_TIMEOUT', timed_out_at = {now},
    finished_at = {now}, leased_by = NULL, lease_expires_at = NULL, due_at = NULL,
    calls = calls + CASE WHEN state = 'submitting' THEN 1 ELSE 0 END,
    flaw = CASE WHEN state = 'submitting' OR repeats > 0 OR ask_first = 1 THEN 'unknown' ELSE flaw END
WHERE id {in picked}
  AND state IN ('queued', 'submitting')
RETURNING {columns EndedItem, {now} AS now};

-- name: expire_processing
-- Items past their deadline whose provider task never ended.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE deadline_at IS NOT NULL AND state IN {ITEM_OPEN} AND deadline_at <= {now}
    AND deadline_at > {now} - CAST(:back_ms AS bigint) AND state = 'processing'
    ORDER BY deadline_at LIMIT :n {skip_locked}
)
UPDATE items SET state = 'failed', fence = fence + 1, error_code = 'GW_TIMEOUT', timed_out_at = {now},
    finished_at = {now}, leased_by = NULL, due_at = {now} + :late_poll_ms, flaw = 'unknown'
WHERE id {in picked}
  AND state = 'processing'
RETURNING {columns EndedItem, {now} AS now};

-- name: stop_overdue_jobs
-- Stops jobs that exceeded their own time limit.
WITH picked AS MATERIALIZED (
    SELECT id FROM jobs WHERE state IN ('queued', 'running') AND timeout_at <= {now}
      AND (stop_reason IS NULL OR stop_reason = 'cancel') AND waits_for IS NULL
    ORDER BY timeout_at LIMIT :n {skip_locked}
)
UPDATE jobs SET held = 1, stop_reason = 'timeout'
WHERE id {in picked}
RETURNING id;

-- name: late_jobs
-- Jobs whose handler's time is over: the remaining items go to another handler.
SELECT {columns LateJob} FROM jobs
WHERE move_at IS NOT NULL AND state IN {JOB_OPEN} AND move_at <= {now} ORDER BY move_at LIMIT :n;

-- name: late_among
-- Those of some jobs whose handler's time is over: items that come back go directly to the next handler.
SELECT {columns LateJob} FROM jobs WHERE id IN (SELECT id FROM {batch(id bigint)}) AND move_at IS NOT NULL AND move_at <= {now}
ORDER BY id;

-- name: jobs_with_next
-- Those of some jobs that have another handler for what the first one cannot do.
SELECT {columns LateJob} FROM jobs WHERE id IN (SELECT id FROM {batch(id bigint)}) AND move_at IS NOT NULL ORDER BY id;

-- name: move_items
-- Moves a chunk of a late job's waiting items to the next handler, at the turn that its queue has reached.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE id >= :first AND id < :after AND state = 'queued' AND handler = :handler
    ORDER BY id LIMIT :n {skip_locked}
), turned AS (SELECT id, row_number() OVER (ORDER BY id) AS turn FROM picked)
UPDATE items SET handler = :handler_then,
    order_key = turned.turn + (
        SELECT coalesce((SELECT served_key FROM turns WHERE handler = :handler_then AND level_key = jobs.level_key), jobs.level_key)
        FROM jobs WHERE jobs.id = items.job_id)
FROM turned WHERE items.id = turned.id AND items.state = 'queued' RETURNING items.id, items.order_key;

-- name: waiting_up_to
-- How many items of a handler are ready, counted up to a bound.
SELECT count(*) AS items FROM (
    SELECT 1 FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler ORDER BY order_key LIMIT :n
) AS ready;

-- name: move_on
-- Moves the next ready items of a handler to its fallback, which sends the same request elsewhere: all of them, or those
-- whose share of the time is over. Items that must be looked up first (ask_first) stay, because an earlier call may have
-- been processed here.
WITH ready AS MATERIALIZED (
    SELECT id, CASE WHEN :time_shares < 2 OR {share_over} THEN 1 ELSE 0 END AS goes FROM items
    WHERE state = 'queued' AND due_at IS NULL AND handler = :handler AND order_key >= :low AND order_key <= :high
      AND +id >= :first AND +id < :after
      AND {in_time} AND {job_not_held} AND ask_first = 0
    ORDER BY order_key LIMIT :n {skip_locked}
), turned AS (
    SELECT id, row_number() OVER (ORDER BY id) AS turn FROM ready WHERE goes = 1
)
UPDATE items SET handler = :handler_next, queued_at = {now}, attempt_count = 0, rescues = 0, round = round + 1,
    refused_at = NULL, provider_task_id = NULL, account = NULL,
    order_key = turned.turn + (
        SELECT coalesce((SELECT served_key FROM turns WHERE handler = :handler_next AND level_key = jobs.level_key), jobs.level_key)
        FROM jobs WHERE jobs.id = items.job_id)
FROM turned WHERE items.id = turned.id AND items.state = 'queued' RETURNING items.id, items.job_id, items.order_key;

-- name: stopping_jobs
-- Jobs that were stopped and still have items to end.
SELECT id, stop_reason FROM jobs WHERE held = 1 AND stop_reason IS NOT NULL AND id > :after ORDER BY id LIMIT :n;

-- name: seal_stopped
-- A stopped job gets no more items, even if its submitter never sealed it.
UPDATE jobs SET sealed = 1 WHERE id = :job_id AND sealed = 0;

-- name: end_queued
-- Ends a chunk of a stopped job's queued items. An item whose call may have been processed is not cancelled: its outcome is
-- unknown. An item that has an answer with a flaw is not cancelled either.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE id >= :first AND id < :after AND state = 'queued'
      AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = :job_id AND jobs.stop_reason = :reason)
    ORDER BY id LIMIT :n {skip_locked}
)
UPDATE items SET fence = fence + 1, finished_at = {now}, due_at = NULL,
    state = CASE WHEN :state = 'cancelled' AND (repeats > 0 OR ask_first = 1 OR flaw IS NOT NULL) THEN 'failed' ELSE :state END,
    error_code = CASE WHEN :state <> 'cancelled' THEN :error_code WHEN repeats > 0 OR ask_first = 1 THEN 'UNKNOWN'
                      WHEN flaw IS NOT NULL THEN error_code ELSE :error_code END,
    flaw = CASE WHEN repeats > 0 OR ask_first = 1 THEN 'unknown' ELSE flaw END,
    timed_out_at = CASE WHEN :state = 'failed' THEN {now} END
WHERE id {in picked}
  AND state = 'queued'
RETURNING {columns EndedItem, {now} AS now};

-- name: show_answers
-- Copies the last answer of an item, one with a flaw, to the attempt that says how the item ended.
UPDATE attempts SET result = (
    SELECT earlier.result FROM attempts AS earlier
    WHERE earlier.item_id = attempts.item_id AND earlier.fence < attempts.fence AND earlier.result IS NOT NULL
    ORDER BY earlier.fence DESC LIMIT 1)
FROM {batch(item_id bigint, fence bigint)} WHERE attempts.item_id = batch.item_id AND attempts.fence = batch.fence;

-- name: end_submitting
-- Ends a chunk of an overdue job's items that a worker holds: the new fence makes the worker's own settlement fail.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE id >= :first AND id < :after AND state = 'submitting'
      AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = :job_id AND jobs.stop_reason = :reason)
    ORDER BY id LIMIT :n {skip_locked}
)
UPDATE items SET state = 'failed', fence = fence + 1, error_code = 'GW_TIMEOUT', finished_at = {now},
    timed_out_at = {now}, leased_by = NULL, lease_expires_at = NULL, calls = calls + 1, flaw = 'unknown'
WHERE id {in picked}
  AND state = 'submitting'
RETURNING {columns EndedItem, {now} AS now};

-- name: end_processing
-- Ends a chunk of an overdue job's items that are tasks at the provider.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE id >= :first AND id < :after AND state = 'processing'
      AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = :job_id AND jobs.stop_reason = :reason)
    ORDER BY id LIMIT :n {skip_locked}
)
UPDATE items SET state = 'failed', fence = fence + 1, error_code = 'GW_TIMEOUT', finished_at = {now},
    timed_out_at = {now}, leased_by = NULL, due_at = {now} + :late_poll_ms, flaw = 'unknown'
WHERE id {in picked}
  AND state = 'processing'
RETURNING {columns EndedItem, {now} AS now};

-- name: end_if_over
-- Ends a stopped job that has no items left to end.
UPDATE jobs SET
    {job_end}
FROM {nothing_moved}
WHERE jobs.id = :job_id AND jobs.stop_reason IS NOT NULL AND jobs.finished_at IS NULL AND {all_ended}
RETURNING jobs.id, jobs.state;

-- name: poll_soon
-- Makes a cancelled job's tasks due now, so that they are cancelled at the provider. Not tasks that a poller is asking
-- about, nor those that are due soon anyway, such as tasks that were polled since the cancel.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE id >= :first AND id < :after AND state = 'processing' AND due_at > {now} + :poll_ms
      AND leased_by IS NULL
    ORDER BY id LIMIT :n {skip_locked}
)
UPDATE items SET due_at = {now}
WHERE id {in picked};
