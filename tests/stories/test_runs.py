"""Runs of files, killed, interrupted, throttled and short of money: what the files and the provider's own bill say."""

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.stories.runs import Provider, Rehearsal, paid_again, practice, wait_until

CONCURRENCY = 20
GAPS = (1.0, 2.0)
WEATHER = ("--latency", "0.1", "--fail", "0.05", "--throttle", "0.02", "--retry-after", "0.2")


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


def rehearse(folder: Path, provider: Provider, url: str, *options: str) -> Rehearsal:
    return Rehearsal(folder, provider, url, "--concurrency", str(CONCURRENCY), "--json", *options)


def summary_of(run: Rehearsal) -> dict[str, Any]:
    told = [json.loads(line) for line in run.log.splitlines() if line.startswith('{"event": "summary"')]
    assert told, run.log
    return told[-1]


size = pytest.mark.parametrize(
    ("count", "kills"), [(400, 2), pytest.param(20_000, 30, marks=pytest.mark.storm)], ids=["short", "long"]
)


@size
def test_calls_killed_at_random_moments_end_complete_and_repeat_only_what_was_in_flight(
    tmp_path: Path, database_url: str, count: int, kills: int
) -> None:
    with practice("--seed", "1", *WEATHER) as provider:
        run = rehearse(tmp_path, provider, database_url)
        run.requests(count)
        run.rage(kills, GAPS, seed=1)
        assert run.finish() == 0, run.log
        run.check_complete(count)
        again, bill = summary_of(run)["repeats"], provider.bill()
        assert paid_again(bill) <= again <= run.kills * CONCURRENCY
        assert bill["charged"] == count + paid_again(bill)


@pytest.mark.slow
@size
def test_calls_that_are_stored_at_the_provider_are_never_paid_twice(
    tmp_path: Path, file_url: str, count: int, kills: int
) -> None:
    with practice("--seed", "2", *WEATHER) as provider:
        run = rehearse(tmp_path, provider, file_url, "--reconcilable", "--timeout", "5")
        run.requests(count)
        run.rage(kills, GAPS, seed=2)
        assert run.finish() == 0, run.log
        run.check_complete(count)
        assert paid_again(provider.bill()) == 0


@pytest.mark.slow
@size
def test_at_most_once_lists_what_nobody_knows_instead_of_paying_again(
    tmp_path: Path, file_url: str, count: int, kills: int
) -> None:
    with practice("--seed", "3", *WEATHER) as provider:
        run = rehearse(tmp_path, provider, file_url, "--delivery", "at_most_once")
        run.requests(count)
        run.rage(kills, GAPS, seed=3)
        assert run.finish() in (0, 3), run.log
        run.check_complete(count)
        assert paid_again(provider.bill()) == 0
        unknown = [line for line in run.failures() if line["error"]["code"] == "outcome_unknown"]
        assert len(unknown) == len(run.failures()) == summary_of(run)["unknown"] <= run.kills * CONCURRENCY


@pytest.mark.slow  # a minute and a half, most of it waiting for tasks
@size
def test_background_tasks_are_polled_to_their_end_by_whoever_comes_after(
    tmp_path: Path, file_url: str, count: int, kills: int
) -> None:
    with practice("--seed", "4", "--latency", "0.02", "--fail", "0.05") as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", "background")
        run.requests(count, url="/v1/responses")
        run.rage(kills, GAPS, seed=4)
        assert run.finish() == 0, run.log
        run.check_complete(count)
        again = summary_of(run)["repeats"]
        assert paid_again(provider.bill()) <= again <= run.kills * CONCURRENCY


@pytest.mark.slow
@size
def test_batches_are_found_again_and_never_paid_twice(tmp_path: Path, file_url: str, count: int, kills: int) -> None:
    with practice("--seed", "5", "--batch-seconds", "2", "--fail", "0.01") as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", "batch", "--timeout", "10")
        run.requests(count)
        run.rage(kills, GAPS, seed=5)
        assert run.finish() == 0, run.log
        run.check_complete(count)
        assert paid_again(provider.bill()) == 0


