-- Submissions: new jobs and items.

-- name: create_job
-- A new job, or nothing when the owner has used this idempotency key before.
INSERT INTO jobs (owner, handler, state, priority, retry, delivery, label, ref_seed, idempotency_key, total, digest,
                  sealed, created_at, timeout_ms, timeout_at, deadline_at, budget_micros, handler_then, move_at,
                  fallback, waits_for, level_key, first_key, last_key)
VALUES (:owner, :handler, 'queued', :priority, :retry, :delivery, :label, :ref_seed, :idempotency_key, :total, :digest,
        :sealed, {now}, :job_timeout_ms, {now} + :job_timeout_ms, {now} + CAST(:deadline_ms AS bigint), :budget_micros,
        :handler_then, {now} + CAST(:move_ms AS bigint), :fallback, :waits_for, :level_key,
        coalesce((SELECT served_key FROM turns WHERE handler = :handler AND level_key = :level_key), :level_key),
        coalesce((SELECT served_key FROM turns WHERE handler = :handler AND level_key = :level_key), :level_key) + :total)
ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
RETURNING {columns OpenJob, 1 AS new, (SELECT count(*) FROM sinks WHERE name = 'work') AS hinted};

-- name: submit_few.postgres
-- why: a small job with all its items in one round trip; with :wake, workers are woken when its transaction commits.
WITH job AS (
    INSERT INTO jobs (owner, handler, state, priority, retry, delivery, label, ref_seed, idempotency_key, total, digest,
                      sealed, created_at, timeout_ms, timeout_at, deadline_at, fallback, level_key, first_key,
                      last_key)
    VALUES (:owner, :handler, 'queued', :priority, :retry, :delivery, :label, :ref_seed, :idempotency_key, :total, :digest,
            1, {now}, :job_timeout_ms, {now} + :job_timeout_ms, {now} + CAST(:deadline_ms AS bigint), :fallback, :level_key,
            coalesce((SELECT served_key FROM turns WHERE handler = :handler AND level_key = :level_key), :level_key),
            coalesce((SELECT served_key FROM turns WHERE handler = :handler AND level_key = :level_key), :level_key) + :total)
    ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING *
), few AS MATERIALIZED (
    SELECT (job.id << CAST(:position_bits AS integer)) | batch.position AS item_id, batch.position, batch.body
    FROM job CROSS JOIN {batch(position bigint, body text)}
), loaded AS (
    INSERT INTO items (id, job_id, handler, state, order_key, created_at, queued_at, deadline_at)
    SELECT few.item_id, job.id, :handler, 'queued', job.first_key + few.position, job.created_at, job.created_at, job.deadline_at
    FROM job CROSS JOIN few
), asked AS (
    INSERT INTO requests (item_id, body) SELECT item_id, body FROM few
), hinted AS (
    INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at, due_at, sink)
    SELECT :owner, 'items', job.id << CAST(:position_bits AS integer), 'work.ready',
        CAST(:hint AS text) || (job.id << CAST(:position_bits AS integer)) || '}', job.created_at, job.created_at, 'work'
    FROM job WHERE job.total > 0 AND EXISTS (SELECT 1 FROM sinks WHERE name = 'work')
)
SELECT {columns OpenJob, 1 AS new, 0 AS hinted} FROM job
WHERE CASE WHEN CAST(:wake AS bigint) = 1 THEN CAST(pg_notify('backstay_wake', '') AS text) IS NOT NULL ELSE true END;

-- name: job_of_key
-- The job of an owner's idempotency key.
SELECT {columns OpenJob, 0 AS new, 0 AS hinted}
FROM jobs WHERE owner = :owner AND idempotency_key = :idempotency_key;

-- name: bodies_between
-- A job's own handler, and what its items are, from one position up to another.
SELECT jobs.handler, requests.body FROM jobs JOIN requests ON requests.item_id >= :first AND requests.item_id < :after
WHERE jobs.id = :job_id ORDER BY requests.item_id;

