-- Batches: jobs as OpenAI's clients see them, from the file of requests to the files of results.

-- name: add_batch
INSERT INTO batches (id, owner, status, endpoint, input_file_id, completion_window, metadata, created_at, expires_at,
                     output_seconds)
VALUES (:id, :owner, 'validating', :endpoint, :input_file_id, :completion_window, :metadata, {now},
        {now} + CAST(:window_ms AS bigint), CAST(:output_seconds AS bigint))
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: lock_input
-- Processes that create a batch of the same file at the same time wait for each other: a request may be repeated before the
-- first one is answered.
SELECT id FROM files WHERE id = :input_file_id AND owner = :owner {for_update};

-- name: same_batch
-- The batch that the first of two equal requests most likely made.
SELECT id FROM batches
WHERE owner = :owner AND created_at > {now} - CAST(:age_ms AS bigint) AND input_file_id = :input_file_id
  AND endpoint = :endpoint AND completion_window = :completion_window
  AND coalesce(metadata, '') = coalesce(CAST(:metadata AS text), '')
  AND coalesce(output_seconds, 0) = coalesce(CAST(:output_seconds AS bigint), 0)
ORDER BY created_at DESC, id LIMIT 1;

-- name: batch_place
SELECT created_at, id FROM batches WHERE id = :id AND owner = :owner;

-- name: batches_page
-- An owner's batches, newest first, from a cursor on.
SELECT {columns Batch of batches, {now} AS now, jobs.state AS job_state, jobs.sealed AS sealed, jobs.total AS total,
    jobs.succeeded AS succeeded, jobs.failed + jobs.skipped AS failed, jobs.cancelled AS cancelled,
    jobs.input_tokens AS input_tokens, jobs.output_tokens AS output_tokens}
FROM batches LEFT JOIN jobs ON jobs.id = batches.job_id
WHERE batches.owner = :owner AND (batches.created_at, batches.id) < (:created_at, :id)
ORDER BY batches.created_at DESC, batches.id DESC LIMIT :n;

-- name: messages_older
-- An owner's message batches, newest first, from a cursor on.
SELECT {columns Batch of batches, {now} AS now, jobs.state AS job_state, jobs.sealed AS sealed, jobs.total AS total,
    jobs.succeeded AS succeeded, jobs.failed + jobs.skipped AS failed, jobs.cancelled AS cancelled,
    jobs.input_tokens AS input_tokens, jobs.output_tokens AS output_tokens}
FROM batches LEFT JOIN jobs ON jobs.id = batches.job_id
WHERE batches.owner = :owner AND batches.id LIKE 'msgbatch%' AND (batches.created_at, batches.id) < (:created_at, :id)
ORDER BY batches.created_at DESC, batches.id DESC LIMIT :n;

-- name: messages_newer
-- Those that are newer than the cursor, the nearest first.
SELECT {columns Batch of batches, {now} AS now, jobs.state AS job_state, jobs.sealed AS sealed, jobs.total AS total,
    jobs.succeeded AS succeeded, jobs.failed + jobs.skipped AS failed, jobs.cancelled AS cancelled,
    jobs.input_tokens AS input_tokens, jobs.output_tokens AS output_tokens}
FROM batches LEFT JOIN jobs ON jobs.id = batches.job_id
WHERE batches.owner = :owner AND batches.id LIKE 'msgbatch%' AND (batches.created_at, batches.id) > (:created_at, :id)
ORDER BY batches.created_at, batches.id LIMIT :n;

-- name: same_messages
-- The message batch that the first of two equal requests most likely made. Its metadata has the digest of its requests.
SELECT id FROM batches
WHERE owner = :owner AND created_at > {now} - CAST(:age_ms AS bigint) AND id LIKE 'msgbatch%' AND metadata = :digest
ORDER BY created_at DESC, id LIMIT 1;

-- name: purge_unsent_batch
DELETE FROM batches WHERE id = :id AND owner = :owner AND job_id IS NULL AND status NOT IN {BATCH_OPEN}
RETURNING output_file_id, error_file_id;

