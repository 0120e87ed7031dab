"""Fixtures every test may take: a fresh database, on SQLite and on PostgreSQL."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.postgres import RunningPostgres
from tests.servers.shared_postgres import SharedPostgres, ask

SHARED = pytest.StashKey[SharedPostgres]()


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.stash[SHARED] = SharedPostgres()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    node.workerinput["postgres_port"] = node.config.stash[SHARED].port


def pytest_unconfigure(config: pytest.Config) -> None:
    if SHARED in config.stash:
        config.stash[SHARED].close()


@pytest.fixture(scope="session")
def postgres(pytestconfig: pytest.Config) -> RunningPostgres:
    """The session's one server; a test that stops or kills its server starts a PrivatePostgres instead."""
    if SHARED in pytestconfig.stash:
        return ask(pytestconfig.stash[SHARED].port)
    return ask(pytestconfig.workerinput["postgres_port"])  # type: ignore[attr-defined]


@pytest.fixture(scope="session")
def postgres_template() -> str:
    """The database that fresh ones are copied from."""
    return "template1"


@pytest.fixture
def postgres_url(postgres: RunningPostgres, postgres_template: str) -> Iterator[str]:
    url = postgres.create_database(postgres_template)
    yield url
    postgres.drop_database(url)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh, empty database; the test runs once on each kind."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/backstay.db"
    url: str = request.getfixturevalue("postgres_url")
    return url
