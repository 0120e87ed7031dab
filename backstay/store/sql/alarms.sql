-- Alarms, and the figures behind them. All reads are bounded: only the newest rows of an index are read.

-- name: lately_failed
SELECT {columns RecentFailures, letters.items AS letters, letters.timeouts AS timeouts, ended.jobs AS jobs, ended.failed AS jobs_failed}
FROM (SELECT count(*) AS items, count(timed_out_at) AS timeouts
      FROM (SELECT timed_out_at FROM items
            WHERE state = 'failed' AND archive_id IS NULL AND finished_at > {now} - CAST(:span_ms AS bigint)
            ORDER BY finished_at DESC LIMIT :n) AS newest) AS letters,
    (SELECT count(*) AS jobs, coalesce(sum(CASE WHEN state = 'failed' THEN 1 ELSE 0 END), 0) AS failed
     FROM (SELECT state FROM jobs WHERE finished_at > {now} - CAST(:span_ms AS bigint)
           ORDER BY finished_at DESC LIMIT :n) AS newest) AS ended;

-- name: raise_alarm
-- The process that gets the row back sends the notification.
INSERT INTO alarms (name, value, bound, detail, raised_at) VALUES (:name, :figure, :bound, :detail, {now})
ON CONFLICT (name) DO UPDATE SET value = excluded.value, bound = excluded.bound, detail = excluded.detail,
    raised_at = excluded.raised_at, cleared_at = NULL
WHERE alarms.cleared_at IS NOT NULL
RETURNING name;

-- name: clear_alarm
UPDATE alarms SET cleared_at = {now}, value = :figure, bound = :bound, detail = :detail WHERE name = :name AND cleared_at IS NULL
RETURNING name;

-- name: refresh_alarm
UPDATE alarms SET value = :figure, bound = :bound, detail = :detail
WHERE name = :name AND (value <> :figure OR bound <> :bound OR detail <> :detail);

-- name: tell_alarm
INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at)
SELECT CAST(:owner AS text), 'alarm', CAST(:name AS text), CAST(:told AS text), '{}', {now}
WHERE EXISTS (SELECT 1 FROM webhooks WHERE owner = :owner AND disabled_at IS NULL AND deleted_at IS NULL);

-- name: alarms
SELECT {columns AlarmRow} FROM alarms ORDER BY cleared_at IS NOT NULL, raised_at DESC, name;
