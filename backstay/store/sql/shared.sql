-- Pieces that several statements share. A statement has one as its name in braces.

-- shared: all_ended
-- Every item of a job has ended, with those that are being counted now.
jobs.total = jobs.succeeded + jobs.failed + jobs.skipped + jobs.cancelled + moved.ended

-- shared: job_over
-- And no more items come. Of a job that is sealed now, moved.sealed is 1.
(jobs.sealed = 1 OR moved.sealed = 1) AND {all_ended}

-- shared: job_end
-- How a job ends with its last item; before that nothing changes here.
finished_at = CASE WHEN {job_over} THEN {now} ELSE jobs.finished_at END,
    held = CASE WHEN {job_over} THEN 0 ELSE jobs.held END,
    waits_for = CASE WHEN {job_over} THEN NULL ELSE jobs.waits_for END,
    state = CASE WHEN NOT ({job_over}) THEN jobs.state
                 WHEN jobs.stop_reason = 'cancel' THEN 'cancelled'
                 WHEN jobs.stop_reason = 'timeout' THEN 'failed'
                 WHEN jobs.succeeded + moved.succeeded > 0 OR (jobs.total = 0 AND jobs.known > 0) THEN 'completed'
                 ELSE 'failed' END

-- shared: nothing_moved
-- For a statement that ends a job and counts no items.
(SELECT 0 AS ended, 0 AS succeeded, 1 AS sealed) AS moved

-- shared: job_not_held
job_id NOT IN (SELECT id FROM jobs WHERE held = 1)

-- shared: job_not_short
-- A job that was short of a budget it shares is tried again when money has come back to it, or its period is over.
job_id NOT IN (
    SELECT id FROM jobs WHERE short = 1 AND (short_of IS NULL OR EXISTS (
        SELECT 1 FROM budgets WHERE budgets.id = jobs.short_of AND budgets.renewals = jobs.short_renewals
            AND (budgets.ends_at IS NULL OR budgets.ends_at > {now}))))

-- shared: short_now
-- Whether a job's next item does not fit under a budget. Of one that it shares, only if no call of another job could give
-- money back, and its period is not over.
CASE WHEN short = 1 AND (short_of IS NULL OR EXISTS (
    SELECT 1 FROM budgets WHERE budgets.id = short_of AND budgets.renewals = short_renewals AND budgets.reserved_micros = 0
        AND (budgets.ends_at IS NULL OR budgets.ends_at > {now}))) THEN 1 ELSE 0 END

-- shared: in_time
(deadline_at IS NULL OR deadline_at > {now})

-- shared: ready_picked
-- The ready items of one handler, in order.
picked AS MATERIALIZED (
    SELECT id FROM items
    WHERE state = 'queued' AND due_at IS NULL AND handler = :handler AND order_key >= :from_key
      AND {in_time} AND {job_not_held}
    ORDER BY order_key LIMIT :n {skip_locked}
)

-- shared: named_picked
-- Those of some named items that can be claimed now; the conditions are inside CASE for the reason given at settle_items.
picked AS MATERIALIZED (
    SELECT items.id FROM {batch(id bigint)} JOIN items ON items.id = batch.id
    WHERE CASE WHEN items.state = 'queued' AND items.handler = :handler AND (items.due_at IS NULL OR items.due_at <= {now})
                AND {in_time} THEN 1 ELSE 0 END <> 0
      AND {job_not_held}
    {skip_locked}
)

-- shared: take
-- What a claim changes of an item.
state = 'submitting', fence = fence + 1, leased_by = :worker, lease_expires_at = {now} + :lease_ms,
    reconcile_after = {now} + :reconcile_ms, last_attempt_at = {now}

-- shared: taken
-- A claimed item as its holder sees it.
{columns Claimed of items, items.last_attempt_at AS claimed_at, items.last_attempt_at AS started_at,
    CAST(NULL AS text) AS stop_reason, (SELECT body FROM requests WHERE item_id = items.id) AS body,
    items.reserved_micros AS reserved}

-- shared: jobs_started
-- The jobs of the claimed items are running.
started AS (
    UPDATE jobs SET state = 'running', started_at = {now}
    WHERE id = ANY(ARRAY(SELECT DISTINCT job_id FROM claimed)) AND state = 'queued'
)

-- shared: pays_again
-- Whether another call of a failed item may pay again: a call may have been processed and paid, and it cannot be looked up.
CASE WHEN items.flaw = 'unknown' AND items.provider_task_id IS NOT NULL THEN 0
         WHEN items.error_code IN {MAYBE_DONE}
          AND (items.provider_task_id IS NOT NULL OR items.reconcile_after <= items.last_attempt_at) THEN 1 ELSE 0 END AS repeat

-- shared: asks_first
-- Whether a failed item that is retried is looked up before it is sent: its request may have reached the provider.
error_code IN {MAYBE_DONE} AND provider_task_id IS NULL

-- shared: asks_later
-- The same, and the request may still be under way when the item would be ready.
{asks_first} AND reconcile_after > {now} + batch.wait_ms

-- shared: back_at
-- When an item that is retried is ready.
CASE WHEN {asks_later} THEN reconcile_after ELSE {now} + batch.wait_ms END

-- shared: settled_guard
-- A settlement is valid only from the holder of the item, with the state and the fence that it knows, and for an allowed next state.
CASE WHEN items.state = :was AND items.leased_by IS NOT NULL THEN 1 ELSE 0 END <> 0
  AND ({follows :was :state})
