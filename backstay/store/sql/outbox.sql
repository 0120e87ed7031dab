-- The outbox: messages until they are published, the sinks that receive them, and the work of a relay. For webhooks see webhooks.sql.

-- name: open_sink
INSERT INTO sinks (name, opened_at) VALUES (:sink, {now}) ON CONFLICT (name) DO NOTHING;

-- name: close_sink
DELETE FROM sinks WHERE name = :sink;

-- name: open_sinks
SELECT name FROM sinks WHERE name = :sink;

-- name: publish_message
-- A user's message, once for each sink: a broker's, if it is open, and webhooks, if its owner has one.
INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at, due_at, sink)
SELECT :owner, 'message', :id, :event, :body, {now}, {now}, open_sink.name
FROM (
    SELECT name FROM sinks WHERE name = 'messages'
    UNION ALL
    SELECT 'webhooks'
    WHERE EXISTS (SELECT 1 FROM webhooks WHERE owner = :owner AND disabled_at IS NULL AND deleted_at IS NULL)
) AS open_sink
WHERE 1 = 1
RETURNING sink;

-- name: claim_messages
-- The oldest messages that are due. The later due_at is the lease: if a relay dies, the next one gets them.
WITH picked AS MATERIALIZED (
    SELECT id FROM outbox WHERE status = 'pending' AND sink = :sink AND due_at <= {now} AND due_at > {now} - CAST(:back_ms AS bigint)
    ORDER BY due_at, id LIMIT :n {skip_locked}
)
UPDATE outbox SET due_at = {now} + CAST(:lease_ms AS bigint), retry_count = retry_count + 1
WHERE id {in picked} AND status = 'pending' AND due_at <= {now}
RETURNING {columns Message, retry_count AS tries, {now} - created_at AS age_ms};

-- name: messages_published
UPDATE outbox SET status = 'published', processed_at = {now}, error_message = NULL
FROM {batch(id bigint)}
WHERE outbox.id = batch.id AND CASE WHEN outbox.status = 'pending' THEN 1 ELSE 0 END <> 0;

-- name: messages_failed
-- Without a delay they take their old place again, before those that were written after them.
UPDATE outbox SET error_message = :error,
    due_at = CASE WHEN CAST(:delay_ms AS bigint) > 0 THEN {now} + CAST(:delay_ms AS bigint) ELSE created_at END
FROM {batch(id bigint)}
WHERE outbox.id = batch.id AND CASE WHEN outbox.status = 'pending' THEN 1 ELSE 0 END <> 0;

-- name: outbox_lag
-- Pending messages, counted up to a bound, and the age of the oldest of them.
SELECT {columns Lag, count(*) AS rows, coalesce({now} - min(created_at), 0) AS age_ms}
FROM (SELECT created_at FROM outbox WHERE status = 'pending' AND sink = :sink ORDER BY due_at, id LIMIT :n) AS waiting;

-- name: drop_published
-- A chunk of messages that were published some time ago.
WITH picked AS MATERIALIZED (
    SELECT id FROM outbox WHERE sink = :sink AND processed_at IS NOT NULL AND processed_at < {now} - CAST(:age_ms AS bigint)
    ORDER BY processed_at LIMIT :n {skip_locked}
)
DELETE FROM outbox WHERE id {in picked} RETURNING id;

-- name: drop_pending
-- A chunk of old unpublished messages; as many rows are read.
WITH picked AS MATERIALIZED (
    SELECT id, created_at FROM outbox WHERE status = 'pending' AND sink = :sink
    ORDER BY due_at, id LIMIT :n {skip_locked}
)
DELETE FROM outbox WHERE id {in picked} AND status = 'pending' AND created_at <= {now} - CAST(:age_ms AS bigint)
RETURNING id;

-- name: hinted_items
-- The content of hints for items that have just gone back to the queue; empty while no sink is open.
SELECT {columns HintedItem of items, jobs.owner AS owner, jobs.priority AS priority, items.due_at - {now} AS wait_ms,
    {now} AS now}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN jobs ON jobs.id = items.job_id
WHERE EXISTS (SELECT 1 FROM sinks WHERE name = 'work')
ORDER BY items.id;

-- name: next_open_job
-- The first job from an id on that has items to be done.
SELECT id, owner, priority FROM jobs
WHERE state IN {JOB_OPEN} AND held = 0 AND id >= :job_id ORDER BY id LIMIT 1;

-- name: ready_items
-- A page of one job's items that are ready.
SELECT id, handler, {now} AS now FROM items
WHERE id >= :first AND id < :after AND state = 'queued' AND due_at IS NULL
  AND EXISTS (SELECT 1 FROM sinks WHERE name = 'work')
ORDER BY id LIMIT :n;

-- name: failure_notices
-- Failed items that no event has reported yet, the oldest first.
SELECT {columns FailureNotice, {now} AS now} FROM failure_notices ORDER BY id LIMIT :n;

-- name: take_notices
-- The process that gets a row back reports it, in the same transaction.
WITH picked AS MATERIALIZED (
    SELECT failure_notices.id FROM {batch(id bigint)} JOIN failure_notices ON failure_notices.id = batch.id {skip_locked}
)
DELETE FROM failure_notices WHERE id {in picked}
RETURNING item_id, fence, job_id, handler, attempt_count, calls, error_code, flaw, failed_at;

-- name: noted_failures
-- Details of failed items: the message of their attempts, and the keys of their submitters. Only the beginning of a request
-- is read, because a custom_id comes first.
SELECT {columns NotedFailure of batch, attempts.message AS message, attempts.provider_status AS provider_status,
    (SELECT min(item_keys.key) FROM item_keys WHERE item_keys.item_id = batch.item_id) AS key,
    (SELECT substr(body, 1, 8192) FROM requests WHERE requests.item_id = batch.item_id) AS head}
FROM {batch(item_id bigint, fence bigint, job_id bigint, handler text, attempt_count bigint, calls bigint, error_code text, flaw text, failed_at bigint)}
LEFT JOIN attempts ON attempts.item_id = batch.item_id AND attempts.fence = batch.fence
ORDER BY batch.item_id, batch.fence;

-- name: event_takers
-- The receivers of events about the items of some jobs: a broker, if its sink is open, and webhooks of the owner that name
-- the event. A job without an owner is being deleted.
WITH named AS MATERIALIZED (SELECT DISTINCT job_id AS id FROM {batch(job_id bigint, event text)})
SELECT batch.job_id, batch.event, jobs.owner, jobs.handler, open_sink.name AS sink, {now} AS now
FROM {batch(job_id bigint, event text)} JOIN jobs ON jobs.id = batch.job_id AND jobs.id {in named} AND jobs.owner <> ''
JOIN (SELECT name FROM sinks WHERE name = 'messages' UNION ALL SELECT 'webhooks') AS open_sink
    ON open_sink.name = 'messages' OR EXISTS (
        SELECT 1 FROM webhooks WHERE webhooks.owner = jobs.owner AND webhooks.disabled_at IS NULL
            AND webhooks.deleted_at IS NULL AND webhooks.events LIKE '%"' || batch.event || '"%');

-- name: drop_old_notices
-- A chunk of notices that no relay has collected for very long.
DELETE FROM failure_notices WHERE id IN (SELECT id FROM failure_notices ORDER BY id LIMIT :n)
  AND failed_at < {now} - CAST(:age_ms AS bigint)
RETURNING id;
