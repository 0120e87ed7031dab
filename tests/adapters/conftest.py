"""The practice provider, and the options that send requests there."""

from collections.abc import Iterator
from typing import Any

import pytest

from backstay.rows.options import SendOptions
from tests.cli.practice_thread import served
from tests.rows.conftest import RowSite, clean_folder
from tests.sites import fresh_database

__all__ = ["clean_folder"]
database_url = fresh_database("sqlite", later="postgres")


class AdapterSite(RowSite):
    """The provider, and the options of an adapter."""

    def chat(self, **more: Any) -> SendOptions:
        return {**self.options, **more}  # type: ignore[typeddict-item]


@pytest.fixture
def site(database_url: str) -> Iterator[AdapterSite]:
    with served() as (practice, base_url):
        yield AdapterSite(practice, base_url, database_url)
