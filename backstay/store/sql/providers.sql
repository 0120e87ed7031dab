-- What all workers know of the providers, and of each other.

-- name: providers
SELECT name, state, since_at, until_at, reason, calls FROM providers ORDER BY name;

-- name: ensure_provider
INSERT INTO providers (name, state, since_at) VALUES (:name, 'closed', 0) ON CONFLICT (name) DO NOTHING;

-- name: lock_provider
SELECT name, state, since_at, until_at, reason, calls, {now} AS now FROM providers WHERE name = :name {for_update};

-- name: save_provider
UPDATE providers SET state = :state, since_at = :since_at, until_at = :until_at, reason = :reason, calls = :calls,
    probe_until = CASE WHEN since_at = :since_at THEN probe_until ELSE 0 END
WHERE name = :name;

-- name: take_probe
-- The right to try a half-open provider goes to one worker at a time.
UPDATE providers SET probe_until = {now} + :probe_ms
WHERE name = :name AND state = 'half_open' AND probe_until <= {now}
RETURNING name;

-- name: give_probe
-- A worker that had nothing to try with lets others try.
UPDATE providers SET probe_until = 0 WHERE name = :name AND state = 'half_open';

-- name: held_jobs
SELECT id, stop_reason FROM jobs WHERE held = 1 ORDER BY id;

-- name: now
SELECT {now} AS now;

-- name: greet_worker
INSERT INTO workers (id, host, pid, handlers, started_at, seen_at) VALUES (:id, :host, :pid, :handlers, {now}, {now});

-- name: see_worker
UPDATE workers SET seen_at = {now} WHERE id = :id;

-- name: leave_worker
UPDATE workers SET seen_at = {now}, stopped_at = {now} WHERE id = :id;

-- name: forget_workers
-- Workers not heard of for long.
DELETE FROM workers WHERE seen_at < {now} - :age_ms;
