-- API keys: found by their id, checked by the digest of their secret.

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
