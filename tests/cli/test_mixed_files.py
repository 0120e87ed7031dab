"""A file with requests for several providers is one run, and each line goes where it says."""

import csv
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack
from copy import deepcopy
from typing import NamedTuple
from urllib.parse import quote

import pytest
from openai.types.chat import ChatCompletion

from backstay.llm import providers
from backstay.llm.endpoint import load_endpoint
from backstay.practice import Practice
from tests.cli.practice_thread import CHAT, file_of, in_thread, results, served
from tests.cli.shell import Shell
from tests.llm.second_provider import ASK, TWO, TwoServer

OPENAI, GROQ = "sk-openai-0123456789", "gsk-groq-0123456789"
MIXED = ("gpt-4o-mini", "groq:llama-3.3-70b-versatile", "gpt-4o-mini", "groq:llama-3.3-70b-versatile")


class Two(NamedTuple):
    openai: Practice
    groq: Practice


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> Iterator[Two]:
    """Two providers, each of which takes only its own key."""
    with ExitStack() as stack:
        found = []
        for name, key in (("OPENAI", OPENAI), ("GROQ", GROQ)):
            practice, base_url = stack.enter_context(served(key=key))
            monkeypatch.setenv(f"{name}_BASE_URL", base_url)
            monkeypatch.setenv(f"{name}_API_KEY", key)
            found.append(practice)
        yield Two(*found)


def test_each_line_goes_to_its_provider_and_all_results_to_one_file(shell: Shell, two: Two) -> None:
    ran = shell("run", file_of(shell, *MIXED), "--json", "--budget", "1")
    assert ran.code == 0, ran.err
    assert (two.openai.counts.calls, two.groq.counts.calls) == (2, 2)
    assert {key: body["model"] for key, body in results(shell).items()} == {
        f"r{n}": model.removeprefix("groq:") for n, model in enumerate(MIXED)
    }
    job = shell("job", "show", ran.rows[-1]["job"], "--json").json
    assert job["spent_micros"] > 0, "both prices are known"


def test_the_same_command_again_is_the_same_run(sqlite_shell: Shell, two: Two) -> None:
    path = file_of(sqlite_shell, *MIXED)
    first = sqlite_shell("run", path, "--json").rows[-1]["job"]
    (sqlite_shell.folder / "requests.results.jsonl").unlink()
    again = sqlite_shell("run", path, "--json")
    assert (again.code, again.rows[-1]["job"]) == (0, first)
    assert len(results(sqlite_shell)) == len(MIXED)
    assert (two.openai.counts.calls, two.groq.counts.calls) == (2, 2)


def test_a_line_that_changes_its_provider_is_another_run(sqlite_shell: Shell, two: Two) -> None:
    jobs = {
        sqlite_shell("submit", file_of(sqlite_shell, *models), "--json").json["job"]
        for models in (("openai:m", "groq:m"), ("groq:m", "openai:m"), ("openai:m", "groq:m"))
    }
    assert len(jobs) == 2


def test_workers_find_every_endpoint_of_a_submitted_file(shell: Shell, two: Two) -> None:
    assert shell("submit", file_of(shell, *MIXED)).code == 0
    assert shell("tick", "--json").code == 0
    assert (two.openai.counts.calls, two.groq.counts.calls) == (2, 2)


def test_a_provider_that_refuses_its_key_does_not_stop_the_others(
    sqlite_shell: Shell, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = file_of(sqlite_shell, *MIXED)
    assert sqlite_shell("submit", path).code == 0
    monkeypatch.setenv("GROQ_API_KEY", "not-this-one-000")
    sqlite_shell("tick", "--json")
    assert (two.openai.bill.charged, two.groq.bill.charged) == (2, 0)
    monkeypatch.setenv("GROQ_API_KEY", GROQ)
    assert sqlite_shell("run", path).code == 0
    assert (two.openai.bill.charged, two.groq.bill.charged) == (2, 2)


def test_identical_requests_to_two_providers_are_two(sqlite_shell: Shell, two: Two) -> None:
    body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 3}
    lines = [
        {"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": {"model": model, **body}}
        for n, model in enumerate(("openai:m", "groq:m", "openai:m"))
    ]
    path = sqlite_shell.file("\n".join(map(json.dumps, lines)), "requests.jsonl")
    assert sqlite_shell("run", path, "--dedupe").code == 0
    assert (two.openai.counts.calls, two.groq.counts.calls) == (1, 1)
    assert len(results(sqlite_shell)) == 3


def test_one_budget_holds_for_all_providers(sqlite_shell: Shell, two: Two) -> None:
    path = file_of(sqlite_shell, *MIXED * 20)
    ran = sqlite_shell("run", path, "--price", "1000/1000", "--max-output-tokens", "9", "--budget", "0.50", "--json")
    assert ran.code == 7, ran.err
    assert ran.rows[-1]["spent_micros"] <= 500_000
    assert min(two.openai.counts.calls, two.groq.counts.calls) > 0


