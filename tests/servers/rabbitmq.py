"""A private RabbitMQ node in a temporary folder, which goes away with the process that owns it."""

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers import apt

HOST = "127.0.0.1"
START_SECONDS_MAX = 120.0
START_TRIES_MAX = 3
STOP_SECONDS_MAX = 30.0

# Where Debian's package keeps the scripts behind its wrapper in sbin. The wrapper would log and live in the folders
# of Debian's own service.
SCRIPTS = Path("/usr/lib/rabbitmq/bin")
ACCOUNT = "rabbitmq"

# Reads until its owner closes the pipe or dies in whatever way, then clears up: the node, its port mapper (a daemon
# that outlives it, and that stays as long as it knows of a node) and the folder. Debian's sh wants -s before a group.
KEEPER = """
cat >/dev/null
[ -f "$1/group" ] && kill -s KILL -- "-$(cat "$1/group")" 2>/dev/null
tries=50
while epmd -kill 2>&1 | grep -q "not allowed" && [ $tries -gt 0 ]; do sleep 0.1; tries=$((tries - 1)); done
rm -rf "$1"
"""


class RabbitMQMissing(Exception):
    """The program rabbitmq-server is not on this machine.

    Install it and run again. Debian, Ubuntu: apt-get install rabbitmq-server.
    """


def find_or_install() -> Path:
    script = SCRIPTS / "rabbitmq-server"
    return apt.found_or_installed(lambda: script if script.exists() else None, "rabbitmq-server", RabbitMQMissing)


class PrivateRabbitMQ:
    """`with PrivateRabbitMQ() as node:` starts a node with its own name, ports, port mapper and folders."""

    def __init__(self, mapper_port: int | None = None) -> None:
        """Nodes that are to know each other share the port of their mapper."""
        self._script = find_or_install()
        self._mapper_port = mapper_port
        self._account = ACCOUNT if os.geteuid() == 0 else None
        self._folder: Path | None = None
        self._keeper: subprocess.Popen[bytes] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._environment: dict[str, str] = {}
        self._prefixes = count(1)
        self.port = 0

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="backstay-rabbitmq-", dir="/tmp"))
        if self._account:
            shutil.chown(self._folder, self._account, self._account)
        self._start_keeper(self._mapper_port or free_port())
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
        return f"amqp://guest:guest@{HOST}:{self.port}/"

    @property
    def name(self) -> str:
        return f"backstay{self.port}@localhost"

    @property
    def folder(self) -> Path:
        if self._folder is None:
            raise RuntimeError("the node is not started")
        return self._folder

    def prefix(self) -> str:
        """A name that no other test on this node has: its exchanges and queues begin with it."""
        return f"t{next(self._prefixes)}"

    def vhost(self, name: str) -> str:
        return f"{self.url}{name}"

    def control(self, *arguments: str) -> str:
        """What only the operator's own program can do; returns what it prints."""
        command = [str(self._script.with_name("rabbitmqctl")), "--quiet", *arguments]
        environment = {**self._environment, **self._places()}
        ran = subprocess.run(command, env=environment, cwd=self.folder, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise RuntimeError(f"rabbitmqctl failed:\n{ran.stdout}{ran.stderr}")
        return ran.stdout

    def stop(self) -> None:
        """Gone with its folder; safe to call twice."""
        if self._keeper is not None:
            self._keeper.communicate()
            self._keeper = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def kill(self) -> None:
        """kill -9, as a power cut would; what it had confirmed is on its disk. Returns when it is gone."""
        self._signal(signal.SIGKILL)
        self._running().wait()
        while self._listens():  # what we started may be a shell around the node itself
            time.sleep(0.01)

    def halt(self) -> None:
        """Ends in order, and keeps its data."""
        self._signal(signal.SIGTERM)
        self._running().wait(STOP_SECONDS_MAX)
        while self._listens():
            time.sleep(0.01)

    def restart(self) -> None:
        """Starts again on the same port and data, after `kill` or `halt`."""
        self._start()

    def wipe(self) -> None:
        """Starts again on the same port, knowing nothing."""
        if self._running().poll() is None:
            self.kill()
        shutil.rmtree(self.folder / "mnesia")
        self._start()

    def hang(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        os.killpg(self._running().pid, number)

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("the node is not started")
        return self._process

    def _start_keeper(self, mapper_port: int) -> None:
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": HOST,
        }
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", KEEPER, "keeper", str(self.folder)],
            env=self._environment,
            stdin=subprocess.PIPE,
            # Ctrl-C goes to the whole process group of the terminal; the keeper has to outlive it.
            start_new_session=True,
        )

    def _start_on_free_port(self) -> None:
        for left in reversed(range(START_TRIES_MAX)):
            self.port = free_port()
            try:
                return self._start()
            except RuntimeError:
                # Somebody may have taken a port since; others are free.
                if not left:
                    raise

    def _start(self) -> None:
        with (self.folder / "output").open("wb") as output:
            self._process = subprocess.Popen(
                [str(self._script)],
                cwd=self.folder,
                env={**self._environment, **self._places()},
                user=self._account,
                group=self._account,
                extra_groups=[] if self._account else None,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        (self.folder / "group").write_text(str(self._process.pid))
        self._wait_until_open()

    def _places(self) -> dict[str, str]:
        return {
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": HOST,
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{self.folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{self.folder}/log",
            "RABBITMQ_CONFIG_FILE": f"{self.folder}/rabbitmq",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{self.folder}/enabled_plugins",
            "RABBITMQ_GENERATED_CONFIG_DIR": f"{self.folder}/config",
            # Its threads sleep when there is nothing to do: several nodes share few cores with the tests.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+sbwt none +sbwtdcpu none +sbwtdio none",
        }

    def _wait_until_open(self) -> None:
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < give_up_at and self._running().poll() is None:
            if self._listens():
                return
            time.sleep(0.1)
        said = (self.folder / "output").read_text(errors="replace").strip()
        if self._running().poll() is None:
            self.kill()
        raise RuntimeError(f"RabbitMQ did not start:\n{said or 'it said nothing'}")

    def _listens(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, self.port)) != 0:
                return False
            return probe.getsockname() != probe.getpeername()  # the system may connect a free port to itself


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port
