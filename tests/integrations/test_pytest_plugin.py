"""The fixtures for pytest, in a real run of pytest that knows nothing of this project's tests."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.house.sources import ROOT

PLUGIN = "backstay.pytest_plugin"
SHOP = """
import asyncio
import threading
from backstay import Backstay

began = threading.Event()

app = Backstay("sqlite:///not-touched.db")

@app.handler()
async def shout(text: str) -> str:
    return text.upper()

@app.handler()
async def hang(text: str) -> None:
    began.set()
    await asyncio.sleep(3600)
"""
TESTS = """
import json, urllib.error, urllib.request
import pytest, shop

@pytest.mark.parametrize("word", ["a", "b"])
def test_shout(backstay, word):
    job = backstay(shop.app).submit(shop.shout, [word])
    assert (job.id, job.wait(timeout_seconds=30).succeeded) == (1, 1)
    assert [result.value for result in job.results()] == [word.upper()]

def test_a_call_under_way_does_not_hold_up_the_end(backstay):
    backstay(shop.app).submit(shop.hang, ["a"])
    assert shop.began.wait(30)

def test_practice(practice):
    asked = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": "hello"}]}
    url, kind = practice.base_url + "/chat/completions", {"content-type": "application/json"}
    request = urllib.request.Request(url, json.dumps(asked).encode(), kind)
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert json.load(answer)["choices"]
    assert (practice.bill.charged, practice.counts.calls) == (1, 1)
    practice.change(fail=1.0)
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(request, timeout=30)

def test_the_application_has_its_own_database_again():
    assert shop.app.url == "sqlite:///not-touched.db"
    assert shop.app._client is None
"""
NOTHING_LOADED = """
import sys

def test_nothing():
    assert "backstay.pytest_plugin" in sys.modules
    loaded = [name for name in sys.modules if name.startswith("backstay")]
    assert sorted(loaded) == ["backstay", "backstay.pytest_plugin"]
"""


def run_pytest(folder: Path, tests: str, *options: str) -> "subprocess.CompletedProcess[str]":
    (folder / "shop.py").write_text(SHOP)
    (folder / "test_shop.py").write_text(tests)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("BACKSTAY_", "PYTEST_"))}
    environ["BACKSTAY_SHUTDOWN_SECONDS"] = "3600"  # a test that waits for a call to finish would wait for an hour
    environ |= {"PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-p", PLUGIN, "-q", "--rootdir", str(folder), *options]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=200, check=False)


@pytest.mark.slow
def test_the_fixtures_run_an_application_and_a_provider(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, TESTS)
    assert "5 passed" in ran.stdout, ran.stdout + ran.stderr
    assert not (tmp_path / "not-touched.db").exists()


def test_the_plugin_loads_nothing_where_no_test_asks_for_it(tmp_path: Path) -> None:
    ran = run_pytest(tmp_path, NOTHING_LOADED)
    assert "1 passed" in ran.stdout, ran.stdout + ran.stderr


def test_pytest_finds_the_plugin_by_its_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"backstay": PLUGIN}
