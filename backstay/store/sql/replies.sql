-- Replies to requests with an idempotency key: taken before the work is done, kept with its answer.

-- name: take_reply
-- Claims the key when it is new, its reply has expired, or the process that was answering is gone.
INSERT INTO replies (owner, key, digest, created_at, token, leased_until)
VALUES (:owner, :key, '', {now}, :token, {now} + CAST(:lease_ms AS bigint))
ON CONFLICT (owner, key) DO UPDATE SET digest = '', created_at = excluded.created_at, token = excluded.token,
    leased_until = excluded.leased_until, status = NULL, headers = NULL, body = NULL
WHERE replies.created_at <= {now} - CAST(:age_ms AS bigint)
   OR (replies.status IS NULL AND replies.leased_until <= {now})
RETURNING token;

-- name: reply
SELECT {columns KeptReply} FROM replies WHERE owner = :owner AND key = :key;

-- name: hold_reply
UPDATE replies SET leased_until = {now} + CAST(:lease_ms AS bigint)
WHERE owner = :owner AND key = :key AND token = :token AND status IS NULL;

-- name: keep_reply
-- Only by the process that has the key now.
UPDATE replies SET digest = :digest, status = :answered, headers = :headers, body = :body
WHERE owner = :owner AND key = :key AND token = :token AND status IS NULL;

-- name: give_reply
-- Nothing was done: the key is as if it had not been used.
DELETE FROM replies WHERE owner = :owner AND key = :key AND token = :token AND status IS NULL;

-- name: forget_replies
-- Deletes a few expired ones each time a key is claimed, so that the table holds about one day.
DELETE FROM replies WHERE (owner, key) IN (
    SELECT owner, key FROM replies
    WHERE created_at <= {now} - CAST(:age_ms AS bigint) AND leased_until <= {now}
    ORDER BY created_at LIMIT :n {skip_locked}
);