-- name: claim_batch
-- Claims a batch that can be moved on. A batch whose job is running cannot, unless its time or its money has run out.
UPDATE batches SET leased_until = {now} + CAST(:lease_ms AS bigint)
WHERE id = (
    SELECT id FROM batches
    WHERE status IN {BATCH_OPEN} AND leased_until <= {now}
      AND (status <> 'in_progress' OR (adopted = 0 AND (job_id IS NULL OR expires_at <= {now})) OR NOT EXISTS (
          SELECT 1 FROM jobs WHERE jobs.id = batches.job_id AND jobs.state IN {JOB_OPEN}
            AND (jobs.sealed = 1 OR batches.adopted > 0)
            AND ({short_now} = 0 OR jobs.reserved_micros > 0 OR jobs.state = 'paused' OR batches.adopted > 0)))
    ORDER BY leased_until LIMIT 1 {skip_locked})
  AND leased_until <= {now}
RETURNING id, owner;

-- name: extend_batch
UPDATE batches SET leased_until = {now} + CAST(:lease_ms AS bigint)
WHERE id = :id AND status IN {BATCH_OPEN};

-- name: release_batch
-- Any process may move it on, after the delay.
UPDATE batches SET leased_until = {now} + CAST(:delay_ms AS bigint) WHERE id = :id;

-- name: begin_batch
UPDATE batches SET status = 'in_progress', in_progress_at = {now}, requests = :requests, model = :model
WHERE id = :id AND status = 'validating'
RETURNING id;

-- name: count_requests
-- Of a batch that was cancelled before it began.
UPDATE batches SET requests = :requests, model = :model WHERE id = :id AND status = 'cancelling' AND requests = 0;

-- name: fail_batch
UPDATE batches SET status = 'failed', failed_at = {now}, errors = :errors, leased_until = 0
WHERE id = :id AND status IN ('validating', 'in_progress')
RETURNING id;

-- name: attach_job
UPDATE batches SET job_id = :job_id WHERE id = :id RETURNING status;

-- name: finalize_batch
UPDATE batches SET status = 'finalizing', finalizing_at = {now} WHERE id = :id AND status = 'in_progress' RETURNING id;

-- name: end_batch
-- A batch that was cancelled at the last moment ends as cancelled.
UPDATE batches SET
    status = CASE WHEN status = 'cancelling' THEN 'cancelled' ELSE CAST(:status AS text) END,
    completed_at = CASE WHEN status <> 'cancelling' AND CAST(:status AS text) = 'completed' THEN {now} END,
    expired_at = CASE WHEN status <> 'cancelling' AND CAST(:status AS text) = 'expired' THEN {now} END,
    cancelled_at = CASE WHEN status = 'cancelling' OR CAST(:status AS text) = 'cancelled' THEN {now} END,
    output_file_id = :output_file_id, error_file_id = :error_file_id, leased_until = 0
WHERE id = :id AND status IN ('finalizing', 'cancelling')
RETURNING status;

-- name: cancel_batch
UPDATE batches SET status = 'cancelling', cancelling_at = {now}
WHERE id = :id AND owner = :owner AND status IN ('validating', 'in_progress', 'finalizing')
RETURNING id;

-- name: any_expired
-- Whether the deadline ended any item of a job. Calls are given up shortly before the deadline, and clocks differ a little.
SELECT 1 FROM items WHERE job_id = :job_id AND state = 'failed' AND timed_out_at >= deadline_at - 5000 LIMIT 1;

-- name: count_expired
-- How many items of any_expired have certainly not been paid.
SELECT count(*) AS n FROM items WHERE job_id = :job_id AND state = 'failed' AND timed_out_at >= deadline_at - 5000
  AND coalesce(flaw, '') NOT IN ('unknown', 'late');

-- name: batch_output
-- As results_page, for items that succeeded.
SELECT {columns ResultRow of items, attempts.message AS message, attempts.result AS result,
    attempts.provider_status AS provider_status,
    requests.body AS body, 0 AS expired}
