-- Jobs that wait for others. A link is deleted when its job starts or ends, so the table stays small.

-- name: lock_jobs
-- Locks some jobs of one owner, in order: a job that ends at this time must see the new links to it, or be found as ended.
SELECT id FROM jobs WHERE id IN (SELECT batch.id FROM {batch(id bigint)}) AND owner = :owner ORDER BY id {for_update};

-- name: link_job
INSERT INTO job_links (job_id, number, after_id, takes, feeds, ended)
SELECT :job_id, batch.number, batch.after_id, :takes, :feeds,
    CASE WHEN (SELECT finished_at FROM jobs WHERE jobs.id = batch.after_id) IS NULL THEN 0 ELSE 1 END
FROM {batch(number bigint, after_id bigint)};

-- name: ready_links
-- Waiting jobs that can start, or that never will, from a cursor on. Only links to jobs that have ended are read.
SELECT DISTINCT job_links.job_id FROM job_links
JOIN jobs AS own ON own.id = job_links.job_id
LEFT JOIN jobs AS earlier ON earlier.id = job_links.after_id
WHERE job_links.ended = 1 AND job_links.job_id > :after AND own.state <> 'paused'
  AND (earlier.id IS NULL OR earlier.owner = '' OR earlier.state = 'cancelled'
       OR (earlier.state = 'failed' AND job_links.takes = 'succeeded')
       OR NOT EXISTS (SELECT 1 FROM job_links AS other JOIN jobs ON jobs.id = other.after_id
                      WHERE other.job_id = job_links.job_id AND jobs.finished_at IS NULL))
ORDER BY job_links.job_id LIMIT :n;

-- name: lock_waiting
-- Locks a waiting job, for the one process that starts it. No row: another process is doing it, or the job does not wait.
SELECT {columns WaitingJob} FROM jobs
WHERE id = :job_id AND waits_for IS NOT NULL AND finished_at IS NULL AND stop_reason IS NULL AND state <> 'paused' {skip_locked};

-- name: links_of
-- The jobs that a job waits for, in the order that its submitter gave.
SELECT {columns JobLink of job_links, jobs.state AS state, jobs.owner AS owner}
FROM job_links LEFT JOIN jobs ON jobs.id = job_links.after_id WHERE job_links.job_id = :job_id ORDER BY number;

-- name: begin_waiting
-- A job whose wait is over: its time limit counts from now, and its items take the turns that their queue has reached.
UPDATE jobs SET timeout_at = {now} + timeout_ms,
    first_key = coalesce((SELECT served_key FROM turns WHERE turns.handler = jobs.handler AND turns.level_key = jobs.level_key), level_key),
    last_key = total + coalesce((SELECT served_key FROM turns WHERE turns.handler = jobs.handler AND turns.level_key = jobs.level_key), level_key)
WHERE id = :job_id RETURNING first_key;

-- name: fed_page
-- The next items of an earlier job with the sizes of their results. Items in any state: so a page reads a bounded number.
SELECT items.id, items.state, coalesce(length(attempts.result), 0) AS characters
FROM items LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
    AND attempts.item_id > :cursor AND attempts.item_id < :after
WHERE items.id > :cursor AND items.id < :after ORDER BY items.id LIMIT :n;

-- name: fed_results
SELECT {columns FedResult of items, attempts.message AS message, attempts.result AS result}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence ORDER BY items.id;

-- name: move_link
UPDATE job_links SET cursor = :cursor WHERE job_id = :job_id AND number = :number;

-- name: end_wait
UPDATE jobs SET waits_for = NULL WHERE id = :job_id;

-- name: drop_links
DELETE FROM job_links WHERE job_id = :job_id;

-- name: cancel_waiting
-- Cancels a job that can never start, or has nothing to do.
UPDATE jobs SET held = 1, stop_reason = 'cancel', stopped_at = {now}, waits_for = NULL
WHERE id = :job_id AND state IN {JOB_OPEN} AND stop_reason IS NULL RETURNING id;

-- name: waiting_on
-- A job that waits for this one.
SELECT job_id FROM job_links WHERE after_id = :job_id ORDER BY job_id LIMIT 1;