def test_a_raised_budget_weighs_each_item_at_its_own_provider(sqlite_shell: Shell, two: Two) -> None:
    path = file_of(sqlite_shell, *MIXED)
    job = sqlite_shell("submit", path, "--json").json["job"]
    assert sqlite_shell("run", path, "--budget", "1", "--json").rows[-1]["job"] == job
    assert len(results(sqlite_shell)) == 4


def test_the_endpoints_are_stored_without_a_key(sqlite_shell: Shell, two: Two) -> None:
    assert sqlite_shell("submit", file_of(sqlite_shell, *MIXED)).code == 0
    with sqlite3.connect(sqlite_shell.url.removeprefix("sqlite:///")) as connection:
        specs = [spec for (spec,) in connection.execute("SELECT spec FROM endpoints")]
        handlers = {name for (name,) in connection.execute("SELECT handler FROM items")}
    [first] = [load_endpoint(spec) for spec in specs if load_endpoint(spec).beside]
    assert [endpoint.api for endpoint in first.all] == ["groq", "openai"]
    assert handlers == {endpoint.name for endpoint in first.all}
    assert not any(key in spec for spec in specs for key in (OPENAI, GROQ))


@pytest.fixture
def second(monkeypatch: pytest.MonkeyPatch) -> Iterator[TwoServer]:
    """A provider that has a format of its own."""
    monkeypatch.setattr(providers, "_known", {})
    providers.add_provider(TWO)
    server = TwoServer()
    with in_thread(server.serving()) as base_url:
        monkeypatch.setenv("TWO_URL", base_url)
        monkeypatch.setenv("TWO_KEY", "two-secret-0123456789")
        yield server


def test_a_chat_request_is_translated_and_the_reply_stays_as_it_came(
    sqlite_shell: Shell, two: Two, second: TwoServer
) -> None:
    path = file_of(sqlite_shell, "gpt-4o-mini", "two:b")
    assert sqlite_shell("run", path).code == 0
    assert results(sqlite_shell)["r1"] == {"brain": "b", "said": "n1", "in": 10, "out": 5, "end": "done"}


@pytest.mark.parametrize("options", [(), ("--ordered",)])
def test_replies_are_written_as_openai_would_if_the_user_wants(
    sqlite_shell: Shell, two: Two, second: TwoServer, options: tuple[str, ...]
) -> None:
    path = file_of(sqlite_shell, "gpt-4o-mini", "two:b")
    ran = sqlite_shell("run", path, "--reply-as", "openai", *options, "--json")
    assert ran.code == 0, ran.err
    assert {body["object"] for body in results(sqlite_shell).values()} == {"chat.completion"}
    assert results(sqlite_shell)["r1"]["choices"][0]["message"]["content"] == "n1"
    [stored] = [row for row in sqlite_shell("job", "results", ran.rows[-1]["job"]).rows if '"said"' in json.dumps(row)]
    assert "choices" not in json.dumps(stored), "what is stored is what came"


def test_replies_and_requests_of_a_provider_with_its_own_format_are_shown_as_text(
    sqlite_shell: Shell, two: Two, second: TwoServer
) -> None:
    path = file_of(sqlite_shell, "two:b", "gpt-4o-mini")
    ran = sqlite_shell("run", path, "--try", "1", "--yes")
    assert ran.code == 0, ran.err
    assert "> n0\n  n0\n" in ran.err
    row = sqlite_shell("show", "requests.results.jsonl", "--json").rows[0]
    assert (row["prompt"], row["answer"]) == ("n0", "n0")
    assert sqlite_shell("run", path, "--out", "table.csv").code == 0
    with (sqlite_shell.folder / "table.csv").open(newline="") as file:
        assert next(csv.DictReader(file))["answer"] == "n0"


def test_a_body_in_the_format_of_a_new_provider_is_refused_at_openai_itself(
    sqlite_shell: Shell, second: TwoServer
) -> None:
    body = {"model": "gpt-4o-mini", "question": "why", "messages": []}
    path = sqlite_shell.file(json.dumps({"custom_id": "a", "method": "POST", "url": CHAT, "body": body}))
    ran = sqlite_shell("plan", path)
    assert (ran.code, ran.said[0]) == (2, "line 1 has question, which is not in OpenAI's chat format")


def test_a_path_shows_its_provider(sqlite_shell: Shell, two: Two, second: TwoServer) -> None:
    line = {"custom_id": "a", "method": "POST", "url": ASK, "body": {"brain": "b", "question": "why"}}
    path = sqlite_shell.file(json.dumps(line), "requests.jsonl")
    assert sqlite_shell("run", path).code == 0
    assert results(sqlite_shell)["a"]["said"] == "why"


def test_what_a_format_cannot_say_is_a_bad_line_and_not_dropped(
    sqlite_shell: Shell, two: Two, second: TwoServer
) -> None:
    body = {"model": "two:b", "messages": [{"role": "user", "content": "x"}], "tools": []}
    path = sqlite_shell.file(json.dumps({"custom_id": "a", "method": "POST", "url": CHAT, "body": body}))
    ran = sqlite_shell("run", path)
    assert (ran.code, ran.said[0]) == (2, "line 1 has tools, which two cannot use")


