"""Runs against Bedrock's API, in calls and in batches, killed and with bad lines: what the files and the bill say."""

import json
from pathlib import Path

import pytest

from tests.stories.runs import Provider, Rehearsal, paid_again, practice, wait_until

MODEL = "amazon.nova-pro-v1:0"
# A new process asks again about what may have been sent when its lease runs out; and a job that is not listed is
# sent again after this time. A story has fewer requests than Bedrock wants in a job.
SURROUNDINGS = {
    "BACKSTAY_LEASE_SECONDS": "3",
    "BACKSTAY_HEARTBEAT_SECONDS": "1",
    "BACKSTAY_BATCH_LAG_SECONDS": "2",
    "BEDROCK_BATCH_BUCKET": "s3://stories/of/runs",
    "BEDROCK_BATCH_ROLE_ARN": "arn:aws:iam::000000000000:role/practice",
    "BEDROCK_BATCH_RECORDS_MIN": "1",
    "AWS_ACCESS_KEY_ID": "AKIAPRACTICE00000000",
    "AWS_SECRET_ACCESS_KEY": "practice-secret-0123456789",
    "AWS_REGION": "us-east-1",
}


@pytest.fixture(autouse=True)
def _surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in SURROUNDINGS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def rehearse(folder: Path, provider: Provider, url: str, monkeypatch: pytest.MonkeyPatch, *options: str) -> Rehearsal:
    root = provider.base_url.removesuffix("/v1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"{root}/s3")
    options = ("--provider", "bedrock", "--concurrency", "20", "--json", *options)
    return Rehearsal(folder, Provider(root), url, *options)


def check_bill(run: Rehearsal, count: int) -> None:
    bill = run.provider.bill()
    assert (bill["charged"], paid_again(bill)) == (count, 0)


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["call", "batch"])
def test_a_file_for_openai_is_translated_and_every_answer_is_paid_once(
    tmp_path: Path, database_url: str, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A link to an object has its key in the query, where the practice provider does not look.
    key = ("--key", SURROUNDINGS["AWS_ACCESS_KEY_ID"]) if lane == "call" else ()
    with practice("--seed", "1", "--batch-seconds", "1", *key) as provider:
        run = rehearse(tmp_path, provider, database_url, monkeypatch, "--lane", lane)
        run.requests(60, model=MODEL, stop="END")
        assert run.finish() == 0, run.log
        run.check_complete(60)
        check_bill(run, 60)
        assert SURROUNDINGS["AWS_SECRET_ACCESS_KEY"] not in run.log


@pytest.mark.slow
def test_a_job_that_was_created_right_before_the_kill_is_found_and_not_paid_again(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to the creation is on its way when the process is killed, so nobody has the job's id."""
    with practice("--seed", "5", "--batch-seconds", "0.1") as provider:
        run = rehearse(tmp_path, provider, database_url, monkeypatch, "--lane", "batch", "--timeout", "10")
        run.requests(30, model=MODEL)
        provider.change(slow_body=1.0, slow_seconds=2)
        process = run.start()
        wait_until(lambda: provider.bill()["charged"] == 30, "the provider has run the job")
        process.kill()
        process.wait()
        provider.change(slow_body=0.0)
        assert run.finish() == 0, run.log
        run.check_complete(30)
        check_bill(run, 30)


@pytest.mark.slow
@pytest.mark.parametrize("lane", ["call", "batch"])
def test_bad_requests_among_good_ones_fail_alone(
    tmp_path: Path, file_url: str, lane: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with practice("--seed", "4", "--batch-seconds", "0.5") as provider:
        run = rehearse(tmp_path, provider, file_url, monkeypatch, "--lane", lane)
        file = run.requests(10, model=MODEL)
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        lines[2]["body"]["max_tokens"] = -1
        lines[5]["body"]["user"] = "practice-500"
        lines[7]["body"]["user"] = "practice-nonsense-htmlx1"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        process = run.start(BACKSTAY_RETRY_MAX_ATTEMPTS="2", BACKSTAY_RETRY_BASE_DELAY_MS="100")
        assert process.wait(120) == 3, run.log
        run.check_complete(10)
        assert {line["custom_id"] for line in run.failures()} == {"r2", "r5"}
        assert provider.bill()["charged"] == 9  # the page was paid for, too
