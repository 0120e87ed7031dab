-- How pollers keep what they ask about.

-- name: extend_polls
-- The later due_at is the lease of a poll. Items with another fence, or locked by another transaction, are skipped.
WITH picked AS MATERIALIZED (
    SELECT items.id FROM items JOIN {batch(id bigint, fence bigint)} ON items.id = batch.id AND items.fence = batch.fence
    WHERE CASE WHEN items.state = 'processing' AND items.leased_by IS NOT NULL THEN 1 ELSE 0 END <> 0 {skip_locked}
)
UPDATE items SET due_at = {now} + :lease_ms
WHERE id {in picked}
RETURNING id;
