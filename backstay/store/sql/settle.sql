-- How items leave their holder, and how their jobs end.

-- name: settle_items
-- What became of claimed items that share a fate. Guarded by state and fence: an item missing from the answer was lost.
UPDATE items SET
    state = :state,
    attempt_count = :attempt_count, round = :round, rescues = :rescues, repeats = :repeats,
    due_at = {now} + batch.delay_ms,
    leased_by = NULL,
    lease_expires_at = CASE WHEN :state = 'submitting' THEN {now} END,
    provider_task_id = batch.provider_task_id, account = :account, error_code = :error_code,
    progress = CASE WHEN :state = 'succeeded' THEN 100
                    WHEN :state = 'queued' THEN 0
                    ELSE coalesce(CAST(:progress AS bigint), items.progress) END,
    finished_at = CASE WHEN :state IN ('succeeded', 'failed', 'skipped', 'cancelled') THEN {now} END,
    timed_out_at = CASE WHEN :timed_out = 1 THEN {now} END
FROM {batch(id bigint, fence bigint, delay_ms bigint, provider_task_id text)}
WHERE items.id = batch.id AND items.fence = batch.fence AND items.state = :was
  AND items.state IN ('submitting', 'processing')
RETURNING items.id;

-- name: write_events
-- Rare acts, for the timelines.
INSERT INTO events (subject, at, act, detail)
SELECT subject, {now}, act, detail FROM {batch(subject text, act text, detail text)};

-- name: count_items
-- Moves the jobs' counters with their items, in the same transaction, and ends a job with its last item.
WITH locked AS MATERIALIZED (
    SELECT id FROM jobs WHERE id IN (SELECT job_id FROM {batch(job_id bigint, processing bigint, succeeded bigint, failed bigint, skipped bigint, cancelled bigint, repeats bigint)})
    ORDER BY id {for_update}
), counted AS (
    SELECT jobs.id, jobs.total, jobs.sealed, jobs.stop_reason, jobs.state,
        jobs.processing + batch.processing AS processing, jobs.succeeded + batch.succeeded AS succeeded,
        jobs.failed + batch.failed AS failed, jobs.skipped + batch.skipped AS skipped,
        jobs.cancelled + batch.cancelled AS cancelled, jobs.repeats + batch.repeats AS repeats
    FROM locked JOIN jobs ON jobs.id = locked.id
    JOIN {batch(job_id bigint, processing bigint, succeeded bigint, failed bigint, skipped bigint, cancelled bigint, repeats bigint)} ON batch.job_id = jobs.id
), ended AS (
    SELECT counted.*,
        CASE WHEN sealed = 1 AND total = succeeded + failed + skipped + cancelled THEN 1 ELSE 0 END AS over
    FROM counted
)
UPDATE jobs SET
    processing = ended.processing, succeeded = ended.succeeded, failed = ended.failed, skipped = ended.skipped,
    cancelled = ended.cancelled, repeats = ended.repeats,
    finished_at = CASE WHEN ended.over = 1 THEN {now} ELSE jobs.finished_at END,
    held = CASE WHEN ended.over = 1 THEN 0 ELSE jobs.held END,
    state = CASE WHEN ended.over = 0 THEN jobs.state
                 WHEN ended.stop_reason = 'cancel' THEN 'cancelled'
                 WHEN ended.stop_reason = 'timeout' THEN 'failed'
                 WHEN ended.succeeded > 0 THEN 'completed' ELSE 'failed' END
FROM ended WHERE jobs.id = ended.id
RETURNING jobs.id, jobs.state;
