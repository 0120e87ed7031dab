"""Runs that end while calls are under way: what the provider has billed is in the files, or is said to be unknown."""

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backstay.practice.openai_shapes import digest_of
from tests.house.sources import ROOT
from tests.stories.runs import COMMAND, Provider, Rehearsal, practice, wait_until

pytestmark = pytest.mark.slow

ITEMS = 300  # so many are not done before the run is stopped, however busy the machine is
CALL_SECONDS = "2"
LONG_CALL_SECONDS = 60  # whatever keeps the machine busy, such a call is still under way when the run ends


@pytest.fixture
def provider() -> Iterator[Provider]:
    with practice("--latency", CALL_SECONDS) as served:
        yield served


def rehearse(folder: Path, provider: Provider, *options: str) -> Rehearsal:
    run = Rehearsal(folder, provider, f"sqlite:///{folder}/runs.db", "--concurrency", "15", *options)
    run.requests(ITEMS)
    return run


def tell(run: Rehearsal, verb: str) -> Any:
    """What a person says of the run's job, who has nothing but its database."""
    database = f"sqlite:///{run.folder}/runs.db"
    command = [*COMMAND, "job", verb, "1", "--db", database, "--json"]
    return json.loads(subprocess.run(command, check=True, cwd=ROOT, capture_output=True).stdout)


def kinds(run: Rehearsal) -> dict[str, str]:
    """What the files say of each request: `answered`, or the code of its error."""
    told: dict[str, str] = {}
    for line in run.lines() + run.failures():
        told[line["custom_id"]] = line["error"]["code"] if line["error"] else "answered"
    return told


def billed(run: Rehearsal) -> set[str]:
    """The custom_ids of the requests that the provider was paid for, by its own count."""
    asked = [json.loads(line) for line in (run.folder / "requests.jsonl").read_text().splitlines()]
    names = {digest_of(line["url"], line["body"]): line["custom_id"] for line in asked}
    return {names[account["body"]] for account in run.provider.bill()["by_ref"].values()}


def answers_of(run: Rehearsal, code: str) -> list[Any]:
    return [line["response"] for line in run.failures() if line["error"] and line["error"]["code"] == code]


def begun(run: Rehearsal) -> None:
    def under_way() -> int:
        return int(run.provider.counts()["requests"]) - int(run.provider.bill()["charged"])

    wait_until(lambda: len(run.lines()) >= 10 and under_way() > 5, "some calls are under way")


def begun_with_long_calls(run: Rehearsal) -> None:
    begun(run)
    run.provider.change(latency=LONG_CALL_SECONDS)
    before = int(run.provider.counts()["requests"])
    wait_until(lambda: int(run.provider.counts()["requests"]) >= before + 5, "some long calls are under way")


def test_what_is_under_way_when_its_job_is_cancelled_is_in_the_output(tmp_path: Path, provider: Provider) -> None:
    run = rehearse(tmp_path, provider)
    process = run.start()
    begun(run)
    tell(run, "cancel")
    assert process.wait(60) != 0
    run.check_complete(ITEMS)
    told = kinds(run)
    assert set(told.values()) == {"answered", "batch_cancelled"}
    assert billed(run) == {name for name, kind in told.items() if kind == "answered"}


def test_what_a_cancel_cuts_off_is_of_unknown_outcome(tmp_path: Path, provider: Provider) -> None:
    run = rehearse(tmp_path, provider)
    process = run.start(BACKSTAY_CANCEL_GRACE_SECONDS="0.1")
    begun_with_long_calls(run)
    tell(run, "cancel")
    assert process.wait(60) != 0
    run.check_complete(ITEMS)
    told = kinds(run)
    assert set(told.values()) == {"answered", "batch_cancelled", "outcome_unknown"}
    assert billed(run) <= {name for name, kind in told.items() if kind != "batch_cancelled"}


def test_a_cancelled_run_that_is_interrupted_twice_ends_in_order(tmp_path: Path, provider: Provider) -> None:
    run = rehearse(tmp_path, provider)
    process = run.start()
    begun_with_long_calls(run)
    tell(run, "cancel")
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in run.log, "it has understood")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130, run.log
    run.finish(60)
    run.check_complete(ITEMS)
    assert billed(run) <= {name for name, kind in kinds(run).items() if kind != "batch_cancelled"}


@pytest.mark.parametrize("lane", ["background", "batch"])
def test_a_retry_of_a_task_that_has_not_ended_by_the_deadline_goes_on_with_it_and_pays_nothing_again(
    tmp_path: Path, lane: str
) -> None:
    url = "/v1/responses" if lane == "background" else "/v1/chat/completions"
    with practice("--background-seconds", "12", "--batch-seconds", "12") as served:
        run = Rehearsal(tmp_path, served, f"sqlite:///{tmp_path}/runs.db", "--lane", lane, "--deadline", "5s")
        run.requests(4, url)
        assert run.finish(60) == 3
        assert set(kinds(run).values()) == {"outcome_unknown"}
        run.options = (*run.options, "--retry-failed")
        goes = 1
        while run.finish(60) != 0 and goes < 6:  # each of five seconds
            goes += 1
        assert (len(run.lines()), run.failures()) == (4, []), run.log
        run.check_complete(4)
        assert (served.bill()["charged"], served.bill()["paid_again"]) == (4, 0)


def test_what_a_second_interrupt_cuts_off_is_of_unknown_outcome(tmp_path: Path, provider: Provider) -> None:
    run = rehearse(tmp_path, provider)
    process = run.start()
    begun_with_long_calls(run)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in run.log, "it has understood")
    process.send_signal(signal.SIGINT)
    process.wait(30)
    tell(run, "cancel")
    run.finish(60)
    run.check_complete(ITEMS)
    told = kinds(run)
    assert set(told.values()) == {"answered", "batch_cancelled", "outcome_unknown"}
    assert billed(run) <= {name for name, kind in told.items() if kind != "batch_cancelled"}


def test_what_comes_after_the_deadline_of_a_run_is_shown_as_late_and_can_be_accepted(
    tmp_path: Path, provider: Provider
) -> None:
    run = rehearse(tmp_path, provider, "--deadline", "5s")
    assert run.finish(60) == 3
    run.check_complete(ITEMS)
    told = kinds(run)
    assert {"late_result", "GW_TIMEOUT"} <= set(told.values()) <= {"answered", "late_result", "GW_TIMEOUT"}
    assert billed(run) == {name for name, kind in told.items() if kind in ("answered", "late_result")}
    late = answers_of(run, "late_result")
    assert all(answer["status_code"] == 200 for answer in late)
    assert tell(run, "accept-late")["items"] == len(late)
    assert run.finish(60) == 3
    run.check_complete(ITEMS)
    told = kinds(run)
    assert set(told.values()) == {"answered", "GW_TIMEOUT"}
    assert billed(run) == {name for name, kind in told.items() if kind == "answered"}, "it is paid for once"


def test_what_is_cut_off_after_the_deadline_of_a_run_is_of_unknown_outcome(tmp_path: Path, provider: Provider) -> None:
    run = rehearse(tmp_path, provider, "--deadline", "5s")
    assert run.start(BACKSTAY_CANCEL_GRACE_SECONDS="0", BACKSTAY_SHUTDOWN_SECONDS="1").wait(60) == 3
    run.check_complete(ITEMS)
    told = kinds(run)
    assert "outcome_unknown" in told.values()
    assert billed(run) <= {name for name, kind in told.items() if kind != "GW_TIMEOUT"}
