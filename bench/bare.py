"""The same SQL as Backstay's in a bare loop: what the database alone allows."""

from __future__ import annotations

import time
from typing import Any, Protocol

from bench.probes import NotMeasured

BATCH = 500

_at: dict[str, Any] = {}


class BareLoop(Protocol):
    """Three verbs on one connection, with Backstay's tables and SQL and nothing else around them."""

    def submit(self, n: int) -> None: ...

    def claim(self, n: int) -> list[Any]: ...

    def settle(self, rows: list[Any]) -> None: ...


# ---- TO FILL IN: Backstay's own SQL ---------------------------------------------------------------------------------
# One class per database, made from the URL, with Backstay's tables in place; each verb commits before it returns.


def postgres_loop(url: str) -> BareLoop:
    raise NotMeasured("the SQL of the bare loop is not filled in (bench/bare.py)")


def sqlite_loop(url: str) -> BareLoop:
    raise NotMeasured("the SQL of the bare loop is not filled in (bench/bare.py)")


# ---- end of the place to fill in ------------------------------------------------------------------------------------


def prepare(url: str) -> None:
    _at["loop"] = sqlite_loop(url) if url.startswith("sqlite:") else postgres_loop(url)


def submit(n: int) -> float:
    started = time.perf_counter()
    _at["loop"].submit(n)
    return time.perf_counter() - started


def finish(n: int) -> float:
    loop: BareLoop = _at["loop"]
    finished = 0
    started = time.perf_counter()
    while rows := loop.claim(BATCH):
        loop.settle(rows)
        finished += len(rows)
    seconds = time.perf_counter() - started
    assert finished == n, f"{finished} of {n} finished"
    return seconds
