"""`backstay jobs` and `backstay job …`."""

import asyncio
import json
import signal
from dataclasses import fields
from typing import Any

import pytest

from backstay import wiring
from backstay.cli.database_choice import show_database
from backstay.cli.jobs import WatchLines
from backstay.core.states import JobState
from backstay.store.job_views import JobView
from tests.cli.shell import Shell, eventually
from tests.databases import Ticker
from tests.store.rare_ends import spent_and_lost


def test_jobs_are_listed_newest_first_a_page_at_a_time(shell: Shell) -> None:
    for _ in range(5):
        shell.submit("echo", 1)
    assert [row["id"] for row in shell("jobs", "--json", "--limit", "2").rows] == [5, 4]
    assert [row["id"] for row in shell("jobs", "--json", "--limit", "9", "--before", "4").rows] == [3, 2, 1]
    ran = shell("jobs", "--limit", "2")
    assert ran.lines[0].split() == ["JOB", "STATE", "DONE", "FAILED", "HANDLER", "CREATED", "LABEL"]
    assert ran.lines[1].split()[:3] == ["5", "queued", "0/1"]
    assert ran.said == ["more: backstay jobs --before 4"]


def test_the_budget_of_a_job_is_changed_and_one_that_has_none_gets_none(shell: Shell) -> None:
    shell.submit("echo", 1)
    refused = shell("job", "budget", "1", "2.50")
    assert "job 1 has no budget" in refused.err, refused
    assert "no job 9" in shell("job", "budget", "9", "2.50").err
    assert shell("job", "budget", "1", "0").code == 2


def test_no_jobs_is_said_beside_the_data(shell: Shell) -> None:
    ran = shell("jobs")
    assert (ran.code, ran.out, ran.said) == (
        0,
        "",
        [f"no jobs in {show_database(shell.url)} (from BACKSTAY_DATABASE_URL)"],
    )
    assert shell("jobs", "--json").out == ""


def test_show_tells_the_progress_the_failures_and_what_was_done(shell: Shell) -> None:
    job_id = shell.submit("picky", 1, 2, 3, 6)
    shell("job", "pause", job_id)
    shell("job", "resume", job_id)
    shell.tick()
    found = shell("job", "show", job_id, "--json").json
    assert (found["state"], found["succeeded"], found["failed"], found["done"]) == ("completed", 2, 2, 4)
    group = {"error_code": "UNKNOWN", "items": 2, "example": f"{job_id}-2", "message": "no threes"}
    assert found["failures"] == [group]
    assert [event["act"] for event in found["events"]] == ["paused", "resumed"]
    text = shell("job", "show", job_id).out
    assert f"failed with UNKNOWN: 2, for example {job_id}-2: no threes\n" in text
    assert "4 of 4 done" in text


async def _lost(url: str, spent: int, lost: int) -> int:
    store = await wiring.open_store(url)
    try:
        return int(await spent_and_lost(store, spent, lost, "local"))
    finally:
        await store.close()


def test_money_that_may_have_been_spent_is_booked_or_released(shell: Shell) -> None:
    job_id = asyncio.run(_lost(shell.url, 500_000, 1_920_000))
    assert "$0.50 of a budget of $2.42, $1.92 more may have been spent" in shell("job", "show", job_id).out
    ran = shell("job", "settle-unknown", job_id, "--book", "--amount", "0.92")
    assert ran.lines == [f"job {job_id}: $0.92 is booked as spent; $1.00 is still unknown"]
    refused = shell("job", "settle-unknown", job_id, "--book", "--expected", "1.92")
    assert refused.code == 2
    assert f"the amount of job {job_id} that may have been spent has changed: it is now $1.000000" in refused.err
    told = shell("job", "settle-unknown", job_id, "--release", "--expected", "1", "--json").json
    assert told == {
        "job": job_id,
        "act": "release",
        "micros": 1_000_000,
        "spent_micros": 1_420_000,
        "unknown_micros": 0,
    }
    again = shell("job", "settle-unknown", job_id, "--release")
    assert (again.code, "no money of unknown outcome" in again.err) == (2, True)
    text = shell("job", "show", job_id).out
    assert "unknown money booked as spent: $0.920000 by local" in text
    assert "unknown money given back to the budget: $1.000000 by local" in text


def test_who_does_not_say_what_became_of_the_money_is_asked(sqlite_shell: Shell) -> None:
    job_id = asyncio.run(_lost(sqlite_shell.url, 0, 10))
    ran = sqlite_shell("job", "settle-unknown", job_id)
    assert (ran.code, "--book: the money was paid" in ran.err) == (2, True)
    assert sqlite_shell("job", "settle-unknown", job_id + 1, "--book").code == 5


def test_show_tells_why_a_job_waits(shell: Shell) -> None:
    job_id = shell.submit("echo", 1)
    shell("job", "pause", job_id)
    assert (
        f"waits: job {job_id} is paused; to resume: backstay job resume {job_id}" in shell("job", "show", job_id).lines
    )
    reasons = shell("job", "show", job_id, "--json").json["reasons"]
    assert [reason["code"] for reason in reasons] == ["job_paused", "no_worker"]
    shell("job", "resume", job_id)
    shell.tick()
    assert shell("job", "show", job_id, "--json").json["reasons"] == []


def test_pause_resume_cancel_and_retry_say_the_new_state(shell: Shell) -> None:
    job_id = shell.submit("picky", 3)
    assert shell("job", "pause", job_id, "--json").json == {"job": job_id, "act": "pause", "state": "paused"}
    assert shell("job", "resume", job_id).out == f"job {job_id} is queued\n"
    shell.tick()
    retried = {"job": job_id, "act": "retry", "state": "running", "items": 1}
    assert shell("job", "retry", job_id, "--json").json == retried
    assert shell("job", "cancel", job_id, "--json").json["state"] == "cancelled"