FROM items JOIN requests ON requests.item_id = items.id AND requests.item_id > :cursor AND requests.item_id < :after
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
    AND attempts.item_id > :cursor AND attempts.item_id < :after
WHERE items.id > :cursor AND items.id < :after AND items.state = 'succeeded'
ORDER BY items.id LIMIT :n;

-- name: batch_errors
-- As results_page, for items that ended in another state, and whether the deadline ended them.
SELECT {columns ResultRow of items, attempts.message AS message, attempts.result AS result,
    attempts.provider_status AS provider_status,
    requests.body AS body, 
    CASE WHEN items.timed_out_at >= items.deadline_at - 5000 THEN 1 ELSE 0 END AS expired}
FROM items JOIN requests ON requests.item_id = items.id AND requests.item_id > :cursor AND requests.item_id < :after
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
    AND attempts.item_id > :cursor AND attempts.item_id < :after
WHERE items.id > :cursor AND items.id < :after AND items.state IN ('failed', 'skipped', 'cancelled')
ORDER BY items.id LIMIT :n;

-- name: batch_requests
-- The requests of a job's items, in order, from a cursor on.
SELECT item_id, body FROM requests WHERE item_id > :cursor AND item_id < :after ORDER BY item_id LIMIT :n;

-- name: jobs_to_adopt
-- A page of an owner's jobs from a cursor on; runs that are not a batch yet come with their first request.
SELECT {columns Adoptable of page, page.id AS job_id, coalesce(page.deadline_at, page.timeout_at) AS ends_at, {now} AS now,
    coalesce(CASE WHEN page.handler IN (SELECT name FROM endpoints)
          AND (page.idempotency_key IS NULL OR page.idempotency_key NOT LIKE 'batch:%')
          AND NOT EXISTS (SELECT 1 FROM batches WHERE batches.job_id = page.id)
         THEN (SELECT body FROM requests WHERE item_id = page.id * CAST(:items_max AS bigint)) END, '') AS first,
    CASE WHEN page.state IN {JOB_ENDED} THEN 2 ELSE 1 END AS adopted}
FROM (SELECT id, created_at, deadline_at, timeout_at, label, handler, idempotency_key, state FROM jobs
      WHERE owner = :owner AND id > :after ORDER BY id LIMIT :n) AS page
ORDER BY page.id;

-- name: adopt
-- A run that had ended before is marked, so that no webhook is notified as if it were new.
INSERT INTO batches (id, owner, job_id, status, endpoint, input_file_id, completion_window, model, created_at, expires_at,
                     in_progress_at, adopted)
SELECT batch.id, CAST(:owner AS text), batch.job_id, 'in_progress', batch.endpoint, batch.file_id, batch.span, batch.model,
    batch.created_at, batch.ends_at, batch.created_at, batch.adopted
FROM {batch(id text, job_id bigint, file_id text, endpoint text, span text, model text, created_at bigint, ends_at bigint,
            adopted bigint)}
WHERE true
ON CONFLICT (job_id) DO NOTHING
RETURNING job_id;

-- name: models_seen
-- The models of an owner's last batches.
SELECT DISTINCT model
FROM (SELECT model FROM batches WHERE owner = :owner ORDER BY created_at DESC, id DESC LIMIT :looked) AS mine
WHERE model IS NOT NULL ORDER BY model LIMIT :n;

-- name: batches_seen
SELECT {columns Batch of batches, {now} AS now, jobs.state AS job_state, jobs.sealed AS sealed, jobs.total AS total,
    jobs.succeeded AS succeeded, jobs.failed + jobs.skipped AS failed, jobs.cancelled AS cancelled,
    jobs.input_tokens AS input_tokens, jobs.output_tokens AS output_tokens}
FROM {batch(id text, owner text)} JOIN batches ON batches.id = batch.id AND batches.owner = batch.owner
LEFT JOIN jobs ON jobs.id = batches.job_id;
