-- All reads of commands, pages, metrics and the API. None counts rows of a big table.

-- name: job_state
SELECT {columns JobStanding} FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: item_state
SELECT state, archive_id FROM items WHERE id = :item_id;

-- name: jobs_page
-- An owner's jobs, newest first, from a cursor on.
SELECT {columns JobView} FROM jobs WHERE owner = :owner AND id < :before ORDER BY id DESC LIMIT :n;

-- name: job
SELECT {columns JobView} FROM jobs WHERE id = :job_id AND owner = :owner;

-- name: under_way
-- How many of a job's items are being sent, and how many wait for another try. Both are few, and have indexes; the plus
-- keeps SQLite from reading the whole job along its primary key instead.
SELECT {columns UnderWay,
    (SELECT count(*) FROM items WHERE state = 'submitting' AND lease_expires_at > {now}
        AND +id >= :first AND +id < :after) AS sending,
    (SELECT count(*) FROM items WHERE state = 'queued' AND due_at IS NOT NULL
        AND +id >= :first AND +id < :after) AS waiting};

-- name: waiting
-- What the items of a job wait for while none is being sent: a pause that the provider asked for, the next try of one,
-- the look-up of those whose sender is gone, and tasks that belong to another account. Those are due for the longest,
-- because nobody polls them, so it is enough to look at some. The plus is that of under_way.
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

-- name: copies_of
-- The further custom_ids that get the answers of some items.
SELECT {columns Copy of copies}
FROM {batch(id bigint)} JOIN copies ON copies.item_id = batch.id ORDER BY copies.item_id, copies.number;

-- name: unsent_page
-- A job's items that may be sent yet, with the worst that each may cost and its request, from a cursor on: those of which
-- no worst case is known, or all. Both tables have the span, as in results_page.
SELECT {columns UnsentItem of items, requests.body AS body}
FROM items JOIN requests ON requests.item_id = items.id AND requests.item_id > :cursor AND requests.item_id < :after
WHERE items.id > :cursor AND items.id < :after AND items.state IN ('queued', 'submitting', 'processing', 'failed')
  AND items.archive_id IS NULL AND (items.cost_micros IS NULL OR :anew = 1)
ORDER BY items.id LIMIT :n;

-- name: next_cost
-- The most that the next item of a job may cost: the one that does not fit, if the budget is too small for it.
SELECT cost_micros FROM items WHERE id >= :first AND id < :after AND state = 'queued' AND due_at IS NULL
ORDER BY id LIMIT 1;

-- name: copies_page
-- Which of a job's requests are copies, and of which items, from a cursor on.
SELECT item_id, number FROM copies
WHERE (item_id, number) > (:item_id, :number) AND item_id < :after ORDER BY item_id, number LIMIT :n;

-- name: copies_named
-- The names of some copies.
SELECT {columns Copy of copies}
FROM {batch(item_id bigint, number bigint)}
JOIN copies ON copies.item_id = batch.item_id AND copies.number = batch.number;

-- name: job_failures
-- Why a job's items failed: the first so many of them.
SELECT {columns FailureGroup, count(*) AS items, min(id) AS example} FROM (SELECT id, error_code, flaw FROM items WHERE job_id = :job_id AND state = 'failed' ORDER BY id LIMIT :n) AS failures
GROUP BY error_code, flaw ORDER BY items DESC, error_code, flaw;

-- name: item
SELECT {columns ItemView of items, jobs.state AS job_state, jobs.stop_reason AS stop_reason, jobs.short AS job_short,
    {now} AS now, requests.body AS body}
FROM items JOIN jobs ON jobs.id = items.job_id LEFT JOIN requests ON requests.item_id = items.id
WHERE items.id = :item_id AND jobs.owner = :owner;

-- name: attempts
SELECT {columns AttemptView} FROM attempts WHERE item_id = :item_id ORDER BY fence;

-- name: events
SELECT {columns EventView} FROM events WHERE subject = :subject ORDER BY id LIMIT :n;

-- name: count_retries
-- How often failed items of a job were queued again: each chunk of them writes one event of the job.
SELECT count(*) AS retries FROM events WHERE subject = :subject AND act IN ('retried', 'replayed');

-- name: results_page
-- A job's ended items in the order they were submitted, with their last attempt, from a cursor on. Every table has the
-- span: PostgreSQL would merge them otherwise, reading the bodies of all earlier jobs on the way.
SELECT {columns ResultRow of items, attempts.message AS message, attempts.result AS result,
    attempts.provider_status AS provider_status,
    requests.body AS body, 0 AS expired}
FROM items JOIN requests ON requests.item_id = items.id AND requests.item_id > :cursor AND requests.item_id < :after
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
    AND attempts.item_id > :cursor AND attempts.item_id < :after
WHERE items.id > :cursor AND items.id < :after AND items.state IN {ITEM_ENDED}
ORDER BY items.id LIMIT :n;

-- name: ended_page
-- Which of a job's items have ended, in order, from a cursor on.
SELECT id, state FROM items
WHERE id > :cursor AND id < :after AND state IN {ITEM_ENDED} ORDER BY id LIMIT :n;

