"""The site builds without a warning, loads nothing from elsewhere, and says only what the code and the tests say."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import backstay
from docs.make_reference import pages as reference_pages
from tests.house.pages import page_names, page_text
from tests.house.sources import ROOT

PAGES = reference_pages()
# Others: a key in a provider's metadata, a function in SQL, fixtures of pytest, a command of Django.
METRIC = re.compile(r"\bbackstay_(?!(?:ref|submit|app|practice|worker)\b)\w+")
GUARANTEE = re.compile(r"\| [^|]+ \| [^|]+ \| ([^|]+) \| `(tests/[\w/]+\.py)::(\w+)` \|")
HOW = ("processes killed", "server killed", "real processes", "in one process", "virtual clock")
SOME_TEST = "tests/store/test_money.py::test_what_does_not_fit_under_the_ceiling_is_not_claimed"
# What a page's elements have the browser fetch; a link is fetched when somebody clicks it.
FETCHED = re.compile(r"<(?:script|img|iframe|source|audio|video)\b[^>]*\bsrc=[\"']?((?:https?:)?//[^\"'\s>]+)")
LINKED = re.compile(r"<link\b[^>]*\bhref=[\"']?((?:https?:)?//[^\"'\s>]+)")
STYLED = re.compile(r"(?:@import|url\()\s*[\"']?((?:https?:)?//[^\"')\s]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ran = subprocess.run(  # not --quiet: what is not said is not counted as a warning either
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return folder


def fetched(text: str) -> list[str]:
    return [found for pattern in (FETCHED, LINKED, STYLED) for found in pattern.findall(text)]


def functions_of(path: str) -> set[str]:
    nodes = ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.slow
def test_the_site_loads_nothing_from_another_host(site: Path) -> None:
    texts = [path for kind in ("html", "css") for path in site.rglob(f"*.{kind}")]
    assert len(texts) > 30
    assert {path.name: fetched(path.read_text(encoding="utf-8")) for path in texts if fetched(path.read_text())} == {}


def test_every_page_can_be_searched_for(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}
    assert found >= {path.with_suffix(".html").name for path in (ROOT / "docs").glob("*.md")}


def test_what_is_fetched_from_elsewhere_is_found() -> None:
    assert fetched(
        '<script src="https://cdn.example.com/x.js"></script><link href=//fonts.example.com/a rel=stylesheet>'
    )
    assert fetched("body { background: url(https://example.com/a.png) }")
    assert not fetched('<a href="https://example.com">there</a><script src="assets/x.js"></script>')


def test_the_reference_is_up_to_date() -> None:
    old = [name for name, text in PAGES.items() if page_text(f"docs/{name}") != text]
    assert old == [], "run: python docs/make_reference.py"


def test_the_python_api_has_every_public_name_with_what_it_is() -> None:
    sections = re.split(r"^#{2,3} ", page_text("docs/python-api.md"), flags=re.MULTILINE)
    entries = {name: text for name, _, text in (section.partition("`\n\n") for section in sections)}
    assert {f"`{name}" for name in backstay.__all__} - entries.keys() == set()
    assert [name for name in backstay.__all__ if len(entries[f"`{name}"].strip()) < 30] == []


def guarantees() -> list[str]:
    page = page_text("docs/guarantees.md")
    return [line for line in page.splitlines() if line.startswith("| ") and not re.match(r"\| (?:at|what) \|", line)]


def flaw_of(row: str) -> str | None:
    """What is wrong with a row of the guarantees, if anything is."""
    found = GUARANTEE.fullmatch(row)
    if found is None:
        return "it has not the columns: what, then, how, shown by"
    how, path, name = found.groups()
    if how not in HOW:
        return f"{how!r} is none of {', '.join(HOW)}"
    if not (ROOT / path).exists() or name not in functions_of(path):
        return "there is no such test"
    text = (ROOT / path).read_text(encoding="utf-8")
    if (how == "virtual clock") != (path.startswith("tests/simulation/") or "@virtual_time\n" in text):
        return "the file of its test says otherwise of the clock"
    if how == "in one process" and path.startswith("tests/stories/"):
        return "stories run processes"
    return None


def test_every_guarantee_names_a_test_that_there_is_and_how_it_is_shown() -> None:
    rows = guarantees()
    assert len(rows) > 50
    assert {row: flaw for row in rows if (flaw := flaw_of(row))} == {}


@pytest.mark.parametrize(
    "cells",
    [
        ("it dies", "all is well", f"`{SOME_TEST}`"),
        ("it dies", "all is well", "", f"`{SOME_TEST}`"),
        ("it dies", "all is well", "by magic", f"`{SOME_TEST}`"),
        ("it dies", "all is well", "virtual clock", f"`{SOME_TEST}`"),
        ("it dies", "all is well", "processes killed", f"`{SOME_TEST}_no_more`"),
        ("it dies", "all is well", "in one process", "`tests/stories/test_poison.py::test_an_item`"),
    ],
)
def test_a_guarantee_that_does_not_say_how_it_is_shown_is_found(cells: tuple[str, ...]) -> None:
    assert flaw_of(f"| {' | '.join(cells)} |") is not None


@pytest.mark.slow
def test_the_tables_of_scale_are_what_the_measurements_make() -> None:
    from bench.claim_crowd import RESULTS
    from bench.crowd_tables import in_page, tables

    page = page_text("docs/scale.md")
    assert in_page(page, tables(json.loads(RESULTS.read_text(encoding="utf-8")))) == page


def test_every_metric_that_a_page_names_is_in_the_reference() -> None:
    named = {metric for page in page_names() for metric in METRIC.findall(page_text(page))}
    assert "backstay_queue_oldest_seconds" in named
    assert named - set(METRIC.findall(PAGES["metrics.md"])) == set()