@pytest.mark.parametrize("reply_as", [(), ("--reply-as", "openai")])
def test_a_model_of_anthropic_and_one_of_openai_in_one_file(
    sqlite_shell: Shell, two: Two, monkeypatch: pytest.MonkeyPatch, reply_as: tuple[str, ...]
) -> None:
    with served(key="sk-ant-0123456789") as (anthropic, base_url):
        monkeypatch.setenv("ANTHROPIC_BASE_URL", base_url.removesuffix("/v1"))
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-0123456789")
        path = file_of(sqlite_shell, "gpt-4o-mini", "claude-sonnet-4-5", "anthropic:claude-sonnet-4-5")
        ran = sqlite_shell("run", path, *reply_as)
        assert ran.code == 0, ran.err
        assert (anthropic.counts.calls, two.openai.counts.calls) == (2, 1)
    found = results(sqlite_shell)
    if reply_as:
        assert {body["object"] for body in found.values()} == {"chat.completion"}
    else:
        assert [found[name].get("type") for name in ("r0", "r1", "r2")] == [None, "message", "message"]


CHEAPEST = ("--lane", "cheapest", "--timeout", "2")


def test_the_cheapest_lane_has_a_batch_and_a_call_handler_for_each_provider(sqlite_shell: Shell, two: Two) -> None:
    assert sqlite_shell("submit", file_of(sqlite_shell, *MIXED), *CHEAPEST, "--deadline", "1h").code == 0
    with sqlite3.connect(sqlite_shell.url.removeprefix("sqlite:///")) as connection:
        known = {name: load_endpoint(spec) for name, spec in connection.execute("SELECT name, spec FROM endpoints")}
        [(handler, then)] = connection.execute("SELECT handler, handler_then FROM jobs").fetchall()
        of_items = {name for (name,) in connection.execute("SELECT handler FROM items")}
    assert [(end.api, end.lane) for end in known[handler].all] == [("groq", "batch"), ("openai", "batch")]
    assert [(end.api, end.lane) for end in known[then].all] == [("groq", "call"), ("openai", "call")]
    assert of_items == {end.name for end in known[handler].all}


def test_what_either_provider_has_answered_is_used_again(sqlite_shell: Shell, two: Two) -> None:
    sqlite_shell("run", file_of(sqlite_shell, *MIXED), "--json")
    (sqlite_shell.folder / "requests.results.jsonl").unlink()
    ran = sqlite_shell("run", file_of(sqlite_shell, *MIXED, MIXED[1]), "--json")
    assert (ran.code, ran.rows[-1]["reused"], len(results(sqlite_shell))) == (0, 4, 5)
    assert (two.openai.counts.calls, two.groq.counts.calls) == (2, 3)


def test_keys_are_found_after_a_library_has_replaced_the_environment(
    sqlite_shell: Shell, two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `Dataset.map(num_proc=2)` of Hugging Face's datasets does: a reference to the old one is out of date."""
    sqlite_shell("submit", file_of(sqlite_shell, "gpt-4o-mini"))
    sqlite_shell("tick", "--json")  # all modules are imported now
    monkeypatch.setattr(os, "environ", deepcopy(os.environ))
    monkeypatch.setenv("GROQ_API_KEY", "not-this-one-000")
    assert sqlite_shell("submit", file_of(sqlite_shell, *MIXED)).code == 0
    sqlite_shell("tick", "--json")
    assert (two.openai.bill.charged, two.groq.bill.charged) == (2, 0)


def test_replies_of_every_model_at_bedrock_are_whole_chat_completions(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Converse names neither an id nor a model, and InvokeModel returns what the model's own API returns."""
    nova, claude, llama = (
        "amazon.nova-pro-v1:0",
        "anthropic.claude-3-haiku-20240307-v1:0",
        "meta.llama3-70b-instruct-v1:0",
    )
    ask = {"messages": [{"role": "user", "content": "n"}], "max_tokens": 50}
    lines = [
        ("nova", CHAT, {"model": f"bedrock:{nova}", **ask}),
        ("claude", f"/model/{quote(claude)}/invoke", {"anthropic_version": "bedrock-2023-05-31", **ask}),
        ("llama", f"/model/{quote(llama)}/invoke", {"prompt": "n", "max_gen_len": 50}),
    ]
    asked = ({"custom_id": name, "method": "POST", "url": url, "body": body} for name, url, body in lines)
    path = sqlite_shell.file("".join(json.dumps(line) + "\n" for line in asked), "requests.jsonl")
    with served() as (_, base_url):
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", base_url.removesuffix("/v1"))
        ran = sqlite_shell("run", path, "--reply-as", "openai")
        assert ran.code == 0, ran.err
    found = results(sqlite_shell)
    assert "generation" in found.pop("llama"), "a form that is not known stays as it came"
    for name, model in (("nova", nova), ("claude", claude)):
        made = ChatCompletion.model_validate(found[name], strict=True)
        assert made.model == model
        assert made.id
        assert (made.choices[0].message.content or "").startswith("practice ")
        assert made.usage is not None
        assert made.usage.total_tokens > 0
