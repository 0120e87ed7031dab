"""promtool, which checks rules: found on this machine, or installed on Debian."""

import shutil
import subprocess
from pathlib import Path

from tests.servers import apt


class PromtoolMissing(Exception):
    """The program promtool is not on this machine.

    Install it and run again. Debian, Ubuntu: apt-get install prometheus. macOS: brew install prometheus.
    """


def find_or_install() -> str:
    found = shutil.which("promtool")
    if found is None and apt.possible():
        wrong = apt.install("prometheus")
        if wrong is not None:
            raise PromtoolMissing(f"{wrong}\n{PromtoolMissing.__doc__}")
        found = shutil.which("promtool")
    if found is None:
        raise PromtoolMissing(PromtoolMissing.__doc__)
    return found


def promtool(*words: str | Path) -> str:
    """What it says, which is an error if it finds anything wrong."""
    ran = subprocess.run([find_or_install(), *map(str, words)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
