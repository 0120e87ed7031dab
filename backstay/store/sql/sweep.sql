-- What ends or changes jobs and items because of time or people: deadlines, job timeouts, pause, resume, cancel, retry.

-- name: expire_waiting
-- Items past their deadline that no provider task stands for.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE deadline_at IS NOT NULL AND state IN {ITEM_OPEN} AND deadline_at <= {now}
    AND state IN ('queued', 'submitting')
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
    AND state = 'processing'
    ORDER BY deadline_at LIMIT :n {skip_locked}
)
UPDATE items SET state = 'failed', fence = fence + 1, error_code = 'GW_TIMEOUT', timed_out_at = {now},
    finished_at = {now}, leased_by = NULL, due_at = {now} + :late_poll_ms, flaw = 'unknown'
WHERE id {in picked}
  AND state = 'processing'
RETURNING {columns EndedItem, {now} AS now};

-- name: stop_overdue_jobs
-- Jobs that ran into their own time limit take no more work.
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

-- name: move_items
-- A chunk of a late job's waiting items changes hands, at the turn that the queue of the next handler has reached.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE id >= :first AND id < :after AND state = 'queued' AND handler = :handler
    ORDER BY id LIMIT :n {skip_locked}
), turned AS (SELECT id, row_number() OVER (ORDER BY id) AS turn FROM picked)
UPDATE items SET handler = :handler_then,
    order_key = turned.turn + (
        SELECT coalesce((SELECT served_key FROM turns WHERE handler = :handler_then AND level_key = jobs.level_key), jobs.level_key)
        FROM jobs WHERE jobs.id = items.job_id)
FROM turned WHERE items.id = turned.id AND items.state = 'queued' RETURNING items.id, items.order_key;

-- name: stopping_jobs
-- Jobs that were stopped and still have items to end.
SELECT id, stop_reason FROM jobs WHERE held = 1 AND stop_reason IS NOT NULL AND id > :after ORDER BY id LIMIT :n;

-- name: seal_stopped
-- A stopped job gets no more items, even if its submitter never sealed it.
UPDATE jobs SET sealed = 1 WHERE id = :job_id AND sealed = 0;

-- name: end_queued
-- A chunk of a stopped job's items that nobody holds. An item whose call may have been done is not cancelled, its outcome
-- is unknown; nor is one that has an answer, if not a whole one.
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
-- The last answer that an item had, if not a whole one, is shown with the attempt that tells how it ended.
UPDATE attempts SET result = (
    SELECT earlier.result FROM attempts AS earlier
    WHERE earlier.item_id = attempts.item_id AND earlier.fence < attempts.fence AND earlier.result IS NOT NULL
    ORDER BY earlier.fence DESC LIMIT 1)
FROM {batch(item_id bigint, fence bigint)} WHERE attempts.item_id = batch.item_id AND attempts.fence = batch.fence;

-- name: end_submitting
-- A chunk of an overdue job's items that a worker holds: the fence makes the worker's own answer miss.
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
-- A chunk of an overdue job's items that are tasks at the provider.
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
-- A stopped job with nothing left ends.
UPDATE jobs SET
    {job_end}
FROM {nothing_moved}
WHERE jobs.id = :job_id AND jobs.stop_reason IS NOT NULL AND jobs.finished_at IS NULL AND {all_ended}
RETURNING jobs.id, jobs.state;

-- name: poll_soon
-- A cancelled job's provider tasks are looked at now, to be cancelled there; not those that a poller is asking about, nor
-- those that are due soon anyway, such as all that were looked at since the cancel.
WITH picked AS MATERIALIZED (
    SELECT id FROM items WHERE id >= :first AND id < :after AND state = 'processing' AND due_at > {now} + :poll_ms
      AND leased_by IS NULL
    ORDER BY id LIMIT :n {skip_locked}
)
UPDATE items SET due_at = {now}
WHERE id {in picked};

-- name: pause_job
UPDATE jobs SET state = 'paused', held = 1, paused_at = {now}
WHERE id = :job_id AND owner = :owner AND state IN ('queued', 'running') AND stop_reason IS NULL
RETURNING id;

-- name: resume_job
-- The time a job was paused does not count against its time limit.
UPDATE jobs SET held = 0, paused_at = NULL, timeout_at = timeout_at + ({now} - paused_at),
    state = CASE WHEN started_at IS NULL THEN 'queued' ELSE 'running' END
WHERE id = :job_id AND owner = :owner AND state = 'paused' AND stop_reason IS NULL
RETURNING id;

-- name: cancel_job
UPDATE jobs SET held = 1, stop_reason = 'cancel', stopped_at = {now},
    state = CASE WHEN state = 'paused' THEN 'running' ELSE state END
WHERE id = :job_id AND owner = :owner AND state IN {JOB_OPEN} AND stop_reason IS NULL
RETURNING id;

