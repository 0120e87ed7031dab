"""Run one measure of one contestant in this process and print it: python -m bench.contestant ..."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import importlib
import json
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

Figures = dict[str, float]


def throughput(contestant: ModuleType, n: int, url: str) -> Figures:
    submit_seconds = contestant.submit(n)
    settle_down(url)
    finish_seconds = contestant.finish(n)
    return {
        "submit_per_second": n / submit_seconds,
        "finish_per_second": n / finish_seconds,
        "whole_per_second": n / (submit_seconds + finish_seconds),
    }


def held(contestant: ModuleType, n: int, url: str) -> Figures:
    """The same drain while another transaction is held open all along, as by a report or a backup."""
    contestant.submit(n)
    settle_down(url)
    with held_transaction(url):
        return {"finish_per_second": n / contestant.finish(n)}


@contextmanager
def held_transaction(url: str) -> Iterator[None]:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        connection.execute("SELECT count(*) FROM pg_class")  # takes the snapshot that keeps all row versions
        yield
        connection.execute("COMMIT")


def settle_down(url: str) -> None:
    """Let nobody's drain pay for the vacuum, the statistics and the checkpoint that its submit left behind."""
    if not url.startswith("postgresql:"):
        return
    import psycopg

    with psycopg.connect(url.split()[0], autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE")
        connection.execute("CHECKPOINT")


SHARED = {"throughput": throughput, "held": held}


def measured(module: str, measure: str, n: int, url: str) -> Figures:
    contestant = importlib.import_module(module)
    contestant.prepare(url)
    if measure in SHARED and not hasattr(contestant, measure):
        return SHARED[measure](contestant, n, url)
    figures: Figures = getattr(contestant, measure)(n)
    return figures


def main(module: str, measure: str, n: str, url: str) -> None:
    answer: dict[str, object]
    try:
        answer = {"figures": measured(module, measure, int(n), url)}
    except Exception as error:
        # A reason is an answer too: the table says it in place of the figure.
        traceback.print_exc()
        said = (str(error).strip().splitlines() or [""])[0]
        answer = {"not_measured": said if type(error).__name__ == "NotMeasured" else f"{type(error).__name__}: {said}"}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
