"""Files and functions stay small: taste shows in the tail."""

import ast

import pytest

from tests.house.sources import FOLDERS, PACKAGE, functions, offences, python_files

FILE_LINES_MAX = 500
STRICT = 45
LOOSE = 70


def oversized(source: str, function_lines_max: int) -> list[str]:
    lines = len(source.splitlines())
    found = [f"{lines} lines, at most {FILE_LINES_MAX}"] if lines > FILE_LINES_MAX else []
    for function in functions(source):
        size = (function.end_lineno or function.lineno) - function.lineno + 1
        if size > function_lines_max:
            where = f"{function.name} at line {function.lineno}"
            found.append(f"{where} has {size} lines, at most {function_lines_max}")
    return found


def test_files_and_functions_stay_small() -> None:
    others = [folder for folder in FOLDERS if folder != PACKAGE]
    assert offences(python_files(PACKAGE), lambda source: oversized(source, STRICT)) == []
    assert offences(python_files(*others), lambda source: oversized(source, LOOSE)) == []


def packed(source: str) -> list[str]:
    """Tuples written with a star only to keep several entries on one line."""
    starred = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Starred))
    return [f"*(…) at line {node.lineno}" for node in starred if isinstance(node.value, ast.Tuple)]


def test_no_tuple_is_packed_to_outwit_the_formatter() -> None:
    assert offences(python_files(*FOLDERS), packed) == []


def test_a_packed_tuple_is_found() -> None:
    assert packed("names = (\n    *('a', 'b'),\n    *others,\n)\n") == ["*(…) at line 2"]


def function_of(lines: int) -> str:
    return "def long():\n" + "    x = 1\n" * (lines - 1)


@pytest.mark.parametrize("lines_max", [STRICT, LOOSE])
def test_a_function_one_line_too_long_is_found(lines_max: int) -> None:
    assert oversized(function_of(lines_max), lines_max) == []
    assert len(oversized(function_of(lines_max + 1), lines_max)) == 1


def test_a_long_async_method_is_found() -> None:
    method = "class A:\n    async def long(self):\n" + "        x = 1\n" * 80
    assert oversized(method, LOOSE) == ["long at line 2 has 81 lines, at most 70"]


def test_a_file_one_line_too_long_is_found() -> None:
    assert oversized("x = 1\n" * FILE_LINES_MAX, LOOSE) == []
    assert len(oversized("x = 1\n" * (FILE_LINES_MAX + 1), LOOSE)) == 1
