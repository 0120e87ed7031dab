-- Providers: the knowledge that all workers share.

-- name: providers
SELECT {columns Breaker, name AS provider} FROM providers ORDER BY name;

-- name: ensure_provider
INSERT INTO providers (name, state, since_at) VALUES (:name, 'closed', 0) ON CONFLICT (name) DO NOTHING;

-- name: lock_provider
SELECT {fields Breaker, name AS provider}, {now} AS now FROM providers WHERE name = :name {for_update};

-- name: save_provider
UPDATE providers SET state = :state, since_at = :since_at, until_at = :until_at, reason = :reason, calls = :calls, opened = :opened,
    probe_until = CASE WHEN since_at = :since_at THEN probe_until ELSE 0 END
WHERE name = :name;

-- name: take_probe
-- The right to try a half-open provider goes to one worker at a time.
UPDATE providers SET probe_until = {now} + :probe_ms
WHERE name = :name AND state = 'half_open' AND probe_until <= {now}
RETURNING name;

-- name: give_probe
-- A worker that has no item for a probe lets other workers try.
UPDATE providers SET probe_until = 0 WHERE name = :name AND state = 'half_open';

-- name: held_jobs
SELECT {columns HeldJob} FROM jobs WHERE held = 1 ORDER BY id;

-- name: now
SELECT {now} AS now;

-- name: now_and_schema
SELECT {now} AS now, version_num AS version FROM alembic_version;

-- name: set_pace
-- The limits that a person gave; the last ones count. If they changed, the learnt number of calls at once is reset.
INSERT INTO paces (provider, requests_per_minute, tokens_per_minute, concurrency, ceiling, requests_period_ms,
    input_tokens_per_minute, output_tokens_per_minute, requests_per_day)
VALUES (:provider, :requests_per_minute, :tokens_per_minute, :concurrency, :ceiling, :requests_period_ms,
    :input_tokens_per_minute, :output_tokens_per_minute, :requests_per_day)
ON CONFLICT (provider) DO UPDATE SET
    requests_per_minute = excluded.requests_per_minute, tokens_per_minute = excluded.tokens_per_minute,
    requests_period_ms = excluded.requests_period_ms, requests_per_day = excluded.requests_per_day,
    input_tokens_per_minute = excluded.input_tokens_per_minute, output_tokens_per_minute = excluded.output_tokens_per_minute,
    ceiling = CASE WHEN paces.concurrency = excluded.concurrency THEN paces.ceiling ELSE excluded.ceiling END,
    concurrency = excluded.concurrency;

-- name: lock_pace
SELECT {fields Pace}, {now} AS now
FROM paces WHERE provider = :provider {for_update};

-- name: save_pace
UPDATE paces SET ceiling = :ceiling, requests_at = :requests_at, tokens_at = :tokens_at, resume_at = :resume_at,
    input_at = :input_at, output_at = :output_at, day_calls = :day_calls
WHERE provider = :provider;

-- name: paces
SELECT {columns Pace} FROM paces ORDER BY provider;

-- name: pace
-- The first of two names that has a pace.
SELECT {columns Pace} FROM paces WHERE provider IN (:paced, :paced_then)
ORDER BY CASE WHEN provider = :paced THEN 0 ELSE 1 END LIMIT 1;

-- name: save_endpoint
INSERT INTO endpoints (name, spec, created_at) VALUES (:name, :spec, {now}) ON CONFLICT (name) DO NOTHING;

-- name: open_endpoints
-- The endpoints of unfinished jobs, and of jobs with tasks that are polled for late results.
SELECT endpoints.name, endpoints.spec FROM endpoints
WHERE name IN (SELECT handler FROM jobs WHERE state IN {JOB_OPEN})
   OR name IN (SELECT handler_then FROM jobs WHERE state IN {JOB_OPEN})
   OR EXISTS (SELECT 1 FROM items WHERE items.handler = endpoints.name AND items.state = 'failed' AND items.due_at IS NOT NULL)
ORDER BY name;

-- name: all_endpoints
SELECT name, spec FROM endpoints ORDER BY created_at, name;
