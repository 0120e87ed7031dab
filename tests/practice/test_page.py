"""The page about the practice provider tells what there is, and its program runs."""

import re
from dataclasses import fields
from pathlib import Path

from backstay.cli.provider import practice
from backstay.practice import Faults
from backstay.practice.faults import NAMED_FAULTS, NO_FAULT_NAME
from tests.house.test_library_page import programs, run

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "practice.md").read_text(encoding="utf-8")


def is_on_the_page(word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", PAGE) is not None


def test_its_program_runs_as_it_stands(tmp_path: Path) -> None:
    (program,) = programs(PAGE)
    ended = run(program, tmp_path)
    assert ended.returncode == 0, ended.stderr


def test_every_fault_and_every_option_is_named() -> None:
    options = [parameter.opts[0] for parameter in practice.params]
    assert [name for name in (NO_FAULT_NAME, *NAMED_FAULTS) if f"`{name}`" not in PAGE] == []
    assert [option for option in options if not is_on_the_page(option)] == []


def test_every_fault_is_an_option_or_on_the_page() -> None:
    options = {parameter.name for parameter in practice.params}
    for field in fields(Faults):
        assert field.name in options or is_on_the_page(field.name), field.name
