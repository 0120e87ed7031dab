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
    return apt.found_or_installed(lambda: shutil.which("promtool"), "prometheus", PromtoolMissing)


def promtool(*words: str | Path) -> str:
    """What it says, which is an error if it finds anything wrong."""
    ran = subprocess.run([find_or_install(), *map(str, words)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout
