"""The commands as real processes on a fresh database and a topology of their own on the real broker."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from backstay.messaging.messages import Topology
from tests.cli.shell import APP, ROOT, Arg, Running
from tests.messaging.rig import Bystander

# A process counts as its own what its parent had when it was made. So the parent is a small one, and not the tests.
MEASURED = """
import pathlib, resource, subprocess, sys
code = subprocess.call(sys.argv[2:])
pathlib.Path(sys.argv[1]).write_text(str(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
sys.exit(code)
"""


class Ran(NamedTuple):
    code: int
    out: str
    err: str
    peak_kb: int  # of memory


class Desk:
    def __init__(self, folder: Path, database_url: str, broker_url: str, topology: Topology) -> None:
        self.folder = folder
        self.database_url = database_url
        self.broker_url = broker_url
        self.topology = topology
        self.aside = f"{topology.dead}.aside"
        self.bystander = Bystander(broker_url)
        (folder / "shop.py").write_text(APP)

    def environment(self, **more: str) -> dict[str, str]:
        """What is empty is not there."""
        own = {"BACKSTAY_BROKER_URL": self.broker_url, "BACKSTAY_BROKER_PREFIX": self.topology.prefix}
        place = {"BACKSTAY_DATABASE_URL": self.database_url, "PYTHONPATH": f"{ROOT}:{self.folder}"}
        given = {**os.environ, **own, **place, **more}
        return {name: value for name, value in given.items() if value}

    def run(self, *args: Arg, **more: str) -> Ran:
        """To its end, with the most memory that it had."""
        peak = self.folder / "peak"
        command = [sys.executable, "-c", MEASURED, str(peak), sys.executable, "-m", "backstay", *map(str, args)]
        ran = subprocess.run(
            command, cwd=self.folder, env=self.environment(**more), capture_output=True, text=True, check=False
        )
        return Ran(ran.returncode, ran.stdout, ran.stderr, int(peak.read_text()))

    def start(self, *args: Arg, **more: str) -> Running:
        return Running([sys.executable, "-m", "backstay", *map(str, args)], self.folder, self.environment(**more))
