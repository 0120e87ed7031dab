"""The practice provider, and the options that send requests there."""

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from backstay.rows.options import SendOptions
from tests.cli.practice_thread import served
from tests.databases import fresh_database
from tests.rows.conftest import RowSite, clean_folder

__all__ = ["clean_folder"]
database_url = fresh_database("sqlite", later="postgres")


SECONDS_MAX = 120  # for one test, on a busy machine


@pytest.fixture(autouse=True)
def bounded() -> Iterator[None]:
    """A test that waits for ever fails, and its traceback shows where it waits."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"the test did not end within {SECONDS_MAX} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(SECONDS_MAX)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


class AdapterSite(RowSite):
    """The provider, and the options of an adapter."""

    def chat(self, **more: Any) -> SendOptions:
        return {**self.options, **more}  # type: ignore[typeddict-item]


@pytest.fixture
def site(database_url: str) -> Iterator[AdapterSite]:
    with served() as (practice, base_url):
        yield AdapterSite(practice, base_url, database_url)
