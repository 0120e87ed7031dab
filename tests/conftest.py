"""Fixtures every test may take: a fresh database, on SQLite and on PostgreSQL, and clocks that a test moves."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hypothesis
import pytest

from backstay import wiring
from backstay.clock import new_id
from backstay.store.store import Store
from tests.databases import Leaping, Site, Ticker, fresh_database, sqlite_url
from tests.servers.postgres import RunningPostgres
from tests.servers.rabbitmq import PrivateRabbitMQ
from tests.servers.reused_databases import ReusedDatabases
from tests.servers.s3 import BUCKET, PrivateS3
from tests.servers.shared_postgres import SharedPostgres, ask

# How long an example takes says something about the machine, not about Backstay.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")

SHARED = pytest.StashKey[SharedPostgres]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[SHARED] = SharedPostgres()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["postgres_port"] = node.config.stash[SHARED].port


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.scheduling import ByFile

    return ByFile(config, log)


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        config.stash[SHARED].close()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A file of slow tests is not even imported when no slow test is wanted: the clients of the providers take long."""
    if collection_path.suffix != ".py" or "not slow" not in config.option.markexpr:
        return None
    return True if "\npytestmark = pytest.mark.slow\n" in collection_path.read_text(encoding="utf-8") else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Stories first: they last longest, and what is begun last keeps everyone waiting."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/stories/"))


def migrate(url: str) -> None:
    """Migrates from a thread of its own, because a fixture may run inside a test's event loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(wiring.migrate(url))).result()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> RunningPostgres:
    """The session's one server; a test that stops or kills its server starts a PrivatePostgres instead."""
    if SHARED in pytestconfig.stash:
        return ask(pytestconfig.stash[SHARED].port)
    return ask(pytestconfig.workerinput["postgres_port"])  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def postgres_template(postgres: RunningPostgres) -> Iterator[str]:
    """The migrated database that fresh ones are copied from."""
    url = postgres.create_database()
    migrate(url)
    yield url.rpartition("/")[2]
    postgres.drop_database(url)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "backstay.db"
    migrate(sqlite_url(path))
    return path


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[PrivateRabbitMQ]:
    """The session's one node; a test names what it declares by `rabbitmq.prefix()`. Who kills it starts it again."""
    with PrivateRabbitMQ() as node:
        yield node


@pytest.fixture(scope="session")
def s3() -> Iterator[PrivateS3]:
    with PrivateS3().running() as running:
        yield running


@pytest.fixture(params=["folder", "s3"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where artifacts lie: in a folder and in S3."""
    if request.param == "folder":
        return str(tmp_path / "data")
    for name, value in request.getfixturevalue("s3").environment.items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{new_id()}"


@pytest.fixture(scope="session")
def reused_databases(postgres: RunningPostgres, postgres_template: str) -> Iterator[ReusedDatabases]:
    made = ReusedDatabases(postgres, postgres_template)
    yield made
    made.close()


@pytest.fixture
def postgres_url(reused_databases: ReusedDatabases) -> Iterator[str]:
    """A migrated database without rows."""
    url = reused_databases.lend()
    yield url
    reused_databases.take_back(url)


@pytest.fixture
def empty_postgres_url(postgres: RunningPostgres) -> Iterator[str]:
    """A database without Backstay's tables."""
    url = postgres.create_database()
    yield url
    postgres.drop_database(url)


@pytest.fixture
def sqlite_file_url(sqlite_template: Path, tmp_path: Path) -> str:
    return sqlite_url(Path(shutil.copy(sqlite_template, tmp_path / "backstay.db")))


# A fresh, migrated database; the test runs once on each kind.
database_url = fresh_database("sqlite", "postgres")


@pytest.fixture(scope="session")
def reused_postgres_url(postgres: RunningPostgres, postgres_template: str) -> Iterator[str]:
    """One database for many tests: emptying it is much quicker than copying a new one."""
    url = postgres.create_database(postgres_template)
    postgres.execute("CREATE TABLE test_clock (ms bigint NOT NULL)", url.rpartition("/")[2])
    yield url
    postgres.drop_database(url)


@pytest.fixture(params=["sqlite", "postgres"])
def site_url(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue("sqlite_file_url" if request.param == "sqlite" else "reused_postgres_url")
    return url


async def _opened(site: Site) -> Site:
    await site.empty()
    return site


@pytest.fixture
async def site(site_url: str) -> AsyncIterator[Site]:
    """A database whose time stands still until the test moves it."""
    made = await _opened(Site(site_url, Ticker()))
    yield made
    await made.close()


@pytest.fixture
async def leaping_site(site_url: str) -> AsyncIterator[Site]:
    """A database whose time runs, and leaps when the test says so."""
    made = await _opened(Site(site_url, Leaping()))
    yield made
    await made.close()


@pytest.fixture
async def sqlite_site(sqlite_file_url: str) -> AsyncIterator[Site]:
    """As `leaping_site`, for tests in which the kind of database plays no part."""
    made = await _opened(Site(sqlite_file_url, Leaping()))
    yield made
    await made.close()


@pytest.fixture
async def store(site: Site) -> Store:
    return await site.open_store()