-- name: stop_broken_off
-- A unique job whose submitter was killed: more items were to come, and the last ones came long ago. A job that other
-- jobs feed has no such submitter. An item that cannot be seen yet is new.
UPDATE jobs SET held = 1, stop_reason = 'cancel', stopped_at = {now},
    state = CASE WHEN state = 'paused' THEN 'running' ELSE state END
WHERE owner = :owner AND idempotency_key = :idempotency_key AND sealed = 0 AND state IN {JOB_OPEN} AND stop_reason IS NULL
  AND created_at <= {now} - CAST(:silent_ms AS bigint)
  AND NOT EXISTS (SELECT 1 FROM job_links WHERE job_links.job_id = jobs.id AND job_links.feeds = 1)
  AND (total = 0 OR EXISTS (SELECT 1 FROM items WHERE items.id = (jobs.id << CAST(:position_bits AS integer)) + jobs.total - 1
                            AND items.created_at <= {now} - CAST(:silent_ms AS bigint)))
RETURNING id;

-- name: release_key
-- Releases the key of a unique job whose period is over, or that was cancelled.
UPDATE jobs SET idempotency_key = NULL
WHERE owner = :owner AND idempotency_key = :idempotency_key
  AND (created_at <= {now} - CAST(:unique_ms AS bigint) OR stop_reason = 'cancel' OR state = 'cancelled');

-- name: take_keys
-- Takes the keys of new items. A key that is not returned belongs to an earlier item. The key of a cancelled item, which
-- never ran, is taken again.
INSERT INTO item_keys (owner, handler, key, item_id)
SELECT :owner, :handler, batch.key, 0 FROM {batch(key text)} WHERE true
ON CONFLICT (owner, handler, key) DO UPDATE SET item_id = 0
WHERE (SELECT state FROM items WHERE items.id = item_keys.item_id) = 'cancelled'
RETURNING item_keys.key;

-- name: name_keys
-- Stores the items of keys that were just taken. An upsert, because PostgreSQL may plan an UPDATE that reads all keys of the
-- handler for each row.
INSERT INTO item_keys (owner, handler, key, item_id)
SELECT :owner, :handler, batch.key, batch.item_id FROM {batch(key text, item_id bigint)} WHERE true
ON CONFLICT (owner, handler, key) DO UPDATE SET item_id = excluded.item_id;

-- name: count_known
UPDATE jobs SET known = known + :known WHERE id = :job_id;

-- name: grow_job
-- Adds a chunk of items to the counters. No row back: another submitter was faster, or the job has ended.
-- SQLite 3.40 does not compare a column with NULL inside RETURNING, so the caller checks waits_for itself.
UPDATE jobs SET total = total + :added, digest = :digest,
    last_key = CASE WHEN last_key < first_key + total + :added THEN first_key + total + :added ELSE last_key END
WHERE id = :job_id AND total = :expected AND sealed = 0 AND stop_reason IS NULL
RETURNING id, {now} AS now, owner, waits_for, (SELECT count(*) FROM sinks WHERE name = 'work') AS hinted;

-- name: seal_job
-- Seals a job: all its items are submitted. If all of them have ended by now, the job ends here.
UPDATE jobs SET
    sealed = 1,
    {job_end}
FROM {nothing_moved}
WHERE jobs.id = :job_id AND jobs.sealed = 0
RETURNING jobs.id, jobs.state;

-- name: add_copies
-- Further custom_ids that get an item's answer. If they are written again after a crash, nothing changes.
INSERT INTO copies (item_id, number, custom_id)
SELECT item_id, number, custom_id FROM {batch(item_id bigint, number bigint, custom_id text)} WHERE true
ON CONFLICT (item_id, number) DO NOTHING;

-- name: place.postgres
-- Identifies these tables: a user's connection may lead to another database, or find other tables of the same name. The
-- columns are those of SQLite's pragma.
SELECT 'main' AS name, current_database() || ' ' || coalesce(CAST(CAST(to_regclass('jobs') AS oid) AS text), '') || ' '
    || (SELECT CAST(oid AS text) FROM pg_database WHERE datname = current_database()) AS file;

