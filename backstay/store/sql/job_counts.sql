-- The counters of jobs. Those of large jobs are first written apart, as rows of job_counts.

-- name: count_items
-- Updates the jobs' counters in the transaction of their items, and ends a job with its last item. Rows are locked in the
-- order of their ids, against deadlocks. The sums use the row that is being updated: values that were read before a wait for
-- the lock are stale, and writing them would undo another worker's count. Sums that handlers and replies report are limited:
-- a number too large for the database would keep all items of the group from being settled.
WITH locked AS MATERIALIZED (
    SELECT {no_new_budget} id FROM jobs WHERE id IN (SELECT job_id FROM {batch JobCounts})
    ORDER BY id {for_update}
)
UPDATE jobs SET
    processing = jobs.processing + moved.processing, succeeded = jobs.succeeded + moved.succeeded,
    failed = jobs.failed + moved.failed, skipped = jobs.skipped + moved.skipped,
    cancelled = jobs.cancelled + moved.cancelled, repeats = jobs.repeats + moved.repeats,
    reserved_micros = jobs.reserved_micros - moved.freed, unknown_micros = jobs.unknown_micros + moved.unknown,
    short = CASE WHEN moved.freed > 0 AND jobs.short_of IS NULL THEN 0 ELSE jobs.short END,  -- a shared budget counts its renewals
    spent_micros = CASE WHEN jobs.spent_micros > CAST(:sum_max AS bigint) - moved.spent THEN CAST(:sum_max AS bigint)
                        ELSE jobs.spent_micros + moved.spent END,
    {tokens_added},
    truncated = jobs.truncated + moved.truncated, refused = jobs.refused + moved.refused,
    filtered = jobs.filtered + moved.filtered, unfinished = jobs.unfinished + moved.unfinished,
    {job_end}
FROM (SELECT batch.*, batch.succeeded + batch.failed + batch.skipped + batch.cancelled AS ended, 0 AS sealed
      FROM locked JOIN {batch JobCounts} ON batch.job_id = locked.id) AS moved
WHERE jobs.id = moved.job_id
RETURNING jobs.id, jobs.state, jobs.owner, {items_left} AS items_left;

-- name: lock_counts.postgres
-- why: only PostgreSQL counts apart. Nobody else adds or adds up counts of these jobs until the transaction ends; `whole` 0:
-- others may add theirs. A statement of its own: the next one must see all that was committed before.
SELECT CASE WHEN whole = 1 THEN pg_advisory_xact_lock({counts_lock}) ELSE pg_advisory_xact_lock_shared({counts_lock}) END
FROM {batch(job_id bigint, whole bigint)};

-- name: count_apart.postgres
-- why: settlements of a job would wait for each other at its row. The lock comes before the row gets its id: whoever adds
-- up the counts sees all rows with smaller ids.
WITH locked AS MATERIALIZED (
    SELECT batch.*, pg_advisory_xact_lock_shared({counts_lock}) FROM {batch JobCounts}
)
INSERT INTO job_counts (job_id, {fields ApartCounts}) SELECT job_id, {fields ApartCounts} FROM locked;

-- name: may_add_up.postgres
-- why: only PostgreSQL counts apart. No row: another process has just added up the counts of this job, or does it now.
SELECT jobs.id FROM jobs WHERE jobs.id = :job_id AND counted_at <= {now} - :quiet_ms AND pg_try_advisory_xact_lock({adding_lock});

-- name: add_up.postgres
-- why: only PostgreSQL counts apart. Adds the counts to the rows of their jobs, and ends a job whose items have all ended.
-- The ids of counts grow, so no time is lost with entries of deleted rows that an old transaction keeps in the index.
WITH taken AS (
    DELETE FROM job_counts USING jobs
    WHERE jobs.id = ANY(ARRAY(SELECT job_id FROM {batch(job_id bigint)})) AND job_counts.job_id = jobs.id AND job_counts.id > jobs.counted_id
    RETURNING job_counts.*
), moved AS (
    SELECT job_id, max(id) AS last_id, 0 AS sealed,
        CAST(sum(succeeded + failed + skipped + cancelled) AS bigint) AS ended,
        {each ApartCounts: CAST(sum($) AS bigint) AS $}
    FROM taken GROUP BY job_id
)
UPDATE jobs SET counted_id = moved.last_id, counted_at = {now},
    processing = jobs.processing + moved.processing, succeeded = jobs.succeeded + moved.succeeded,
    failed = jobs.failed + moved.failed, skipped = jobs.skipped + moved.skipped,
    cancelled = jobs.cancelled + moved.cancelled, repeats = jobs.repeats + moved.repeats,
    {tokens_added},
    truncated = jobs.truncated + moved.truncated, refused = jobs.refused + moved.refused,
    filtered = jobs.filtered + moved.filtered, unfinished = jobs.unfinished + moved.unfinished,
    {job_end}
FROM moved WHERE jobs.id = moved.job_id
RETURNING jobs.id, jobs.state, {items_left} AS items_left;

-- name: jobs_counted_apart.postgres
-- why: only PostgreSQL counts apart. Unfinished jobs with counts that nobody has added up for a while.
SELECT id FROM jobs WHERE state IN {JOB_OPEN} AND total >= :items_min AND counted_at <= {now} - :quiet_ms
  AND EXISTS (SELECT 1 FROM job_counts WHERE job_counts.job_id = jobs.id AND job_counts.id > jobs.counted_id)
ORDER BY id LIMIT :n;

-- name: purge_counts
DELETE FROM job_counts WHERE job_id = :job_id;
