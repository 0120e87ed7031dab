"""Safeguards switched off one at a time: a simulation that does not notice could not be believed."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from backstay.core import decide
from backstay.core import models as fallback
from backstay.core.models import HandedBack, NeverArrived
from backstay.engine import gate
from backstay.engine.executor import Executor
from backstay.engine.sweeper import Sweeper
from backstay.handlers.handler import Context
from backstay.store import job_links
from backstay.store.queries import SQLITE, Query, queries_for
from tests.simulation.exhaustive import FAULTS, small
from tests.simulation.plan import KINDS, Plan, following, poisoned, stormy

Ablation = Callable[[], Any]

STORMS = 150
POINTS = 80


@contextmanager
def altered(statements: str, text: str, instead: str = "") -> Iterator[None]:
    """Runs with statements of the store rewritten; refuses when the text to be removed is not there."""
    altered: dict[str, Query] = dict(queries_for(SQLITE))
    for name in statements.split():
        if text not in altered[name].sql:
            raise AssertionError(f"{name} has no {text!r}: the ablation would switch nothing off")
        altered[name] = replace(altered[name], sql=altered[name].sql.replace(text, instead))
    with patch("backstay.store.databases.sqlite.queries_for", lambda _: altered):
        yield


_ask = Sweeper._ask
_start = Executor.start


async def _never_ask(self: Sweeper, handler: Any, item: Any, troubles: set[str]) -> Any:
    return NeverArrived() if handler.askable else await _ask(self, handler, item, troubles)


async def _forget_the_repeat(self: Sweeper, handler: Any, item: Any, troubles: set[str]) -> Any:
    return await _ask(self, handler, item, troubles) if handler.askable else HandedBack("no one is told")


async def _rescue_none(self: Sweeper, handler: Any, items_max: int, look_at: Any) -> int:
    return 0


def _start_late(self: Executor, items: Any, started: float, is_probe: Any) -> None:
    _start(self, items, self._parts.clock.monotonic(), is_probe)


@contextmanager
def _probes_for_ever() -> Iterator[None]:
    """As it once was: every failure speaks against the provider, and a failed probe never costs an attempt."""
    blamed = gate._call

    def blames_the_provider(*told: Any) -> Any:
        call = blamed(*told)
        return None if call is None else replace(call, first=True)

    with patch.object(decide, "FREE_PROBES_MAX", 10**9), patch.object(gate, "_call", blames_the_provider):
        yield


def _pay_again(item: Any, outcome: Any, terms: Any, settlement: Any, now_ms: int) -> bool:
    return settlement.state == "failed" and not settlement.timed_out


ABLATIONS: Mapping[str, Ablation] = {
    "the send guard": lambda: patch.object(Context, "too_late_to_send", False),
    "the guard's time counting from before the claim": lambda: patch.object(Executor, "start", _start_late),
    "the fence of a settlement": lambda: altered("settle_items settle_ended", "AND items.fence = batch.fence"),
    "the wait until a lost request must have landed": lambda: altered(
        "rescue", "AND (reconcile_after <= :now OR :askable = 0)"
    ),
    "the look-up before a second send": lambda: patch.object(Sweeper, "_ask", _never_ask),
    "the record of a repeat": lambda: patch.object(Sweeper, "_ask", _forget_the_repeat),
    "the counters of a job": lambda: altered(
        "count_items", "failed = jobs.failed + moved.failed", "failed = jobs.failed"
    ),
    "the state that a named item must be in": lambda: altered("claim_named", "items.state = 'queued' AND "),
    "the rescue of lost items": lambda: patch.object(Sweeper, "_rescue", _rescue_none),
    "the end of an item that always fails": _probes_for_ever,
    "the place up to which results were taken": lambda: altered("move_link", ":cursor", ":cursor - 1"),
    "the rule that a cancelled job starts no other": lambda: patch.object(job_links, "_why_never", lambda *_: None),
    "the fallback's care for what may be paid": lambda: patch.object(fallback, "_is_final_failure", _pay_again),
    "the period of a unique job": lambda: altered("release_key", "AND (created_at <=", "AND (1 = 1 OR created_at <="),
    "the keys of items": lambda: altered(
        "take_keys", "WHERE (SELECT state FROM items WHERE items.id = item_keys.item_id) = 'cancelled'"
    ),
}


def hunted() -> Iterator[Plan]:
    """Worlds in which a missing safeguard shows soon: struck at every early point, then stormy by seed."""
    for seed in range(STORMS):
        yield stormy(seed)
        yield poisoned(seed)
        yield following(seed)
        for kind in (KINDS["call_with_find"], KINDS["call_at_least_once"]):
            for what in ("freeze", "stop"):
                if seed < POINTS:
                    yield small(kind, f"{what}-{seed + 1}", FAULTS[what](seed + 1))
