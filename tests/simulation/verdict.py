"""The promises, checked when a world has come to its end."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from backstay.core.failures import QUEUE
from backstay.core.ids import show_item
from backstay.core.models import Delivery
from backstay.testing import InlineSQLite
from backstay.testing.rehearsal import references
from tests.simulation.plan import LIMITS
from tests.simulation.watch import Broken, Watch
from tests.simulation.work import Work

FREE_CALLS_MAX = 3
UNFINISHED = "state IN ('queued', 'submitting', 'processing')"


def ended(connection: sqlite3.Connection) -> bool:
    open_jobs = connection.execute("SELECT count(*) FROM jobs WHERE finished_at IS NULL").fetchone()[0]
    return bool(open_jobs == 0)


def stuck(connection: sqlite3.Connection) -> str:
    rows = connection.execute(
        f"SELECT id, state, fence, due_at, leased_by, lease_expires_at, reconcile_after FROM items WHERE {UNFINISHED}"
    ).fetchall()
    items = [(show_item(row[0]), *row[1:]) for row in rows]
    jobs = connection.execute("SELECT id, state, stop_reason, held, total FROM jobs WHERE finished_at IS NULL")
    return f"these never ended: {items}, jobs {jobs.fetchall()}"


def wrongs(database: InlineSQLite, watch: Watch, works: Sequence[Work], jobs: Sequence[int]) -> list[str]:
    found = _money(database, watch, works, jobs) + _bounds(database.connection, watch)
    found += _poison(database.connection, watch, works[0].plan.poison)
    unstored = database.connection.execute(
        "SELECT item_id, message FROM attempts WHERE message LIKE '%could not be stored%'"
    ).fetchall()
    found += [f"item {show_item(item)}: {message}" for item, message in unstored]
    if not _all_ended(database.connection):
        found.append(stuck(database.connection))
    try:
        watch.results_never_changed()
    except Broken as broken:
        found.append(str(broken))
    return found


def _all_ended(connection: sqlite3.Connection) -> bool:
    return bool(connection.execute(f"SELECT count(*) FROM items WHERE {UNFINISHED}").fetchone()[0] == 0)


def _money(database: InlineSQLite, watch: Watch, works: Sequence[Work], jobs: Sequence[int]) -> list[str]:
    by_name = {work.kind.name: work for work in works}
    found: list[str] = []
    for job in jobs:
        row = database.connection.execute("SELECT handler, fallback FROM jobs WHERE id = ?", (job,)).fetchone()
        for item, state, refs in references(database, job):
            if row[1] is None:
                found += _paid(database, watch, by_name[row[0]], item, state, refs)
            else:
                found += _paid_by_two(database, watch, by_name[row[0]], by_name[row[1]], item, refs)
    return found


def _paid_by_two(
    database: InlineSQLite, watch: Watch, first: Work, second: Work, item: int, refs: Sequence[str]
) -> list[str]:
    """An item with a fallback is paid once, unless a repeat is recorded, and falls back once at most."""
    sql = "SELECT handler, state, repeats FROM items WHERE id = ?"
    handler, state, repeats = database.connection.execute(sql, (item,)).fetchone()
    paid = [sum(work.provider.times_paid(ref) for ref in refs) for work in (first, second)]
    name = f"{first.kind.name} item {show_item(item)} ({state}) with fallback {second.kind.name}"
    acts = "SELECT count(*) FROM events WHERE subject = ? AND detail LIKE '%tries next'"
    if database.connection.execute(acts, (f"item:{item}",)).fetchone()[0] > 1:
        return [f"{name} fell back twice"]
    if handler == first.kind.name and paid[1]:
        return [f"{name} never fell back, but was paid there"]
    if sum(paid) - 1 > repeats + watch.retried[item]:
        return [f"{name} was paid {paid} times, {repeats} repeats are recorded"]
    if first.kind.delivery is Delivery.AT_MOST_ONCE and handler != first.kind.name and paid[0] > watch.retried[item]:
        return [f"{name} was sent again, although it was paid and must be sent once at most"]
    return []


def followed(connection: sqlite3.Connection, watch: Watch, pairs: Mapping[int, int], takes: str | None) -> list[str]:
    """A job after another has its results, each once and in order; all of them, if nobody cancelled or retried."""
    found: list[str] = []
    for later, earlier in pairs.items():
        bodies = [row[0] for row in connection.execute(_BODIES, (later,))]
        rows = connection.execute(_RESULTS, (earlier,)).fetchall()
        wanted = [_payload(row[1:], takes) for row in rows if takes == "all" or row[1] == "succeeded"]
        states = [connection.execute(_JOB, (job,)).fetchone()[0] for job in (later, earlier)]
        touched = any(watch.retried[row[0]] for row in rows)
        never = states[1] == "cancelled" or (states[1] == "failed" and takes == "succeeded")
        if states[0] == "cancelled" or touched:
            if not touched and bodies != wanted[: len(bodies)]:
                found.append(f"job {later} has {bodies} of {wanted}")
        elif never or bodies != wanted:
            found.append(f"job {later} after job {earlier} ({states[1]}) has {bodies}, not {wanted}")
    return found


_BODIES = "SELECT body FROM requests JOIN items ON items.id = item_id WHERE job_id = ? ORDER BY item_id"
_JOB = "SELECT state FROM jobs WHERE id = ?"
_RESULTS = (
    "SELECT items.id, items.state, items.error_code, attempts.message, attempts.result FROM items LEFT JOIN attempts"
    " ON attempts.item_id = items.id AND attempts.fence = items.fence WHERE items.job_id = ? ORDER BY items.id"
)


def _payload(row: Sequence[str | None], takes: str | None) -> str:
    state, code, message, result = row
    if takes == "succeeded":
        return str(result)
    value = result if state == "succeeded" else "null"
    return json.dumps({"state": state, "error_code": code, "message": message})[:-1] + f', "value": {value}}}'


def doubles(connection: sqlite3.Connection, submitters: int) -> list[str]:
    """Whoever submits the same, it is one job; and items of the same key are one item, unless the first was
    cancelled."""
    if submitters == 1:
        return []
    live = "idempotency_key LIKE 'unique:%' AND state <> 'cancelled'"
    jobs = connection.execute(f"SELECT count(*) FROM jobs WHERE {live}").fetchone()[0]
    keyed = "SELECT count(*), body FROM items JOIN requests ON item_id = items.id JOIN jobs ON jobs.id = items.job_id"
    where = " WHERE idempotency_key IS NULL AND body LIKE '\"9.%' AND items.state <> 'cancelled'"
    twice = connection.execute(f"{keyed}{where} GROUP BY body HAVING count(*) > 1").fetchall()
    return [f"{jobs} unique jobs"] * (jobs > 1) + [f"items with one key: {twice}"] * bool(twice)


def _paid(database: InlineSQLite, watch: Watch, work: Work, item: int, state: str, refs: Sequence[str]) -> list[str]:
    """A repeat needs a record; a person's retry may cost once more, unless the provider can tell."""
    times = [work.provider.times_paid(ref) for ref in refs]
    again = sum(max(count - 1, 0) for count in times)
    repeats = database.connection.execute("SELECT repeats FROM items WHERE id = ?", (item,)).fetchone()[0]
    allowed = watch.retried[item]
    name = f"{work.kind.name} item {show_item(item)} ({state})"
    if state == "succeeded" and times[-1] == 0:
        return [f"{name} succeeded, but was never paid"]
    if work.kind.pays_once and again > 0:
        return [f"{name} was paid {times} times although the provider can tell"]
    if work.kind.delivery is Delivery.AT_MOST_ONCE and again > allowed:
        return [f"{name} was paid {times} times at most once"]
    if again > repeats + allowed:
        return [f"{name} was paid {times} times, {repeats} repeats are recorded"]
    return []