-- name: failed_items
-- A chunk of a job's failed items, and of each whether another call may pay again: one may have been done and paid, and
-- it cannot be looked up. What can be is claimed with a time until which its request may still turn up. None that is
-- archived: what it asks is not here.
SELECT {columns FailedItem of items, {pays_again}}
FROM items JOIN jobs ON jobs.id = items.job_id
WHERE items.id >= :first AND items.id < :after AND items.state = 'failed' AND items.job_id = :job_id
  AND items.archive_id IS NULL AND jobs.owner = :owner AND (jobs.stop_reason IS NULL OR jobs.finished_at IS NOT NULL)
ORDER BY items.id LIMIT :n;

-- name: retry_items
-- Failed items start again because a person retries them: attempts from zero, ready now or after a wait, timed from
-- then. A request that may have reached the provider keeps its reference, and is looked up first, when it must have landed;
-- a task of unknown outcome is polled again, and nothing is sent; a known failure is sent again.
UPDATE items SET
    state = CASE WHEN flaw = 'unknown' AND provider_task_id IS NOT NULL THEN 'processing' ELSE 'queued' END,
    fence = items.fence + 1, attempt_count = 0, rescues = 0, reserved_micros = 0,
    repeats = repeats + batch.repeat,
    due_at = CASE WHEN {asks_later} THEN reconcile_after
                  WHEN batch.wait_ms > 0 OR (flaw = 'unknown' AND provider_task_id IS NOT NULL) THEN {now} + batch.wait_ms END,
    round = CASE WHEN {asks_first} THEN round
                 WHEN flaw = 'unknown' AND provider_task_id IS NOT NULL THEN round ELSE round + 1 END,
    ask_first = CASE WHEN {asks_first} THEN 1 ELSE 0 END,
    provider_task_id = CASE WHEN flaw = 'unknown' THEN provider_task_id END,
    account = CASE WHEN flaw = 'unknown' AND provider_task_id IS NOT NULL THEN account END,
    error_code = NULL, refused_at = NULL, finished_at = NULL, timed_out_at = NULL, progress = 0,
    queued_at = {back_at},
    deadline_at = deadline_at - queued_at +
        {back_at},
    kept_until = NULL, flaw = NULL,
    order_key = batch.turn + (
        SELECT coalesce((SELECT served_key FROM turns WHERE turns.handler = items.handler AND turns.level_key = jobs.level_key), jobs.level_key)
        FROM jobs WHERE jobs.id = items.job_id)
FROM {batch(id bigint, fence bigint, repeat bigint, wait_ms bigint, turn bigint)}
WHERE items.id = batch.id AND items.fence = batch.fence AND items.archive_id IS NULL
  AND CASE WHEN items.state = 'failed' THEN 1 ELSE 0 END <> 0
RETURNING items.id, items.order_key, items.state;

-- name: reopen_job
-- A job whose items are retried is reopened, with a new time limit, counted from when the last of them comes back.
-- One that was not over keeps its hold: it may have been paused or cancelled a moment ago.
UPDATE jobs SET failed = failed - :retried, processing = processing + :polled, repeats = repeats + :repeated, finished_at = NULL,
    truncated = truncated - :truncated, refused = refused - :refused, filtered = filtered - :filtered,
    timeout_at = {now} + timeout_ms + :wait_ms,
    paused_at = CASE WHEN state = 'paused' THEN {now} END,
    stop_reason = CASE WHEN finished_at IS NULL THEN stop_reason END,
    held = CASE WHEN finished_at IS NULL THEN held ELSE 0 END,
    state = CASE WHEN finished_at IS NULL THEN state WHEN started_at IS NULL THEN 'queued' ELSE 'running' END
WHERE id = :job_id
RETURNING id, state;

-- name: paused_jobs
SELECT id FROM jobs WHERE held = 1 AND stop_reason IS NULL AND state = 'paused' ORDER BY id;

-- name: park
-- Parks a chunk of a paused job's ready items, so that claims need not skip them.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE id > :cursor AND id < :after AND state = 'queued' AND due_at IS NULL
      AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = :job_id AND jobs.state = 'paused')
    ORDER BY id LIMIT :n
)
UPDATE items SET due_at = :parked_at WHERE id {in picked} AND state = 'queued' AND due_at IS NULL RETURNING id;

-- name: unpark
-- A chunk of parked items of a job that is not paused is ready again, at the turn that the queue has reached by now: they
-- must not make all others wait until they have caught up.
WITH picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE state = 'queued' AND due_at IS NOT NULL AND due_at = :parked_at
      AND NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.id = :job_id AND jobs.state = 'paused')
    LIMIT :n
), turned AS (SELECT id, row_number() OVER (ORDER BY id) AS turn FROM picked)
UPDATE items SET due_at = NULL,
    order_key = turned.turn + :turns + (
        SELECT coalesce((SELECT served_key FROM turns WHERE turns.handler = items.handler AND turns.level_key = jobs.level_key), jobs.level_key)
        FROM jobs WHERE jobs.id = items.job_id)
FROM turned WHERE items.id = turned.id AND items.state = 'queued' AND items.due_at = :parked_at
RETURNING items.id, items.order_key;

-- name: next_parked
SELECT min(due_at) AS parked_at FROM items WHERE state = 'queued' AND due_at IS NOT NULL AND due_at > :after;
