"""The page docs/integrations.md shows what the examples are, and its test runs."""

from pathlib import Path

import pytest

from tests.house.pages import blocks, page_text
from tests.integrations.test_pytest_plugin import run_pytest

BLOCKS = blocks("docs/integrations.md")


def test_every_excerpt_is_in_the_example_that_it_names() -> None:
    excerpts = [block for block in BLOCKS if (block.title or "").startswith("examples/")]
    assert len(excerpts) == len(BLOCKS) - 1
    assert [str(block) for block in excerpts if block.text not in page_text(block.title or "")] == []


def test_every_example_of_a_framework_is_run_by_a_test() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    named = {Path(block.title or "").parts[1].removesuffix(".py") for block in BLOCKS if "/" in (block.title or "")}
    assert [name for name in named if f'"{name}"' not in tests] == []


@pytest.mark.slow
def test_the_printed_test_passes(tmp_path: Path) -> None:
    [printed] = [block for block in BLOCKS if block.title == "test_shop.py"]
    ran = run_pytest(tmp_path, printed.text)
    assert "2 passed" in ran.stdout, ran.stdout + ran.stderr
    assert not (tmp_path / "jobs.db").exists()
