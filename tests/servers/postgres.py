"""A private PostgreSQL server in a temporary folder, which goes away with the process that owns it."""

import os
import pwd
import secrets
import select
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.postgres_binaries import find_or_install

HOST = "127.0.0.1"
SETTINGS = {"listen_addresses": HOST, "max_connections": "200", "shared_buffers": "128MB"}
START_TRIES_MAX = 5
START_SECONDS = 60
MEMORY_BYTES_MIN = 4 << 30

# Reads until its owner closes the pipe or dies in whatever way, then clears up. It is the only way a server ends,
# so a test run that is killed with -9 leaves no more behind than one that passes.
KEEPER = 'cat >/dev/null; "$1/pg_ctl" stop --silent -D "$2/data" -m fast -t 30 >/dev/null 2>&1; rm -rf "$2"'


class RunningPostgres:
    """A server that somebody else owns: where it is, and fresh databases in it."""

    def __init__(self, binaries: Path, port: int) -> None:
        self.binaries = binaries
        self.port = port

    def url(self, dbname: str = "postgres") -> str:
        return f"postgresql://postgres@{HOST}:{self.port}/{dbname}"

    def create_database(self, template: str = "template1", name: str | None = None) -> str:
        """Copy a template that nobody is connected to; the answer is the URL of the copy."""
        name = name or new_name()
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    def drop_database(self, url: str) -> None:
        """Drop a database even if a test left connections open."""
        name = url.rpartition("/")[2]
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, sql: str, dbname: str = "postgres") -> str:
        """Run one statement through psql, so that no event loop and no driver is needed."""
        return self._psql(dbname, "-c", sql)

    def execute_script(self, sql: str, dbname: str) -> str:
        """Run many statements, one by one, through one connection."""
        return self._psql(dbname, "-f", "-", script=sql)

    def _psql(self, dbname: str, *arguments: str, script: str | None = None) -> str:
        command = [str(self.binaries / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", self.url(dbname), *arguments]
        environment = _plain_environment()
        ran = subprocess.run(command, input=script, capture_output=True, text=True, check=False, env=environment)
        if ran.returncode != 0:
            raise RuntimeError(f"{arguments}: {ran.stderr.strip()}")
        return ran.stdout.strip()


class PrivatePostgres(RunningPostgres):
    """`with PrivatePostgres() as server:` starts a durable server (fsync on) and removes it afterwards."""

    def __init__(self, in_memory: bool = False) -> None:
        """One in memory is quicker, where the machine has memory for it; what it reports is the same."""
        super().__init__(find_or_install(), port=0)
        # Not TMPDIR: a socket's path may have 107 characters, and the unprivileged account must get there.
        self._parent = (in_memory and memory_folder()) or "/tmp"
        self._account = unprivileged_account()
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the server is not started")
        return self._folder

    def start(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="backstay-postgres-", dir=self._parent))
        if self._account:
            shutil.chown(self._folder, self._account["user"], self._account["group"])
        try:
            self._keeper = self._start_keeper()
            self._make_data()
            self._start_on_free_port()
        except BaseException:
            self.stop()
            raise

    def _make_data(self) -> None:
        self._run("initdb", "--no-sync", "--no-locale", "-E", "UTF8", "-A", "trust", "-U", "postgres")

    def stop(self) -> None:
        """Stop (fast) and remove the folder; safe to call twice."""
        if self._keeper is not None:
            self._keeper.communicate()
            self._keeper = None
        self._folder = None

    def kill9(self) -> None:
        """Kill every process of the server at once, as a power cut would; returns when all are gone."""
        postmaster = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for handle in [_process_handle(pid) for pid in (postmaster, *map(int, children))]:
            if handle is not None:
                _kill_and_wait(handle)

    def restart(self) -> None:
        """Start again on the same port and data, after `kill9` or while running."""
        if (self.folder / "data" / "postmaster.pid").exists():
            # After kill9 the file is stale and there is nothing to stop.
            self._run("pg_ctl", "stop", "-m", "fast", check=False)
        self._start_on(self.port)

    def _start_on_free_port(self) -> None:
        for left in reversed(range(START_TRIES_MAX)):
            self.port = free_port()
            try:
                return self._start_on(self.port)
            except RuntimeError:
                # Somebody may have taken the port since; another one is free.
                if not left:
                    raise

    def _start_on(self, port: int) -> None:
        options = {**SETTINGS, "port": str(port), "unix_socket_directories": str(self.folder)}
        flags = " ".join(f"-c {name}={value}" for name, value in options.items())
        log = self.folder / "server.log"
        try:
            self._run("pg_ctl", "start", "-w", "-t", str(START_SECONDS), "-l", str(log), "-o", flags)
        except RuntimeError as error:
            raise RuntimeError(f"{error}\n{log.read_text() if log.exists() else ''}") from None

    def _run(self, program: str, *arguments: str, check: bool = True) -> None:
        command = [str(self.binaries / program), *arguments, "-D", str(self.folder / "data")]
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            cwd=self.folder,
            env=_plain_environment(),
            check=False,
            **self._account,
        )
        if check and ran.returncode != 0:
            raise RuntimeError(f"{program} failed:\n{ran.stdout.strip()}")

    def _start_keeper(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, "keeper", str(self.binaries), str(self.folder)],
            stdin=subprocess.PIPE,
            cwd="/",
            env=_plain_environment(),
            # Ctrl-C goes to the whole process group of the terminal; the keeper has to outlive it.
            start_new_session=True,
            **self._account,
        )


def new_name() -> str:
    return f"backstay_{secrets.token_hex(6)}"


def memory_folder() -> str | None:
    """A folder in memory with room for tests, if the machine has one."""
    try:
        return "/dev/shm" if shutil.disk_usage("/dev/shm").free >= MEMORY_BYTES_MIN else None
    except OSError:
        return None


def _plain_environment() -> dict[str, str]:
    """The environment without PGHOST, PGOPTIONS and the like, which would lead to another server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def unprivileged_account() -> dict[str, Any]:
    """PostgreSQL refuses to run as root, so root runs it as somebody else."""
    if os.geteuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = known.get("postgres") or known["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _process_handle(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def _kill_and_wait(handle: int) -> None:
    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        select.select([handle], [], [])
    except ProcessLookupError:
        pass
    finally:
        os.close(handle)
