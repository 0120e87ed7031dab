-- Webhooks: the events (outbox), the URLs that get them (webhooks), and each notification (deliveries).

-- name: add_webhook
-- Not beyond the number that an owner may have. The same id again is the same webhook.
INSERT INTO webhooks (id, owner, name, url, events, created_at, updated_at)
SELECT :id, :owner, :name, :url, :events, {now}, {now}
WHERE (SELECT count(*) FROM webhooks WHERE owner = :owner AND deleted_at IS NULL) < CAST(:n AS bigint)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: webhook
SELECT {columns Webhook}
FROM webhooks WHERE id = :id AND owner = :owner AND deleted_at IS NULL;

-- name: webhooks
SELECT {columns Webhook}
FROM webhooks WHERE owner = :owner AND deleted_at IS NULL ORDER BY id LIMIT :n;

-- name: change_webhook
-- Values that are NULL change nothing. A webhook that is enabled again starts without earlier failures.
UPDATE webhooks SET
    name = coalesce(CAST(:name AS text), name), url = coalesce(CAST(:url AS text), url),
    events = coalesce(CAST(:events AS text), events), updated_at = {now},
    disabled_at = CASE WHEN CAST(:enabled AS bigint) = 1 THEN NULL
                       WHEN CAST(:enabled AS bigint) = 0 THEN coalesce(disabled_at, {now}) ELSE disabled_at END,
    disabled_why = CASE WHEN CAST(:enabled AS bigint) = 1 THEN NULL
                        WHEN CAST(:enabled AS bigint) = 0 THEN coalesce(disabled_why, 'by hand') ELSE disabled_why END,
    failing_since = CASE WHEN CAST(:enabled AS bigint) = 1 OR CAST(:url AS text) IS NOT NULL THEN NULL ELSE failing_since END
WHERE id = :id AND owner = :owner AND deleted_at IS NULL
RETURNING id;

-- name: rotate_webhook
-- A new secret; until the grace period is over the old one is used for signing as well.
UPDATE webhooks SET secret_version = secret_version + 1, updated_at = {now},
    old_secret_until = CASE WHEN CAST(:grace_ms AS bigint) > 0 THEN {now} + CAST(:grace_ms AS bigint) END
WHERE id = :id AND owner = :owner AND deleted_at IS NULL
RETURNING id;

-- name: delete_webhook
UPDATE webhooks SET deleted_at = {now} WHERE id = :id AND owner = :owner AND deleted_at IS NULL RETURNING id;

-- name: disable_webhook
-- Disables a webhook that answers that it is gone, or that has failed for too long.
UPDATE webhooks SET disabled_at = {now}, disabled_why = :reason
WHERE id = :id AND disabled_at IS NULL AND deleted_at IS NULL
  AND (CAST(:lasting_ms AS bigint) = 0 OR failing_since <= {now} - CAST(:lasting_ms AS bigint))
RETURNING id;

-- name: mark_webhook
-- Stores whether deliveries succeed, and since when they fail.
UPDATE webhooks SET failing_since = CASE WHEN CAST(:failed AS bigint) = 0 THEN NULL ELSE coalesce(failing_since, {now}) END
WHERE id = :id AND (CAST(:failed AS bigint) = 1 OR failing_since IS NOT NULL) AND (CAST(:failed AS bigint) = 0 OR failing_since IS NULL);

-- name: pending_messages
SELECT {columns OutboxEvent} FROM outbox
WHERE status = 'pending' AND sink = 'webhooks' AND due_at <= {now} AND due_at > {now} - CAST(:back_ms AS bigint)
ORDER BY due_at, id LIMIT :n {skip_locked};

-- name: webhooks_of
-- The webhooks that subscribe to these owners' events.
SELECT {columns Webhook} FROM webhooks
WHERE webhooks.owner IN (SELECT owner FROM {batch(owner text)}) AND disabled_at IS NULL AND deleted_at IS NULL
ORDER BY webhooks.id;

-- name: publish_messages
UPDATE outbox SET status = 'published', processed_at = {now}
WHERE id IN (SELECT id FROM {batch(id bigint)}) AND status = 'pending';

-- name: forget_messages
DELETE FROM outbox WHERE id IN (
    SELECT id FROM outbox WHERE sink = 'webhooks' AND processed_at IS NOT NULL AND processed_at < {now} - CAST(:age_ms AS bigint)
    ORDER BY processed_at LIMIT :n)
RETURNING id;

-- name: add_deliveries
INSERT INTO deliveries (webhook_id, owner, event_id, event_type, body, created_at, due_at)
SELECT webhook_id, owner, event_id, event_type, body, {now}, {now}
FROM {batch(webhook_id text, owner text, event_id text, event_type text, body text)} WHERE 1 = 1
ON CONFLICT (webhook_id, event_id) DO NOTHING
RETURNING id;

