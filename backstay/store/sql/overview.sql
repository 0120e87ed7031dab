-- What an operator looks at: each statement reads a bounded number of rows, however many there are. The owner of an item is
-- looked up row by row: for a join PostgreSQL would read all jobs.

-- name: open_jobs_of
-- An owner's unfinished jobs, newest first.
SELECT {columns JobView}
FROM jobs WHERE state IN {JOB_OPEN} AND owner = :owner ORDER BY id DESC LIMIT :n;

-- name: stuck_of
-- How many of an owner's items no worker has taken over after their worker was lost. Among the first thousand of all.
SELECT count(*) AS items FROM (
    SELECT job_id FROM items WHERE state = 'submitting' AND lease_expires_at <= {now} AND reconcile_after <= {now}
    ORDER BY lease_expires_at LIMIT 1000) AS stuck
WHERE (SELECT owner FROM jobs WHERE jobs.id = stuck.job_id) = :owner;

-- name: dead_since
-- How many of an owner's items failed recently, counted up to a bound, among the latest of all owners.
SELECT count(*) AS items FROM (SELECT 1 AS letter FROM (
    SELECT job_id FROM items WHERE state = 'failed' AND archive_id IS NULL AND finished_at > {now} - CAST(:age_ms AS bigint)
    ORDER BY finished_at DESC, id DESC LIMIT :looked) AS dead
WHERE (SELECT owner FROM jobs WHERE jobs.id = dead.job_id) = :owner LIMIT :n) AS mine;

-- name: unknown_of
-- How many of an owner's failed items have an unknown outcome, counted up to a bound, among the latest of all owners.
SELECT count(*) AS items FROM (SELECT 1 AS letter FROM (
    SELECT job_id FROM items WHERE state = 'failed' AND flaw = 'unknown' AND archive_id IS NULL
    ORDER BY finished_at DESC, id DESC LIMIT :looked) AS dead
WHERE (SELECT owner FROM jobs WHERE jobs.id = dead.job_id) = :owner LIMIT :n) AS mine;

-- name: oldest_waiting
-- When an owner's oldest item that could be started now was queued, of one handler. Of the first thousand in the queue.
SELECT min(waiting.queued_at) AS queued_at FROM (
    SELECT job_id, queued_at FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
    ORDER BY order_key LIMIT 1000) AS waiting
WHERE (SELECT owner FROM jobs WHERE jobs.id = waiting.job_id) = :owner;

-- name: events_last
-- The latest acts about a subject, newest first.
SELECT {columns EventView} FROM events WHERE subject = :subject ORDER BY id DESC LIMIT :n;

-- name: paces
SELECT {columns Pace} FROM paces ORDER BY provider;

-- name: leases
-- What is being sent now, by handler and by whose claim. As many rows at most as there are leases.
SELECT {columns Lease, count(*) AS items} FROM (
    SELECT handler, leased_by FROM items WHERE state = 'submitting' AND lease_expires_at > {now}
    ORDER BY lease_expires_at LIMIT :n) AS held
GROUP BY handler, leased_by;

-- name: tasks_of
-- An owner's items that are at a provider, by account, of those that are polled next.
SELECT {columns ProviderTasks of due, count(*) AS items, min(due.id) AS example, min(due.provider_task_id) AS task} FROM (
    SELECT id, job_id, coalesce(account, '') AS account, provider_task_id FROM items
    WHERE state = 'processing' AND handler = :handler ORDER BY due_at LIMIT :n) AS due
WHERE (SELECT owner FROM jobs WHERE jobs.id = due.job_id) = :owner GROUP BY due.account ORDER BY due.account;

-- name: late_of
-- The results that came late for one item, the last first.
SELECT {columns LateResult of inbox, inbox.id AS number, items.state AS item_state, items.deadline_at AS deadline_at}
FROM inbox JOIN items ON items.id = inbox.item_id JOIN jobs ON jobs.id = items.job_id
WHERE inbox.item_id = :item_id AND inbox.is_late = 1 AND inbox.kind = 'succeeded' AND jobs.owner = :owner
ORDER BY inbox.id DESC LIMIT :n;

-- name: dead_costs
-- What the first failed items of some jobs have cost, by error.
SELECT coalesce(error_code, 'UNKNOWN') AS error_code, CAST(sum(
    (SELECT sum(attempts.cost_micros) FROM attempts WHERE attempts.item_id = failures.id)) AS bigint) AS cost_micros
FROM (SELECT items.id, items.error_code FROM {batch(job_id bigint)}
      JOIN items ON items.job_id = batch.job_id AND items.state = 'failed'
          AND items.archive_id IS NULL LIMIT :n) AS failures
GROUP BY coalesce(error_code, 'UNKNOWN');
