"""One vocabulary: files are nouns of the domain, functions are its verbs."""

import ast
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.house.sources import FOLDERS, PACKAGE, Function, functions, name_of, offences, python_files

BANNED_NOUNS = {"util", "utils", "common", "helper", "helpers", "manager", "managers"}
BANNED_VERBS = ("get_", "do_", "handle_", "process_")


def banned_nouns(name: str) -> set[str]:
    words = {word for part in Path(name).with_suffix("").parts for word in part.lower().split("_")}
    return words & BANNED_NOUNS


def banned_verbs(source: str) -> list[str]:
    return [
        function.name
        for function in functions(source)
        if function.name.lstrip("_").startswith(BANNED_VERBS) and not _is_dictated(function)
    ]


def _is_dictated(function: Function) -> bool:
    """A library that calls our method by its own name is told so with @override."""
    return any(ast.unparse(decorator).endswith("override") for decorator in function.decorator_list)


def test_files_are_named_after_the_domain() -> None:
    names = map(name_of, python_files(*FOLDERS))
    assert [name for name in names if banned_nouns(name)] == []


def test_functions_are_named_by_a_verb_of_the_domain() -> None:
    assert offences(python_files(PACKAGE), banned_verbs) == []


def repeated_classes(sources: Iterable[str]) -> list[str]:
    """The public class names that stand for two things or more."""
    nodes = (node for source in sources for node in ast.walk(ast.parse(source)))
    names = Counter(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.name.startswith("_"))
    return sorted(name for name, count in names.items() if count > 1)


def test_a_class_name_stands_for_one_thing() -> None:
    assert repeated_classes(path.read_text(encoding="utf-8") for path in python_files(PACKAGE)) == []


def test_a_class_name_that_stands_for_two_things_is_found() -> None:
    assert repeated_classes(["class A: ...\nclass _B: ...", "class A: ...\nclass _B: ..."]) == ["A"]


@pytest.mark.parametrize("name", ["backstay/utils.py", "backstay/common/retry.py", "tests/store/job_manager.py"])
def test_a_name_that_says_nothing_is_found(name: str) -> None:
    assert banned_nouns(name)


def test_a_name_that_only_contains_such_a_word_is_fine() -> None:
    assert not banned_nouns("backstay/core/commonwealth.py")


def test_a_verb_that_says_nothing_is_found() -> None:
    source = "def get_item(): ...\nclass A:\n    async def _handle_it(self): ...\n    def getter(self): ...\n"
    assert banned_verbs(source) == ["get_item", "_handle_it"]


def test_a_name_that_a_library_dictates_is_fine_when_marked() -> None:
    assert banned_verbs("class A:\n    @override\n    def get_command(self): ...\n") == []