@pytest.mark.slow
@size
def test_the_budget_is_never_exceeded_at_the_providers_own_count(
    tmp_path: Path, file_url: str, count: int, kills: int
) -> None:
    with practice("--seed", "6", *WEATHER) as provider:
        run = rehearse(tmp_path, provider, file_url, "--budget", f"{count * 6 / 1e6:f}")
        run.requests(count)
        run.rage(kills, GAPS, seed=6)
        assert run.finish() == 7, run.log
        told, bill = summary_of(run), provider.bill()
        assert bill["cost_micros"] <= count * 6
        assert told["spent_micros"] <= bill["cost_micros"] <= told["spent_micros"] + told["reserved_micros"]
        assert 0 < len(run.lines()) < count
        run.options = (*run.options, "--budget", "5")
        assert run.finish() == 0, run.log
        run.check_complete(count)


@pytest.mark.slow
def test_a_budget_that_is_given_later_holds_for_what_was_stored_without_a_worst_case(
    tmp_path: Path, file_url: str
) -> None:
    with practice("--seed", "13", "--latency", "0.3") as provider:
        run = rehearse(tmp_path, provider, file_url)
        run.requests(200, model="mystery", max_tokens=None)
        process = run.start()
        wait_until(lambda: len(run.lines()) > 0, "results come in")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        plain = run.options
        run.options = (*plain, "--budget", "0.00001", "--max-output-tokens", "2000")
        assert run.finish() == 7, run.log
        assert summary_of(run)["next_micros"] > 1_000
        run.options = (*plain, "--budget", "5")
        assert run.finish() == 2, run.log
        assert "give --max-output-tokens" in run.log
        run.options = (*plain, "--budget", "5", "--max-output-tokens", "40")
        assert run.finish() == 0, run.log
        run.check_complete(200)


@pytest.mark.slow  # it waits out time-outs
def test_what_nobody_knows_and_a_person_retries_is_counted_as_repeated(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "14", "--cut", "1") as provider:
        run = rehearse(tmp_path, provider, file_url, "--delivery", "at_most_once")
        run.requests(20)
        assert run.finish() == 3, run.log
        unknown = summary_of(run)["unknown"]
        provider.change(cut=0)
        run.options = (*run.options, "--retry-failed")
        assert run.finish() == 0, run.log
        run.check_complete(20)
        assert paid_again(provider.bill()) <= summary_of(run)["repeats"] == unknown
        assert paid_again(provider.bill()) > 0


@pytest.mark.slow
def test_answers_that_are_cut_off_are_results_and_told_apart(tmp_path: Path, database_url: str) -> None:
    with practice("--seed", "15") as provider:
        run = rehearse(tmp_path, provider, database_url)
        run.requests(20, max_tokens=1)
        assert run.finish() == 0, run.log
        assert len({line["custom_id"] for line in run.lines()}) == len(run.lines()) == 20
        assert {line["response"]["body"]["choices"][0]["finish_reason"] for line in run.lines()} == {"length"}
        told = summary_of(run)
        assert (told["succeeded"], told["truncated"], told["refused"], told["filtered"]) == (20, 20, 0, 0)


@pytest.mark.slow
def test_an_outage_burns_no_attempts_and_ends_by_itself(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "7", "--latency", "0.05") as provider:
        provider.change(outage=[[2.0, 6.0]])
        run = rehearse(tmp_path, provider, file_url)
        run.requests(800)
        assert run.finish() == 0, run.log
        run.check_complete(800)
        assert '"event": "held"' in run.log


@pytest.mark.slow
def test_a_rate_limit_is_held_at_the_providers_own_count(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "8") as provider:
        provider.change(rpm=50, window_seconds=5)
        run = rehearse(tmp_path, provider, file_url, "--rpm", "480")
        run.requests(100)
        assert run.finish() == 0, run.log
        counts = provider.counts()
        assert (counts["limited"], counts["throttled"]) == (0, 0)
        assert counts["requests"] == 100


@pytest.mark.slow
def test_a_limit_that_only_the_provider_knows_refuses_few_calls(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "8", "--latency", "0.05") as provider:
        provider.change(rpm=100, window_seconds=4)
        run = rehearse(tmp_path, provider, file_url)
        run.requests(200)
        assert run.finish() == 0, run.log
        run.check_complete(200)
        # What is under way when nothing is left, and little more: without a look at once it is fifty and more.
        assert provider.counts()["limited"] <= CONCURRENCY + 5


