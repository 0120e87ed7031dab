"""docs/map.md and README.md show the example as it is, and the example runs as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.rows.conftest import RowSite

EXAMPLE = ROOT / "examples" / "map_reviews.py"


@pytest.mark.parametrize("page", ["docs/map.md", "README.md"])
def test_the_page_shows_the_example(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    shown = text.partition('```python title="examples/map_reviews.py"\n')[2].partition("```")[0]
    assert shown
    assert EXAMPLE.read_text(encoding="utf-8").endswith(shown)


@pytest.mark.slow
def test_the_example_runs_twice_and_pays_once(site: RowSite, tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text("text\nlovely\nawful\n")
    environment = {**os.environ, "OPENAI_BASE_URL": str(site.options["base_url"]), "PYTHONPATH": str(ROOT)}
    for _ in range(2):
        ran = subprocess.run(
            [sys.executable, str(EXAMPLE)], env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        assert ran.returncode == 0, ran.stderr
        assert "lovely" in ran.stdout
        assert "error" in ran.stdout
    assert site.paid == 2
