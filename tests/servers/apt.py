"""Installs a server's programs on Debian, without Debian's own service of it."""

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# Debian's packages start what they install; for the time of the install they may not.
NO_SERVICE = {Path("/usr/sbin/policy-rc.d"): "#!/bin/sh\nexit 101\n"}


def possible() -> bool:
    """Whether it is ours to do here."""
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def found_or_installed(
    find: Callable[[], T | None], package: str, missing: type[Exception], settings: Mapping[Path, str] | None = None
) -> T:
    """What is found here, if need be after an install; else raises what is missing, whose words say what to do."""
    found, wrong = find(), None
    if found is None and possible():
        wrong = install(package, settings)
        found = find()
    if found is None:
        raise missing("\n".join(filter(None, (wrong, missing.__doc__))))
    return found


def install(package: str, settings: Mapping[Path, str] | None = None) -> str | None:
    """Installs a package while some settings are in place; says what went wrong."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    command = ["apt-get", "install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", package]
    with _alone(), _in_place({**NO_SERVICE, **(settings or {})}):
        for step in (["apt-get", "update"], command):
            ran = subprocess.run(
                step, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
            )
            if ran.returncode != 0:
                return f"{' '.join(step)} failed:\n{ran.stderr.strip()}"
    return None


@contextmanager
def _alone() -> Iterator[None]:
    """Test processes that miss the same program wait for each other."""
    with (Path(tempfile.gettempdir()) / "backstay-apt.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def _in_place(settings: Mapping[Path, str]) -> Iterator[None]:
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
