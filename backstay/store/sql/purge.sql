-- How a job that has ended is deleted: it loses its owner at once, so that nobody sees it any more, and then its rows.
-- No owner has an empty name. It stands here as a literal, so that planners know how few such jobs there are.

-- name: disown_job
-- Only when it has ended completely: a batch whose results are being written has not. Not while another job waits for it.
UPDATE jobs SET owner = '', idempotency_key = NULL
WHERE id = :job_id AND owner = :owner AND state IN {JOB_ENDED} AND finished_at IS NOT NULL
  AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.job_id = jobs.id
                  AND batches.status IN {BATCH_OPEN})
  AND NOT EXISTS (SELECT 1 FROM job_links WHERE job_links.after_id = jobs.id)
RETURNING total;

-- name: disowned_jobs
SELECT id FROM jobs WHERE owner = '' ORDER BY id LIMIT :n;

-- name: disowned_job
SELECT id FROM jobs WHERE id = :job_id AND owner = '';

-- name: first_item
SELECT min(id) AS first FROM items WHERE id >= :first AND id < :after;

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

-- name: purge_events
WITH picked AS MATERIALIZED (SELECT batch.subject AS id FROM {batch(subject text)})
DELETE FROM events WHERE subject {in picked};

-- name: purge_batch
-- The batch that a job was, and the files to go with it: the file of requests may serve another, unless it stands for the job.
DELETE FROM batches WHERE job_id = :job_id
RETURNING output_file_id, error_file_id, CASE WHEN adopted > 0 THEN input_file_id END AS input_file_id;

-- name: purge_files
-- Deleted for their owner; their bytes are removed like those of any deleted file.
UPDATE files SET deleted_at = {now}, expires_at = {now}
WHERE deleted_at IS NULL AND id IN (SELECT batch.id FROM {batch(id text)});

-- name: purge_job
DELETE FROM jobs WHERE id = :job_id AND owner = '';
