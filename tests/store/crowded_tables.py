"""A table as it looks after a year: a million finished items, and a hundred thousand whose time has not come."""

from backstay.core.ids import POSITION_BITS

FINISHED_JOBS = 20_000
ITEMS_PER_JOB = 50
WAITING_JOB, READY_JOB, TASK_JOB, HELD_JOB, PAUSED_JOB = range(20_001, 20_006)
WAITING_ITEMS = 100_000
CROWD_ITEMS = 100_000
READY_ITEMS = 10_000
NOW_MS = 1_800_000_000_000
FUTURE_MS = 4_000_000_000_000

_NUMBERS = {
    "postgres": "INSERT INTO numbers SELECT i FROM generate_series(0, 99999) AS i",
    "sqlite": "WITH RECURSIVE n(i) AS (VALUES (0) UNION ALL SELECT i + 1 FROM n WHERE i < 99999) "
    "INSERT INTO numbers SELECT i FROM n",
}
# The bodies of every fifth job show as much as those of all, and are there in a fifth of the time.
_BODIED = f"job_id % 5 = 0 OR job_id > {FINISHED_JOBS}"
_JOB = (
    "INSERT INTO jobs "
    "(id, owner, handler, state, sealed, priority, ref_seed, total, created_at, timeout_ms, timeout_at)"
)
_ITEM = "INSERT INTO items (id, job_id, handler, state, order_key, created_at, queued_at, {more})"


def fill(dialect: str) -> list[str]:
    """The statements that make the crowd, in the SQL that both databases share."""
    return [
        # Only spelt so is it SQLite's own row id; PostgreSQL's integer would be too short for what is made of it.
        f"CREATE TABLE numbers (i {'bigint' if dialect == 'postgres' else 'INTEGER'} PRIMARY KEY)",
        _NUMBERS[dialect],
        f"{_JOB} SELECT i, 'local', 'echo', 'completed', 1, 0, '', {ITEMS_PER_JOB}, {NOW_MS}, 1, {NOW_MS} "
        f"FROM numbers WHERE i BETWEEN 1 AND {FINISHED_JOBS}",
        f"{_ITEM.format(more='fence, attempt_count, finished_at, error_code')} "
        f"SELECT (j.i << {POSITION_BITS}) + p.i, j.i, 'echo', "
        "CASE WHEN p.i % 50 = 7 THEN 'failed' ELSE 'succeeded' END, "
        f"{NOW_MS} + p.i * 1000, {NOW_MS}, {NOW_MS}, 1, 1, {NOW_MS}, CASE WHEN p.i % 50 = 7 THEN 'GW_5XX' END "
        f"FROM numbers AS j CROSS JOIN numbers AS p WHERE j.i BETWEEN 1 AND {FINISHED_JOBS} AND p.i < {ITEMS_PER_JOB}",
        *_live(WAITING_JOB, "echo", "queued", WAITING_ITEMS, due=f"{FUTURE_MS} + i"),
        *_live(READY_JOB, "echo", "queued", READY_ITEMS),
        *_live(TASK_JOB, "task", "processing", READY_ITEMS, due=f"{NOW_MS} + i"),
        # An older crowd stands before the ready items, under a handler of its own.
        *_live(HELD_JOB, "held", "queued", CROWD_ITEMS, order_before=1_000_000_000_000),
        f"INSERT INTO requests (item_id, body) SELECT id, '{{}}' FROM items WHERE {_BODIED}",
        "INSERT INTO attempts (item_id, fence, number, outcome, started_at, ended_at, result) "
        f"SELECT id, 1, 1, state, {NOW_MS}, {NOW_MS}, '1' FROM items WHERE ({_BODIED}) AND finished_at IS NOT NULL",
        f"INSERT INTO events (subject, at, act) SELECT 'item:' || i, {NOW_MS}, 'repeat' FROM numbers",
        "INSERT INTO deliveries (webhook_id, owner, event_id, event_type, body, created_at, due_at) "
        f"SELECT 'wh_busy', 'local', 'evt_' || i, 'job.completed', '{{}}', {NOW_MS}, {NOW_MS} FROM numbers",
    ]


def crowd_at_the_head(job: int, deadline: int | None = None) -> list[str]:
    """A hundred thousand ready items of one job, in the way of all others of their handler."""
    return _live(job, "echo", "queued", CROWD_ITEMS, order_before=1_000_000_000_000, deadline=deadline)


def _live(
    job: int,
    handler: str,
    state: str,
    items: int,
    due: str = "CAST(NULL AS bigint)",
    order_before: int = 0,
    deadline: int | None = None,
) -> list[str]:
    expires = "CAST(NULL AS bigint)" if deadline is None else str(deadline)
    return [
        f"{_JOB} VALUES ({job}, 'local', '{handler}', 'running', 1, 0, '', {items}, {NOW_MS}, 1, {FUTURE_MS})",
        f"{_ITEM.format(more='due_at, deadline_at')} "
        f"SELECT (CAST({job} AS bigint) << {POSITION_BITS}) + i, {job}, '{handler}', '{state}', "
        f"{NOW_MS} - {order_before} + i * 1000, {NOW_MS}, {NOW_MS}, {due}, {expires} FROM numbers WHERE i < {items}",
        f"UPDATE jobs SET first_key = {NOW_MS} - {order_before}, last_key = {NOW_MS} - {order_before} + {items} * 1000 "
        f"WHERE id = {job}",
    ]
