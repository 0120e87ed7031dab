-- The reads of items. Every statement reads a bounded number of rows, however many there are.
-- Where only few rows are read, the owner of an item is looked up row by row: for a join PostgreSQL would read all jobs.

-- name: item
SELECT {columns ItemDetail of items, jobs.state AS job_state, jobs.stop_reason AS stop_reason, {short_now} AS job_short,
    {now} AS now, requests.body AS body, jobs.waits_for AS waits_for}
FROM items JOIN jobs ON jobs.id = items.job_id LEFT JOIN requests ON requests.item_id = items.id
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: item_shown
-- One item with the error of its last attempt, without its bodies.
SELECT {columns ItemView of items, jobs.owner AS owner, attempts.message AS message,
    {first_attempt_at}, attempts.ended_at AS attempt_ended_at}
FROM items JOIN jobs ON jobs.id = items.job_id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: item_bodies
-- An item's request, and its result if it succeeded.
SELECT {columns Bodies, requests.body AS payload, CASE WHEN items.state = 'succeeded' THEN attempts.result END AS result}
FROM items JOIN jobs ON jobs.id = items.job_id LEFT JOIN requests ON requests.item_id = items.id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: job_counters
SELECT total, processing, succeeded, failed, skipped, cancelled FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: items_page
-- A job's next items. Ids are dense, so the span bounds the rows that are read. The values are hidden from the planner in
-- subqueries: in a large table it would plan each page again, which takes as long as the page itself, for the same plan.
SELECT {columns ItemView, CAST(:owner AS text) AS owner, CAST(NULL AS text) AS message,
    CAST(NULL AS bigint) AS first_attempt_at, CAST(NULL AS bigint) AS attempt_ended_at}
FROM items WHERE id > (SELECT CAST(:cursor AS bigint)) AND id <= (SELECT CAST(:upto AS bigint))
  AND state = coalesce((SELECT CAST(:state AS text)), state)
  AND coalesce(error_code, '') = coalesce((SELECT CAST(:error_code AS text)), error_code, '')
ORDER BY id LIMIT :n;

-- name: failed_page
-- A job's next failed items; they have an index.
SELECT {columns ItemView, CAST(:owner AS text) AS owner, CAST(NULL AS text) AS message,
    CAST(NULL AS bigint) AS first_attempt_at, CAST(NULL AS bigint) AS attempt_ended_at}
FROM items WHERE job_id = :job_id AND state = 'failed' AND id > :cursor ORDER BY id LIMIT :n;

-- name: messages_of
-- The last attempts of some items, and when their first ones began.
SELECT attempts.item_id, attempts.message, attempts.ended_at AS attempt_ended_at,
    (SELECT min(first.started_at) FROM attempts AS first WHERE first.item_id = batch.id AND first.started_at > 0) AS first_attempt_at
FROM {batch(id bigint, fence bigint)}
JOIN attempts ON attempts.item_id = batch.id AND attempts.fence = batch.fence;

-- name: items_seen
SELECT {columns ItemView of items, jobs.owner AS owner, attempts.message AS message,
    {first_attempt_at}, attempts.ended_at AS attempt_ended_at}
FROM {batch(id bigint, owner text)} JOIN items ON items.id = batch.id
JOIN jobs ON jobs.id = items.job_id AND jobs.owner = batch.owner
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence;

-- name: named_items
-- The states of the items that messages name, of all owners.
SELECT {columns NamedItem of items, jobs.owner AS owner}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN jobs ON jobs.id = items.job_id;

-- name: attempts
SELECT {columns AttemptView} FROM attempts WHERE item_id = :item_id ORDER BY fence;

-- name: last_invalid
-- The last answer of an item that did not fit, if it was asked again since it last failed.
SELECT {columns InvalidAnswer} FROM attempts WHERE item_id = :item_id AND outcome = 'invalid'
  AND fence > coalesce((SELECT max(ended.fence) FROM attempts AS ended WHERE ended.item_id = :item_id AND ended.outcome = 'failed'), -1)
ORDER BY fence DESC LIMIT 1;

-- name: count_invalid
-- How many invalid answers some items had since they last failed. Row by row: for a join PostgreSQL would read all
-- attempts.
SELECT batch.id AS item_id, (SELECT count(*) FROM attempts WHERE attempts.item_id = batch.id AND attempts.outcome = 'invalid'
    AND attempts.fence > coalesce((SELECT max(ended.fence) FROM attempts AS ended
        WHERE ended.item_id = batch.id AND ended.outcome = 'failed'), -1)) AS answers
FROM {batch(id bigint)};