@pytest.mark.parametrize(
    ("verb", "says"),
    [
        ("pause", "is completed: it cannot be paused"),
        ("resume", "is completed: only a paused job can be resumed"),
        ("cancel", "is completed: it cannot be cancelled"),
        ("retry", "has no failed items to retry"),
    ],
)
def test_what_cannot_be_done_now_is_one_line(shell: Shell, verb: str, says: str) -> None:
    job_id = shell.submit("echo", 1)
    shell.tick()
    ran = shell("job", verb, job_id)
    assert (ran.code, ran.out, ran.said) == (2, "", [f"backstay: error: job {job_id} {says}."])


def test_doing_it_twice_says_that_it_is_so_already(shell: Shell) -> None:
    job_id = shell.submit("echo", 1)
    for verb, state in (("pause", "paused"), ("cancel", "cancelled")):
        assert shell("job", verb, job_id).out == f"job {job_id} is {state}\n"
        assert shell("job", verb, job_id).said == [f"backstay: error: job {job_id} is {state} already."]


def test_a_job_whose_items_still_run_is_being_cancelled(sqlite_shell: Shell) -> None:
    job_id = sqlite_shell.submit("deaf", 1)
    with sqlite_shell.start("worker", "--app", "shop:backstay") as worker:
        eventually(sqlite_shell.started)
        ran = sqlite_shell("job", "cancel", job_id)
        assert ran.out == f"job {job_id} is being cancelled; running calls may finish\n"
        assert sqlite_shell("job", "cancel", job_id).said == [
            f"backstay: error: job {job_id} is being cancelled already."
        ]
        text = sqlite_shell("job", "show", job_id).out
        assert "being cancelled" in text
        assert "cancel requested" in text
        assert "cancel_asked" not in text
        sqlite_shell.file("", "gate")
        eventually(lambda: sqlite_shell("job", "show", job_id, "--json").json["finished_at"])
        worker.send(signal.SIGTERM)
        worker.wait()


def test_results_come_in_the_order_of_submit(shell: Shell) -> None:
    job_id = shell.submit("picky", *range(1, 8))
    shell.tick()
    for ran in (shell("job", "results", job_id), shell("job", "results", job_id, "--json")):
        assert [row["position"] for row in ran.rows] == list(range(7))
        assert ran.err == ""
    failed = shell("job", "results", job_id, "--failed").rows
    assert [(row["payload"], row["value"], row["message"]) for row in failed] == [
        (3, None, "no threes"),
        (6, None, "no threes"),
    ]


def test_results_are_utf_8_whatever_the_locale_is(sqlite_shell: Shell) -> None:
    path = sqlite_shell.file('"naïve → \U0001f600"\n')
    sqlite_shell("submit", path, "--app", "shop:backstay", "--handler", "echo")
    sqlite_shell.tick()
    ran = sqlite_shell.process("job", "results", 1, PYTHONIOENCODING="latin-1")
    assert (ran.code, ran.json["payload"]) == (0, "naïve → \U0001f600")


def test_watch_ends_with_the_job_and_says_how_it_went(shell: Shell) -> None:
    fine, bad, over = shell.submit("echo", 1, 2), shell.submit("picky", 1, 3), shell.submit("slow", 1)
    shell("job", "cancel", over)
    shell("tick", "--app", "shop:backstay")
    ran = shell("job", "watch", fine)
    assert (ran.code, ran.said) == (0, [f"job {fine}: 100 %, 2 of 2 items done, completed"])
    assert "2 of 2 done" in ran.out
    ran = shell("job", "watch", bad, "--json")
    assert (ran.code, ran.json["failed"], ran.json["percent"]) == (3, 1, 100)
    ran = shell("job", "watch", over)
    assert (ran.code, ran.said) == (1, [f"job {over}: cancelled, 0 of 1 item done, 1 cancelled"])


def test_watch_gives_up_with_exit_code_6(shell: Shell) -> None:
    job_id = shell.submit("slow", 1)
    ran = shell("job", "watch", job_id, "--timeout", "50ms", "--json")
    assert ran.code == 6
    assert ran.said == [
        f"backstay: error: job {job_id} has not ended within 0.05 s. the job continues; wait again, or wait longer."
    ]
    assert json.loads(ran.lines[0])["percent"] == 0


def view(done: int, state: JobState = JobState.RUNNING) -> JobView:
    usual: dict[str, Any] = dict.fromkeys((field.name for field in fields(JobView)), 0)
    usual |= dict.fromkeys(("stop_reason", "retry", "delivery", "label", "budget_micros", "finished_at"))
    return JobView(**{**usual, "id": 1, "state": state, "sealed": True, "total": 1000, "succeeded": done})


def test_off_a_terminal_a_line_comes_every_ten_seconds_or_ten_percent(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Ticker()
    lines = WatchLines(clock, as_json=False)

    def says(done: int, after_seconds: int, state: JobState = JobState.RUNNING) -> bool:
        clock.ms += after_seconds * 1000
        lines.show(view(done, state))
        return capsys.readouterr().err != ""

    assert says(0, 0)
    assert not says(99, 9)
    assert says(100, 0)
    assert not says(101, 9)
    assert says(102, 1)
    assert not says(103, 0)
    assert says(104, 0, JobState.CANCELLED)


@pytest.mark.slow
def test_nothing_is_animated_or_coloured_off_a_terminal(shell: Shell) -> None:
    job_id = shell.submit("echo", 1)
    shell.tick()
    for args in (("jobs",), ("job", "watch", job_id), ("provider", "list"), ("profiles",)):
        ran = shell.process(*args)
        assert ran.code == 0
        assert "\x1b" not in ran.out + ran.err
