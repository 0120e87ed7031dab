-- The reads of jobs. Every statement reads a bounded number of rows, however many there are.

-- name: job
SELECT {columns JobView, {all_counts} {short_now} AS short} FROM jobs {counted_apart} WHERE id = :job_id AND owner = :owner;

-- name: job_at_end
-- No row: the job continues, or does not exist.
SELECT {columns JobView, {all_counts} {short_now} AS short} FROM jobs {counted_apart}
WHERE id = :job_id AND owner = :owner AND (short <> 0 OR state IN {JOB_ENDED});

-- name: jobs_page
-- An owner's jobs, newest first, from a cursor on.
SELECT {columns JobView, {all_counts} {short_now} AS short} FROM jobs {counted_apart}
WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :n;

-- name: jobs_chosen
-- The next jobs of an owner, newest first, that match a state, a handler, or a text in their label, key or handler.
WITH looked AS (SELECT id FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :looked)
SELECT {columns JobView of jobs, {all_counts} {short_now} AS short}
FROM jobs {counted_apart}
WHERE jobs.id {in looked} AND state = coalesce(CAST(:state AS text), state) AND handler = coalesce(CAST(:handler AS text), handler)
  AND (CAST(:pattern AS text) IS NULL
       OR lower(coalesce(label, '') || ' ' || coalesce(idempotency_key, '') || ' ' || handler) LIKE :pattern ESCAPE '!')
ORDER BY jobs.id DESC LIMIT :n;

-- name: jobs_looked
-- How far the page above has read.
SELECT min(id) AS last, count(*) AS looked
FROM (SELECT id FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :looked) AS mine;

-- name: jobs_seen
SELECT {columns JobView of jobs, {all_counts} {short_now} AS short}
FROM {batch(id bigint, owner text)} JOIN jobs ON jobs.id = batch.id AND jobs.owner = batch.owner {counted_apart};

-- name: job_failures
-- Why a job's items failed, for the first of them.
SELECT {columns FailureGroup, count(*) AS items, min(id) AS example} FROM (SELECT id, error_code, flaw FROM items WHERE job_id = :job_id AND state = 'failed' ORDER BY id LIMIT :n) AS failures
GROUP BY error_code, flaw ORDER BY items DESC, error_code, flaw;

-- name: count_retries
-- How often failed items of a job were queued again: each chunk of them writes one event of the job.
SELECT count(*) AS retries FROM events WHERE subject = :subject AND act IN ('retried', 'replayed');

-- name: under_way
-- How many of a job's items are being sent, and how many wait for another try. Both are few, and have indexes; the plus
-- keeps SQLite from reading the whole job along its primary key instead.
SELECT {columns UnderWay,
    (SELECT count(*) FROM items WHERE state = 'submitting' AND lease_expires_at > {now}
        AND +id >= :first AND +id < :after) AS sending,
    (SELECT count(*) FROM items WHERE state = 'queued' AND due_at IS NOT NULL
        AND +id >= :first AND +id < :after) AS waiting};

-- name: backlog
-- The unfinished jobs and items, by handler, from the jobs' counters.
SELECT {columns Backlog, count(*) AS jobs, CAST(sum(total - succeeded - failed - skipped - cancelled) AS bigint) AS items,
    CAST(sum(processing) AS bigint) AS processing, min(created_at) AS oldest_at}
FROM jobs WHERE state IN {JOB_OPEN} GROUP BY handler ORDER BY handler;

-- name: backlog_of
-- The same for one owner.
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

-- name: open_jobs_of
-- An owner's unfinished jobs, newest first.
SELECT {columns JobView, {all_counts} {short_now} AS short}
FROM jobs {counted_apart} WHERE state IN {JOB_OPEN} AND owner = :owner ORDER BY id DESC LIMIT :n;

-- name: ceilings
-- The largest share of a budget that an unfinished job has used, and how many jobs wait because of their budgets.
SELECT {columns Ceilings, coalesce(max(CASE WHEN budget_micros > 0 THEN
        (spent_micros + reserved_micros + unknown_micros) / CAST(budget_micros AS double precision) END), 0) AS used,
    CAST(coalesce(sum(CASE WHEN {short_now} = 1 AND reserved_micros = 0 THEN 1 ELSE 0 END), 0) AS bigint) AS held}
FROM jobs WHERE state IN {JOB_OPEN};

-- name: unsealed_jobs
-- Jobs that have been open for new items for a long time.
SELECT id, {now} - created_at AS age_ms FROM jobs
WHERE state IN {JOB_OPEN} AND sealed = 0 AND waits_for IS NULL AND created_at < {now} - :age_ms ORDER BY id LIMIT :n;

-- name: waits_at
-- Whether an item of a job waits in the queue of one handler. The job's keys bound the range of the index, as in pick_of_job.
SELECT (SELECT id FROM items
    WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
      AND order_key >= (SELECT first_key FROM jobs WHERE id = :job_id)
      AND order_key <= (SELECT last_key FROM jobs WHERE id = :job_id)
      AND +id >= :first AND +id < :after
    ORDER BY order_key LIMIT 1) IS NOT NULL AS waits;

-- name: due_handlers
-- The handlers of a job's items that wait for a time, among the first thousand such items of all jobs.
SELECT DISTINCT due.handler FROM (
    SELECT id, handler FROM items WHERE state = 'queued' AND due_at IS NOT NULL ORDER BY due_at LIMIT 1000) AS due
WHERE due.id >= :first AND due.id < :after;

-- name: short_jobs
-- Jobs whose next item does not fit under their budget, and that have no money under way.
SELECT id FROM jobs WHERE short = 1 AND {short_now} = 1 AND reserved_micros = 0 AND state IN {JOB_OPEN}
ORDER BY id LIMIT :n;

-- name: unsent_page
-- A job's items that may still be sent, with the most that each may cost and its request, from a cursor on: those without
-- such a figure, or all. Both tables have the span, as in results_page.
SELECT {columns UnsentItem of items, requests.body AS body}
FROM items JOIN requests ON requests.item_id = items.id AND requests.item_id > :cursor AND requests.item_id < :after
WHERE items.id > :cursor AND items.id < :after AND items.state IN ('queued', 'submitting', 'processing', 'failed')
  AND items.archive_id IS NULL AND (items.cost_micros IS NULL OR :weighed_too = 1)
ORDER BY items.id LIMIT :n;

-- name: answered_by
-- How many items of a job succeeded at each handler. It counts rows, so it is for the end of a run.
SELECT handler, count(*) AS items FROM items WHERE id >= :first AND id < :after AND state = 'succeeded'
GROUP BY handler ORDER BY handler;

-- name: next_cost
-- The most that the next item of a job may cost: the one that does not fit, if the budget is too small for it.
SELECT cost_micros FROM items WHERE id >= :first AND id < :after AND state = 'queued' AND due_at IS NULL
ORDER BY id LIMIT 1;
