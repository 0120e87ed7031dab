"""Private servers for a run: PostgreSQL with its defaults, and a RabbitMQ node of its own."""

# mypy: disable-error-code="import-not-found, import-untyped"

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

# Where Debian's package keeps the scripts behind its wrapper in sbin. The wrapper would log and
# live in the folders of Debian's own service.
RABBITMQ_SCRIPTS = Path("/usr/lib/rabbitmq/bin")
POLICY = Path("/usr/sbin/policy-rc.d")
START_SECONDS_MAX = 90.0

# Reads until its owner closes the pipe or dies in whatever way, then clears up: the node, its port mapper (a daemon
# that outlives it) and the folder. Debian's sh wants -s before a process group.
KEEPER = """
cat >/dev/null
kill -s TERM -- "-$1" 2>/dev/null
tries=300
while kill -s 0 -- "-$1" 2>/dev/null && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
kill -s KILL -- "-$1" 2>/dev/null
epmd -kill >/dev/null 2>&1
rm -rf "$2"
"""


class NotHere(Exception):
    """A server that this machine cannot give; the message is the reason to report."""


@contextlib.contextmanager
def private_postgres() -> Iterator[str]:
    """A fresh PostgreSQL with durable commits; gives the URL of an empty database."""
    try:
        from tests.servers.postgres import PrivatePostgres
    except ImportError as error:
        raise NotHere(f"no private PostgreSQL: {error}") from error
    with PrivatePostgres() as server:
        url = server.create_database()
        refuse_unless_durable(url)
        yield url


def refuse_unless_durable(url: str) -> None:
    """Numbers from a server that does not wait for its disk would compare nothing."""
    import psycopg

    with psycopg.connect(url) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            row = connection.execute(f"SHOW {setting}").fetchone()
            if row is None or row[0] != "on":
                raise NotHere(f"the private PostgreSQL runs with {setting} = {row and row[0]}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class PrivateRabbitMQ:
    """One RabbitMQ node with its own name, ports, port mapper and folders; gone on exit."""

    def __enter__(self) -> PrivateRabbitMQ:
        install_rabbitmq()
        self.folder = Path(tempfile.mkdtemp(prefix="bench-rabbitmq-"))
        self.port = free_port()
        self.account = "rabbitmq" if os.geteuid() == 0 else None
        if self.account:
            shutil.chown(self.folder, self.account, self.account)
        self.environment = self._environment()
        self.process = self._spawn("rabbitmq-server")
        self.keeper = subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, "keeper", str(self.process.pid), str(self.folder)],
            env=self.environment,
            stdin=subprocess.PIPE,
            # Ctrl-C goes to the whole process group of the terminal; the keeper has to outlive it.
            start_new_session=True,
        )
        try:
            self._wait_until_open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        # Reaped first, since the keeper would take a dead child of ours for a living one.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        self.keeper.communicate()
        self.process.wait()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def _environment(self) -> dict[str, str]:
        folder = str(self.folder)
        return {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(free_port()),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"bench{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/enabled_plugins",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{folder}/config",
        }

    def _spawn(self, script: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [str(RABBITMQ_SCRIPTS / script)],
                cwd=self.folder,
                env=self.environment,
                user=self.account,
                group=self.account,
                extra_groups=[] if self.account else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _wait_until_open(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up_at:
            if self.process.poll() is not None:
                break
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            time.sleep(0.1)
        said = (self.folder / "output").read_text(errors="replace").strip().splitlines()
        raise NotHere("RabbitMQ did not start: " + (said[-1] if said else "it said nothing"))


def install_rabbitmq() -> None:
    """Install Debian's package when it is missing and we may, without starting its service."""
    if (RABBITMQ_SCRIPTS / "rabbitmq-server").exists():
        return
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        raise NotHere("RabbitMQ is not installed (install the package rabbitmq-server)")
    with no_service_starts():
        done = subprocess.run(
            ["apt-get", "install", "-y", "-q", "--no-install-recommends", "rabbitmq-server"],
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise NotHere(f"RabbitMQ could not be installed: {reason}")


@contextlib.contextmanager
def no_service_starts() -> Iterator[None]:
    """Debian asks this file before it starts a service; 101 means no. One already there stays."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text("#!/bin/sh\nexit 101\n")
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        POLICY.unlink()
