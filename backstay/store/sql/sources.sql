-- Sources: the files that items are made from.

-- name: bodies_with_sources
-- Of the named items those whose handler works on a file, with what they say about it.
SELECT items.id, requests.body FROM {batch(id bigint)}
JOIN items ON items.id = batch.id JOIN requests ON requests.item_id = items.id
WHERE items.handler = 'gateway';

-- name: files_there
-- Which of the named files an owner still has.
SELECT files.id FROM {batch(id text)} JOIN files ON files.id = batch.id
WHERE files.owner = :owner AND files.blob IS NOT NULL AND files.deleted_at IS NULL
  AND (files.expires_at IS NULL OR files.expires_at > {now});

-- name: file_expired
-- Whether an owner's file has had its time; one that its owner deleted has not, it is just not there.
SELECT id FROM files
WHERE id = :id AND owner = :owner AND expires_at <= {now} AND (deleted_at IS NULL OR deleted_at > expires_at);
