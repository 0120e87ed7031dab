"""The example of Django, with Django's own client, commands and tasks."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT

VISITS = Path(__file__).with_name("django_visits.py")


def visit(folder: Path, how: str) -> None:
    environ = {name: value for name, value in os.environ.items() if not name.startswith("BACKSTAY_")}
    environ |= {"SHOP_FILE": str(folder / "shop.db")}
    environ |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "examples" / "django_shop")))}
    command = [sys.executable, str(VISITS), how]
    ran = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=110, check=False)
    assert (ran.returncode, ran.stdout.strip()) == (0, "visited"), ran.stdout + ran.stderr


def test_a_job_and_a_task_are_part_of_the_transaction_and_tasks_tell_how_they_ended(tmp_path: Path) -> None:
    visit(tmp_path, "alone")


@pytest.mark.slow
def test_the_command_of_django_runs_a_worker_for_orders_and_tasks(tmp_path: Path) -> None:
    visit(tmp_path, "with a worker")
