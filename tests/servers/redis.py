"""A private redis-server in a temporary folder, which goes away with the process that owns it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import apt

HOST = "127.0.0.1"
START_TRIES_MAX = 5

# Reads until its owner closes the pipe or dies in whatever way, then clears up.
KEEPER = 'cat >/dev/null; [ -f "$1/pid" ] && kill -9 "$(cat "$1/pid")" 2>/dev/null; rm -rf "$1"'


class RedisMissing(Exception):
    """The program redis-server is not on this machine.

    Install it and run again. Debian, Ubuntu: apt-get install redis-server. Fedora: dnf install redis. macOS: brew
    install redis.
    """


def find_or_install() -> str:
    found = shutil.which("redis-server")
    if found is None and apt.possible():
        wrong = apt.install("redis-server")
        if wrong is not None:
            raise RedisMissing(f"{wrong}\n{RedisMissing.__doc__}")
        found = shutil.which("redis-server")
    if found is None:
        raise RedisMissing(RedisMissing.__doc__)
    return found


class PrivateRedis:
    """`with PrivateRedis() as server:` starts a server that keeps nothing on disk; it can be hung and killed."""

    def __init__(self) -> None:
        self._program = find_or_install()
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self.port = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="backstay-redis-", dir="/tmp"))
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, "keeper", str(self._folder)], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            self._start_on_free_port()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def stop(self) -> None:
        if self._keeper is not None:
            self.go_on()
            self._keeper.communicate()
            self._keeper = None

    def kill(self) -> None:
        """Gone at once, with all it knew; returns when it no longer listens."""
        handle = os.pidfd_open(self._pid())
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        # Not our child: it made itself a daemon. The port says when it is gone.
        while self._listens():
            pass
        os.close(handle)

    def hang(self) -> None:
        """It keeps its connections and answers nothing."""
        os.kill(self._pid(), signal.SIGSTOP)

    def go_on(self) -> None:
        try:
            os.kill(self._pid(), signal.SIGCONT)
        except (OSError, ValueError):
            return  # it was killed before

    def restart(self) -> None:
        """On the same port, knowing nothing."""
        self._start_on(self.port)

    def _pid(self) -> int:
        assert self._folder is not None
        return int((self._folder / "pid").read_text())

    def _start_on_free_port(self) -> None:
        for left in reversed(range(START_TRIES_MAX)):
            with socket.socket() as probe:
                probe.bind((HOST, 0))
                self.port = probe.getsockname()[1]
            try:
                return self._start_on(self.port)
            except RuntimeError:
                # Somebody may have taken the port since; another one is free.
                if not left:
                    raise

    def _start_on(self, port: int) -> None:
        options = {"bind": HOST, "port": port, "dir": self._folder, "pidfile": f"{self._folder}/pid"}
        options |= {"daemonize": "yes", "save": "", "appendonly": "no", "logfile": f"{self._folder}/log"}
        command = [self._program, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"redis-server failed:\n{ran.stdout}{ran.stderr}")
        for _ in range(1_000):
            if self._listens():
                return
        raise RuntimeError((Path(str(self._folder)) / "log").read_text())

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.01)
            return probe.connect_ex((HOST, self.port)) == 0
