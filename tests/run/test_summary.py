"""The last word of a run, and its exit code."""

import json
from typing import Any

import pytest

from backstay.core.ids import item_id
from backstay.run.summary import EXIT_CODES, Ending, Summary, exit_code
from backstay.store.views import FailureGroup


def summary(**changes: Any) -> Summary:
    usual: dict[str, Any] = {
        "job_id": 12,
        "ending": Ending.DONE,
        "total": 20_000,
        "succeeded": 20_000,
        "seconds": 62.0,
        "out": "results.jsonl",
        "errors": "results.errors.jsonl",
        "input_tokens": 1_204_000,
        "output_tokens": 310_400,
        "spent_micros": 1_502_000,
        "budget_micros": 5_000_000,
    }
    return Summary(**{**usual, **changes})


@pytest.mark.parametrize(
    ("ending", "left", "failed", "code"),
    [
        (Ending.DONE, 0, 0, 0),
        (Ending.DONE, 0, 1, 3),
        (Ending.DONE, 1, 0, 3),
        (Ending.BUDGET, 1, 0, 7),
        (Ending.BUDGET, 1, 5, 7),
        (Ending.BUDGET, 0, 0, 0),
        (Ending.BUDGET, 0, 1, 3),
        (Ending.INTERRUPTED, 1, 0, 130),
        (Ending.INTERRUPTED, 1, 5, 130),
        (Ending.INTERRUPTED, 0, 0, 0),
        (Ending.INTERRUPTED, 0, 1, 3),
    ],
)
def test_the_exit_code_says_how_it_ended(ending: Ending, left: int, failed: int, code: int) -> None:
    assert exit_code(ending, left, failed) == code
    assert code in EXIT_CODES


def test_a_run_in_which_all_succeeded_is_told_shortly() -> None:
    assert summary().lines() == [
        "Job 12 is done: 20,000 of 20,000 requests succeeded, in 1 min 2 s.",
        "",
        "  results  results.jsonl",
        "  tokens   1,204,000 in, 310,400 out",
        "  cost     $1.50 of a budget of $5.00",
        "",
        "Exit code 0: every request succeeded.",
    ]


def test_failures_are_told_by_kind_with_where_they_are_and_how_to_go_on() -> None:
    groups = [FailureGroup("GW_4XX", 28, item_id(12, 17)), FailureGroup("UNKNOWN", 2, item_id(12, 99))]
    told = summary(succeeded=19_970, failed=30, groups=groups, repeats=3, unknown=2)
    assert told.exit_code == 3
    assert told.lines() == [
        "Job 12 is done: 19,970 of 20,000 requests succeeded, 30 failed, in 1 min 2 s.",
        "",
        "  results   results.jsonl",
        "  failures  results.errors.jsonl",
        "            28 GW_4XX, for example 12-17",
        "            2 UNKNOWN, for example 12-99",
        "  tokens    1,204,000 in, 310,400 out",
        "  cost      $1.50 of a budget of $5.00",
        "  repeated  3 calls sent again although the first may have been paid",
        "  unknown   2 requests that may have been done and paid; they stand in the failures",
        "",
        "To try what failed once more, run the same command with --retry-failed.",
        "Exit code 3: finished, and some requests failed.",
    ]


def test_many_kinds_of_failure_are_cut_short() -> None:
    groups = [FailureGroup(f"CODE_{n}", 1, item_id(12, n)) for n in range(13)]
    lines = summary(succeeded=19_987, failed=13, groups=groups).lines()
    assert sum("CODE_" in line for line in lines) == 10
    assert any(line.endswith("and 3 more kinds") for line in lines)


def test_a_run_stopped_by_its_budget_says_what_would_let_it_go_on() -> None:
    told = summary(ending=Ending.BUDGET, succeeded=12_000, spent_micros=4_970_000, reserved_micros=23_000)
    assert told.exit_code == 7
    text = "\n".join(told.lines())
    assert "was stopped by its budget: 12,000 of 20,000 requests succeeded, 8,000 left" in text
    assert "$4.97 of a budget of $5.00; $0.023 more is reserved" in text
    assert "run the same command with a higher --budget" in text


def test_an_interrupted_run_says_that_nothing_is_lost_and_how_to_go_on() -> None:
    told = summary(ending=Ending.INTERRUPTED, succeeded=12_000, spent_micros=None)
    assert told.exit_code == 130
    text = "\n".join(told.lines())
    assert "was interrupted" in text
    assert "Nothing is lost. To go on, run the same command again." in text
    assert "cost     unknown" in text
    assert "$0" not in text, "an unknown price is not nothing"


def test_cancelled_requests_are_no_successes() -> None:
    told = summary(succeeded=19_000, cancelled=1_000)
    assert told.exit_code == 3
    assert "1,000 cancelled" in told.lines()[0]
    assert any(line.endswith("results.errors.jsonl") for line in told.lines())


def test_a_program_gets_every_figure() -> None:
    groups = [FailureGroup("GW_4XX", 28, item_id(12, 17))]
    told = json.loads(json.dumps(summary(succeeded=19_970, failed=28, groups=groups).fields()))
    assert (told["job"], told["left"], told["exit_code"], told["ending"]) == (12, 2, 3, "done")
    assert told["groups"] == [{"code": "GW_4XX", "items": 28, "example": "12-17"}]
    assert told["spent_micros"] == 1_502_000
