"""The site builds without a warning, loads nothing from elsewhere, and says only what the code and the tests say."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_reference import pages as reference_pages
from tests.house.pages import page_names, page_text
from tests.house.sources import ROOT

PAGES = reference_pages()
METRIC = re.compile(r"\bbackstay_(?!ref\b)\w+")  # that one is a key of ours in a provider's metadata
NAMED_TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
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


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_of_the_reference_is_up_to_date(name: str) -> None:
    assert page_text(f"docs/{name}") == PAGES[name], "run: python docs/make_reference.py"


def test_every_guarantee_names_a_test_that_there_is() -> None:
    page = page_text("docs/index.md")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not re.match(r"\| (?:at|what) \|", line)]
    assert len(rows) > 40
    for row in rows:
        found = NAMED_TEST.search(row)
        assert found is not None, row
        assert found[2] in functions_of(found[1]), row


def test_the_tables_of_scale_are_what_the_measurements_make() -> None:
    from bench.claim_crowd import RESULTS
    from bench.crowd_tables import in_page, tables

    page = page_text("docs/scale.md")
    assert in_page(page, tables(json.loads(RESULTS.read_text(encoding="utf-8")))) == page


def test_every_metric_that_a_page_names_is_in_the_reference() -> None:
    named = {metric for page in page_names() for metric in METRIC.findall(page_text(page))}
    assert "backstay_queue_oldest_seconds" in named
    assert named - set(METRIC.findall(PAGES["metrics.md"])) == set()
