"""Node and its package manager: found on this machine, or installed on Debian."""

import shutil
import subprocess
from pathlib import Path

from tests.servers import apt


class NodeMissing(Exception):
    """The programs node and npm are not on this machine.

    Install them and run again. Debian, Ubuntu: apt-get install nodejs npm. macOS: brew install node.
    """


def find_or_install(program: str, package: str) -> str:
    return apt.found_or_installed(lambda: shutil.which(program), package, NodeMissing)


def build(source: Path, target: Path) -> list[str]:
    """A copy of a Node program with the packages that its lock file names; gives the command that starts it."""
    node, npm = find_or_install("node", "nodejs"), find_or_install("npm", "npm")
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("node_modules"), dirs_exist_ok=True)
    command = [npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts"]
    ran = subprocess.run(command, cwd=target, capture_output=True, text=True, check=False, timeout=300)
    if ran.returncode != 0:
        raise RuntimeError(f"npm ci failed:\n{ran.stdout}{ran.stderr}")
    return [node, str(target / "worker.js")]
