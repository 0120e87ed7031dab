-- Duties: work that one process does for all of them.

-- name: take_duty
-- One process at a time does it for all; the others look again when its time is over.
INSERT INTO duties (name, until_at) VALUES (:name, {now} + CAST(:lease_ms AS bigint))
ON CONFLICT (name) DO UPDATE SET until_at = excluded.until_at WHERE duties.until_at <= {now}
RETURNING name;
