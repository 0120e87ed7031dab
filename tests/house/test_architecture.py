"""ARCHITECTURE.md names files, modules and what is in them; all of these exist."""

import re

import pytest

from tests.house.sources import PACKAGE, ROOT, python_files

PLACES = (ROOT, ROOT / PACKAGE, ROOT / PACKAGE / "store")
QUOTED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"[\w./-]+/[\w.-]+")
DOTTED = re.compile(r"[a-z]\w*(?:\.\w+)+")


def missing(text: str) -> list[str]:
    """The paths and dotted names in backquotes that are not there. A name with a `<part>` to fill in is skipped, and so
    is one that begins with no module."""
    return [
        name
        for name in dict.fromkeys(QUOTED.findall(text))
        if (PATH.fullmatch(name) and not name.startswith("/") and not any((place / name).exists() for place in PLACES))
        or (DOTTED.fullmatch(name) and not is_known(name.removeprefix(f"{PACKAGE}.").split(".")))
    ]


def is_known(parts: list[str]) -> bool:
    """Whether the last part is in the module that the first ones name."""
    for n in range(len(parts), 0, -1):
        place = ROOT.joinpath(PACKAGE, *parts[:n])
        files = python_files(str(place.relative_to(ROOT))) if place.is_dir() else [place.with_suffix(".py")]
        if files[0].is_file():
            source = "".join(file.read_text(encoding="utf-8") for file in files)
            return n == len(parts) or parts[-1] == "py" or re.search(rf"\b{parts[-1]}\b", source) is not None
    return True


def test_what_the_page_names_exists() -> None:
    assert missing((ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "name", ["llm/nowhere.py", "tests/house/test_nowhere.py", "llm.formats.LineForm", "engine.nowhere"]
)
def test_a_name_that_is_gone_is_found(name: str) -> None:
    assert missing(f"see `{name}`") == [name]


def test_files_modules_and_their_names_are_known() -> None:
    named = (
        "core/limits.py",
        "sql/submissions.sql",
        "engine.gate.judge",
        "store.items.claim",
        "backstay.celery",
        "settings.py",
    )
    assert missing("".join(f"`{name}` " for name in named)) == []