@pytest.mark.slow
def test_an_exhausted_quota_pauses_the_run_and_fails_nothing(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "9", "--quota", "30") as provider:
        run = rehearse(tmp_path, provider, file_url)
        run.requests(100)
        process = run.start()
        wait_until(lambda: '"event": "held"' in run.log, "the run is held")
        assert "insufficient_quota" in run.log or "quota" in run.log
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert run.failures() == []
        provider.change(quota=None)
        assert run.finish() == 0, run.log
        run.check_complete(100)


@pytest.mark.slow
def test_ctrl_c_stops_cleanly_and_the_same_command_goes_on_without_a_repeat(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "10", "--latency", "0.1") as provider:
        run = rehearse(tmp_path, provider, file_url)
        run.requests(1_000)
        process = run.start()
        wait_until(lambda: len(run.lines()) > 50, "results come in")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert summary_of(run)["exit_code"] == 130
        assert run.finish() == 0, run.log
        run.check_complete(1_000)
        assert paid_again(provider.bill()) == 0
        assert provider.bill()["charged"] == 1_000


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["sqlite", pytest.param("postgres", marks=pytest.mark.slow)], indirect=True)
@pytest.mark.parametrize(("end", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)], ids=["stopped", "killed"])
def test_a_run_left_unfinished_is_not_paid_for_by_the_next(
    tmp_path: Path, database_url: str, end: signal.Signals, code: int
) -> None:
    with practice("--seed", "13", "--latency", "0.1") as provider:
        first = rehearse(tmp_path, provider, database_url, "--concurrency", "10")
        first.requests(400)
        process = first.start()
        wait_until(lambda: len(first.lines()) > 20, "results come in")
        process.send_signal(end)
        assert process.wait(60) == code
        wait_until(lambda: provider.counts()["running"] == 0, "the provider has ended what was under way")
        charged = provider.bill()["charged"]
        (tmp_path / "next").mkdir()
        second = rehearse(tmp_path / "next", provider, database_url, "--concurrency", "10")
        second.requests(20, temperature=1)
        assert second.finish() == 0, second.log
        assert provider.bill()["charged"] == charged + 20
        assert first.finish() == 0, first.log
        first.check_complete(400)


@pytest.mark.slow
def test_a_second_ctrl_c_stops_at_once_and_nothing_is_lost(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "11", "--latency", "5") as provider:
        run = rehearse(tmp_path, provider, file_url)
        run.requests(40)
        process = run.start()
        wait_until(lambda: provider.counts()["running"] > 0, "calls are under way")
        process.send_signal(signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(8) == 130
        assert "Ctrl-C again cuts them off, and you may pay for them twice" in run.log
        provider.change(latency=0.01)
        assert run.finish() == 0, run.log
        run.check_complete(40)


@pytest.mark.slow
def test_the_same_command_again_has_nothing_to_do_and_pays_nothing(tmp_path: Path, file_url: str) -> None:
    with practice() as provider:
        run = rehearse(tmp_path, provider, file_url)
        run.requests(50)
        assert run.finish() == 0, run.log
        before = (tmp_path / "results.jsonl").read_bytes()
        assert run.finish() == 0, run.log
        assert (tmp_path / "results.jsonl").read_bytes() == before
        assert provider.bill()["charged"] == 50


@pytest.mark.slow
def test_the_cheapest_lane_moves_what_the_batches_cannot_do_in_time_to_calls(tmp_path: Path, file_url: str) -> None:
    with practice("--seed", "12", "--batch-seconds", "300") as provider:
        run = rehearse(tmp_path, provider, file_url, "--lane", "cheapest", "--deadline", "64s", "--timeout", "10")
        run.requests(200)
        assert run.finish() == 0, run.log
        run.check_complete(200)
        bill = provider.bill()
        assert (bill["charged"], paid_again(bill)) == (200, 0)
        assert provider.counts()["statuses"]["200"] > 100, "most were called in the end"
