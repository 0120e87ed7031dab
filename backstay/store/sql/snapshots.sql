-- Many jobs or items at one look, each for one who may see it.

-- name: jobs_seen
SELECT jobs.id, jobs.owner, handler, state, stop_reason, priority, retry, delivery, label, idempotency_key, sealed, total,
    processing, succeeded, failed, skipped, cancelled, repeats, created_at, started_at, finished_at, timeout_at, deadline_at,
    budget_micros, spent_micros, reserved_micros, unknown_micros, short, input_tokens, output_tokens, truncated, refused,
    filtered
FROM {batch(id bigint, owner text)} JOIN jobs ON jobs.id = batch.id AND jobs.owner = batch.owner;

-- name: items_seen
-- The owner first: he is part of what was asked.
SELECT jobs.owner, items.id, items.fence, items.handler, items.state, items.attempt_count, items.calls, items.repeats, items.progress,
    items.error_code, items.created_at, items.queued_at, items.last_attempt_at, items.finished_at, items.timed_out_at,
    items.deadline_at, items.due_at, items.provider_task_id, items.archive_id, items.flaw, attempts.message
FROM {batch(id bigint, owner text)} JOIN items ON items.id = batch.id
JOIN jobs ON jobs.id = items.job_id AND jobs.owner = batch.owner
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence;

-- name: batches_seen
SELECT batches.id, batches.owner, batches.job_id, batches.status, batches.endpoint, batches.input_file_id,
    batches.completion_window, batches.metadata, batches.model, batches.errors, batches.output_file_id,
    batches.error_file_id, batches.created_at, batches.expires_at, batches.output_seconds, batches.in_progress_at,
    batches.finalizing_at, batches.completed_at, batches.failed_at, batches.expired_at, batches.cancelling_at,
    batches.cancelled_at, batches.requests, batches.adopted, {now} AS now,
    jobs.state AS job_state, jobs.sealed, jobs.total, jobs.succeeded, jobs.failed + jobs.skipped AS failed, jobs.cancelled,
    jobs.input_tokens, jobs.output_tokens
FROM {batch(id text, owner text)} JOIN batches ON batches.id = batch.id AND batches.owner = batch.owner
LEFT JOIN jobs ON jobs.id = batches.job_id;
