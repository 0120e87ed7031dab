-- The actions of people on jobs: pause, resume, cancel, retry, change the budget, delete. A deleted job first gets an empty
-- owner, so that no read finds it any more; then its rows are deleted. No real owner has an empty name. It is a literal in
-- the statements, so that planners know how few such jobs there are.

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
-- A chunk of a job's failed items, and for each whether another call may pay again: an earlier call may have been processed
-- and paid, and it cannot be looked up. (An item that can be looked up was claimed with a reconcile_after after its claim.)
-- Archived items are left out, because their requests are not in the database.
SELECT {columns FailedItem of items, {pays_again}}
FROM items JOIN jobs ON jobs.id = items.job_id
WHERE items.id >= :first AND items.id < :after AND items.state = 'failed' AND items.job_id = :job_id
  AND items.archive_id IS NULL AND jobs.owner = :owner AND (jobs.stop_reason IS NULL OR jobs.finished_at IS NOT NULL)
ORDER BY items.id LIMIT :n;

-- name: retry_items
-- Failed items start again because a person retries them: attempts are counted from zero, and the item is ready now or after
-- a wait, from which its time limits count. A request that may have reached the provider keeps its reference, and is looked
-- up first, when it must have arrived. A task of unknown outcome is polled again. A known failure is sent again.
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
-- Reopens a job whose items are retried, with a new time limit that starts when the last of them is ready. A job that had
-- not ended keeps its hold: it may have been paused or cancelled just before.
UPDATE jobs SET failed = failed - :retried, processing = processing + :polled, repeats = repeats + :repeated, finished_at = NULL,
    truncated = truncated - :truncated, refused = refused - :refused, filtered = filtered - :filtered,
    unfinished = unfinished - :unfinished,
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
-- A chunk of parked items of a job that is not paused becomes ready again, at the turn that the queue has reached by now:
-- with their old turns they would go before all other items.
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
SELECT (SELECT due_at FROM items WHERE state = 'queued' AND due_at IS NOT NULL AND due_at > :after ORDER BY due_at LIMIT 1) AS parked_at;

-- name: change_budget
-- A new budget; items that did not fit under the old one may fit now.
UPDATE jobs SET budget_micros = :budget_micros, short = 0 WHERE id = :job_id AND owner = :owner;

-- name: budget_of
SELECT budget_micros FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: unknown_money
SELECT unknown_micros FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: settle_unknown
-- Books some of the money of unknown outcome as spent, or gives it back. No row back: the sum has changed. `payer` is empty
-- for a job whose items may have several handlers, because it is not known which of them made the calls.
UPDATE jobs SET unknown_micros = unknown_micros - :micros, spent_micros = spent_micros + :booked,
    short = CASE WHEN CAST(:booked AS bigint) = 0 THEN 0 ELSE short END
WHERE id = :job_id AND owner = :owner AND unknown_micros = :seen
RETURNING created_at, CASE WHEN handler_then IS NULL AND fallback IS NULL AND NOT EXISTS (
    SELECT 1 FROM endpoints WHERE endpoints.name = jobs.handler AND endpoints.spec LIKE '%"beside"%')
    THEN handler ELSE '' END AS payer;

-- name: weigh_items
-- New figures for the most that calls may cost.
UPDATE items SET cost_micros = batch.cost FROM {batch(id bigint, cost bigint)} WHERE items.id = batch.id;

-- name: disown_job
-- Only if the job has ended completely: not while the results of its batch are being written, nor while another job waits
-- for it.
UPDATE jobs SET owner = '', idempotency_key = NULL
WHERE id = :job_id AND owner = :owner AND state IN {JOB_ENDED} AND finished_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.job_id = jobs.id
                  AND batches.status IN {BATCH_OPEN})
  AND NOT EXISTS (SELECT 1 FROM job_links WHERE job_links.after_id = jobs.id)
RETURNING total, finished_at, succeeded, failed, archived;

-- name: disowned_jobs
SELECT id FROM jobs WHERE owner = '' ORDER BY id LIMIT :n;

