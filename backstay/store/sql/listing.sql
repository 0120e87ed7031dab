-- Pages of jobs and items for the API. Every page looks at a bounded number of rows, however many there are.

-- name: jobs_chosen
-- Those of an owner's next jobs, newest first, that have a state, a handler, or a text in one of their names.
SELECT id, owner, handler, state, stop_reason, priority, retry, delivery, label, idempotency_key, sealed, total, processing,
    succeeded, failed, skipped, cancelled, repeats, created_at, started_at, finished_at, timeout_at, deadline_at,
    budget_micros, spent_micros, reserved_micros, unknown_micros, short, input_tokens, output_tokens, truncated, refused,
    filtered
FROM (SELECT * FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :looked) AS mine
WHERE state = coalesce(CAST(:state AS text), state) AND handler = coalesce(CAST(:handler AS text), handler)
  AND (CAST(:pattern AS text) IS NULL
       OR lower(coalesce(label, '') || ' ' || coalesce(idempotency_key, '') || ' ' || handler) LIKE :pattern ESCAPE '!')
ORDER BY id DESC LIMIT :n;

-- name: jobs_looked
-- How far the page above has looked.
SELECT min(id) AS last, count(*) AS looked
FROM (SELECT id FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :looked) AS mine;

-- name: job_counters
SELECT total, processing, succeeded, failed, skipped, cancelled FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: items_page
-- A job's next items. Ids are dense, so the span bounds what is looked at. The values are hidden from the planner in
-- subqueries: it would plan anew for each of them in a large table, at the price of the page itself, for the same plan.
SELECT id, fence, handler, state, attempt_count, calls, repeats, progress, error_code, created_at, queued_at, last_attempt_at,
    finished_at, timed_out_at, deadline_at, due_at, provider_task_id, archive_id, flaw
FROM items WHERE id > (SELECT CAST(:cursor AS bigint)) AND id <= (SELECT CAST(:upto AS bigint))
  AND state = coalesce((SELECT CAST(:state AS text)), state)
  AND coalesce(error_code, '') = coalesce((SELECT CAST(:error_code AS text)), error_code, '')
ORDER BY id LIMIT :n;

-- name: failed_page
-- A job's next failed items; they have an index.
SELECT id, fence, handler, state, attempt_count, calls, repeats, progress, error_code, created_at, queued_at, last_attempt_at,
    finished_at, timed_out_at, deadline_at, due_at, provider_task_id, archive_id, flaw
FROM items WHERE job_id = :job_id AND state = 'failed' AND id > :cursor ORDER BY id LIMIT :n;

-- name: messages_of
-- What the last attempts of some items said.
SELECT attempts.item_id, attempts.message FROM {batch(id bigint, fence bigint)}
JOIN attempts ON attempts.item_id = batch.id AND attempts.fence = batch.fence;

-- name: item_shown
-- One item with what its last attempt said, without its bodies.
SELECT items.id, items.fence, items.handler, items.state, items.attempt_count, items.calls, items.repeats, items.progress,
    items.error_code, items.created_at, items.queued_at, items.last_attempt_at, items.finished_at, items.timed_out_at,
    items.deadline_at, items.due_at, items.provider_task_id, items.archive_id, items.flaw, attempts.message
FROM items JOIN jobs ON jobs.id = items.job_id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: item_bodies
-- What an item asks, and what came of it, if it succeeded.
SELECT requests.body, CASE WHEN items.state = 'succeeded' THEN attempts.result END AS result
FROM items JOIN jobs ON jobs.id = items.job_id LEFT JOIN requests ON requests.item_id = items.id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: backlog_of
-- What an owner has unfinished, by handler.
SELECT handler, count(*) AS jobs, CAST(sum(total - succeeded - failed - skipped - cancelled) AS bigint) AS items,
    CAST(sum(processing) AS bigint) AS processing, min(created_at) AS oldest_at
FROM jobs WHERE state IN ('queued', 'running', 'paused') AND owner = :owner GROUP BY handler ORDER BY handler;

-- name: recent_jobs_of
-- What became of the items of an owner's last jobs.
SELECT count(*) AS jobs, CAST(coalesce(sum(total), 0) AS bigint) AS total,
    CAST(coalesce(sum(succeeded), 0) AS bigint) AS succeeded, CAST(coalesce(sum(failed), 0) AS bigint) AS failed,
    CAST(coalesce(sum(skipped), 0) AS bigint) AS skipped, CAST(coalesce(sum(cancelled), 0) AS bigint) AS cancelled,
    CAST(coalesce(sum(repeats), 0) AS bigint) AS repeats, CAST(coalesce(sum(spent_micros), 0) AS bigint) AS spent_micros,
    CAST(coalesce(sum(unknown_micros), 0) AS bigint) AS unknown_micros
FROM (SELECT * FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :n) AS mine;
