-- The results of a job and its copies, page by page.

-- name: results_page
-- A job's ended items in the order they were submitted, with their last attempt, from a cursor on. The span is given for
-- every table: otherwise PostgreSQL would merge them, and read the bodies of all earlier jobs on the way.
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

-- name: answers_of
-- Some ended items with their last attempt, and the usage of all their attempts. An item whose fence is 1 was claimed
-- once and has one attempt, so nothing has to be added up. The cost is unknown if the cost of any attempt is.
SELECT {columns AnswerRow of items, attempts.message AS message, attempts.result AS result,
    attempts.provider_status AS provider_status, requests.body AS body,
    CASE WHEN items.fence <= 1 THEN attempts.input_tokens ELSE
        (SELECT CAST(sum(tried.input_tokens) AS bigint) FROM attempts AS tried WHERE tried.item_id = items.id)
    END AS input_tokens,
    CASE WHEN items.fence <= 1 THEN attempts.output_tokens ELSE
        (SELECT CAST(sum(tried.output_tokens) AS bigint) FROM attempts AS tried WHERE tried.item_id = items.id)
    END AS output_tokens,
    CASE WHEN items.fence <= 1 THEN attempts.cost_micros ELSE
        (SELECT CASE count(CASE WHEN tried.input_tokens IS NOT NULL AND tried.cost_micros IS NULL THEN 1 END)
            WHEN 0 THEN CAST(sum(tried.cost_micros) AS bigint) END
         FROM attempts AS tried WHERE tried.item_id = items.id)
    END AS cost_micros}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN requests ON requests.item_id = items.id
LEFT JOIN attempts ON attempts.item_id = items.id AND attempts.fence = items.fence
WHERE items.state IN {ITEM_ENDED} ORDER BY items.id;

-- name: requests_of
-- Some items in any state, with their requests.
SELECT {columns ItemRequest of items, requests.body AS body}
FROM {batch(id bigint)} JOIN items ON items.id = batch.id JOIN requests ON requests.item_id = items.id;

-- name: copies_of
-- The further custom_ids that get the answers of some items.
SELECT {columns Copy of copies}
FROM {batch(id bigint)} JOIN copies ON copies.item_id = batch.id ORDER BY copies.item_id, copies.number;

-- name: copies_page
-- Which of a job's requests are copies, and of which items, from a cursor on.
SELECT item_id, number FROM copies
WHERE (item_id, number) > (:item_id, :number) AND item_id < :after ORDER BY item_id, number LIMIT :n;

-- name: copies_named
-- The names of some copies.
SELECT {columns Copy of copies}
FROM {batch(item_id bigint, number bigint)}
JOIN copies ON copies.item_id = batch.item_id AND copies.number = batch.number;
