-- API keys: found by their id, checked by the digest of their secret. And the replies to requests with an idempotency key:
-- the key is taken before the work is done, and kept with the answer.

-- name: add_key
INSERT INTO api_keys (id, owner, name, role, digest, created_at, expires_at)
VALUES (:id, :owner, :name, :role, :digest, {now}, {now} + CAST(:lives_ms AS bigint))
RETURNING created_at, expires_at;

-- name: key
-- A valid key: neither revoked nor expired.
SELECT {columns ApiKey}
FROM api_keys WHERE id = :id AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > {now});

-- name: keys
SELECT {columns ApiKey}
FROM api_keys WHERE owner = :owner ORDER BY created_at DESC, id LIMIT :n;

-- name: revoke_key
-- At once, or after a grace period in which its users can change to the new key.
UPDATE api_keys SET
    revoked_at = CASE WHEN :grace_ms = 0 THEN {now} ELSE revoked_at END,
    expires_at = CASE WHEN :grace_ms = 0 THEN expires_at
                      WHEN expires_at IS NULL OR expires_at > {now} + :grace_ms THEN {now} + :grace_ms ELSE expires_at END
WHERE id = :id AND owner = :owner AND revoked_at IS NULL
RETURNING name, role;

-- name: end_sessions
-- Sessions that began by then are over.
UPDATE api_keys SET left_at = :left_at WHERE id = :id AND coalesce(left_at, 0) < :left_at;

-- name: touch_key
UPDATE api_keys SET used_at = {now} WHERE id = :id;

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
