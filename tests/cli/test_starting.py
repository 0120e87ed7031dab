"""Commands that run for long start while PostgreSQL is away: they say so, wait for it, and give up in the end."""

import asyncio
import json
import signal
import socket
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.cli.shell import Running, Shell
from tests.messaging.rig import until
from tests.servers.fault_proxy import FaultProxy
from tests.servers.postgres import PrivatePostgres
from tests.store.silent_connections import table_locked, wait_for_the_lock

WORKER = ("worker", "--app", "shop:backstay")
SERVE = ("serve", "--port", "0", "--no-worker", "--data", "data")
METERED = (*SERVE, "--metrics-port")
RELAY = ("relay",)
TICK = ("tick", "--app", "shop:backstay", "--json")
SEVERAL = (*WORKER, "--processes", "2")
KEY = {"BACKSTAY_SECRET_KEY": "k" * 40}
PATIENCE_SECONDS = 45.0


@pytest.fixture
async def proxy(postgres_url: str) -> AsyncIterator[FaultProxy]:
    async with FaultProxy.of(postgres_url) as made:
        yield made


@pytest.fixture(scope="module")
def strict_server() -> Iterator[PrivatePostgres]:
    """A server that asks one of its users for a password."""
    with PrivatePostgres() as server:
        server.execute("CREATE ROLE shop LOGIN PASSWORD 'right'")
        rules = server.folder / "data" / "pg_hba.conf"
        rules.write_text("host all shop 127.0.0.1/32 scram-sha-256\n" + rules.read_text())
        server.execute("SELECT pg_reload_conf()")
        yield server


async def says(running: Running, words: str, seconds: float = PATIENCE_SECONDS) -> None:
    def said() -> bool:
        assert words in running.said or running.process.poll() is None, running.said
        return words in running.said

    await until(said, seconds)


async def ended(running: Running) -> int:
    return await asyncio.to_thread(running.wait)


def unused_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "then"),
    [
        (WORKER, "worker started"),
        (SEVERAL, "worker started"),
        (SERVE, "serving on"),
        (METERED, "serving on"),
        (RELAY, None),
        (TICK, None),
    ],
)
async def test_a_database_that_is_away_is_waited_for(
    sqlite_shell: Shell, postgres_url: str, proxy: FaultProxy, command: tuple[str, ...], then: str | None
) -> None:
    await proxy.cut()
    before = proxy.connections
    more = (unused_port(),) if command is METERED else ()
    with sqlite_shell.start(*command, *more, "--db", proxy.url(postgres_url), **KEY) as running:
        await says(running, f"waiting up to 60 s for postgresql://127.0.0.1:{proxy.port}/")
        await says(running, "cannot reach PostgreSQL: ")
        await asyncio.sleep(1.5)  # it has tried again, and says nothing twice
        assert running.said.count("cannot reach PostgreSQL: ") == 1
        assert running.process.poll() is None
        await proxy.pass_on()
        if then is not None:
            await says(running, then)
        elif command is TICK:
            assert await ended(running) == 0
        else:
            await until(lambda: proxy.connections > before + 1, PATIENCE_SECONDS)
        assert running.process.poll() in (None, 0)


@pytest.mark.slow
@pytest.mark.parametrize(("command", "then"), [(WORKER, "worker started"), (SERVE[:3], "serving on")])
async def test_a_database_that_goes_again_while_a_process_starts_does_not_end_it(
    sqlite_shell: Shell, postgres_url: str, proxy: FaultProxy, command: tuple[str, ...], then: str
) -> None:
    with sqlite_shell.start(*command, "--db", proxy.url(postgres_url), BACKSTAY_DATA="data") as running:
        async with table_locked(postgres_url, "workers") as other:
            await wait_for_the_lock(other, "workers")  # it has its connections, and tells who it is
            proxy.reset()
            await says(running, "unexpected answer from PostgreSQL")
        await says(running, then)
        assert running.said.count("worker started") == 1


