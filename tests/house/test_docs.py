"""What is written for readers is there and short."""

import ast

from backstay.core.alarms import Alarm
from backstay.server.pages.layout import PLACES
from backstay.store.webhooks import EVENTS, ITEM_EVENTS
from bench.page_scale import pages
from tests.house.pages import page_text
from tests.house.sources import PACKAGE, ROOT, name_of, python_files

README_LINES_MAX = 150


def is_too_long(text: str) -> bool:
    return len(text.splitlines()) >= README_LINES_MAX


def has_docstring(source: str) -> bool:
    return bool(ast.get_docstring(ast.parse(source)))


def test_the_readme_fits_on_a_page_or_two() -> None:
    assert not is_too_long((ROOT / "README.md").read_text(encoding="utf-8"))


def test_a_module_opens_by_saying_what_it_is_for() -> None:
    modules = python_files(PACKAGE)
    assert [name_of(path) for path in modules if not has_docstring(path.read_text(encoding="utf-8"))] == []


def test_every_alarm_event_and_page_is_described() -> None:
    alarms, webhooks, dashboard = (page_text(f"docs/{name}.md") for name in ("alarms", "webhooks", "dashboard"))
    assert [alarm.value for alarm in Alarm if f"| `{alarm.value}` |" not in alarms] == []
    assert [event for event in (*EVENTS, *ITEM_EVENTS) if f"`{event}`" not in webhooks] == []
    first_cells = " ".join(line.split("|")[1] for line in dashboard.splitlines() if line.startswith("|"))
    assert [place.label for place in PLACES if place.label not in first_cells] == []


def test_every_page_of_the_dashboard_is_measured() -> None:
    measured = {path.partition("?")[0] for path in pages(10).values()}
    assert [place.path for place in PLACES if place.path not in measured] == []


def test_a_readme_of_150_lines_is_too_long() -> None:
    assert not is_too_long("line\n" * 149)
    assert is_too_long("line\n" * 150)


def test_a_module_without_a_docstring_is_found() -> None:
    assert has_docstring('"""Words."""\n')
    assert not has_docstring("")
    assert not has_docstring("# a comment\nx = 1\n")
