"""The time of one claim in a table of millions, over its time in a table of thousands."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING, Any

from bench.probes import NotMeasured

if TYPE_CHECKING:
    import psycopg

ROWS_FEW = 10_000
CLAIMS = 50

# ---- TO FILL IN: Backstay's own SQL ---------------------------------------------------------------------------------
# FILL adds %(rows)s items with generate_series, so many of them queued that every claim is a full one; CLAIM takes one
# batch, as the worker does. TABLES creates the tables (or leave it empty and open Backstay in prepare).
TABLES = ""
FILL = ""
CLAIM = ""
# ---- end of the place to fill in ------------------------------------------------------------------------------------

_at: dict[str, Any] = {}


def prepare(url: str) -> None:
    if not (FILL and CLAIM):
        raise NotMeasured("the SQL of the claim is not filled in (bench/claim_scale.py)")
    import psycopg

    _at["connection"] = psycopg.connect(url, autocommit=True)
    if TABLES:
        _at["connection"].execute(TABLES)


def fill(connection: psycopg.Connection, rows: int) -> None:
    """Add items in SQL, and let the planner know of them."""
    connection.execute(FILL, {"rows": rows})
    connection.execute("VACUUM ANALYZE")
    connection.execute("CHECKPOINT")


def claim_ms(connection: psycopg.Connection) -> float:
    """The median of many claims, each rolled back so that all find the same table."""
    spent = []
    for _ in range(CLAIMS):
        with connection.transaction(force_rollback=True):
            started = time.perf_counter()
            connection.execute(CLAIM).fetchall()
            spent.append(time.perf_counter() - started)
    return statistics.median(spent) * 1000


def claim_scale(n: int) -> dict[str, float]:
    connection = _at["connection"]
    fill(connection, ROWS_FEW)
    few_ms = claim_ms(connection)
    fill(connection, n - ROWS_FEW)
    many_ms = claim_ms(connection)
    connection.close()
    return {"claim_time_ratio": many_ms / few_ms, "few_ms": few_ms, "many_ms": many_ms}
