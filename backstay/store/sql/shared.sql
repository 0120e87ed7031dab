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

-- shared: short_of_it
-- The budget that a job was short of is as it was then: no money has come back to it, and its period is not over.
budgets.id = short_of AND budgets.renewals = short_renewals
    AND (budgets.ends_at IS NULL OR budgets.ends_at > {now})

-- shared: covers_handler
-- Whether a budget is for all handlers, for this one, or for all that send requests to its host (@api.openai.com).
(budgets.handler IN ('', CAST(:handler AS text)) OR (substr(budgets.handler, 1, 1) = '@'
    AND replace(CAST(:handler AS text), budgets.handler || '#', '') <> CAST(:handler AS text)))

-- shared: left_micros
-- What a job has left under its ceiling; null if it has none.
budget_micros - spent_micros - jobs.reserved_micros - unknown_micros

-- shared: shares_budget
-- Whether a job's calls of a handler are paid from a budget that jobs share.
EXISTS (SELECT 1 FROM budgets WHERE budgets.owner IN ('', jobs.owner) AND {covers_handler})

-- shared: job_not_short
-- A job that was short of a budget is tried again as soon as it may fit. Another handler's budget does not hold it.
job_id NOT IN (
    SELECT id FROM jobs WHERE short = 1
    AND (short_of IS NULL OR EXISTS (SELECT 1 FROM budgets WHERE {short_of_it} AND {covers_handler})))

-- shared: short_elsewhere
-- Whether a job is short of a budget that does not cover this handler: a claim of this handler leaves that mark.
CASE WHEN jobs.short = 1 AND EXISTS (SELECT 1 FROM budgets WHERE budgets.id = jobs.short_of AND NOT {covers_handler}) THEN 1 ELSE 0 END

-- shared: short_now
-- Whether a job's next item does not fit under a budget. Of one that it shares, only if no call of another job could give
-- money back.
CASE WHEN short = 1 AND (short_of IS NULL OR EXISTS (
    SELECT 1 FROM budgets WHERE {short_of_it} AND budgets.reserved_micros = 0)) THEN 1 ELSE 0 END

-- shared: first_attempt_at
-- An item that time ended before its first try has an attempt that never started.
(SELECT min(first.started_at) FROM attempts AS first WHERE first.item_id = items.id AND first.started_at > 0) AS first_attempt_at

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

-- shared: claim_ready
WITH {ready_picked}
UPDATE items SET
    {take}
WHERE id {in picked}
RETURNING {taken}

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
    items.reserved_micros AS reserved, CAST(NULL AS text) AS terms}

-- shared: jobs_started
-- The jobs of the claimed items are running. Each row is compared with each of these jobs, so only a few give their terms.
started AS (
    UPDATE jobs SET state = 'running', started_at = {now}
    WHERE id = ANY(ARRAY(SELECT DISTINCT job_id FROM claimed)) AND state = 'queued'
    RETURNING {fields JobTerms of jobs, {items_left} AS items_left}
), few_started AS MATERIALIZED (
    SELECT id AS job_id, CAST(json_build_array({fields JobTerms}) AS text) AS terms FROM started LIMIT 10
)

-- shared: claimed_with_terms
SELECT {columns Claimed of claimed, few_started.terms AS terms}
FROM claimed LEFT JOIN few_started ON few_started.job_id = claimed.job_id

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

-- shared: settled_values
-- What a settlement writes into an item.
state = :state,
    handler = coalesce(CAST(:handler_next AS text), items.handler),
    -- Another handler has another cost, unless it sends the same request elsewhere: then the cost covers that, and its time starts.
    cost_micros = CASE WHEN {same_cost} THEN items.cost_micros END,
    tokens = CASE WHEN {same_cost} THEN items.tokens ELSE 0 END,
    output_tokens = CASE WHEN {same_cost} THEN items.output_tokens ELSE 0 END,
    queued_at = CASE WHEN :same_request = 1 THEN {now} ELSE items.queued_at END,
    attempt_count = :attempt_count, calls = :calls, round = :round, rescues = :rescues, repeats = :repeats,
    due_at = {now} + batch.delay_ms,
    leased_by = NULL,
    lease_expires_at = CASE WHEN :state = 'submitting' THEN {now} END,
    reserved_micros = CASE WHEN :state IN ('submitting', 'processing') OR (:timed_out = 1 AND :was = 'processing')
                           THEN items.reserved_micros ELSE 0 END,
    provider_task_id = batch.provider_task_id, account = :account, error_code = :error_code,
    refused_at = CASE WHEN :state = 'queued' AND :error_code = 'FORBIDDEN' AND CAST(:handler_next AS text) IS NULL THEN {now} END,
    progress = CASE WHEN :state = 'succeeded' THEN 100
                    WHEN :state = 'queued' THEN 0
                    ELSE coalesce(CAST(:progress AS bigint), items.progress) END,
    finished_at = CASE WHEN :state IN {ITEM_ENDED} THEN {now} END,
    timed_out_at = CASE WHEN :timed_out = 1 THEN {now} END,
    flaw = :flaw

-- shared: same_cost
(CAST(:handler_next AS text) IS NULL OR :same_request = 1)

