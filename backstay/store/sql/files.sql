-- Files: uploads, and the input and output files of batches and jobs.

-- name: expect_blob
-- An artifact is about to be written. A hidden row records it, and expires unless a file is made of it.
INSERT INTO files (id, owner, filename, purpose, bytes, created_at, expires_at, deleted_at, blob)
VALUES ('expected:' || CAST(:blob AS text), :owner, '', 'expected', 0, {now}, {now} + CAST(:lives_ms AS bigint), {now},
        CAST(:blob AS text));

-- name: take_expected
-- No row back: it has expired, and its bytes are being deleted.
DELETE FROM files WHERE id = 'expected:' || CAST(:blob AS text) AND expires_at > {now} RETURNING id;

-- name: forget_expected
DELETE FROM files WHERE id = 'expected:' || CAST(:blob AS text);

-- name: add_file
-- No row back: it exists already.
INSERT INTO files (id, owner, filename, purpose, bytes, created_at, expires_at, blob, job_id, part, survey)
VALUES (:id, :owner, :filename, :purpose, :bytes, {now}, {now} + CAST(:lives_ms AS bigint), :blob, :job_id, :part, :survey)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: file
-- A file that is neither deleted nor expired.
SELECT {columns StoredFile}
FROM files WHERE id = :id AND owner = :owner AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > {now});

-- name: file_source
-- The input file of a batch, even if its owner has deleted it meanwhile.
SELECT {columns StoredFile, NULL AS survey}
FROM files WHERE id = :id AND owner = :owner AND (blob IS NOT NULL OR job_id IS NOT NULL);

-- name: file_place
-- Where the next page begins, even if the file itself is gone by now.
SELECT created_at, id FROM files WHERE id = :id AND owner = :owner;

-- name: files_newest
SELECT {columns StoredFile, NULL AS survey}
FROM files WHERE owner = :owner AND (created_at, id) < (:created_at, :id)
  AND (CAST(:purpose AS text) IS NULL OR purpose = :purpose)
  AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > {now})
ORDER BY created_at DESC, id DESC LIMIT :n;

-- name: files_oldest
SELECT {columns StoredFile, NULL AS survey}
FROM files WHERE owner = :owner AND (created_at, id) > (:created_at, :id)
  AND (CAST(:purpose AS text) IS NULL OR purpose = :purpose)
  AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > {now})
ORDER BY created_at, id LIMIT :n;

-- name: delete_file
-- The file is deleted for its owner at once; its bytes are deleted when no batch reads them any more.
UPDATE files SET deleted_at = {now}, expires_at = {now}
WHERE id = :id AND owner = :owner AND deleted_at IS NULL AND (expires_at IS NULL OR expires_at > {now})
RETURNING id;

-- name: idle_blobs
-- Files whose bytes can be deleted, except input files that a batch still reads.
SELECT id, blob FROM files
WHERE expires_at <= {now} AND blob IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM batches LEFT JOIN jobs ON jobs.id = batches.job_id
    WHERE batches.status IN {BATCH_OPEN} AND batches.input_file_id = files.id
      AND (coalesce(jobs.sealed, 0) = 0 OR coalesce(jobs.total, 0) < batches.requests))
ORDER BY expires_at LIMIT :n;

-- name: forget_blob
UPDATE files SET blob = NULL, deleted_at = coalesce(deleted_at, {now}) WHERE id = :id;

-- name: count_bytes
-- Stores the size of a file that is made from its job, after it was read once.
UPDATE files SET bytes = :bytes WHERE id = :id;

-- name: bodies_with_sources
-- Of the named items, those whose handler works on a file, with their requests.
SELECT items.id, requests.body FROM {batch(id bigint)}
JOIN items ON items.id = batch.id JOIN requests ON requests.item_id = items.id
WHERE items.handler = 'gateway';

-- name: files_there
-- Which of the named files an owner still has.
SELECT files.id FROM {batch(id text)} JOIN files ON files.id = batch.id
WHERE files.owner = :owner AND files.blob IS NOT NULL AND files.deleted_at IS NULL
  AND (files.expires_at IS NULL OR files.expires_at > {now});

-- name: file_expired
-- Whether an owner's file has expired. A file that its owner deleted has not expired; it does not exist.
SELECT id FROM files
WHERE id = :id AND owner = :owner AND expires_at <= {now} AND (deleted_at IS NULL OR deleted_at > expires_at);
