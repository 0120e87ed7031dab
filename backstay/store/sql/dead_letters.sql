-- Failed items, over all jobs of an owner: shown in groups, page by page, and queued again by a filter.

-- name: failing_jobs
-- An owner's jobs that have failed items outside of archives, newest first; with :replayable, only if they can be retried.
SELECT {columns FailingJob, failed - archived AS letters} FROM jobs
WHERE owner = :owner AND failed > archived AND id <= :upto AND id >= :downto
  AND (:replayable = 0 OR stop_reason IS NULL OR finished_at IS NOT NULL)
ORDER BY id DESC LIMIT :n;

-- name: failed_window
-- The failed items of one job that match a filter, the last first; a bounded number of rows is read.
SELECT {columns ItemView, CAST(:owner AS text) AS owner, CAST(NULL AS text) AS message,
    CAST(NULL AS bigint) AS first_attempt_at, CAST(NULL AS bigint) AS attempt_ended_at}
FROM (SELECT * FROM items WHERE job_id = :job_id AND state = 'failed' AND archive_id IS NULL AND id < :before
      ORDER BY id DESC LIMIT :looked) AS failures
WHERE coalesce(error_code, '') = coalesce(CAST(:error_code AS text), error_code, '')
  AND coalesce(flaw, '') = coalesce(CAST(:flaw AS text), flaw, '')
  AND finished_at <= {now} - CAST(:age_ms AS bigint)
ORDER BY id DESC LIMIT :n;

-- name: failed_looked
-- How far the statement above has read.
SELECT min(id) AS last, count(*) AS looked
FROM (SELECT id FROM items WHERE job_id = :job_id AND state = 'failed' AND archive_id IS NULL AND id < :before
      ORDER BY id DESC LIMIT :looked) AS failures;

-- name: failure_groups
-- Why items of some jobs failed. Bounded: the caller knows from the jobs' counters whether these were all.
SELECT {columns LetterGroup, coalesce(error_code, 'UNKNOWN') AS error_code, count(*) AS items, min(id) AS oldest, max(id) AS newest,
    min(finished_at) AS first_at, max(finished_at) AS last_at}
FROM (SELECT items.id, items.error_code, items.finished_at FROM {batch(job_id bigint)}
      JOIN items ON items.job_id = batch.job_id AND items.state = 'failed'
          AND items.archive_id IS NULL LIMIT :n) AS failures
GROUP BY coalesce(error_code, 'UNKNOWN') ORDER BY items DESC, error_code;

-- name: failed_items_of
-- Of some items, those that an owner may queue again, with the columns of failed_items.
SELECT {columns FailedItem of items, {pays_again}}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN jobs ON jobs.id = items.job_id
WHERE items.state = 'failed' AND items.archive_id IS NULL AND jobs.owner = :owner AND (jobs.stop_reason IS NULL OR jobs.finished_at IS NOT NULL)
  AND items.job_id = coalesce(CAST(:job_id AS bigint), items.job_id)
  AND coalesce(items.error_code, '') = coalesce(CAST(:error_code AS text), items.error_code, '')
  AND coalesce(items.flaw, '') = coalesce(CAST(:flaw AS text), items.flaw, '')
  AND items.finished_at <= {now} - CAST(:age_ms AS bigint)
ORDER BY items.id;

-- name: replays_page
SELECT {columns ReplayRow, "by" AS "by"} FROM replays
WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :n;

-- name: replay_tail
-- How long the items of an earlier replay with the same filter will still come back.
SELECT max(until_at) - {now} AS tail_ms
FROM (SELECT filter, until_at FROM replays WHERE owner = :owner ORDER BY id DESC LIMIT :looked) AS mine
WHERE filter = :filter AND until_at > {now};

-- name: add_replay
INSERT INTO replays (owner, "by", at, filter, items, rate, expected)
VALUES (:owner, :who, {now}, :filter, 0, CAST(:rate AS double precision), CAST(:expected AS bigint)) RETURNING id;

-- name: count_replay
UPDATE replays SET items = items + :items, until_at = {now} + CAST(:tail_ms AS bigint) WHERE id = :replay_id;

-- name: end_replay
-- The replay has gone through all items of its filter: the expected number is the real one.
UPDATE replays SET expected = items WHERE id = :replay_id;

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

-- name: dead_costs
-- The cost of the first failed items of some jobs, by error.
SELECT coalesce(error_code, 'UNKNOWN') AS error_code, CAST(sum(
    (SELECT sum(attempts.cost_micros) FROM attempts WHERE attempts.item_id = failures.id)) AS bigint) AS cost_micros
FROM (SELECT items.id, items.error_code FROM {batch(job_id bigint)}
      JOIN items ON items.job_id = batch.job_id AND items.state = 'failed'
          AND items.archive_id IS NULL LIMIT :n) AS failures
GROUP BY coalesce(error_code, 'UNKNOWN');
