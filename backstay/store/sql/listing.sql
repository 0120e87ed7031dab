-- Pages of jobs and items for the API. Every page looks at a bounded number of rows, however many there are.

-- name: jobs_chosen
-- Those of an owner's next jobs, newest first, that have a state, a handler, or a text in one of their names.
SELECT {columns JobView}
FROM (SELECT * FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :looked) AS mine
WHERE state = coalesce(CAST(:state AS text), state) AND handler = coalesce(CAST(:handler AS text), handler)
  AND (CAST(:pattern AS text) IS NULL
       OR lower(coalesce(label, '') || ' ' || coalesce(idempotency_key, '') || ' ' || handler) LIKE :pattern ESCAPE '!')
ORDER BY id DESC LIMIT :n;

-- name: jobs_looked
-- How far the page above has read.
SELECT min(id) AS last, count(*) AS looked
FROM (SELECT id FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :looked) AS mine;

-- name: job_counters
SELECT total, processing, succeeded, failed, skipped, cancelled FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: items_page
-- A job's next items. Ids are dense, so the span bounds what is looked at. The values are hidden from the planner in
-- subqueries: it would plan each of them again in a large table, at the cost of the page itself, for the same plan.
SELECT {columns ItemRow, CAST(:owner AS text) AS owner, CAST(NULL AS text) AS message}
FROM items WHERE id > (SELECT CAST(:cursor AS bigint)) AND id <= (SELECT CAST(:upto AS bigint))
  AND state = coalesce((SELECT CAST(:state AS text)), state)
  AND coalesce(error_code, '') = coalesce((SELECT CAST(:error_code AS text)), error_code, '')
ORDER BY id LIMIT :n;

-- name: failed_page
-- A job's next failed items; they have an index.
SELECT {columns ItemRow, CAST(:owner AS text) AS owner, CAST(NULL AS text) AS message}
FROM items WHERE job_id = :job_id AND state = 'failed' AND id > :cursor ORDER BY id LIMIT :n;

-- name: messages_of
-- The errors of the last attempts of some items.
SELECT attempts.item_id, attempts.message FROM {batch(id bigint, fence bigint)}
JOIN attempts ON attempts.item_id = batch.id AND attempts.fence = batch.fence;

-- name: item_shown
-- One item with the error of its last attempt, without its bodies.
SELECT {columns ItemRow of items, jobs.owner AS owner, attempts.message AS message}
FROM items JOIN jobs ON jobs.id = items.job_id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: item_bodies
-- An item's request, and its result if it succeeded.
SELECT {columns Bodies, requests.body AS payload, CASE WHEN items.state = 'succeeded' THEN attempts.result END AS result}
FROM items JOIN jobs ON jobs.id = items.job_id LEFT JOIN requests ON requests.item_id = items.id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: backlog_of
-- What an owner has unfinished, by handler.
SELECT {columns Backlog, count(*) AS jobs, CAST(sum(total - succeeded - failed - skipped - cancelled) AS bigint) AS items,
    CAST(sum(processing) AS bigint) AS processing, min(created_at) AS oldest_at}
FROM jobs WHERE state IN {JOB_OPEN} AND owner = :owner GROUP BY handler ORDER BY handler;

-- name: recent_jobs_of
-- The item counts of an owner's last jobs.
SELECT {columns Recent, count(*) AS jobs, CAST(coalesce(sum(total), 0) AS bigint) AS total,
    CAST(coalesce(sum(succeeded), 0) AS bigint) AS succeeded, CAST(coalesce(sum(failed), 0) AS bigint) AS failed,
    CAST(coalesce(sum(skipped), 0) AS bigint) AS skipped, CAST(coalesce(sum(cancelled), 0) AS bigint) AS cancelled,
    CAST(coalesce(sum(repeats), 0) AS bigint) AS repeats, CAST(coalesce(sum(spent_micros), 0) AS bigint) AS spent_micros,
    CAST(coalesce(sum(unknown_micros), 0) AS bigint) AS unknown_micros}
FROM (SELECT * FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :n) AS mine;
