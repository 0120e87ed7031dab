"""Runs against Anthropic's API, in calls and in batches, killed and with bad lines: what the files and the bill say."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.stories.runs import Provider, Rehearsal, paid_again, practice, wait_until

MODEL = "claude-sonnet-5"
MESSAGES = "/v1/messages"
# A new process asks again about what may have been sent when its lease runs out; and a batch that is not listed is
# sent again after this time.
SHORT_LAG = {"BACKSTAY_LEASE_SECONDS": "3", "BACKSTAY_HEARTBEAT_SECONDS": "1", "BACKSTAY_BATCH_LAG_SECONDS": "2"}


@pytest.fixture(autouse=True)
def _short_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SHORT_LAG.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def rehearse(folder: Path, provider: Provider, url: str, *options: str) -> Rehearsal:
    return Rehearsal(folder, provider, url, "--provider", "anthropic", "--concurrency", "20", "--json", *options)


def check_bill(run: Rehearsal, count: int) -> None:
    bill = run.provider.bill()
    assert (bill["charged"], paid_again(bill)) == (count, 0)


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["call", "batch"])
def test_a_file_of_messages_is_run_and_every_answer_is_paid_once(tmp_path: Path, database_url: str, lane: str) -> None:
    with practice("--seed", "1", "--batch-seconds", "1") as provider:
        run = rehearse(tmp_path, provider, database_url, "--lane", lane)
        run.requests(60, url=MESSAGES, model=MODEL)
        assert run.finish() == 0, run.log
        run.check_complete(60)
        check_bill(run, 60)


@pytest.mark.slow
def test_a_file_for_openai_is_translated(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "2", "--batch-seconds", "1") as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", "batch")
        run.requests(20, model=MODEL, stop="END")
        assert run.finish() == 0, run.log
        run.check_complete(20)
        assert {line["response"]["body"]["type"] for line in run.lines()} == {"message"}


@pytest.mark.slow
def test_a_batch_that_was_created_right_before_the_kill_is_found_and_not_paid_again(
    tmp_path: Path, database_url: str
) -> None:
    """The answer to the creation is on its way when the process is killed, so nobody has its id."""
    with practice("--seed", "5", "--batch-seconds", "0.1") as provider:
        provider.change(slow_body=1.0, slow_seconds=60)
        run = rehearse(tmp_path, provider, database_url, "--lane", "batch", "--timeout", "10")
        run.requests(30, url=MESSAGES, model=MODEL)
        process = run.start()
        wait_until(lambda: provider.bill()["charged"] == 30, "the provider has run the batch")
        process.kill()
        process.wait()
        provider.change(slow_body=0.0)
        assert run.finish() == 0, run.log
        run.check_complete(30)
        check_bill(run, 30)


def write_poison(run: Rehearsal) -> None:
    """Among ten good requests: one whose body is refused, one that always ends with an error, one that is answered
    with a page at first."""
    file = run.requests(10, url=MESSAGES, model=MODEL)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    lines[2]["body"]["unknown_parameter"] = 1
    lines[5]["body"]["metadata"] = {"user_id": "practice-500"}
    lines[7]["body"]["metadata"] = {"user_id": "practice-nonsense-htmlx1"}
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["call", "batch"])
def test_bad_requests_among_good_ones_fail_alone(tmp_path: Path, file_url: str, lane: str) -> None:
    with practice("--seed", "4", "--batch-seconds", "0.5") as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", lane)
        write_poison(run)
        process = run.start(BACKSTAY_RETRY_MAX_ATTEMPTS="2", BACKSTAY_RETRY_BASE_DELAY_MS="100")
        assert process.wait(120) == 3, run.log
        run.check_complete(10)
        failures: dict[str, Any] = {line["custom_id"]: line["response"] for line in run.failures()}
        assert {name: answer["status_code"] for name, answer in failures.items()} == {"r2": 400, "r5": 500}
        assert failures["r2"]["body"]["error"]["type"] == "invalid_request_error"
        assert provider.bill()["charged"] == 9  # the page was paid for, too
