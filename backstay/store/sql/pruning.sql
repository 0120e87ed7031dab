-- Pruning: ended jobs that are too old or too many, and the archives of deleted jobs.

-- name: owner_after
-- The next owner who has ended jobs, by one probe of the index. Jobs that are being deleted have the empty owner.
SELECT min(owner) AS owner FROM jobs WHERE finished_at IS NOT NULL AND owner > :after;

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
