-- Many jobs or items at one look, each for one who may see it.

-- name: jobs_seen
SELECT {columns JobView of jobs}
FROM {batch(id bigint, owner text)} JOIN jobs ON jobs.id = batch.id AND jobs.owner = batch.owner;

-- name: items_seen

SELECT {columns ItemRow of items, jobs.owner AS owner, attempts.message AS message}
FROM {batch(id bigint, owner text)} JOIN items ON items.id = batch.id
JOIN jobs ON jobs.id = items.job_id AND jobs.owner = batch.owner
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence;

-- name: batches_seen
SELECT {columns Batch of batches, {now} AS now, jobs.state AS job_state, jobs.sealed AS sealed, jobs.total AS total,
    jobs.succeeded AS succeeded, jobs.failed + jobs.skipped AS failed, jobs.cancelled AS cancelled,
    jobs.input_tokens AS input_tokens, jobs.output_tokens AS output_tokens}
FROM {batch(id text, owner text)} JOIN batches ON batches.id = batch.id AND batches.owner = batch.owner
LEFT JOIN jobs ON jobs.id = batches.job_id;
