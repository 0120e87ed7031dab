"""mypy knows what `map` returns, and finds a misspelt option, of an adapter as well."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MYPY_SECONDS_MAX = 300

PROGRAM = """
from typing import Any, assert_type
from pydantic import BaseModel
import backstay
from backstay.adapters import BackstayChat, BackstayModel, dataset_mapper

class Review(BaseModel):
    stars: int

async def go() -> None:
    typed = backstay.map([{"text": "a"}], "{text}", model="m", schema=Review, budget=5)
    assert_type(typed, backstay.Results[Review])
    assert_type(typed[0].value, Review | None)
    assert_type(typed.values(), list[Review])
    assert_type(backstay.map(["a"], "{row}", model="m"), backstay.Results[str])
    assert_type(backstay.map(["a"], "{row}", schema={"type": "object"}), backstay.Results[dict[str, Any]])
    assert_type(await backstay.amap(["a"], "{row}", schema=Review), backstay.Results[Review])
    for answer in backstay.imap(["a"], "{row}", schema=Review, ordered=True):
        assert_type(answer, backstay.Answer[Review])
    backstay.map(["a"], "{row}", modle="m")
    backstay.map(["a"], "{row}", budget="five")
    backstay.run_file("a.csv", "{row}", "b.csv", lain="batch")
    backstay.plan(["a"], "{row}", lane="bulk")
    BackstayChat(model="m", tags=["a"], buget=5)
    BackstayModel(model="m", rpmm=5)
    dataset_mapper("{row}", model="m", nuls="")
"""


@pytest.mark.slow
def test_mypy_knows_the_types_and_finds_misspelt_options(tmp_path: Path) -> None:
    program, example = tmp_path / "program.py", tmp_path / "map_reviews.py"
    program.write_text(PROGRAM, encoding="utf-8")
    shutil.copy(ROOT / "examples" / "map_reviews.py", example)  # in its own folder it is checked less strictly
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--strict", str(program), str(example)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=MYPY_SECONDS_MAX,
    )
    assert "map_reviews.py" not in ran.stdout, ran.stdout
    wrong = {int(line) for line in re.findall(r"program\.py:(\d+): error", ran.stdout)}
    lines = PROGRAM.splitlines()
    said = [re.findall(r"\w+(?==)", lines[number - 1])[-1] for number in sorted(wrong)]
    assert said == ["modle", "budget", "lain", "lane", "buget", "rpmm", "nuls"], ran.stdout + ran.stderr
