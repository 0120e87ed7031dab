"""A private redis-server in a temporary folder, which goes away with the process that owns it."""

import os
import shutil
import signal
import socket
import subprocess

from typing_extensions import override

from tests.servers import apt
from tests.servers.kept import Kept

HOST = "127.0.0.1"
START_TRIES_MAX = 5


class RedisMissing(Exception):
    """The program redis-server is not on this machine.

    Install it and run again. Debian, Ubuntu: apt-get install redis-server. Fedora: dnf install redis. macOS: brew
    install redis.
    """


def find_or_install() -> str:
    return apt.found_or_installed(lambda: shutil.which("redis-server"), "redis-server", RedisMissing)


class PrivateRedis(Kept):
    """`with PrivateRedis() as server:` starts a server that keeps nothing on disk; it can be hung and killed."""

    def __init__(self) -> None:
        super().__init__("redis")
        self._program = find_or_install()
        self.port = 0

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    @override
    def stop(self) -> None:
        self.go_on()
        super().stop()

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
        return int((self.folder / "pid").read_text())

    @override
    def start(self) -> None:
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
        options = {"bind": HOST, "port": port, "dir": self.folder, "pidfile": f"{self.folder}/pid"}
        options |= {"daemonize": "yes", "save": "", "appendonly": "no", "logfile": f"{self.folder}/log"}
        command = [self._program, *(text for name, value in options.items() for text in (f"--{name}", str(value)))]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"redis-server failed:\n{ran.stdout}{ran.stderr}")
        for _ in range(1_000):
            if self._listens():
                return
        raise RuntimeError((self.folder / "log").read_text())

    def _listens(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(0.01)
            return probe.connect_ex((HOST, self.port)) == 0
