-- Schedules. next_at is the next firing; due_at is when to look at it: later than next_at after an error, never while it is
-- paused. Every change of a row raises its version, and a firing is made only if the version has not changed since the read.

-- name: schedule
SELECT {columns Schedule, {now} AS now} FROM schedules WHERE owner = :owner AND name = :name;

-- name: schedules
SELECT {columns Schedule, {now} AS now} FROM schedules WHERE owner = :owner AND name > :past ORDER BY name LIMIT :n;

-- name: lock_schedule
SELECT {columns Schedule, {now} AS now} FROM schedules WHERE owner = :owner AND name = :name {for_update};

-- name: add_schedule
-- Not beyond the number that an owner may have. No row back also means that the name is taken.
INSERT INTO schedules (owner, name, handler, cron, timezone, payload, missed, declared_at, created_at, next_at, due_at)
SELECT :owner, :name, :handler, :cron, :timezone, :payload, :missed, CASE WHEN :declared = 1 THEN {now} END, {now},
    CAST(:next_at AS bigint), CAST(:next_at AS bigint)
WHERE (SELECT count(*) FROM schedules WHERE owner = :owner) < CAST(:most AS bigint)
ON CONFLICT (owner, name) DO NOTHING
RETURNING name;

-- name: declare_schedule
-- Stores the schedule as it is in the code now. If a person has paused it, it stays paused.
UPDATE schedules SET handler = :handler, cron = :cron, timezone = :timezone, payload = :payload, missed = :missed,
    declared_at = {now}, next_at = CAST(:next_at AS bigint), version = version + 1, error = NULL, error_at = NULL,
    due_at = CASE WHEN paused_at IS NULL THEN CAST(:next_at AS bigint) END
WHERE owner = :owner AND name = :name;

-- name: confirm_schedule
-- The schedule in the code has not changed.
UPDATE schedules SET declared_at = {now} WHERE owner = :owner AND name = :name;

-- name: pause_schedule
UPDATE schedules SET paused_at = coalesce(paused_at, {now}), next_at = NULL, due_at = NULL, version = version + 1
WHERE owner = :owner AND name = :name;

-- name: resume_schedule
UPDATE schedules SET paused_at = NULL, next_at = CAST(:next_at AS bigint), due_at = CAST(:next_at AS bigint),
    error = NULL, error_at = NULL, version = version + 1
WHERE owner = :owner AND name = :name AND paused_at IS NOT NULL;

-- name: remove_schedule
DELETE FROM schedules WHERE owner = :owner AND name = :name RETURNING name;

-- name: schedules_next
-- When the first schedule of each of some handlers is due: one look into the index for each handler.
SELECT (SELECT due_at FROM schedules WHERE schedules.handler = batch.handler AND due_at IS NOT NULL ORDER BY due_at LIMIT 1) AS due_at,
    {now} AS now
FROM {batch(handler text)};

-- name: schedules_due
SELECT {columns DueSchedule, {now} AS now} FROM schedules
WHERE due_at IS NOT NULL AND due_at <= {now} AND handler IN (SELECT handler FROM {batch(handler text)})
ORDER BY due_at, owner, name LIMIT :n;

-- name: schedules_overdue
-- Schedules that were due long ago, and have no error that says so yet.
SELECT {columns DueSchedule, {now} AS now} FROM schedules
WHERE due_at IS NOT NULL AND due_at <= {now} - CAST(:late_ms AS bigint) AND error IS NULL
ORDER BY due_at, owner, name LIMIT :n;

-- name: advance_schedule
-- The process that gets the row back makes the firings up to the next one, in the same transaction.
UPDATE schedules SET next_at = CAST(:next_at AS bigint), due_at = CAST(:next_at AS bigint),
    last_at = coalesce(CAST(:last_at AS bigint), last_at), error = CAST(:error AS text),
    error_at = CASE WHEN CAST(:error AS text) IS NULL THEN NULL ELSE {now} END, version = version + 1
WHERE owner = :owner AND name = :name AND version = :version AND paused_at IS NULL
RETURNING name;

-- name: note_last_job
UPDATE schedules SET last_job = :job_id WHERE owner = :owner AND name = :name;

-- name: fail_schedule
-- Nothing is fired: it is looked at again after a while, or by another process.
UPDATE schedules SET error = :error, error_at = {now}, version = version + 1,
    due_at = CASE WHEN CAST(:wait_ms AS bigint) > 0 THEN {now} + CAST(:wait_ms AS bigint) ELSE due_at END
WHERE owner = :owner AND name = :name AND version = :version AND paused_at IS NULL
RETURNING name;