@pytest.mark.slow
@pytest.mark.parametrize("command", [WORKER, RELAY, SERVE])
async def test_a_process_that_waits_for_a_database_ends_when_it_is_told_to(
    sqlite_shell: Shell, postgres_url: str, proxy: FaultProxy, command: tuple[str, ...]
) -> None:
    proxy.black_hole()  # the driver itself would wait for ten seconds
    with sqlite_shell.start(*command, "--db", proxy.url(postgres_url), **KEY) as running:
        await says(running, "the database has not answered yet")
        running.send(signal.SIGTERM)
        began = time.monotonic()
        assert await ended(running) == (-signal.SIGTERM if command is SERVE else 0)
        assert time.monotonic() - began < 5
        assert "Traceback" not in running.said


@pytest.mark.slow
async def test_a_server_that_does_not_answer_is_named_before_the_driver_gives_up(
    sqlite_shell: Shell, postgres_url: str, proxy: FaultProxy
) -> None:
    proxy.black_hole()
    with sqlite_shell.start(*WORKER, "--db", proxy.url(postgres_url)) as running:
        await until(lambda: proxy.connections == 1, PATIENCE_SECONDS)
        await says(running, "the database has not answered yet", 4)
        (line,) = running.said.splitlines()
    told = json.loads(line)
    assert (told["event"], told["where"], told["level"]) == ("trouble", "start", "warning")
    assert told["message"].startswith(f"waiting up to 60 s for postgresql://127.0.0.1:{proxy.port}/")


@pytest.mark.slow
def test_a_host_that_does_not_exist_is_named_and_given_up_in_the_end(sqlite_shell: Shell) -> None:
    ran = sqlite_shell.process(
        *WORKER, "--db", "postgresql://me:hunter2@nowhere.invalid/x", BACKSTAY_START_WAIT_SECONDS="3"
    )
    assert ran.code == 8
    assert "waiting up to 3 s for postgresql://nowhere.invalid/x: " in ran.said[0]
    assert ran.said[-1].startswith("backstay: error: cannot reach PostgreSQL: ")
    assert "(after 3 s). check the database URL and the server; to wait longer, set BACKSTAY_START" in ran.said[-1]
    assert "hunter2" not in ran.err


def test_without_time_to_wait_it_ends_at_once(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_START_WAIT_SECONDS", "0")
    ran = sqlite_shell(*WORKER, "--db", f"postgresql://me@127.0.0.1:{unused_port()}/x")
    assert (ran.code, len(ran.said)) == (8, 1)


@pytest.mark.parametrize(
    ("user", "name", "says", "advice"),
    [
        ("postgres", "nothing", 'database "nothing" does not exist', "check the user, the password and the database"),
        ("nobody", "postgres", 'role "nobody" does not exist', "correct the user and the password in the URL"),
        ("shop:wrong", "postgres", 'password authentication failed for user "shop"', "correct the user and the pass"),
    ],
)
@pytest.mark.parametrize("command", [WORKER, TICK, ("jobs",)])
def test_what_waiting_does_not_help_ends_it_at_once(
    sqlite_shell: Shell,
    strict_server: PrivatePostgres,
    command: tuple[str, ...],
    user: str,
    name: str,
    says: str,
    advice: str,
) -> None:
    ran = sqlite_shell(*command, "--db", f"postgresql://{user}@127.0.0.1:{strict_server.port}/{name}")
    assert (ran.code, len(ran.said)) == (8, 1)
    assert says in ran.err
    assert advice in ran.err
    assert "wrong" not in ran.err


def test_a_file_that_cannot_be_opened_is_not_waited_for(sqlite_shell: Shell) -> None:
    folder = Path("there.db")
    folder.mkdir()
    ran = sqlite_shell(*WORKER, "--db", f"sqlite:///{folder.resolve()}")
    assert ran.code != 0
    assert "waiting" not in ran.err
