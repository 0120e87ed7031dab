-- Archives: failed items whose bodies were moved to a file.

-- name: letters_oldest
-- Failed items that are not archived, the oldest failures first, from a cursor on: their owners, their errors, and whether
-- they can be archived. They cannot while their job runs or its results are being written, nor soon after a restore.
SELECT {columns Candidate of letters, {now} - letters.finished_at AS age_ms,
    (SELECT owner FROM jobs WHERE jobs.id = letters.job_id) AS owner,
    coalesce((SELECT 1 FROM jobs WHERE jobs.id = letters.job_id AND jobs.state IN {JOB_ENDED}
              AND jobs.finished_at <= {now} - CAST(:quiet_ms AS bigint) AND coalesce(letters.kept_until, 0) <= {now}
              AND (SELECT 1 FROM batches WHERE batches.job_id = letters.job_id
                   AND batches.status IN {BATCH_OPEN}) IS NULL), 0) AS free}
FROM (SELECT id, fence, finished_at, error_code, job_id, kept_until FROM items
      WHERE state = 'failed' AND archive_id IS NULL AND (finished_at, id) > (:finished_at, :item_id)
      ORDER BY finished_at, id LIMIT :n) AS letters
ORDER BY letters.finished_at, letters.id;

-- name: letters_newest
-- The same, the newest failures first, only with their owners.
SELECT letters.id, letters.finished_at, (SELECT owner FROM jobs WHERE jobs.id = letters.job_id) AS owner
FROM (SELECT id, finished_at, job_id FROM items
      WHERE state = 'failed' AND archive_id IS NULL AND (finished_at, id) < (:finished_at, :item_id)
      ORDER BY finished_at DESC, id DESC LIMIT :n) AS letters
ORDER BY letters.finished_at DESC, letters.id DESC;

-- name: letters_measured
-- The size of some items' texts in bytes, without reading them out.
SELECT batch.id,
    coalesce((SELECT length(CAST(body AS blob)) FROM requests WHERE item_id = batch.id), 0)
    + coalesce((SELECT sum(coalesce(length(CAST(message AS blob)), 0) + coalesce(length(CAST(result AS blob)), 0))
                FROM attempts WHERE item_id = batch.id), 0)
    + coalesce((SELECT sum(length(CAST(body AS blob))) FROM inbox WHERE item_id = batch.id), 0) AS bytes
FROM {batch(id bigint)};

-- name: letters_measured.postgres
-- why: PostgreSQL knows the octet_length of a long text without reading it.
SELECT batch.id, CAST(
    coalesce((SELECT octet_length(body) FROM requests WHERE item_id = batch.id), 0)
    + coalesce((SELECT sum(coalesce(octet_length(message), 0) + coalesce(octet_length(result), 0))
                FROM attempts WHERE item_id = batch.id), 0)
    + coalesce((SELECT sum(octet_length(body)) FROM inbox WHERE item_id = batch.id), 0) AS bigint) AS bytes
FROM {batch(id bigint)};

-- name: letters_of
SELECT {columns LetterHead of items, requests.body AS body}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id LEFT JOIN requests ON requests.item_id = items.id
WHERE items.state = 'failed' AND items.archive_id IS NULL ORDER BY items.id;

-- name: attempts_of
WITH picked AS MATERIALIZED (SELECT batch.id FROM {batch(id bigint)})
SELECT {columns Attempt}
FROM attempts WHERE item_id {in picked} ORDER BY item_id, fence;

-- name: inbox_of
WITH picked AS MATERIALIZED (SELECT batch.id FROM {batch(id bigint)})
SELECT id, {fields LetterMessage}
FROM inbox WHERE item_id {in picked} ORDER BY id;

-- name: events_of
WITH picked AS MATERIALIZED (SELECT batch.subject AS id FROM {batch(subject text)})
SELECT id, {fields LetterEvent} FROM events WHERE subject {in picked} ORDER BY id;

-- name: add_archive
INSERT INTO archives (owner, blob, items, bytes, digest, first_at, last_at, created_at)
VALUES (:owner, :blob, :items, :bytes, :digest, :first_at, :last_at, {now}) RETURNING id;

-- name: archive_items
-- Items that were retried, accepted or archived by another process meanwhile are not among the rows that come back.
UPDATE items SET archive_id = :archive_id, kept_until = NULL FROM {batch(id bigint, fence bigint)}
WHERE items.id = batch.id AND items.fence = batch.fence AND items.state = 'failed' AND items.archive_id IS NULL
RETURNING items.id;

-- name: archive_in_jobs
-- The lock on a job makes its deletion wait, so that it finds the archives of all its items.
UPDATE jobs SET archived = archived + batch.items FROM {batch(job_id bigint, items bigint)}
WHERE jobs.id = batch.job_id AND jobs.owner = :owner
RETURNING jobs.id;

-- name: write_bodies
UPDATE requests SET body = batch.body FROM {batch(id bigint, body text)} WHERE requests.item_id = batch.id;

-- name: write_texts
UPDATE attempts SET message = batch.message, result = batch.result
FROM {batch(item_id bigint, fence bigint, message text, result text)}
WHERE attempts.item_id = batch.item_id AND attempts.fence = batch.fence;

-- name: archive_messages
DELETE FROM inbox WHERE id IN (SELECT id FROM {batch(id bigint)});

-- name: archive_events
DELETE FROM events WHERE id IN (SELECT id FROM {batch(id bigint)});

-- name: archive
SELECT {columns Archive} FROM archives WHERE id = :archive_id;

-- name: archives_page
SELECT {columns Archive} FROM archives
WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :n;

-- name: blobs_kept
-- Which of some files hold the only copy of something.
SELECT batch.blob FROM {batch(blob text)}
WHERE EXISTS (SELECT 1 FROM archives WHERE archives.blob = batch.blob AND archives.restored_at IS NULL)
   OR EXISTS (SELECT 1 FROM job_archives WHERE job_archives.blob = batch.blob);

-- name: restore_items
UPDATE items SET archive_id = NULL, kept_until = {now} + CAST(:keep_ms AS bigint) FROM {batch(id bigint)}
WHERE items.id = batch.id AND items.archive_id = :archive_id AND items.state = 'failed'
  AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = items.job_id AND jobs.owner = :owner)
RETURNING items.id;

-- name: restore_inbox
-- A message that came again meanwhile exists already.
INSERT INTO inbox ({fields LetterMessage}) SELECT {fields LetterMessage} FROM {batch LetterMessage}
WHERE true
ON CONFLICT (item_id, digest) DO NOTHING;

-- name: restore_events
INSERT INTO events ({fields LetterEvent}) SELECT {fields LetterEvent} FROM {batch LetterEvent} WHERE true;

-- name: end_restore
UPDATE archives SET restored_at = {now} WHERE id = :archive_id AND restored_at IS NULL;

-- name: archives_of_job
SELECT DISTINCT archive_id FROM items WHERE job_id = :job_id AND state = 'failed' AND archive_id IS NOT NULL;

-- name: replace_archive
UPDATE archives SET blob = :blob, digest = :digest, bytes = :bytes, items = :items WHERE id = :archive_id AND blob = :old
RETURNING id;

-- name: drop_archive
DELETE FROM archives WHERE id = :archive_id AND blob = :old RETURNING id;
