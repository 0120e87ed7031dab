"""What `run` and `submit` refuse before anything is sent or stored."""

import json
import sqlite3
from pathlib import Path

import pytest

from tests.cli.shell import Shell

HERE = ("--base-url", "http://127.0.0.1:9/v1")
CHAT, RESPONSES, EMBEDDINGS = "/v1/chat/completions", "/v1/responses", "/v1/embeddings"


def requests(shell: Shell, *urls: str) -> Path:
    body = {"model": "gpt-4o-mini", "input": "x", "messages": []}
    lines = [{"custom_id": f"r{at}", "method": "POST", "url": url, "body": body} for at, url in enumerate(urls)]
    return shell.file("\n".join(map(json.dumps, lines)), "requests.jsonl")


@pytest.mark.parametrize("command", ["run", "submit"])
def test_an_empty_base_url_is_not_the_default_one(sqlite_shell: Shell, command: str) -> None:
    ran = sqlite_shell(command, requests(sqlite_shell, CHAT), "--base-url", "")
    assert (ran.code, "--base-url is empty" in ran.said[0]) == (2, True)


@pytest.mark.parametrize("command", ["run", "submit", "plan"])
def test_requests_that_the_background_cannot_do_are_bad_lines(sqlite_shell: Shell, command: str) -> None:
    path = requests(sqlite_shell, RESPONSES, CHAT)
    ran = sqlite_shell(command, path, *HERE, "--lane", "background")
    assert ran.code == 2
    assert ran.said[0] == "line 2 is for /v1/chat/completions; --lane background takes /v1/responses only"
    if command != "plan":
        assert sqlite_shell("jobs", "--json").rows == [], "nothing was stored"


@pytest.mark.parametrize("lane", ["call", "batch", "background"])
@pytest.mark.parametrize("command", ["run", "submit", "plan"])
def test_a_background_response_is_for_its_own_lane_and_a_bad_line_elsewhere(
    sqlite_shell: Shell, command: str, lane: str
) -> None:
    body = {"model": "gpt-4o-mini", "input": "x", "max_output_tokens": 16}
    bodies = (body, {**body, "background": True})
    lines = [{"custom_id": f"r{n}", "method": "POST", "url": RESPONSES, "body": body} for n, body in enumerate(bodies)]
    path = sqlite_shell.file("\n".join(map(json.dumps, lines)), "requests.jsonl")
    if lane == "background":
        assert command == "run" or sqlite_shell(command, path, *HERE, "--lane", lane).code == 0
        return
    ran = sqlite_shell(command, path, *HERE, "--lane", lane)
    assert ran.code == 2
    assert ran.said[0] == "line 2 asks for a background response; use --lane background, which waits for it"
    if command != "plan":
        assert sqlite_shell("jobs", "--json").rows == [], "nothing was stored"


@pytest.mark.parametrize("command", ["run", "submit"])
def test_requests_that_cannot_be_found_again_are_bad_lines(sqlite_shell: Shell, command: str) -> None:
    ran = sqlite_shell(command, requests(sqlite_shell, CHAT, EMBEDDINGS), *HERE, "--reconcilable")
    assert ran.code == 2
    assert ran.said[0] == "line 2 is for /v1/embeddings; --reconcilable takes /v1/chat/completions only"


def test_the_flaws_that_fail_an_answer_are_a_term_of_the_run(sqlite_shell: Shell) -> None:
    path = requests(sqlite_shell, CHAT)
    plain, strict, again, other = (
        sqlite_shell("submit", path, *HERE, "--json", *options).json
        for options in (
            (),
            *[("--fail-on", flaws) for flaws in ("refused,truncated", "truncated, refused", "filtered")],
        )
    )
    assert plain["handler"] != strict["handler"]
    assert (again["job"], again["new"]) == (strict["job"], False), "in whatever order they are named"
    assert other["job"] not in (plain["job"], strict["job"])
    with sqlite3.connect(sqlite_shell.url.removeprefix("sqlite:///")) as connection:
        specs = dict(connection.execute("SELECT name, spec FROM endpoints").fetchall())
    assert json.loads(specs[strict["handler"]])["fail_on"] == ["truncated", "refused"]
    assert "fail_on" not in json.loads(specs[plain["handler"]])


@pytest.mark.parametrize("flaws", ["", "cut", "truncated,", "truncated;refused"])
def test_a_flaw_that_there_is_not_is_refused(sqlite_shell: Shell, flaws: str) -> None:
    ran = sqlite_shell("submit", requests(sqlite_shell, CHAT), *HERE, "--fail-on", flaws)
    assert ran.code == 2
    assert "is not valid; choose from truncated, refused, filtered" in ran.err


def test_the_others_are_queued_without_them(sqlite_shell: Shell) -> None:
    path = requests(sqlite_shell, CHAT, RESPONSES, RESPONSES)
    ran = sqlite_shell("submit", path, *HERE, "--lane", "background", "--skip-bad-lines", "--json")
    assert (ran.code, ran.json["items"]) == (0, 2)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--deadline", "24s"], "24 s is too short for a batch: --lane cheapest needs 12 min or more"),
        (["--deadline", "20s", "--timeout", "10"], "--lane cheapest needs 30 s or more"),
        ([], "--lane cheapest needs a deadline"),
    ],
)
@pytest.mark.parametrize("command", ["run", "submit"])
def test_a_deadline_that_no_batch_can_meet_is_refused(
    sqlite_shell: Shell, command: str, options: list[str], says: str
) -> None:
    ran = sqlite_shell(command, requests(sqlite_shell, CHAT), *HERE, "--lane", "cheapest", *options)
    assert (ran.code, len(ran.said)) == (2, 1)
    assert says in ran.err


def test_the_shortest_deadline_that_leaves_time_for_a_batch_is_taken(sqlite_shell: Shell) -> None:
    path = requests(sqlite_shell, CHAT)
    assert sqlite_shell("submit", path, *HERE, "--lane", "cheapest", "--deadline", "12m").code == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "OPENAI_API_KEY is not set, and api.openai.com needs a key"),
        ([*HERE, "--provider", "nope"], "there is no provider 'nope'"),
        ([*HERE, "--api-key-env", "NOPE_KEY"], "the environment variable NOPE_KEY is not set"),
    ],
)
def test_a_key_that_is_not_there_is_missed_before_the_first_call(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, options: list[str], says: str
) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    ran = sqlite_shell("run", requests(sqlite_shell, CHAT), *options)
    assert (ran.code, len(ran.said)) == (2, 1)
    assert says in ran.err


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--base-url", "http://me:SECRETWORD@127.0.0.1:9/v1"), "must not contain a user name or a password"),
        (("--base-url", "http://127.0.0.1:9/v1?api_key=SECRETWORD"), "must not contain a key"),
        (("--base-url", "http://[::1"), "the base URL is not valid"),
        ((*HERE, "--header", "X-Key=sk-SECRETWORD"), "must have the form NAME=VARIABLE"),
    ],
    ids=["password", "key in the query", "no URL", "value in a header"],
)
@pytest.mark.parametrize("command", ["run", "submit"])
def test_what_is_secret_is_refused_where_it_would_be_stored(
    sqlite_shell: Shell, command: str, options: tuple[str, ...], word: str
) -> None:
    ran = sqlite_shell(command, requests(sqlite_shell, CHAT), *options)
    assert ran.code == 2
    assert word in ran.said[0]
    assert "SECRETWORD" not in " ".join(ran.said)
    assert sqlite_shell("jobs", "--json").rows == []
