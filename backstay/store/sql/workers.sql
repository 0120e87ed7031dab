-- Workers and their leases; duties, which one process does for all; and ticks, a row each, kept for some days.

-- name: register_worker
INSERT INTO workers (id, host, pid, place, handlers, started_at, seen_at)
VALUES (:id, :host, :pid, :place, :handlers, {now}, {now});

-- name: neighbours
-- The workers of one machine that have not reported that they stopped.
SELECT id, pid FROM workers WHERE place = :place AND stopped_at IS NULL AND id <> :id;

-- name: end_dead_leases
-- Ends the leases of a dead worker now.
UPDATE items SET lease_expires_at = {now}
WHERE state = 'submitting' AND lease_expires_at > {now} AND leased_by LIKE :claims;

-- name: see_worker
UPDATE workers SET seen_at = {now} WHERE id = :id;

-- name: unregister_worker
UPDATE workers SET seen_at = {now}, stopped_at = {now} WHERE id = :id;

-- name: forget_workers
-- Deletes workers that have been silent for a long time.
DELETE FROM workers WHERE seen_at < {now} - :age_ms;

-- name: workers
SELECT {columns WorkerView, {now} AS now, handlers AS providers} FROM workers ORDER BY seen_at DESC LIMIT :n;

-- name: leases_held
-- The valid leases, by worker: the name of a claim is the worker's name and a number. Bounded.
SELECT {columns HeldLeases of held, coalesce(workers.host, '?') AS host, coalesce(workers.pid, 0) AS pid,
       coalesce(workers.place, '') AS place,
       CASE WHEN workers.id IS NULL OR workers.stopped_at IS NOT NULL THEN 1 ELSE 0 END AS stopped, {now} AS now}
FROM (SELECT substr(leased_by, 1, 16) AS worker, count(*) AS items, max(lease_expires_at) AS until_at
      FROM (SELECT leased_by, lease_expires_at FROM items
            WHERE state = 'submitting' AND lease_expires_at > {now} ORDER BY lease_expires_at LIMIT 10000) AS leased
      GROUP BY substr(leased_by, 1, 16)) AS held
LEFT JOIN workers ON workers.id = held.worker
ORDER BY held.worker;

-- name: leases
-- The items that are being sent now, by handler and claim. There are at most as many rows as leases.
SELECT {columns Lease, count(*) AS items} FROM (
    SELECT handler, leased_by FROM items WHERE state = 'submitting' AND lease_expires_at > {now}
    ORDER BY lease_expires_at LIMIT :n) AS held
GROUP BY handler, leased_by;

-- name: take_duty
-- One process at a time does it for all; the others look again when its time is over.
INSERT INTO duties (name, until_at) VALUES (:name, {now} + CAST(:lease_ms AS bigint))
ON CONFLICT (name) DO UPDATE SET until_at = excluded.until_at WHERE duties.until_at <= {now}
RETURNING name;

-- name: begin_invocation
INSERT INTO invocations (id, depth, begun_at, ends_by)
VALUES (:id, :depth, {now}, {now} + CAST(:span_ms AS bigint));

-- name: end_invocation
UPDATE invocations SET ended_at = {now}, items = :items, was_full = :was_full WHERE id = :id;

-- name: fail_invocation
UPDATE invocations SET ended_at = {now}, error = :error WHERE id = :id;

-- name: forget_invocations
DELETE FROM invocations WHERE begun_at < {now} - CAST(:age_ms AS bigint);

-- name: invocations_lately
-- Recent ticks: how many, their chains, the chains that reached the depth limit with work left, and failures. A tick that
-- has not ended and cannot be running any more was killed, and counts as failed.
SELECT {columns RecentTicks, count(*) AS ticks, CAST(coalesce(sum(CASE WHEN depth = 0 THEN 1 ELSE 0 END), 0) AS bigint) AS chains,
    CAST(coalesce(sum(was_full), 0) AS bigint) AS chains_full,
    CAST(coalesce(sum(CASE WHEN error IS NOT NULL OR (ended_at IS NULL AND ends_by < {now}) THEN 1 ELSE 0 END), 0) AS bigint)
        AS failed}
FROM (SELECT depth, was_full, error, ended_at, ends_by FROM invocations WHERE begun_at > {now} - CAST(:age_ms AS bigint)
      ORDER BY begun_at DESC LIMIT 10000) AS lately;

-- name: oldest_transaction.postgres
-- why: only PostgreSQL keeps row versions for open transactions. Sessions of other users are visible to members of
-- pg_monitor. A vacuum does not count: it keeps nothing for itself.
SELECT {columns OldTransaction} FROM (
    SELECT pid, usename AS user_name, application_name AS application, state,
        CAST(extract(epoch FROM clock_timestamp() - xact_start) * 1000 AS bigint) AS age_ms,
        CAST(extract(epoch FROM query_start) * 1000 AS bigint) AS query_at
    FROM pg_stat_activity
    WHERE xact_start IS NOT NULL AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL)
      AND (datname = current_database() OR backend_type = 'walsender')
      AND backend_type <> 'autovacuum worker' AND pid <> pg_backend_pid()
    UNION ALL
    SELECT NULL, owner, gid, 'prepared', CAST(extract(epoch FROM clock_timestamp() - prepared) * 1000 AS bigint), NULL
    FROM pg_prepared_xacts WHERE database = current_database()
) AS held ORDER BY age_ms DESC LIMIT 1;
