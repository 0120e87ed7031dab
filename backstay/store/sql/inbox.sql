-- Messages of remote workers about items: stored as they came, and used afterwards.

-- name: callback_job
-- The seed for checking tags. Messages for a job that is being deleted are not accepted.
SELECT {columns Sender, ref_seed AS seed} FROM jobs WHERE id = :job_id AND owner <> '';

-- name: callback_item
-- The item of a message. It is locked, so that it cannot end while it is decided whether the message is late.
SELECT {columns CalledBack, CASE WHEN deadline_at <= {now} THEN 1 ELSE 0 END AS too_late,
    (SELECT owner FROM jobs WHERE jobs.id = items.job_id) AS owner}
FROM items WHERE id = :item_id {for_update};

-- name: count_inbox
SELECT count(*) AS messages FROM inbox WHERE item_id = :item_id;

-- name: add_inbox
-- The same message again changes nothing; a new progress message replaces the last one.
INSERT INTO inbox (owner, item_id, fence, kind, received_at, body, is_late, digest)
VALUES (:owner, :item_id, :fence, :kind, {now}, :body, :is_late, :digest)
ON CONFLICT (item_id, digest) DO UPDATE SET body = excluded.body, received_at = excluded.received_at
    WHERE inbox.kind = 'progress'
RETURNING id;

-- name: hurry_item
-- A message has come, so the item is polled now, even if a poller is working on it: that poller may have read the inbox too
-- early. The new fence makes its settlement fail, so it cannot delay the next poll.
UPDATE items SET due_at = {now}, fence = fence + 1 WHERE id = :item_id AND state = 'processing' AND due_at > {now};

-- name: show_progress
UPDATE items SET progress = :progress WHERE id = :item_id AND state = 'processing' AND provider_task_id = :task;

-- name: finals
-- The final messages about some items that came in time.
SELECT {columns StoredCallback of inbox, inbox.id AS number, length(inbox.body) AS length}
FROM {batch(item_id bigint)} JOIN inbox ON inbox.item_id = batch.item_id
WHERE inbox.kind IN ('succeeded', 'failed') AND inbox.is_late = 0 ORDER BY inbox.id;

-- name: inbox_bodies
SELECT inbox.id, inbox.body FROM {batch(id bigint)} JOIN inbox ON inbox.id = batch.id;

-- name: add_late
-- Stores results that came too late, from any source, only for items that a time limit has ended.
INSERT INTO inbox (owner, item_id, fence, kind, received_at, body, is_late, digest)
SELECT jobs.owner, items.id, batch.fence, 'succeeded', {now}, batch.body, 1, batch.digest
FROM {batch(item_id bigint, fence bigint, body text, digest text)} JOIN items ON items.id = batch.item_id
JOIN jobs ON jobs.id = items.job_id
WHERE CASE WHEN items.state = 'failed' AND items.timed_out_at IS NOT NULL THEN 1 ELSE 0 END <> 0
ON CONFLICT (item_id, digest) DO NOTHING
RETURNING item_id;

-- name: set_late_flaw
-- The outcome of items whose result came too late is no longer unknown.
UPDATE items SET flaw = 'late' FROM {batch(item_id bigint)}
WHERE items.id = batch.item_id AND CASE WHEN items.state = 'failed' AND items.timed_out_at IS NOT NULL THEN 1 ELSE 0 END <> 0;

-- name: show_late
-- Adds a late result to the attempt that says why the item failed.
UPDATE attempts SET result = batch.result
FROM {batch(item_id bigint, result text)} JOIN items ON items.id = batch.item_id
WHERE attempts.item_id = items.id AND attempts.fence = items.fence AND attempts.outcome = 'failed';

-- name: know_cost
-- The cost of some calls is now known, and no longer part of the unknown sum.
UPDATE jobs SET spent_micros = jobs.spent_micros + batch.spent,
    unknown_micros = CASE WHEN jobs.unknown_micros > batch.known THEN jobs.unknown_micros - batch.known ELSE 0 END,
    input_tokens = jobs.input_tokens + batch.input_tokens, output_tokens = jobs.output_tokens + batch.output_tokens
FROM {batch LateCost}
WHERE jobs.id = batch.job_id
RETURNING jobs.id, jobs.owner;

-- name: mark_late
-- A time limit has ended these items: messages that were stored but not used yet are late now.
UPDATE inbox SET is_late = 1 WHERE item_id IN (SELECT item_id FROM {batch(item_id bigint)}) AND is_late = 0
RETURNING item_id, kind;

-- name: late_page
-- An owner's late results, newest first, from a cursor on.
SELECT {columns LateResult of inbox, inbox.id AS number, items.state AS item_state, items.deadline_at AS deadline_at,
    CAST(NULL AS text) AS body}
FROM inbox JOIN items ON items.id = inbox.item_id
WHERE inbox.owner = :owner AND inbox.is_late = 1 AND inbox.kind = 'succeeded' AND inbox.id < :before
  AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = items.job_id AND jobs.owner = :owner)
ORDER BY inbox.id DESC LIMIT :n;

-- name: late_result
SELECT {columns LateResult of inbox, inbox.id AS number, items.state AS item_state, items.deadline_at AS deadline_at}
FROM inbox JOIN items ON items.id = inbox.item_id
WHERE inbox.id = :number AND inbox.owner = :owner AND inbox.is_late = 1 AND inbox.kind = 'succeeded'
  AND EXISTS (SELECT 1 FROM jobs WHERE jobs.id = items.job_id AND jobs.owner = :owner);

-- name: accept_item
-- A failed item succeeds after all, because a person accepted its late result. Not while it is archived.
UPDATE items SET state = 'succeeded', fence = fence + 1, attempt_count = attempt_count + 1, error_code = NULL,
    timed_out_at = NULL, due_at = NULL, progress = 100, finished_at = {now}, flaw = CASE WHEN flaw IN ('unknown', 'late') THEN NULL ELSE flaw END
WHERE id = :item_id AND state = 'failed' AND archive_id IS NULL
RETURNING {columns AcceptedItem, {now} AS now};

-- name: accept_in_job
-- One failure less and one success more. A job that had failed because it had no success is completed now, unless it was
-- stopped.
UPDATE jobs SET failed = failed - 1, succeeded = succeeded + 1,
    state = CASE WHEN state = 'failed' AND stop_reason IS NULL THEN 'completed' ELSE state END
WHERE id = :job_id;

-- name: accept_inbox
UPDATE inbox SET accepted_at = {now}, accepted_by = :accepted_by WHERE id = :number;

-- name: late_of
-- The results that came late for one item, the last first.
SELECT {columns LateResult of inbox, inbox.id AS number, items.state AS item_state, items.deadline_at AS deadline_at}
FROM inbox JOIN items ON items.id = inbox.item_id JOIN jobs ON jobs.id = items.job_id
WHERE inbox.item_id = :item_id AND inbox.is_late = 1 AND inbox.kind = 'succeeded' AND jobs.owner = :owner
ORDER BY inbox.id DESC LIMIT :n;
