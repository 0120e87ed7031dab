"""The promises, checked when a world has come to its end."""

import json
import sqlite3
from collections.abc import Mapping, Sequence

from backstay.core.ids import show_item
from backstay.core.models import Delivery
from backstay.core.retry import QUEUE
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
        handler = database.connection.execute("SELECT handler FROM jobs WHERE id = ?", (job,)).fetchone()[0]
        for item, state, refs in references(database, job):
            found += _paid(database, watch, by_name[handler], item, state, refs)
    return found


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
    """An item that always fails is called as often as its policy says, and three times more at most."""
    rows = connection.execute(
        "SELECT items.id, calls, rescues, body FROM items JOIN requests ON requests.item_id = items.id"
    ).fetchall()
    most = (QUEUE.attempts_max or 0) + FREE_CALLS_MAX
    return [
        f"poison {show_item(item)} was called {calls} times"
        for item, calls, rescues, body in rows
        if json.loads(body) in poison and not watch.retried[item] and calls > most + rescues
    ]


def _bounds(connection: sqlite3.Connection, watch: Watch) -> list[str]:
    attempts_max = (QUEUE.attempts_max or 0) + 1  # one more may end an item whose last try was found by look-up
    rows = connection.execute("SELECT id, attempt_count, rescues FROM items").fetchall()
    return [
        f"item {show_item(item)} had {attempts} attempts and {rescues} rescues"
        for item, attempts, rescues in rows
        if attempts > attempts_max or rescues > LIMITS.rescues_max + 1
    ]