-- name: disowned_job
SELECT id FROM jobs WHERE id = :job_id AND owner = '';

-- name: first_item
SELECT (SELECT id FROM items WHERE id >= :first AND id < :after ORDER BY id LIMIT 1) AS first;

-- name: purge_items
DELETE FROM items WHERE id >= :first AND id < :after;

-- name: purge_requests
DELETE FROM requests WHERE item_id >= :first AND item_id < :after;

-- name: purge_attempts
DELETE FROM attempts WHERE item_id >= :first AND item_id < :after;

-- name: purge_copies
DELETE FROM copies WHERE item_id >= :first AND item_id < :after;

-- name: purge_inbox
DELETE FROM inbox WHERE item_id >= :first AND item_id < :after;

-- name: purge_item_keys
DELETE FROM item_keys WHERE item_id >= :first AND item_id < :after;

-- name: purge_answer_keys
DELETE FROM answer_keys WHERE item_id >= :first AND item_id < :after;

-- name: purge_events
WITH picked AS MATERIALIZED (SELECT batch.subject AS id FROM {batch(subject text)})
DELETE FROM events WHERE subject {in picked};

-- name: purge_batch
-- Deletes the batch of a job and returns its files. The input file is returned only if it was made for an adopted run: an
-- uploaded one may belong to other batches as well.
DELETE FROM batches WHERE job_id = :job_id
RETURNING output_file_id, error_file_id, CASE WHEN adopted > 0 THEN input_file_id END AS input_file_id;

-- name: purge_files
-- Deleted for their owner; their bytes are removed like those of any deleted file.
UPDATE files SET deleted_at = {now}, expires_at = {now}
WHERE deleted_at IS NULL AND id IN (SELECT batch.id FROM {batch(id text)});

-- name: purge_job
DELETE FROM jobs WHERE id = :job_id AND owner = '';

-- name: job_state
SELECT {columns JobStanding} FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: item_state
SELECT state, archive_id FROM items WHERE id = :item_id;

-- Pruning: ended jobs that are too old or too many, and the archives of deleted jobs.

-- name: owner_after
-- The next owner who has ended jobs, by one probe of the index. Jobs that are being deleted have the empty owner.
SELECT (SELECT owner FROM jobs WHERE finished_at IS NOT NULL AND owner > :after ORDER BY owner LIMIT 1) AS owner;

-- name: newest_beyond
-- The newest of an owner's ended jobs behind the :keep newest ones.
SELECT finished_at, id FROM jobs WHERE finished_at IS NOT NULL AND owner = :owner
ORDER BY finished_at DESC, id DESC LIMIT 1 OFFSET :keep;

-- name: finished_page
-- An owner's ended jobs, the oldest first, from a cursor on, and whether something still needs them.
SELECT {columns FinishedJob of jobs,
    CASE WHEN EXISTS (SELECT 1 FROM batches WHERE batches.job_id = jobs.id AND batches.status IN {BATCH_OPEN})
           OR EXISTS (SELECT 1 FROM job_links WHERE job_links.after_id = jobs.id) THEN 1 ELSE 0 END AS held}
FROM jobs WHERE finished_at IS NOT NULL AND owner = :owner
  AND (finished_at, id) > (:finished_at, :job_id) AND (finished_at, id) <= (:until_at, :until_id)
  AND state IN {JOB_ENDED}
ORDER BY finished_at, id LIMIT :n;

-- name: kept_items_page
-- A job's items in any state, with their requests.
SELECT {columns KeptItem of items, requests.body AS body}
FROM items LEFT JOIN requests ON requests.item_id = items.id AND requests.item_id > :cursor AND requests.item_id < :after
WHERE items.id > :cursor AND items.id < :after ORDER BY items.id LIMIT :n;

-- name: add_job_archive
INSERT INTO job_archives (job_id, owner, blob, items, bytes, digest, finished_at, created_at)
VALUES (:job_id, :owner, :blob, :items, :bytes, :digest, :finished_at, {now});

-- name: job_archive
SELECT {columns JobArchive} FROM job_archives WHERE job_id = :job_id;
