"""kill -9 at any moment: the job exists exactly when the user's own row does."""

import os
import signal
import subprocess
import sys
from random import Random

import pytest

from tests.house.sources import ROOT
from tests.transactions.conftest import rows
from tests.transactions.killed_submitter import STOPS_AT

pytestmark = pytest.mark.slow
ORDERS = "SELECT id FROM orders ORDER BY id"
JOBS = "SELECT CAST(label AS integer) FROM jobs WHERE sealed = 1 AND total = 2 ORDER BY id"
LOOSE = """
    SELECT (SELECT count(*) FROM jobs) * 2, (SELECT count(*) FROM items), (SELECT count(*) FROM requests)
"""


def kill_at(driver: str, url: str, stops: str, line: str) -> None:
    """Starts a process, and kills it when it has said this."""
    command = [sys.executable, "-m", "tests.transactions.killed_submitter", driver, url, stops]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(said.strip() == line for said in process.stdout), "it ended by itself"
        process.send_signal(signal.SIGKILL)


async def orders_and_jobs(url: str) -> int:
    orders = await rows(url, ORDERS)
    assert await rows(url, JOBS) == orders
    [(due, items, requests)] = await rows(url, LOOSE)
    assert due == items == requests == 2 * len(orders)
    return len(orders)


async def test_killed_before_the_commit_neither_is_there(driver: str, user_url: str) -> None:
    kill_at(driver, user_url, "before", f"{STOPS_AT} before")
    assert await orders_and_jobs(user_url) == STOPS_AT - 1


async def test_killed_after_the_commit_both_are_there(driver: str, user_url: str) -> None:
    kill_at(driver, user_url, "after", f"{STOPS_AT} after")
    assert await orders_and_jobs(user_url) == STOPS_AT


@pytest.mark.parametrize("driver", ["asyncpg", "psycopg", "sqlite3"], indirect=True)
@pytest.mark.parametrize("seed", range(2))
async def test_killed_in_the_middle_they_are_the_same(driver: str, user_url: str, seed: int) -> None:
    number = Random(seed).randrange(5, 40)
    kill_at(driver, user_url, "never", f"{number} before")  # it goes on, and the kill comes whenever it comes
    assert await orders_and_jobs(user_url) >= number - 1
