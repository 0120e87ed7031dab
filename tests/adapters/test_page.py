"""docs/adapters.md: its programs run as they stand, one after another, and pay once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.conftest import AdapterSite
from tests.databases import fresh_database
from tests.house.pages import blocks
from tests.house.sources import ROOT

pytestmark = pytest.mark.slow
database_url = fresh_database("sqlite")


def test_the_programs_of_the_page_run_twice_and_pay_once(site: AdapterSite, tmp_path: Path) -> None:
    programs = [block.text for block in blocks("docs/adapters.md") if block.why_not_run is None]
    assert len(programs) == 3
    (tmp_path / "page.py").write_text("\n".join(programs), encoding="utf-8")
    environment = {**os.environ, "OPENAI_BASE_URL": str(site.options["base_url"]), "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, "page.py"], env=environment, capture_output=True, text=True, check=False, timeout=240
        )
        assert ran.returncode == 0, ran.stderr
        assert "stars=" in ran.stdout
        assert "Describe the number 19." in ran.stdout
    assert site.paid == 2 + 20 + 2
