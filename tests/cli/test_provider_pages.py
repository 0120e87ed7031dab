"""The commands on the pages about providers run as they stand, against a practice provider at each one's address."""

import json
import shlex
from pathlib import Path
from typing import Final

import pytest

from backstay.llm.providers import provider_named, provider_names
from tests.cli.practice_thread import served
from tests.cli.shell import Shell
from tests.house.pages import blocks, page_text, provider_pages
from tests.house.sources import ROOT

PROVIDER_PAGES: Final = provider_pages(with_practice=False)
INDEX: Final = "docs/providers/index.md"
QUICK: Final = ("docs/providers/azure.md", INDEX)
MIXED: Final = ("gpt-4o-mini", "groq:llama-3.1-8b-instant", "grok-4")


def commands(page: str) -> list[list[str]]:
    found = [block.text.strip() for block in blocks(page) if block.kind == "sh"]
    return [shlex.split(line)[1:] for text in found for line in text.splitlines()]


@pytest.fixture
def ready(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    sqlite_shell.file('{"prompt": "why"}\n', "prompts.jsonl")
    bodies = [{"model": model, "messages": [{"role": "user", "content": "x"}]} for model in MIXED]
    sqlite_shell.file("".join(json.dumps(body) + "\n" for body in bodies), "mixed.jsonl")
    for name in provider_names():
        monkeypatch.setenv(provider_named(name).access.key_env, f"key-of-{name}-0000")
    return sqlite_shell


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=() if page in QUICK else pytest.mark.slow) for page in PROVIDER_PAGES]
)
def test_a_printed_command_runs(page: str, ready: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served() as (practice, base_url):
        for name in provider_names():
            monkeypatch.setenv(provider_named(name).access.base_url_env, base_url)
        [command] = commands(page)
        ran = ready(*command)
        assert ran.code == 0, ran.err
        assert practice.counts.calls == (len(MIXED) if page == INDEX else 1)
    if "--model" in command:
        assert f'"model":{json.dumps(command[command.index("--model") + 1])}' in Path(f"{command[3]}.jsonl").read_text()


def test_every_provider_has_a_page_that_says_what_the_code_says() -> None:
    assert {path.stem for path in (ROOT / "docs/providers").glob("*.md")} == {*provider_names(), "index"}
    for page in PROVIDER_PAGES:
        if page == INDEX:
            continue
        name, text = Path(page).stem, page_text(page)
        provider = provider_named(name)
        lanes = next(line for line in text.splitlines() if line.startswith("| lanes |"))
        assert lanes.count("`") == 2 * len(provider.lanes), name
        assert all(f"`{lane}`" in lanes for lane in provider.lanes), name
        for word in (provider.access.key_env, provider.access.base_url_env, provider.access.base_url):
            assert word in text, (name, word)
        assert all(f"`{prefix}`" in text for prefix in provider.model_prefixes), name
