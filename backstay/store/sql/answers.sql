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
