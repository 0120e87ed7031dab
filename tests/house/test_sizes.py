"""Files and functions stay small: taste shows in the tail."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.house.sources import FOLDERS, PACKAGE, functions, name_of, python_files


@dataclass(frozen=True)
class Limits:
    file_lines_max: int
    function_lines_max: int


STRICT = Limits(file_lines_max=300, function_lines_max=45)
LOOSE = Limits(file_lines_max=500, function_lines_max=70)


def oversized(source: str, limits: Limits) -> list[str]:
    lines = len(source.splitlines())
    found = [f"{lines} lines, at most {limits.file_lines_max}"] if lines > limits.file_lines_max else []
    for function in functions(source):
        size = (function.end_lineno or function.lineno) - function.lineno + 1
        if size > limits.function_lines_max:
            where = f"{function.name} at line {function.lineno}"
            found.append(f"{where} has {size} lines, at most {limits.function_lines_max}")
    return found


@pytest.mark.parametrize("path", python_files(*FOLDERS), ids=name_of)
def test_files_and_functions_stay_small(path: Path) -> None:
    limits = STRICT if name_of(path).startswith(f"{PACKAGE}/") else LOOSE
    assert oversized(path.read_text(), limits) == []


def function_of(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize("limits", [STRICT, LOOSE])
def test_a_function_one_line_too_long_is_found(limits: Limits) -> None:
    assert oversized(function_of(limits.function_lines_max), limits) == []
    assert len(oversized(function_of(limits.function_lines_max + 1), limits)) == 1


def test_a_long_async_method_is_found() -> None:
    method = "class A:\n    async def long(self):\n" + "        x = 1\n" * 80
    assert oversized(method, LOOSE) == ["long at line 2 has 81 lines, at most 70"]


@pytest.mark.parametrize("limits", [STRICT, LOOSE])
def test_a_file_one_line_too_long_is_found(limits: Limits) -> None:
    assert oversized("x = 1\n" * limits.file_lines_max, limits) == []
    assert len(oversized("x = 1\n" * (limits.file_lines_max + 1), limits)) == 1
