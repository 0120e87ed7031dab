"""Find the PostgreSQL server programs, or install them where that is ours to do."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

NEEDED = ("initdb", "pg_ctl", "postgres", "psql")


class PostgresMissing(Exception):
    """The PostgreSQL server programs (initdb, pg_ctl, postgres, psql) are not on this machine.

    Install them and run again. Debian, Ubuntu: apt-get install postgresql. Fedora: dnf install postgresql-server.
    macOS: brew install postgresql.
    """


def find_or_install() -> Path:
    """The folder of the server programs; installs them when root on Debian."""
    found = find()
    if found is None and os.geteuid() == 0 and shutil.which("apt-get"):
        _install_with_apt()
        found = find()
    if found is None:
        raise PostgresMissing(PostgresMissing.__doc__)
    return found


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


def _install_with_apt() -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", "postgresql"]
    with _no_cluster_of_debian():
        for command in (["apt-get", "update"], install):
            ran = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            if ran.returncode != 0:
                raise PostgresMissing(f"{' '.join(command)} failed:\n{ran.stderr.strip()}\n{PostgresMissing.__doc__}")


@contextmanager
def _no_cluster_of_debian() -> Iterator[None]:
    """Debian's package would create and start a cluster of its own; for the time of the install it may not."""
    settings = {
        Path("/etc/postgresql-common/createcluster.d/backstay-tests.conf"): "create_main_cluster = false\n",
        Path("/usr/sbin/policy-rc.d"): "#!/bin/sh\nexit 101\n",
    }
    written = [path for path in settings if not path.exists()]
    folders = [path.parent for path in written if not path.parent.exists()]
    try:
        for path in written:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(settings[path])
            path.chmod(0o755)
        yield
    finally:
        for path in written:
            path.unlink(missing_ok=True)
        for folder in folders:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
