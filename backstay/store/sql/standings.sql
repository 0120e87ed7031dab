-- What messages name: how it stands with those items, whoever owns them.

-- name: items_standing
SELECT items.id, items.state, items.handler, jobs.owner
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN jobs ON jobs.id = items.job_id;
