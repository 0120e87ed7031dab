"""A private PgBouncer in transaction mode before some PostgreSQL, which goes away with the process that owns it."""

import os
import shutil
import socket
import subprocess
import time

from typing_extensions import override

from tests.servers import apt
from tests.servers.kept import Kept
from tests.servers.postgres import HOST

START_SECONDS_MAX = 20.0
ACCOUNT = "postgres"  # PgBouncer refuses to run as root

SETTINGS = """
[databases]
* = host={host} port={server_port} user=postgres
[pgbouncer]
listen_addr = {host}
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 500
server_reset_query_always = 0
logfile = {folder}/log
"""


class PgBouncerMissing(Exception):
    """The program pgbouncer is not on this machine.

    Install it and run again. Debian, Ubuntu: apt-get install pgbouncer.
    """


def find_or_install() -> str:
    places = os.pathsep.join((os.environ["PATH"], "/usr/sbin"))
    return apt.found_or_installed(lambda: shutil.which("pgbouncer", path=places), "pgbouncer", PgBouncerMissing)


class PrivatePgBouncer(Kept):
    """`with PrivatePgBouncer(server.port, 2) as pooler:` gives all clients together two connections to the server."""

    def __init__(self, server_port: int, connections: int) -> None:
        super().__init__("pgbouncer")
        self._program = find_or_install()
        self._server_port = server_port
        self._connections = connections
        self.port = 0

    def url(self, direct: str, options: str = "listen=off&prepared_statements=off") -> str:
        """The URL of a database by way of the pooler, with the options that it needs."""
        name = direct.rpartition("/")[2]
        return f"postgresql://postgres@{HOST}:{self.port}/{name}?{options}"

    @override
    def start(self) -> None:
        with socket.socket() as probe:
            probe.bind((HOST, 0))
            self.port = probe.getsockname()[1]
        told = {"host": HOST, "port": self.port, "server_port": self._server_port, "folder": self.folder}
        settings = self.folder / "pgbouncer.ini"
        settings.write_text(SETTINGS.format(**told, connections=self._connections), encoding="utf-8")
        account = {"user": ACCOUNT, "group": ACCOUNT, "extra_groups": []} if os.geteuid() == 0 else {}
        if account:
            for path in (self.folder, settings):
                shutil.chown(path, ACCOUNT, ACCOUNT)
        process = subprocess.Popen(
            [self._program, str(settings)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            **account,  # type: ignore[call-overload]
        )
        (self.folder / "pid").write_text(str(process.pid))
        give_up_at = time.monotonic() + START_SECONDS_MAX
        while process.poll() is None and time.monotonic() < give_up_at:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError(f"PgBouncer did not start:\n{(self.folder / 'log').read_text()}")