-- name: results_of
-- Some ended items with their last attempt.
SELECT {columns ResultRow of items, attempts.message AS message, attempts.result AS result,
    attempts.provider_status AS provider_status,
    requests.body AS body, 0 AS expired}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN requests ON requests.item_id = items.id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.state IN {ITEM_ENDED} ORDER BY items.id;

-- name: requests_of
-- Some items in any state, with their requests.
SELECT {columns ItemRequest of items, requests.body AS body}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN requests ON requests.item_id = items.id;

-- name: backlog
-- What is unfinished, by handler, from the jobs' counters.
SELECT {columns Backlog, count(*) AS jobs, CAST(sum(total - succeeded - failed - skipped - cancelled) AS bigint) AS items,
    CAST(sum(processing) AS bigint) AS processing, min(created_at) AS oldest_at}
FROM jobs WHERE state IN {JOB_OPEN} GROUP BY handler ORDER BY handler;

-- name: waiting_since
-- When the oldest item of a handler that could be started now was queued. Of the first thousand in the queue.
SELECT min(queued_at) AS queued_at FROM (
    SELECT queued_at FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
    ORDER BY order_key LIMIT 1000) AS waiting;

-- name: ceilings
-- The largest share of a budget that an unfinished job has used, and how many jobs wait because of their budgets.
SELECT {columns Ceilings, coalesce(max(CASE WHEN budget_micros > 0 THEN
        (spent_micros + reserved_micros + unknown_micros) / CAST(budget_micros AS double precision) END), 0) AS used,
    CAST(coalesce(sum(CASE WHEN short = 1 AND reserved_micros = 0 THEN 1 ELSE 0 END), 0) AS bigint) AS held}
FROM jobs WHERE state IN {JOB_OPEN};

-- name: unfinished_here
-- Whether a tick has reason to ask for another: something of these handlers is ready, and fits under its job's ceiling,
-- or is at the provider.
-- Ordered, because for a plain EXISTS PostgreSQL reads the table from its start, hoping to meet a match soon.
SELECT (SELECT id FROM items WHERE state = 'queued' AND due_at IS NULL AND handler = :handler
        AND {job_not_held}
        AND {job_not_short} ORDER BY order_key LIMIT 1) IS NOT NULL AS ready,
       (SELECT id FROM items WHERE state = 'processing' AND handler = :handler
        ORDER BY due_at LIMIT 1) IS NOT NULL AS processing;

-- name: stuck
-- Items whose holder is gone and that could be rescued now, by handler. Bounded.
SELECT handler, count(*) AS items
FROM (SELECT handler FROM items WHERE state = 'submitting' AND lease_expires_at <= {now} AND reconcile_after <= {now}
      ORDER BY lease_expires_at LIMIT 1000) AS stuck
GROUP BY handler;

-- name: leases_held
-- Who holds leases that are not over, by worker: a claim's name is its worker's and a number. Bounded.
SELECT {columns HeldLeases of held, coalesce(workers.host, '?') AS host, coalesce(workers.pid, 0) AS pid,
       coalesce(workers.place, '') AS place,
       CASE WHEN workers.id IS NULL OR workers.stopped_at IS NOT NULL THEN 1 ELSE 0 END AS stopped, {now} AS now}
FROM (SELECT substr(leased_by, 1, 16) AS worker, count(*) AS items, max(lease_expires_at) AS until_at
      FROM (SELECT leased_by, lease_expires_at FROM items
            WHERE state = 'submitting' AND lease_expires_at > {now} ORDER BY lease_expires_at LIMIT 10000) AS leased
      GROUP BY substr(leased_by, 1, 16)) AS held
LEFT JOIN workers ON workers.id = held.worker
ORDER BY held.worker;

-- name: unsealed_jobs
-- Jobs that have been taking items for long.
SELECT id, {now} - created_at AS age_ms FROM jobs
WHERE state IN {JOB_OPEN} AND sealed = 0 AND created_at < {now} - :age_ms ORDER BY id LIMIT :n;

-- name: short_jobs
-- Jobs whose next item does not fit under their budget, and that have no money under way.
SELECT id FROM jobs WHERE short = 1 AND reserved_micros = 0 AND state IN {JOB_OPEN}
ORDER BY id LIMIT :n;

-- name: next_due
-- When the first waiting item is due.
SELECT min(due_at) AS due_at, {now} AS now FROM items WHERE state = 'queued' AND due_at IS NOT NULL;

-- name: workers
SELECT {columns WorkerView, {now} AS now, handlers AS providers} FROM workers ORDER BY seen_at DESC LIMIT :n;

-- name: ahead
-- How many ready items of its handler come before an item. Bounded, and in order: then it is one stretch of the claim's index.
SELECT count(*) AS items FROM (
    SELECT items.id FROM items
    WHERE items.state = 'queued' AND items.due_at IS NULL
      AND items.handler = (SELECT handler FROM items AS mine WHERE mine.id = :item_id)
      AND items.order_key < (SELECT order_key FROM items AS mine WHERE mine.id = :item_id)
    ORDER BY items.order_key DESC LIMIT 1000) AS ahead;

-- name: named_items
-- The states of the items that messages name, of all owners.
SELECT {columns NamedItem of items, jobs.owner AS owner}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN jobs ON jobs.id = items.job_id;