-- shared: share_over
-- Whether the first share of the time until an item's deadline is over; :time_shares providers share that time.
items.queued_at + (items.deadline_at - items.queued_at) / :time_shares <= {now}

-- shared: usable_answer
-- Whole, of this owner, not too old, and given by the provider that was asked first, or by a fallback that the new run has
-- too. The spec of a fallback is the one that names a model.
old.state = 'succeeded' AND old.flaw IS NULL
    AND coalesce(answer_keys.answered_at, old.finished_at) >= coalesce({now} - CAST(:age_ms AS bigint), 0)
    AND (SELECT owner FROM jobs WHERE jobs.id = old.job_id) = :owner
    AND (replace(CAST(:handlers AS text), '|' || old.handler || '|', '') <> CAST(:handlers AS text)
         OR (SELECT spec FROM endpoints WHERE endpoints.name = old.handler) NOT LIKE '%"model": "%')

-- shared: few_settled
-- A few items with the same outcome, and their attempts; `moved` is what changes in the counters of their jobs.
few AS MATERIALIZED (
    SELECT * FROM {batch SettledAttempt}
), settled AS (
    UPDATE items SET
        state = :state,
        attempt_count = :attempt_count, calls = :calls, round = :round, rescues = :rescues, repeats = :repeats,
        due_at = {now} + few.delay_ms, leased_by = NULL,
        lease_expires_at = CASE WHEN :state = 'submitting' THEN {now} END,
        provider_task_id = few.provider_task_id, account = :account, error_code = :error_code,
        progress = CASE WHEN :state = 'succeeded' THEN 100
                        ELSE coalesce(CAST(:progress AS bigint), items.progress) END,
        finished_at = CASE WHEN :state IN {ITEM_ENDED} THEN {now} END,
        timed_out_at = CASE WHEN :timed_out = 1 THEN {now} END
    FROM few
    WHERE items.id = few.id AND items.fence = few.fence AND {settled_guard}
    RETURNING items.id, items.fence, items.job_id
), tried AS (
    INSERT INTO attempts ({fields Attempt})
    SELECT {fields Attempt of few.attempt_}
    FROM few JOIN settled ON settled.id = few.id AND settled.fence = few.fence WHERE few.attempt_item_id IS NOT NULL
), moved AS (
    SELECT job_id, 0 AS sealed,
        CASE WHEN :state IN {ITEM_ENDED} THEN count(*) ELSE 0 END AS ended,
        CASE WHEN :state = 'processing' THEN count(*) ELSE 0 END - CASE WHEN :was = 'processing' THEN count(*) ELSE 0 END AS processing,
        CASE WHEN :state = 'succeeded' THEN count(*) ELSE 0 END AS succeeded,
        CASE WHEN :state = 'failed' THEN count(*) ELSE 0 END AS failed,
        CASE WHEN :state = 'skipped' THEN count(*) ELSE 0 END AS skipped,
        CASE WHEN :state = 'cancelled' THEN count(*) ELSE 0 END AS cancelled
    FROM settled GROUP BY job_id ORDER BY job_id
)

-- shared: items_left
-- How many items of a job have not ended, as far as its row knows.
jobs.total - jobs.succeeded - jobs.failed - jobs.skipped - jobs.cancelled

-- shared: budgets_lock
-- The advisory lock of the list of budgets: shared by those who move money, exclusive for whoever makes a budget. So a new
-- budget counts all money that is set aside, and nobody gives money back without seeing the budget.
7088949487481126912

-- shared: no_new_budget
-- Before the columns of a statement: no budget is made until the transaction ends. A later statement may read the budgets.

-- shared: no_new_budget.postgres
pg_advisory_xact_lock_shared({budgets_lock}) AS no_new_budget,

-- shared: counts_lock
-- The advisory lock of a job's counts: shared by those who add rows to job_counts, exclusive for whoever adds them up.
7088947288457871360 + job_id

-- shared: adding_lock
-- Held while one process adds up the counts of a job, so that the others do not wait for it.
7088948387969499136 + jobs.id

-- shared: counted_apart
-- Beside FROM jobs: the counts that are not in the rows of jobs yet. SQLite has none.

-- shared: counted_apart.postgres
LEFT JOIN LATERAL (
    SELECT {each ApartCounts: CAST(coalesce(sum($), 0) AS bigint) AS $}
    FROM job_counts WHERE job_counts.job_id = jobs.id AND job_counts.id > jobs.counted_id) AS apart ON true

-- shared: all_counts
-- With it, the counters of a job as they are.

-- shared: all_counts.postgres
{each ApartCounts: jobs.$ + apart.$ AS $},

-- shared: tokens_added
input_tokens = CASE WHEN jobs.input_tokens > CAST(:sum_max AS bigint) - moved.input_tokens THEN CAST(:sum_max AS bigint)
                        ELSE jobs.input_tokens + moved.input_tokens END,
    output_tokens = CASE WHEN jobs.output_tokens > CAST(:sum_max AS bigint) - moved.output_tokens THEN CAST(:sum_max AS bigint)
                         ELSE jobs.output_tokens + moved.output_tokens END
