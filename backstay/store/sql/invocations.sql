-- Ticks, a row each: how deep in their chains, and how they ended. As few as the bounds allow in some days.

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
-- Those of the last while: all, the chains they make, how many of these were at their longest with work left, and how
-- many failed. One that neither ended nor can be running any more was killed, and failed as well.
SELECT {columns Lately, count(*) AS ticks, CAST(coalesce(sum(CASE WHEN depth = 0 THEN 1 ELSE 0 END), 0) AS bigint) AS chains,
    CAST(coalesce(sum(was_full), 0) AS bigint) AS chains_full,
    CAST(coalesce(sum(CASE WHEN error IS NOT NULL OR (ended_at IS NULL AND ends_by < {now}) THEN 1 ELSE 0 END), 0) AS bigint)
        AS failed}
FROM (SELECT depth, was_full, error, ended_at, ends_by FROM invocations WHERE begun_at > {now} - CAST(:age_ms AS bigint)
      ORDER BY begun_at DESC LIMIT 10000) AS lately;
