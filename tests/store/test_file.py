"""An SQLite file that goes away under an open store: nothing is written where nobody can see it."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from backstay import wiring
from backstay.core.errors import DatabaseUnreachable
from backstay.store.store import Store
from tests.databases import Site, Ticker, sqlite_url
from tests.store.store_rig import chunk, new_job


@pytest.fixture
async def site(sqlite_file_url: str) -> AsyncIterator[Site]:
    made = Site(sqlite_file_url, Ticker())
    yield made
    await made.close()


async def refuses_everything(store: Store) -> None:
    with pytest.raises(DatabaseUnreachable, match="removed or replaced"):
        await store.submissions.open(new_job(), chunk(0, 1, last=True))
    with pytest.raises(DatabaseUnreachable, match="removed or replaced"):
        await store.job_views.page("ann", 1_000, 10)


async def test_a_removed_file_takes_no_more(site: Site, store: Store) -> None:
    await store.submissions.open(new_job(), chunk(0, 1, last=True))
    os.unlink(site.path)
    await refuses_everything(store)


async def test_a_replaced_file_takes_no_more(site: Site, store: Store, sqlite_template: Path) -> None:
    shutil.copy(sqlite_template, f"{site.path}.new")
    os.rename(f"{site.path}.new", site.path)
    await refuses_everything(store)


async def test_a_file_that_comes_back_takes_all(site: Site, store: Store) -> None:
    first = await store.submissions.open(new_job(), chunk(0, 1, last=True))
    os.rename(site.path, f"{site.path}.away")
    await refuses_everything(store)
    os.rename(f"{site.path}.away", site.path)
    second = await store.submissions.open(new_job(), chunk(0, 1, last=True))
    assert [view.id for view in await store.job_views.page("ann", 1_000, 10)] == [second.id, first.id]


async def test_a_process_that_goes_to_another_folder_keeps_its_file(
    site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(Path(site.path).parent)
    store = await wiring.open_store(f"sqlite:///{Path(site.path).name}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    await store.submissions.open(new_job(), chunk(0, 1, last=True))
    await store.close()


async def test_the_heart_makes_no_new_file_where_one_was_removed(tmp_path: Path) -> None:
    path = tmp_path / "gone.db"
    with pytest.raises(DatabaseUnreachable, match="the database file was removed"):
        await wiring.open_another(sqlite_url(path))
    assert not path.exists()


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(path: Path) -> dict[str, str]:
    """Of the file and those beside it, which come and go."""
    found = {}
    for one in sorted(path.parent.glob(f"{path.name}*")):
        with suppress(FileNotFoundError):
            found[one.name] = oct(one.stat().st_mode & 0o777)
    return found


@pytest.mark.usefixtures("usual_umask")
async def test_a_new_file_is_for_its_user_alone_and_so_are_the_files_beside_it(tmp_path: Path) -> None:
    store = await wiring.open_store(sqlite_url(tmp_path / "new.db"))
    await store.submissions.open(new_job(), chunk(0, 1, last=True))
    assert modes(tmp_path / "new.db") == {"new.db": "0o600", "new.db-shm": "0o600", "new.db-wal": "0o600"}
    await store.close()


@pytest.mark.usefixtures("usual_umask")
async def test_a_new_file_behind_a_link_is_for_its_user_alone(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "far.db")
    await wiring.migrate(sqlite_url(tmp_path / "link.db"))
    assert modes(tmp_path / "far.db") == {"far.db": "0o600"}


@pytest.mark.usefixtures("usual_umask")
async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "shared.db"
    path.touch(0o640)
    store = await wiring.open_store(sqlite_url(path))
    await store.submissions.open(new_job(), chunk(0, 1, last=True))
    assert modes(path) == {"shared.db": "0o640", "shared.db-shm": "0o640", "shared.db-wal": "0o640"}
    await store.close()


@pytest.mark.parametrize("name", ["migrate", "run", "serve"])
def test_a_command_makes_its_file_for_its_user_alone(name: str, tmp_path: Path) -> None:
    """Whatever the umask of the terminal."""
    path, requests = tmp_path / "new.db", tmp_path / "requests.jsonl"
    requests.write_text('{"messages": [{"role": "user", "content": "hello"}]}\n')
    asked = {
        "migrate": [],
        "run": [str(requests), "--base-url", "http://127.0.0.1:9/v1", "--model", "m"],
        "serve": ["--port", "0"],
    }
    command = [sys.executable, "-m", "backstay", name, *asked[name], "--db", sqlite_url(path)]
    environment = {**os.environ, "OPENAI_API_KEY": "sk-none"}
    with subprocess.Popen(command, umask=0o022, cwd=tmp_path, env=environment, stderr=subprocess.DEVNULL) as running:
        while not path.exists() and running.poll() is None:
            time.sleep(0.01)
        found = modes(path)
        running.terminate()
    assert set(found.values()) == {"0o600"}, found
