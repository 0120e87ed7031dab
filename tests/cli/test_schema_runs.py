"""`--schema` and `--reasks`: answers that fit, with the money that they cost; and schemas that are none."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstay.practice import Practice
from tests.cli.practice_thread import served
from tests.cli.shell import Arg, Ran, Shell

PRICE = "10/0.01"
MODELS = """
from dataclasses import dataclass
from pydantic import BaseModel, field_validator

class Word(BaseModel):
    word: str
    times: int

class Lower(Word):
    @field_validator("word")
    @classmethod
    def no_practice(cls, value):
        if value.startswith("practice"):
            raise ValueError("another word, please")
        return value

@dataclass
class Tree:
    name: str
    below: list["Tree"]

number = 7
"""
WORD = {"type": "object", "properties": {"word": {"type": "string", "maxLength": 60}}, "required": ["word"]}
# Its answers are long, so that to show one again costs much more than the request itself.
LONG = {
    "type": "object",
    "properties": {"words": {"type": "array", "items": {"type": "string"}, "minItems": 150}},
    "required": ["words"],
}


@pytest.fixture
def practice() -> Iterator[tuple[Practice, str]]:
    with served() as found:
        yield found


@pytest.fixture
def lines(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-practice-key")
    sqlite_shell.file(MODELS, "words.py")
    sqlite_shell.file(json.dumps(WORD), "word.json")
    sqlite_shell.file(json.dumps(LONG), "long.json")
    return sqlite_shell


def prompts(shell: Shell, *models: str, **more: Any) -> Path:
    rows = [{"prompt": f"say {n}", "model": model, "id": f"r{n}", **more} for n, model in enumerate(models)]
    return shell.file("".join(json.dumps(row) + "\n" for row in rows), "prompts.jsonl")


def run(shell: Shell, file: Path, url: str, schema: Arg, *more: Arg) -> Ran:
    return shell("run", file, "--format", "prompts", "--base-url", url, "--schema", schema, *more, "--json")


def written(shell: Shell, name: str) -> list[Any]:
    path = shell.folder / name
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("schema", ["word.json", "words:Word"])
def test_answers_fit_and_one_that_never_does_is_in_the_error_file(
    lines: Shell, practice: tuple[Practice, str], schema: str
) -> None:
    file = prompts(lines, "m", "practice-invalid-once", "practice-invalid", "m")
    ran = run(lines, file, practice[1], schema, "--reasks", 1)
    told = ran.rows[-1]
    assert (ran.code, told["succeeded"], told["failed"]) == (3, 3, 1), ran.err
    results = written(lines, "prompts.results.jsonl")
    answers = [json.loads(line["response"]["body"]["choices"][0]["message"]["content"]) for line in results]
    assert sorted(line["custom_id"] for line in results) == ["r0", "r1", "r3"]
    assert all(answer["word"].startswith("practice") for answer in answers)
    [failed] = written(lines, "prompts.results.errors.jsonl")
    assert (failed["custom_id"], failed["error"]["code"]) == ("r2", "invalid")
    assert failed["response"]["body"]["choices"][0]["message"]["content"], "the raw answer is kept"
    assert practice[0].bill.charged == 6
    assert run(lines, file, practice[1], schema, "--reasks", 1).rows[-1]["job"] == told["job"], "the same run"
    assert practice[0].bill.charged == 6


def test_validators_of_a_model_count_too(lines: Shell, practice: tuple[Practice, str]) -> None:
    ran = run(lines, prompts(lines, "m"), practice[1], "words:Lower")
    assert ran.code == 3
    [failed] = written(lines, "prompts.results.errors.jsonl")
    assert failed["error"]["message"] == "$.word: Value error, another word, please"
    assert practice[0].bill.charged == 3, "asked twice again"


def test_the_budget_covers_the_longer_requests_that_ask_again(lines: Shell, practice: tuple[Practice, str]) -> None:
    """A first call costs about $0.0015 and reserves $0.008; one that shows the last answer may cost twice as much."""
    bill, url = practice[0].bill, practice[1]
    bill.price = type(bill.price)(10_000_000, 10_000)
    file = prompts(lines, *["practice-invalid"] * 8, max_tokens=2000)
    for dollars in ("0.035", "0.045", "0.055", "0.08"):
        bill.clear()
        more = ("--price", PRICE, "--budget", dollars, "--reasks", 4, "--new", "--out", f"{dollars}.jsonl")
        ran = run(lines, file, url, "long.json", *more)
        assert ran.code == 7, ran.err
        told = ran.rows[-1]
        assert 0 < bill.total.cost_micros <= float(dollars) * 1_000_000
        assert told["spent_micros"] == bill.total.cost_micros


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("nowhere.json", "cannot read the schema nowhere.json: No such file or directory"),
        ("words.py", "the schema words.py is not JSON"),
        ("nowhere:Word", "there is no module 'nowhere'"),
        ("words:Nothing", "words has no 'Nothing'"),
        ("words:number", "7 is not a schema"),
        ("json:dumps", "is not a schema"),
        ("list.json", "the schema list.json is not a JSON object"),
        ("odd.json", "the schema is not a JSON Schema: $.type"),
    ],
)
def test_what_is_no_schema_is_one_clear_line_and_nothing_is_sent(
    lines: Shell, practice: tuple[Practice, str], schema: str, words: str
) -> None:
    lines.file("[]", "list.json")
    lines.file('{"type": "text"}', "odd.json")
    ran = run(lines, prompts(lines, "m"), practice[1], schema)
    assert (ran.code, len(ran.said)) == (2, 1), ran.err
    assert words in ran.err
    assert practice[0].bill.charged == 0


def test_a_schema_that_the_provider_cannot_take_is_refused_before_anything_is_sent(
    lines: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-practice-key")
    file = prompts(lines, "claude-sonnet-4-5", max_tokens=9)
    ran = lines("run", file, "--format", "prompts", "--provider", "anthropic", "--schema", "words:Tree")
    assert ran.code == 2
    assert "Anthropic cannot take the schema: below[] contains itself (#/$defs/Tree)" in ran.err


def test_reasks_need_a_schema(lines: Shell, practice: tuple[Practice, str]) -> None:
    ran = lines("run", prompts(lines, "m"), "--base-url", practice[1], "--reasks", 2)
    assert (ran.code, "--reasks without --schema has no effect" in ran.err) == (2, True)


def test_a_line_with_a_form_of_its_own_is_a_bad_line(lines: Shell, practice: tuple[Practice, str]) -> None:
    file = prompts(lines, "m", response_format={"type": "json_object"})
    ran = run(lines, file, practice[1], "word.json")
    assert (ran.code, "line 1 has a response_format of its own" in ran.err) == (2, True)


def test_plan_lists_what_gets_lost_and_counts_every_time_that_may_be_asked(lines: Shell) -> None:
    file = prompts(lines, "gpt-4o-mini", max_tokens=100)
    ran = lines("plan", file, "--format", "prompts", "--schema", "word.json", "--fallback", "groq:llama-3.1-8b-instant")
    assert "the schema at openai: word: maxLength becomes a part of the description" in ran.err
    assert "the schema at groq: groq does not support schemas" in ran.err
    plain, once, more = (
        lines("plan", file, "--format", "prompts", "--schema", "word.json", "--reasks", n, "--json").json
        for n in (0, 1, 3)
    )
    assert plain["schema_losses"] == {"openai": ["word: maxLength becomes a part of the description"]}
    assert plain["worst_micros"] < once["worst_micros"] < more["worst_micros"]
    assert "schema_losses" not in lines("plan", file, "--format", "prompts", "--json").json


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["background", "batch"])
def test_other_lanes_ask_again_too(lines: Shell, monkeypatch: pytest.MonkeyPatch, lane: str) -> None:
    monkeypatch.setenv("BACKSTAY_POLL_INTERVAL_SECONDS", "0.2")
    with served(background_seconds=0.05, batch_seconds=0.05) as (practice, url):
        file = prompts(lines, "m", "practice-invalid-once", "practice-invalid")
        endpoint = ("--endpoint", "/v1/responses") if lane == "background" else ()
        ran = run(lines, file, url, "word.json", "--lane", lane, "--reasks", 1, *endpoint)
        told = ran.rows[-1]
        assert (told["succeeded"], told["failed"], practice.bill.charged) == (2, 1, 5), ran.err


def test_a_fallback_is_told_the_form_in_its_own_way_and_begins_afresh(
    lines: Shell, practice: tuple[Practice, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other, url = practice[0], practice[1]
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-practice-key")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", url.removesuffix("/v1"))
    file = prompts(lines, "practice-invalid", max_tokens=300)
    ran = run(lines, file, url, "words:Word", "--fallback", "anthropic:practice-invalid-once", "--reasks", 1)
    told = ran.rows[-1]
    assert (ran.code, told["succeeded"]) == (0, 1), ran.err
    [line] = written(lines, "prompts.results.jsonl")
    assert line["provider"] == "anthropic"
    assert other.bill.charged == 4, "twice at each"