def _poison(connection: sqlite3.Connection, watch: Watch, poison: Mapping[str, str]) -> list[str]:
    """An item that always fails is called as often as its policy says, and three times more at most. A send that the
    guard refused did not reach it."""
    unsent = "SELECT count(*) FROM attempts WHERE item_id = items.id AND error_code = 'GW_4XX'"  # only guards give it
    rows = connection.execute(
        f"SELECT items.id, calls - ({unsent}), rescues, body, 1 + (jobs.fallback IS NOT NULL) FROM items"
        " JOIN requests ON requests.item_id = items.id JOIN jobs ON jobs.id = items.job_id"
    ).fetchall()
    most = (QUEUE.attempts_max or 0) + FREE_CALLS_MAX
    return [
        f"poison {show_item(item)} was called {calls} times"
        for item, calls, rescues, body, handlers in rows
        if is_poison(body, poison) and not watch.retried[item] and calls > most * handlers + rescues
    ]


def is_poison(body: str, poison: Mapping[str, str]) -> bool:
    payload = json.loads(body)
    return isinstance(payload, str) and payload in poison


def _bounds(connection: sqlite3.Connection, watch: Watch) -> list[str]:
    attempts_max = (QUEUE.attempts_max or 0) + 1  # one more may end an item whose last try was found by look-up
    rows = connection.execute("SELECT id, attempt_count, rescues FROM items").fetchall()
    return [
        f"item {show_item(item)} had {attempts} attempts and {rescues} rescues"
        for item, attempts, rescues in rows
        if attempts > attempts_max or rescues > LIMITS.rescues_max + 1
    ]
