"""Find the PostgreSQL server programs, or install them where that is ours to do."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.servers import apt

NEEDED = ("initdb", "pg_ctl", "postgres", "psql")
# Debian's package would create a cluster of its own as well.
NO_CLUSTER = {Path("/etc/postgresql-common/createcluster.d/backstay-tests.conf"): "create_main_cluster = false\n"}


class PostgresMissing(Exception):
    """The PostgreSQL server programs (initdb, pg_ctl, postgres, psql) are not on this machine.

    Install them and run again. Debian, Ubuntu: apt-get install postgresql. Fedora: dnf install postgresql-server.
    macOS: brew install postgresql.
    """


def find_or_install() -> Path:
    """The folder of the server programs; installs them when root on Debian."""
    return apt.found_or_installed(find, "postgresql", PostgresMissing, NO_CLUSTER)


def find() -> Path | None:
    return next((folder for folder in _candidates() if all((folder / name).exists() for name in NEEDED)), None)


def _candidates() -> Iterator[Path]:
    if shutil.which("pg_config"):
        asked = subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=False)
        if asked.returncode == 0:
            yield Path(asked.stdout.strip())
    if on_path := shutil.which("initdb"):
        yield Path(on_path).resolve().parent
    # Debian keeps each version in a folder of its own, off the PATH.
    installed = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if path.parent.name.isdigit()]
    yield from sorted(installed, key=lambda path: int(path.parent.name), reverse=True)