-- name: ahead
-- How many ready items of its handler come before an item. Bounded, and in order, so that one range of the claim's index is read.
SELECT count(*) AS items FROM (
    SELECT items.id FROM items
    WHERE items.state = 'queued' AND items.due_at IS NULL
      AND items.handler = (SELECT handler FROM items AS mine WHERE mine.id = :item_id)
      AND items.order_key < (SELECT order_key FROM items AS mine WHERE mine.id = :item_id)
    ORDER BY items.order_key DESC LIMIT 1000) AS ahead;

-- name: waiting_since
-- When the oldest item of a handler that could be started now was queued. Of the first thousand in the queue.
SELECT min(queued_at) AS queued_at FROM (
    SELECT queued_at FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
    ORDER BY order_key LIMIT 1000) AS waiting;

-- name: oldest_waiting
-- When an owner's oldest item that could be started now was queued, of one handler. Of the first thousand in the queue.
SELECT min(waiting.queued_at) AS queued_at FROM (
    SELECT job_id, queued_at FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
    ORDER BY order_key LIMIT 1000) AS waiting
WHERE (SELECT owner FROM jobs WHERE jobs.id = waiting.job_id) = :owner;

-- name: unfinished_here
-- Whether another tick is needed: an item of this handler is ready and fits under its job's budget, or is at the provider.
-- Ordered, because for a plain EXISTS PostgreSQL reads the table from its start, in the hope of an early match.
SELECT (SELECT id FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
        AND {job_not_held}
        AND {job_not_short} ORDER BY order_key LIMIT 1) IS NOT NULL AS ready,
       (SELECT id FROM items WHERE state = 'processing' AND handler = :handler
        ORDER BY due_at LIMIT 1) IS NOT NULL AS processing;

-- name: stuck
-- Items whose worker is gone and that could be rescued now, by handler. Bounded.
SELECT handler, count(*) AS items
FROM (SELECT handler FROM items WHERE state = 'submitting' AND lease_expires_at <= {now} AND reconcile_after <= {now}
      ORDER BY lease_expires_at LIMIT 1000) AS stuck
GROUP BY handler;

-- name: stuck_of
-- How many of an owner's items no worker has taken over after their worker was lost. Among the first thousand of all.
SELECT count(*) AS items FROM (
    SELECT job_id FROM items WHERE state = 'submitting' AND lease_expires_at <= {now} AND reconcile_after <= {now}
    ORDER BY lease_expires_at LIMIT 1000) AS stuck
WHERE (SELECT owner FROM jobs WHERE jobs.id = stuck.job_id) = :owner;

-- name: next_due
-- When the first waiting item is due. Not by min(): where PostgreSQL takes a table for empty, it reads the whole index for it.
SELECT (SELECT due_at FROM items WHERE state = 'queued' AND due_at IS NOT NULL ORDER BY due_at LIMIT 1) AS due_at, {now} AS now;

-- name: tasks_of
-- An owner's items that are tasks at a provider, by account. Only those that are polled next are read.
SELECT {columns ProviderTasks of due, count(*) AS items, min(due.id) AS example, min(due.provider_task_id) AS task} FROM (
    SELECT id, job_id, coalesce(account, '') AS account, provider_task_id FROM items
    WHERE state = 'processing' AND handler = :handler ORDER BY due_at LIMIT :n) AS due
WHERE (SELECT owner FROM jobs WHERE jobs.id = due.job_id) = :owner GROUP BY due.account ORDER BY due.account;

-- name: waiting
-- What the items of a job wait for while none is being sent: a pause that the provider asked for, the next try of an item,
-- the look-up of items whose worker is gone, and tasks of another account. Nobody here polls those tasks, so they have been
-- due for longest, and it is enough to read some rows. The plus is explained at under_way.
SELECT {columns Waiting, {now} AS now,
    (SELECT max(resume_at) FROM paces WHERE provider IN (:paced, :paced_then)) AS resume_at,
    (SELECT min(due_at) FROM items WHERE state = 'queued' AND due_at IS NOT NULL
        AND +id >= :first AND +id < :after) AS due_at,
    (SELECT count(*) FROM items WHERE state = 'submitting' AND lease_expires_at <= {now}
        AND +id >= :first AND +id < :after) AS lost,
    (SELECT min(reconcile_after) FROM items WHERE state = 'submitting' AND lease_expires_at <= {now}
        AND +id >= :first AND +id < :after) AS ask_at,
    (SELECT count(*) FROM (SELECT id, account FROM items WHERE state = 'processing' AND handler = :handler
        AND due_at <= {now} ORDER BY due_at LIMIT :n) AS due
        WHERE coalesce(account, '') <> :account AND id >= :first AND id < :after) AS strangers};

-- The story of an item or job: the rare acts about a subject.

-- name: events
SELECT {columns EventView} FROM events WHERE subject = :subject ORDER BY id LIMIT :n;

-- name: events_last
-- The latest acts about a subject, newest first.
SELECT {columns EventView} FROM events WHERE subject = :subject ORDER BY id DESC LIMIT :n;
