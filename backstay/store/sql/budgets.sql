-- Budgets that several jobs share. Their rows are locked after those of jobs, in the order of their ids.

-- name: budgets
SELECT {columns Budget} FROM budgets ORDER BY owner, handler, period;

-- name: wait_for_payments
-- Before a budget is made. SQLite has one writer at a time, so nothing needs to be awaited.
SELECT 0 AS waited;

-- name: wait_for_payments.postgres
-- why: no other transaction may move money until this one ends, and the next statements see what the others have committed.
SELECT pg_advisory_xact_lock({budgets_lock}) AS waited;

-- name: lock_budgets
-- Those that cover one of some pairs of owner and handler, with the time.
SELECT {fields Budget}, {now} AS now FROM budgets
WHERE EXISTS (SELECT 1 FROM {batch(owner text, handler text)}
              WHERE budgets.owner IN ('', batch.owner) AND (budgets.handler IN ('', batch.handler)
                  OR (substr(budgets.handler, 1, 1) = '@' AND replace(batch.handler, budgets.handler || '#', '') <> batch.handler)))
ORDER BY id {for_update};

-- name: lock_budget
SELECT {fields Budget}, {now} AS now FROM budgets
WHERE owner = :owner AND handler = :handler AND period = :period {for_update};

-- name: save_budgets
UPDATE budgets SET used_micros = batch.used_micros, reserved_micros = batch.reserved_micros,
    since_at = batch.since_at, ends_at = batch.ends_at, renewals = batch.renewals
FROM {batch(id bigint, used_micros bigint, reserved_micros bigint, since_at bigint, ends_at bigint, renewals bigint)}
WHERE budgets.id = batch.id;

-- name: set_budget
-- A new ceiling counts what was used before; one that did not exist starts with nothing used.
INSERT INTO budgets (owner, handler, period, limit_micros) VALUES (:owner, :handler, :period, :limit_micros)
ON CONFLICT (owner, handler, period) DO UPDATE SET limit_micros = excluded.limit_micros, renewals = budgets.renewals + 1
RETURNING {columns Budget};

-- name: remove_budget
DELETE FROM budgets WHERE owner = :owner AND handler = :handler AND period = :period RETURNING id;

-- name: under_way_of
-- What is set aside now for the jobs that a new budget covers.
SELECT CAST(coalesce(sum(reserved_micros), 0) AS bigint) AS reserved FROM jobs
WHERE state IN {JOB_OPEN} AND reserved_micros > 0 AND (CAST(:owner AS text) = '' OR owner = :owner);

-- name: under_way_at
-- The same for one handler. A job may have items of several, so the calls that are under way are added up.
SELECT CAST(coalesce(sum(calls.reserved_micros), 0) AS bigint) AS reserved FROM (
    SELECT job_id, reserved_micros FROM items
    WHERE state = 'submitting' AND lease_expires_at IS NOT NULL AND handler = :handler
    UNION ALL
    SELECT job_id, reserved_micros FROM items WHERE state = 'processing' AND handler = :handler
) AS calls
WHERE CAST(:owner AS text) = '' OR calls.job_id IN (SELECT id FROM jobs WHERE owner = :owner AND state IN {JOB_OPEN});

-- name: budget_of_job
-- The shared budget that was too small for a job's next item, if that is still so.
SELECT {columns Budget of budgets} FROM jobs JOIN budgets ON budgets.id = jobs.short_of
WHERE jobs.id = :job_id AND jobs.owner = :owner AND jobs.short = 1 AND budgets.renewals = jobs.short_renewals;
