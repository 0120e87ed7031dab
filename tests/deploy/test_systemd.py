"""The systemd units start commands that there are, end them in order, and may do little else."""

import configparser
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from backstay.core.limits import Limits
from backstay.engine.engine import LAST_WORDS_SECONDS
from tests.deploy.configuration import DEPLOY, parsed, unknown_settings

UNITS = sorted((DEPLOY / "systemd").glob("backstay-*"))
SERVICES = [unit for unit in UNITS if unit.suffix == ".service"]
LONG_LIVED = [unit for unit in SERVICES if "[Install]" in unit.read_text(encoding="utf-8")]
PROGRAM = "/opt/backstay/bin/backstay"
EXPOSURE_MAX = 2.5  # of 10, as systemd counts it; 9.6 is a unit without any of this

systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")


def read(unit: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(unit.read_text(encoding="utf-8"))
    return parser


def name_of(unit: Path) -> str:
    return unit.name


def test_every_part_has_its_unit() -> None:
    parts = {"worker@.service", "server.service", "relay.service", "migrate.service", "tick.service", "tick.timer"}
    assert {unit.name.removeprefix("backstay-") for unit in UNITS} >= parts


@pytest.mark.parametrize("unit", SERVICES, ids=name_of)
def test_our_command_line_takes_the_command(unit: Path) -> None:
    program, *words = shlex.split(read(unit)["Service"]["ExecStart"].replace("%i", "1"))
    assert program == PROGRAM
    part = unit.name.removeprefix("backstay-").partition(".")[0].rstrip("@")
    assert parsed(words).info_name == {"server": "serve"}.get(part, part)


@pytest.mark.parametrize("unit", LONG_LIVED, ids=name_of)
def test_the_grace_is_longer_than_ours(unit: Path) -> None:
    seconds = float(read(unit)["Service"]["TimeoutStopSec"].removesuffix("s"))
    assert seconds > Limits().shutdown_seconds + 2 * LAST_WORDS_SECONDS


def test_a_chain_has_the_time_that_its_bounds_give_it() -> None:
    limits = Limits()
    seconds = float(read(DEPLOY / "systemd" / "backstay-tick.service")["Service"]["TimeoutStartSec"].removesuffix("s"))
    assert seconds > (limits.chain_depth_max + 1) * limits.invocation_seconds


def test_the_timer_keeps_the_interval() -> None:
    assert Limits().tick_interval_seconds == 300
    assert read(DEPLOY / "systemd" / "backstay-tick.timer")["Timer"]["OnCalendar"] == "*:0/5"


def test_the_example_sets_settings() -> None:
    lines = (DEPLOY / "systemd" / "backstay.env.example").read_text(encoding="utf-8").splitlines()
    names = {line.partition("=")[0] for line in lines if line and not line.startswith("#")}
    assert unknown_settings(names) == set()
    assert "BACKSTAY_DATABASE_URL" in names


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Copies whose program is there, for systemd looks for it."""
    for unit in UNITS:
        (tmp_path / unit.name).write_text(unit.read_text(encoding="utf-8").replace(PROGRAM, "/bin/true"))
    return tmp_path


@systemd
def test_systemd_has_nothing_to_say(installed: Path) -> None:
    units = [str(installed / unit.name.replace("@.", "@1.")) for unit in UNITS]
    (installed / "backstay-worker@1.service").symlink_to("backstay-worker@.service")
    ran = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    about_us = [line for line in ran.stderr.splitlines() if "backstay" in line]
    assert (ran.returncode, about_us) == (0, []), ran.stderr


@systemd
@pytest.mark.parametrize("unit", SERVICES, ids=name_of)
def test_little_is_left_to_do_harm_with(unit: Path, installed: Path) -> None:
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(installed / unit.name)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", ran.stdout)
    assert found is not None, ran.stdout + ran.stderr
    assert float(found[1]) <= EXPOSURE_MAX
