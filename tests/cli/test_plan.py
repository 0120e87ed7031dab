"""`backstay plan`: what a file will take, before anything is sent."""

import json
from pathlib import Path

import pytest

from backstay.cli.request_options import FORMATS, LANES
from backstay.llm.endpoint import Lane
from backstay.llm.formats import Format
from backstay.run.options import CHEAPEST
from tests.cli.shell import Shell


def request(custom_id: str, model: str = "gpt-4o-mini", **more: object) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 100, **more}
    return json.dumps({"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body})


@pytest.fixture
def requests(sqlite_shell: Shell) -> Path:
    return sqlite_shell.file("\n".join(request(f"r{at}") for at in range(1000)))


def test_a_plan_says_what_a_file_will_take(sqlite_shell: Shell, requests: Path) -> None:
    ran = sqlite_shell("plan", requests, "--price", "1/10", "--rpm", 100, "--json")
    assert (ran.code, ran.err) == (0, "")
    told = ran.json
    assert (told["requests"], told["input_tokens"], told["output_tokens"]) == (1000, 104_000, 100_000)
    assert (told["low_micros"], told["expected_micros"]) == (1000 * (104 + 10), 1000 * (104 + 1000))
    assert told["worst_micros"] == told["input_tokens_max"] + 1_000_000
    assert (told["seconds"], told["seconds_by_limit"]) == (600, {"rpm": 600})
    assert (told["format"], told["bad_lines"], told["bad"]) == ("batch", 0, [])
    (share,) = told["by_model"]
    assert (share["model"], share["endpoint"], share["requests"]) == ("gpt-4o-mini", "/v1/chat/completions", 1000)


def test_a_plan_reads_well(sqlite_shell: Shell, requests: Path) -> None:
    ran = sqlite_shell("plan", requests, "--base-url", "https://api.openai.com/v1", "--latency", "2s")
    assert ran.code == 0
    told = dict(line.split("  ", 1) for line in ran.lines[:7] if "  " in line)
    assert told["requests"].strip() == "1,000"
    assert told["cost"].strip().startswith("$0.01")
    assert told["time"].strip() == "20 s, by concurrency"
    assert ran.lines[-1].split()[:3] == ["gpt-4o-mini", "/v1/chat/completions", "1,000"]
    assert ran.lines[-1].endswith("0.15/0.6/0.075 (openai gpt-4o-mini)")


def test_an_unknown_price_is_said_to_be_unknown(sqlite_shell: Shell) -> None:
    path = sqlite_shell.file("\n".join((request("a"), request("b", "gpt-mine"))))
    ran = sqlite_shell("plan", path)
    assert ran.code == 0
    assert any(line.startswith("cost") and line.endswith("unknown") for line in ran.lines)
    told = sqlite_shell("plan", path, "--json").json
    assert told["expected_micros"] is None
    assert [share["expected_micros"] is None for share in told["by_model"]] == [False, True]


def test_a_batch_costs_half_and_takes_as_long_as_the_provider_likes(sqlite_shell: Shell, requests: Path) -> None:
    call, batch = (
        sqlite_shell("plan", requests, "--lane", lane, "--rpm", 1, "--json").json for lane in ("call", "batch")
    )
    assert batch["expected_micros"] == call["expected_micros"] / 2
    assert batch["seconds"] is None
    assert "at most 24 h" in sqlite_shell("plan", requests, "--lane", "batch").out


@pytest.mark.parametrize("as_json", [True, False])
def test_bad_lines_are_named_and_end_it(sqlite_shell: Shell, as_json: bool) -> None:
    path = sqlite_shell.file("\n".join((request("a"), "oops", request("a"), request("b", stream=True), request("c"))))
    ran = sqlite_shell("plan", path, *(["--json"] if as_json else []))
    assert ran.code == 2
    assert ran.said == [
        "line 2 is not JSON: Expecting value at column 1",
        "line 3 has the custom_id of line 1 again",
        "line 4 asks for a stream, which is not supported",
        "backstay: error: 3 bad lines; nothing was sent. fix them, or skip them with --skip-bad-lines.",
    ]
    if as_json:
        assert (ran.json["requests"], ran.json["bad_lines"]) == (2, 3)
        assert ran.json["bad"][0] == {"line": 2, "reason": "is not JSON: Expecting value at column 1"}


def test_a_single_bad_line_is_spoken_of_as_one(sqlite_shell: Shell) -> None:
    ran = sqlite_shell("plan", sqlite_shell.file("oops"))
    assert "1 bad line; nothing was sent. fix it, or skip it with --skip-bad-lines." in ran.err


def test_bad_lines_can_be_skipped(sqlite_shell: Shell) -> None:
    path = sqlite_shell.file("\n".join((request("a"), *["oops"] * 150)))
    ran = sqlite_shell("plan", path, "--skip-bad-lines", "--json")
    assert (ran.code, ran.json["requests"], ran.json["bad_lines"], len(ran.json["bad"])) == (0, 1, 150, 100)
    assert ran.said[-1] == "and 50 more bad lines"


def test_a_file_of_bad_lines_only_has_no_table(sqlite_shell: Shell) -> None:
    ran = sqlite_shell("plan", sqlite_shell.file("oops"))
    assert (ran.code, "MODEL" in ran.out) == (2, False)


def test_a_table_fills_a_template_from_a_file(sqlite_shell: Shell) -> None:
    rows = sqlite_shell.file("id,text\na,one\nb,two\n", "rows.csv")
    sqlite_shell.file('{"model": "gpt-m", "messages": [{"role": "user", "content": "Translate: {text}"}]}', "body.json")
    ran = sqlite_shell("plan", rows, "--template", "@body.json", "--json")
    assert (ran.code, ran.json["requests"], ran.json["format"]) == (0, 2, "csv")
    ran = sqlite_shell(
        "plan", rows, "--template", "Translate: {text}", "--model", "gpt-m", "--endpoint", "/v1/responses", "--json"
    )
    assert ran.json["by_model"][0]["endpoint"] == "/v1/responses"
    ran = sqlite_shell("plan", rows, "--template", "@nothing.json")
    assert (ran.code, ran.said) == (
        2,
        ["backstay: error: cannot read the template nothing.json: No such file or directory."],
    )


def test_the_service_is_the_one_that_a_run_would_use(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    path = sqlite_shell.file(request("a", "llama-3.1-8b-instant"))
    here = sqlite_shell("plan", path, "--json", "--provider", "openai")
    assert here.json["expected_micros"] is None, "OpenAI has no such model"
    given = sqlite_shell("plan", path, "--json", "--base-url", "https://api.groq.com/openai/v1").json
    monkeypatch.setenv("OPENAI_BASE_URL", "https://api.groq.com/openai/v1")
    assert sqlite_shell("plan", path, "--json").json["expected_micros"] == given["expected_micros"] > 0


def test_the_cheapest_lane_expects_batches_and_at_worst_calls(sqlite_shell: Shell, requests: Path) -> None:
    call, batch, cheapest = (
        sqlite_shell("plan", requests, "--lane", lane, "--json").json for lane in ("call", "batch", "cheapest")
    )
    assert cheapest["expected_micros"] == batch["expected_micros"]
    assert cheapest["worst_micros"] == call["worst_micros"]
    told = sqlite_shell("plan", requests, "--lane", "cheapest", "--deadline", "6h")
    assert any(line.startswith("time") and line.endswith("at most 6 h, the deadline") for line in told.lines)


def test_a_bound_on_replies_counts_where_requests_set_none(sqlite_shell: Shell) -> None:
    body = {"model": "gpt-mine", "messages": []}
    line = json.dumps({"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body})
    plan = ("plan", sqlite_shell.file(line), "--price", "1/10", "--json")
    assert sqlite_shell(*plan).json["worst_micros"] is None
    told = sqlite_shell(*plan, "--max-output-tokens", 20).json
    assert (told["output_tokens"], told["output_tokens_max"]) == (20, 20)
    assert told["worst_micros"] == told["input_tokens_max"] + 200


def test_requests_that_are_paid_once_are_planned_once(sqlite_shell: Shell) -> None:
    path = sqlite_shell.file("\n".join(request(f"r{at}", max_tokens=at % 2 + 1) for at in range(6)))
    told = sqlite_shell("plan", path, "--dedupe", "--json").json
    assert (told["requests"], told["copies"]) == (2, 4)
    assert any(line.endswith("2, and 4 copies of them") for line in sqlite_shell("plan", path, "--dedupe").lines)


def test_stdin_is_planned_too(sqlite_shell: Shell) -> None:
    ran = sqlite_shell.process(
        "plan", "-", "--model", "gpt-4o-mini", "--json", stdin='{"prompt": "x"}\n{"prompt": "y"}'
    )
    assert (ran.code, ran.json["requests"], ran.json["file"]) == (0, 2, "stdin")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["nothing.jsonl"], "cannot read nothing.jsonl: No such file or directory"),
        (["requests.jsonl", "--price", "cheap"], "'cheap' is not a price"),
        (["requests.jsonl", "--format", "xml"], "'xml' is not one of"),
        (["requests.jsonl", "--endpoint", "https://elsewhere.example/x"], "--endpoint has the url"),
        (["empty.jsonl"], "there are no requests in empty.jsonl"),
    ],
)
def test_wrong_usage_is_one_line(sqlite_shell: Shell, args: list[str], says: str) -> None:
    sqlite_shell.file(request("a"), "requests.jsonl")
    sqlite_shell.file("\n", "empty.jsonl")
    ran = sqlite_shell("plan", *args)
    assert (ran.code, ran.out, len(ran.said)) == (2, "", 1)
    assert says in ran.err


def test_no_database_is_made(sqlite_shell: Shell, requests: Path) -> None:
    before = set(sqlite_shell.folder.parent.rglob("*"))
    assert sqlite_shell("plan", requests).code == 0
    assert set(sqlite_shell.folder.parent.rglob("*")) == before


def test_the_options_name_what_there_is() -> None:
    assert list(FORMATS) == list(Format)
    assert list(LANES.choices) == [*Lane, CHEAPEST]


def test_providers_and_their_lanes_are_compared_the_cheapest_first(sqlite_shell: Shell, requests: Path) -> None:
    named = ("--provider", "openai", "--provider", "deepseek", "--provider", "anthropic")
    rows = sqlite_shell("plan", requests, *named, "--rpm", 100, "--json").json["comparison"]
    assert {(row["provider"], row["lane"]) for row in rows} >= {("deepseek", "call"), ("anthropic", "batch")}
    by_lane = {row["lane"]: row for row in rows if row["provider"] == "openai"}
    batch, call = by_lane["batch"], by_lane["call"]
    assert rows[0] == batch
    alone = sqlite_shell("plan", requests, "--provider", "openai", "--rpm", 100, "--json").json
    names = ("expected_micros", "worst_micros", "seconds")
    assert [call[name] for name in names] == [alone[name] for name in names]
    assert abs(batch["expected_micros"] * 2 - call["expected_micros"]) <= 2 * 1000
    assert batch["seconds"] == 86_400


def test_a_comparison_is_of_the_providers_whose_keys_are_set(
    sqlite_shell: Shell, requests: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "no key is set" in sqlite_shell("plan", requests, "--compare").err
    monkeypatch.setenv("DEEPSEEK_API_KEY", "sk-practice-0123456789")
    ran = sqlite_shell("plan", requests, "--compare")
    assert ran.code == 0, ran.err
    assert [line.split()[:2] for line in ran.lines[1:]] == [["deepseek", "call"]]


def test_what_a_provider_cannot_do_is_said_beside_it(sqlite_shell: Shell) -> None:
    path = sqlite_shell.file(request("a") + "\n" + request("b", max_tokens=None))
    rows = sqlite_shell("plan", path, "--provider", "openai", "--provider", "anthropic", "--json").json["comparison"]
    notes = {(row["provider"], row["lane"]): row["note"] for row in rows}
    assert (notes["openai", "call"], "max_tokens" in notes["anthropic", "call"]) == ("", True)
    assert "cannot be compared" in sqlite_shell("plan", "-", "--compare").err


def test_a_provider_that_has_other_models_is_not_compared_by_their_price(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOOGLE_GEMINI_BASE_URL", "GROQ_BASE_URL", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    path = sqlite_shell.file(request("a", model="claude-sonnet-4-5"))
    named = [word for name in ("anthropic", "gemini", "groq") for word in ("--provider", name)]
    rows = sqlite_shell("plan", path, *named, "--json").json["comparison"]
    calls = {row["provider"]: (row["note"], row["expected_micros"]) for row in rows if row["lane"] == "call"}
    assert calls["gemini"] == ("claude-sonnet-4-5 is a model of anthropic", None)
    assert calls["groq"] == ("no price is known; give --price", None), "it hosts models of others"
    assert calls["anthropic"][1] > 0


def test_a_file_that_no_provider_can_read_is_one_error(sqlite_shell: Shell) -> None:
    named = ("--provider", "openai", "--provider", "anthropic")
    for path, why in (("nowhere.jsonl", "cannot read"), (sqlite_shell.file("\n"), "there are no requests")):
        ran = sqlite_shell("plan", path, *named)
        assert (ran.code, ran.out, len(ran.said)) == (2, "", 1)
        assert why in ran.err
