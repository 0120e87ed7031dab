"""An SQLite file that goes away under an open store: nothing is written where nobody can see it."""

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay import wiring
from backstay.core.errors import DatabaseUnreachable
from backstay.store.store import Store
from tests.sites import Site, Ticker, sqlite_url
from tests.store.scene import chunk, new_job


@pytest.fixture
async def site(sqlite_file_url: str) -> AsyncIterator[Site]:
    made = Site(sqlite_file_url, Ticker())
    yield made
    await made.close()


async def refuses_everything(store: Store) -> None:
    with pytest.raises(DatabaseUnreachable, match="removed or replaced"):
        await store.open_job(new_job(), chunk(0, 1, last=True))
    with pytest.raises(DatabaseUnreachable, match="removed or replaced"):
        await store.views.jobs("ann", 1_000, 10)


async def test_a_removed_file_takes_no_more(site: Site, store: Store) -> None:
    await store.open_job(new_job(), chunk(0, 1, last=True))
    os.unlink(site.path)
    await refuses_everything(store)


async def test_a_replaced_file_takes_no_more(site: Site, store: Store, sqlite_template: Path) -> None:
    shutil.copy(sqlite_template, f"{site.path}.new")
    os.rename(f"{site.path}.new", site.path)
    await refuses_everything(store)


async def test_a_file_that_comes_back_takes_all(site: Site, store: Store) -> None:
    first = await store.open_job(new_job(), chunk(0, 1, last=True))
    os.rename(site.path, f"{site.path}.away")
    await refuses_everything(store)
    os.rename(f"{site.path}.away", site.path)
    second = await store.open_job(new_job(), chunk(0, 1, last=True))
    assert [view.id for view in await store.views.jobs("ann", 1_000, 10)] == [second.id, first.id]


async def test_a_process_that_goes_to_another_folder_keeps_its_file(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(Path(site.path).parent)
    store = await wiring.open_store(f"sqlite:///{Path(site.path).name}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.open_job(new_job(), chunk(0, 1, last=True))
    await store.close()


async def test_the_heart_makes_no_new_file_where_one_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    with pytest.raises(DatabaseUnreachable, match="the database file was removed"):
        await wiring.open_another(sqlite_url(path))
    assert not path.exists()
