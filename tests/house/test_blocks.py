"""Every block of code and every command on a page is run by a test, or marked as one that is not."""

import re
import shlex
from collections.abc import Mapping
from typing import Final

import click

from backstay.cli.main import cli
from docs.make_commands import leaves
from tests.cli.test_provider_pages import PROVIDER_PAGES
from tests.house.pages import BLOCK, Block, all_blocks, blocks_of, exists, fences, page_names, page_text
from tests.stories.test_guides import GUIDES, KINDS

# Pages whose blocks a test of their own runs, by the kind of the block. Each of these tests names its page.
RUN_BY: Final[Mapping[str, Mapping[str, str]]] = {
    "README.md": {"sh": "tests/stories/test_pages.py", "python": "tests/house/test_library_page.py"},
    "docs/adapters.md": {"python": "tests/adapters/test_page.py"},
    "docs/api.md": {"bash": "tests/stories/test_service_docs.py"},
    "docs/celery.md": {"sh": "tests/celery/test_page.py", "python": "tests/celery/test_page.py"},
    "docs/commands.md": {"text": "tests/cli/test_help.py"},
    "docs/converter.md": {"sh": "tests/stories/test_service_docs.py"},
    "docs/deployment.md": {"sh": "tests/server/test_rotation.py"},
    "docs/dead-letters.md": {"sh": "tests/upkeep/test_page.py"},
    "docs/integrations.md": {"python": "tests/integrations/test_page.py"},
    "docs/library.md": {"python": "tests/house/test_library_page.py"},
    "docs/map.md": {"python": "tests/rows/test_page.py"},
    "docs/openai.md": dict.fromkeys(("console", "python"), "tests/stories/test_service_docs.py"),
    "docs/practice.md": {"sh": "tests/stories/test_guides.py", "python": "tests/practice/test_page.py"},
    "docs/remote.md": {"sh": "tests/stories/test_service_docs.py"},
    "docs/requests.md": dict.fromkeys(("json", "csv", "text", "sh"), "tests/cli/test_requests_page.py"),
    "docs/settings.md": {"toml": "tests/cli/test_provider_settings.py"},
    "docs/run.md": {"sh": "tests/stories/test_pages.py"},
    "docs/testing.md": {"python": "tests/testing/test_rehearsal.py"},
    "docs/traffic.md": {"bash": "tests/stories/test_service_docs.py"},
    "docs/webhooks.md": dict.fromkeys(("sh", "python"), "tests/stories/test_service_docs.py"),
}
COMMANDS: Final = {name: command for name, command, _ in leaves(cli, click.Context(cli, info_name="backstay"))}


def is_accounted_for(block: Block) -> bool:
    if block.why_not_run is not None:
        return True
    if block.page in GUIDES:
        return block.title is not None or block.kind in KINDS
    if block.page in PROVIDER_PAGES:
        return block.kind == "sh"
    return block.kind in RUN_BY.get(block.page, {})


def unknown_words(command: str) -> list[str]:
    """What of a command that is printed there is not: a sub-command, or an option."""
    words = shlex.split(command, comments=True)
    name = "backstay"
    rest = words[1:]
    while rest and f"{name} {rest[0]}" in COMMANDS:
        name = f"{name} {rest.pop(0)}"
    if isinstance(COMMANDS[name], click.Group) and rest and re.fullmatch(r"[a-z]+", rest[0]):
        return [rest[0]]
    own = (option for one in COMMANDS[name].params for option in (*one.opts, *one.secondary_opts))
    known = {*own, "--help", "--version"}
    return [word for word in rest if word.startswith("--") and word.partition("=")[0] not in known]


def inline_commands(text: str) -> list[str]:
    """Commands in running text; one that a line break cuts in two is one command."""
    plain = BLOCK.sub("", text)
    return [" ".join(found.split()) for found in re.findall(r"`(backstay [^`]+)`", plain)]


def test_a_block_is_run_or_marked_as_not_run() -> None:
    left = [str(block) for block in all_blocks() if not is_accounted_for(block)]
    assert left == [], "run it in a test, or write <!-- not run: why --> above it"


def test_no_block_is_overlooked() -> None:
    assert [page for page in page_names() if fences(text := page_text(page)) != 2 * len(blocks_of(text))] == []


def test_who_is_said_to_run_a_page_names_it() -> None:
    claims = {(page, test) for page, tests in RUN_BY.items() for test in tests.values()}
    names = {page: page.removeprefix("docs/").removesuffix(".md") for page in RUN_BY}
    assert [claim for claim in claims if not exists(claim[1]) or names[claim[0]] not in page_text(claim[1])] == []


def test_a_command_in_running_text_is_one_that_there_is() -> None:
    commands = [(page, command) for page in page_names() for command in inline_commands(page_text(page))]
    assert [(page, command) for page, command in commands if unknown_words(command)] == []


def test_a_block_that_is_neither_run_nor_marked_is_found() -> None:
    [plain, marked] = blocks_of("```sh\nls\n```\n\n<!-- not run: it hurts -->\n```sh\nls\n```\n", "docs/new.md")
    assert not is_accounted_for(plain)
    assert is_accounted_for(marked)


def test_a_command_that_is_not_there_is_found() -> None:
    assert unknown_words("backstay job wach 1") == ["wach"]
    assert unknown_words("backstay job watch 1 --fast") == ["--fast"]
    assert unknown_words("backstay job watch 1 --db x") == []