-- name: waiting_webhooks
-- Webhooks with a waiting delivery, in the order of their ids, and when it is due. Each costs two looks into an index,
-- however many deliveries wait. Not by min(), as at next_due.
WITH RECURSIVE waiting(id, looked) AS (
    SELECT (SELECT webhook_id FROM deliveries WHERE due_at IS NOT NULL AND webhook_id > CAST(:past AS text)
            ORDER BY webhook_id LIMIT 1), 1
    UNION ALL
    SELECT (SELECT webhook_id FROM deliveries WHERE due_at IS NOT NULL AND webhook_id > waiting.id
            ORDER BY webhook_id LIMIT 1), looked + 1
    FROM waiting WHERE waiting.id IS NOT NULL AND looked < CAST(:n AS bigint)
)
SELECT waiting.id, (SELECT due_at FROM deliveries WHERE webhook_id = waiting.id AND due_at IS NOT NULL
                    ORDER BY due_at LIMIT 1) AS due_at,
    {now} AS now
FROM waiting WHERE waiting.id IS NOT NULL;

-- name: claim_deliveries
-- For each of these webhooks, the delivery that has been due for longest. The later due_at is the lease, and the number of
-- the try is its fence.
WITH picked AS MATERIALIZED (
    SELECT (SELECT id FROM deliveries WHERE webhook_id = batch.webhook AND due_at IS NOT NULL AND due_at <= {now}
            ORDER BY due_at LIMIT 1 {skip_locked}) AS id
    FROM {batch(webhook text)}
)
UPDATE deliveries SET due_at = {now} + CAST(:lease_ms AS bigint), tries = tries + 1
WHERE id {in picked} AND due_at IS NOT NULL AND due_at <= {now}
RETURNING {columns DueDelivery of deliveries, {now} AS now,
    (SELECT url FROM webhooks WHERE webhooks.id = webhook_id AND disabled_at IS NULL AND deleted_at IS NULL) AS url,
    (SELECT secret_version FROM webhooks WHERE webhooks.id = webhook_id) AS secret_version,
    (SELECT CASE WHEN old_secret_until > {now} THEN 1 ELSE 0 END FROM webhooks WHERE webhooks.id = webhook_id) AS two_secrets};

-- name: settle_delivery
-- The result of one attempt: delivered, to be tried again, or given up.
UPDATE deliveries SET
    delivered_at = CASE WHEN CAST(:told AS bigint) = 1 THEN {now} ELSE delivered_at END,
    given_up_at = CASE WHEN CAST(:told AS bigint) = 0 AND CAST(:delay_ms AS bigint) IS NULL THEN {now} END,
    due_at = CASE WHEN CAST(:told AS bigint) = 0 THEN {now} + CAST(:delay_ms AS bigint) END,
    last_status = CAST(:answered AS integer), last_error = CAST(:error AS text)
WHERE id = :delivery AND tries = :tries AND due_at IS NOT NULL
RETURNING id;

-- name: give_up_deliveries
-- The webhook was deleted or disabled, so nothing is delivered any more.
UPDATE deliveries SET due_at = NULL, given_up_at = {now} WHERE webhook_id = :id AND due_at IS NOT NULL;

-- name: deliveries_page
SELECT {columns WebhookDelivery}
FROM deliveries WHERE webhook_id = :id AND owner = :owner
  AND id < :before ORDER BY id DESC LIMIT :n;

-- name: delivery
SELECT {columns WebhookDelivery}
FROM deliveries WHERE id = :delivery AND webhook_id = :id AND owner = :owner;

-- name: resend_delivery
-- Attempts start from zero. A delivery that is being made right now (it has a lease) is left alone.
UPDATE deliveries SET due_at = {now}, tries = 0, delivered_at = NULL, given_up_at = NULL
WHERE id = :delivery AND webhook_id = :id AND owner = :owner AND due_at IS NULL
RETURNING id;

-- name: resend_failed
-- A chunk of the deliveries that were given up.
UPDATE deliveries SET due_at = {now}, tries = 0, given_up_at = NULL
WHERE id IN (SELECT id FROM deliveries WHERE webhook_id = :id AND owner = :owner AND given_up_at IS NOT NULL AND due_at IS NULL
             ORDER BY id LIMIT :n) AND due_at IS NULL
RETURNING id;

-- name: forget_deliveries
DELETE FROM deliveries WHERE id IN (
    SELECT id FROM deliveries WHERE due_at IS NULL AND created_at < {now} - CAST(:age_ms AS bigint) ORDER BY created_at LIMIT :n)
RETURNING id;
