"""A provider that takes no small batches: what becomes of the few requests that are left, and what it costs."""

import json
from collections.abc import Iterator

import pytest

from backstay.practice import Practice
from tests.cli.practice_thread import CHAT, served
from tests.cli.shell import Shell
from tests.llm.aws_rig import access_key, no_aws

__all__ = ["access_key", "no_aws"]

MODEL = "amazon.nova-pro-v1:0"
FAIL_ONCE = (3, 77, 249)
OPTIONS = ("--provider", "bedrock", "--timeout", "8")  # the time in which a batch gathers depends on it


@pytest.fixture
def bedrock(access_key: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Practice]:
    """It takes no batch with fewer than 100 requests, as Bedrock."""
    with served(batch_seconds=0.1) as (practice, base_url):
        root = base_url.removesuffix("/v1")
        monkeypatch.setenv("AWS_ENDPOINT_URL_BEDROCK_RUNTIME", root)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"{root}/s3")
        monkeypatch.setenv("BEDROCK_BATCH_BUCKET", "s3://bucket/some/where")
        monkeypatch.setenv("BEDROCK_BATCH_ROLE_ARN", "arn:aws:iam::000000000000:role/practice")
        yield practice


def write(shell: Shell, count: int, model: str = MODEL) -> None:
    lines = []
    for n in range(count):
        body = {"model": model, "max_tokens": 20, "messages": [{"role": "user", "content": f"say {n}"}]}
        body |= {"user": "practice-503x1"} if n in FAIL_ONCE else {}
        lines.append(json.dumps({"custom_id": f"r{n}", "method": "POST", "url": CHAT, "body": body}))
    shell.file("\n".join(lines), "requests.jsonl")


def check_paid_once(practice: Practice, count: int) -> None:
    assert (practice.bill.charged, practice.bill.bodies_paid_twice) == (count, [])


@pytest.mark.slow
def test_the_few_that_failed_once_fail_with_what_to_do_and_calls_finish_them(
    sqlite_shell: Shell, bedrock: Practice
) -> None:
    write(sqlite_shell, 250)
    batches = ("run", "requests.jsonl", *OPTIONS, "--lane", "batch", "--out", "batches.jsonl")
    ran = sqlite_shell(*batches)
    assert ran.code == 3, ran.err
    assert (
        "takes no batch with fewer than 100 requests of one model, and only 3 are left: run them with --lane" in ran.err
    )
    assert "run the same command with --lane call and another --out" in ran.err
    assert "run the same command with --retry-failed" not in ran.err
    check_paid_once(bedrock, 247)

    again = sqlite_shell(*batches, "--retry-failed")
    assert again.code == 2
    assert "3 requests failed, and bedrock takes no batch with fewer than 100" in again.said[0]
    assert "--lane call" in again.said[0]

    called = sqlite_shell("run", "requests.jsonl", *OPTIONS, "--lane", "call", "--out", "calls.jsonl")
    assert called.code == 0, called.err
    assert len((sqlite_shell.folder / "calls.jsonl").read_text().splitlines()) == 250
    check_paid_once(bedrock, 250)


@pytest.mark.slow
def test_the_cheapest_lane_calls_the_few_as_soon_as_no_others_can_come(shell: Shell, bedrock: Practice) -> None:
    write(shell, 250)
    ran = shell("run", "requests.jsonl", *OPTIONS, "--lane", "cheapest", "--deadline", "24h", "--json", "--budget", "1")
    assert ran.code == 0, ran.err
    job = shell("job", "show", ran.rows[-1]["job"], "--json").json
    assert (job["succeeded"], bedrock.counts.calls) == (250, 253)
    assert 0 < job["spent_micros"] < 1_000_000
    check_paid_once(bedrock, 250)


def test_too_few_cannot_be_tried_in_a_batch(sqlite_shell: Shell, bedrock: Practice) -> None:
    write(sqlite_shell, 101)
    ran = sqlite_shell("run", "requests.jsonl", *OPTIONS, "--lane", "batch", "--try", "3")
    assert ran.code == 2
    assert "--try 3 is too few: bedrock takes no batch with fewer than 100 requests" in ran.said[0]
    assert bedrock.counts.calls == 0


def test_a_plan_says_what_is_too_small_for_a_batch(sqlite_shell: Shell, bedrock: Practice) -> None:
    write(sqlite_shell, 99)
    few = f"{MODEL} has 99 requests, and its provider takes no batch with fewer than 100"
    ran = sqlite_shell("plan", "requests.jsonl", *OPTIONS[:2], "--lane", "batch")
    assert (ran.code, few in ran.err, "--lane call" in ran.err) == (0, True, True)
    ran = sqlite_shell("plan", "requests.jsonl", *OPTIONS[:2], "--lane", "cheapest", "--deadline", "24h")
    assert (ran.code, few in ran.err, "they are called" in ran.err) == (0, True, True)
    ran = sqlite_shell("plan", "requests.jsonl", *OPTIONS[:2], "--compare", "--json")
    assert {row["lane"]: row["note"] for row in ran.json["comparison"]} == {"call": "", "batch": few}
    assert bedrock.counts.calls == 0