-- name: place.sqlite
-- A pragma, because a SELECT would begin to read: a transaction that reads before it writes fails at once when another
-- connection has written in between, and does not wait.
PRAGMA database_list;

-- name: lock_writes.sqlite
-- Changes nothing, but waits for the right to write.
DELETE FROM sinks WHERE 0 = 1;

-- name: wake_workers.postgres
-- Only a hint, which comes with the commit.
SELECT CAST(pg_notify('backstay_wake', '') AS text) AS woken;

-- Answers that later runs may use again. A key stands for a request; its answer is that of its item.

-- name: find_answers
-- The newest usable answer for each key, of any job but the one from :first to :after.
SELECT {columns FoundAnswer of items, batch.number AS number, items.id AS item_id,
    coalesce(items.reused_from, items.id) AS source, coalesce(found.answered_at, items.finished_at) AS answered_at}
FROM {batch(number bigint, key_high bigint, key_low bigint)}
JOIN items ON items.id = (
    SELECT answer_keys.item_id FROM answer_keys JOIN items AS old ON old.id = answer_keys.item_id
    WHERE answer_keys.key_high = batch.key_high AND answer_keys.key_low = batch.key_low
      AND (answer_keys.item_id < :first OR answer_keys.item_id >= :after) AND {usable_answer}
    ORDER BY answer_keys.item_id DESC LIMIT 1)
JOIN answer_keys AS found ON found.item_id = items.id;

-- name: copy_answers
-- Copies the answers of other items to new items, at no cost. An answer that was deleted meanwhile is not returned.
INSERT INTO attempts (item_id, fence, number, outcome, started_at, ended_at, provider_status, result, cost_micros)
SELECT batch.id, 0, 0, 'succeeded', {now}, {now}, attempts.provider_status, attempts.result, 0
FROM {batch(id bigint, item_id bigint, fence bigint)}
JOIN attempts ON attempts.item_id = batch.item_id AND attempts.fence = batch.fence
WHERE attempts.result IS NOT NULL
RETURNING item_id AS id;

-- name: count_reused
UPDATE jobs SET succeeded = succeeded + :reused, reused = reused + :reused WHERE id = :job_id;

-- name: any_answers
SELECT count(*) AS keys FROM (SELECT item_id FROM answer_keys LIMIT 1) AS any_key;

-- name: jobs_after
-- An owner's jobs, the oldest first, from a cursor on.
SELECT id, total FROM jobs WHERE owner = :owner AND id > :cursor ORDER BY id LIMIT :n;

-- name: sum_answers
-- The answers of one job that can be used again, by model. A reused one is counted only if the first one is gone.
SELECT {columns AnswerSum of answer_keys, count(*) AS answers,
    min(coalesce(answer_keys.answered_at, old.finished_at)) AS oldest_at,
    max(coalesce(answer_keys.answered_at, old.finished_at)) AS newest_at,
    CAST(sum((SELECT coalesce(sum(paid.cost_micros), 0) FROM attempts AS paid WHERE paid.item_id = old.id)) AS bigint) AS cost_micros}
FROM answer_keys JOIN items AS old ON old.id = answer_keys.item_id
WHERE answer_keys.item_id >= :first AND answer_keys.item_id < :after
  AND old.id >= :first AND old.id < :after AND old.state = 'succeeded' AND old.flaw IS NULL
  AND (old.reused_from IS NULL
       OR NOT EXISTS (SELECT 1 FROM answer_keys AS first_key WHERE first_key.item_id = old.reused_from))
GROUP BY answer_keys.model;

-- name: clear_answers
-- Deletes keys of one job: all, or those of a model, or those whose answers are older. Results stay.
DELETE FROM answer_keys WHERE item_id >= :first AND item_id < :after
  AND model = coalesce(CAST(:model AS text), model)
  AND (CAST(:age_ms AS bigint) IS NULL OR coalesce(answered_at,
       (SELECT finished_at FROM items WHERE items.id = answer_keys.item_id)) <= {now} - CAST(:age_ms AS bigint))
RETURNING item_id;
