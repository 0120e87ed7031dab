"""The last word of a run, and its exit code."""

import json
from typing import Any

import pytest

from backstay.core.ids import item_id
from backstay.run.result_file import EndedRequest
from backstay.run.summary import EXIT_CODES, Ending, Summary, exit_code
from backstay.store.job_views import FailureGroup


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
    examples = {
        item_id(12, 17): EndedRequest(17, "r17", False, None, "GW_4XX", "no such\nmodel " + "x" * 200),
        item_id(12, 99): EndedRequest(
            99, "r99", False, None, "outcome_unknown", "outcome unknown: the worker was lost"
        ),
    }
    told = summary(succeeded=19_970, failed=30, groups=groups, examples=examples, repeats=3, unknown=2)
    assert told.exit_code == 3
    assert told.lines() == [
        "Job 12 is done: 19,970 of 20,000 requests succeeded, 30 failed, in 1 min 2 s.",
        "",
        "  results   results.jsonl",
        "  failures  results.errors.jsonl",
        "            28 GW_4XX, for example r17 (12-17): no such",
        "            2 outcome_unknown, for example r99 (12-99): outcome unknown: the worker was lost",
        "  tokens    1,204,000 in, 310,400 out",
        "  cost      $1.50 of a budget of $5.00",
        "  lost      3 calls without an answer; they may have been paid",
        "  unknown   2 requests that may have been done and paid; they are listed in the failures",
        "",
        "To retry the failed requests, run the same command with --retry-failed.",
        "If the provider cannot be asked about a request, you may pay for it twice.",
        "Exit code 3: finished, but some requests failed.",
    ]


def test_answers_that_are_not_whole_are_told_apart() -> None:
    told = summary(truncated=66, refused=1_067)
    assert "  answers  66 truncated, 1,067 refused" in told.lines()
    assert told.exit_code == 0
    assert [told.fields()[name] for name in ("truncated", "refused", "filtered")] == [66, 1_067, 0]
    assert not any(line.startswith("  answers") for line in summary().lines())


def test_nothing_is_said_to_be_sent_again_before_it_was() -> None:
    told = summary(ending=Ending.INTERRUPTED, succeeded=0, repeats=1)
    assert "  lost     1 call without an answer; it may have been paid" in told.lines()
    assert "sent again" not in "\n".join(told.lines())


def test_an_example_is_told_to_programs_too() -> None:
    ended = EndedRequest(17, "r17", False, None, "GW_4XX", "no such model")
    told = summary(failed=1, groups=[FailureGroup("GW_4XX", 1, 17)], examples={17: ended}).fields()
    assert told["groups"] == [
        {"code": "GW_4XX", "items": 1, "example": "0-17", "custom_id": "r17", "message": "no such model"}
    ]
    assert "examples" not in told


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
    assert "Nothing is lost. To resume, run the same command again." in text
    assert "cost     unknown" in text
    assert "$0" not in text, "an unknown price is not nothing"


def test_cancelled_requests_are_no_successes() -> None:
    told = summary(succeeded=19_000, cancelled=1_000)
    assert told.exit_code == 3
    assert "1,000 cancelled" in told.lines()[0]
    assert any(line.endswith("results.errors.jsonl") for line in told.lines())
    advice = "\n".join(told.lines())
    assert "--new" in advice
    assert "--retry-failed" not in advice, "it would change nothing"


def test_requests_that_share_a_reply_and_lines_that_were_not_sent_are_told() -> None:
    told = summary(total=2, succeeded=2, copies=4, skipped_lines=1)
    text = "\n".join(told.lines())
    assert "2 of 2 different requests succeeded" in text
    assert "copies   4 more requests with the same content; each has its own result line" in text
    assert "skipped  1 bad line, not sent" in text
    assert (told.fields()["copies"], told.fields()["skipped_lines"], told.exit_code) == (4, 1, 0)


def test_a_program_gets_every_figure() -> None:
    groups = [FailureGroup("GW_4XX", 28, item_id(12, 17))]
    told = json.loads(json.dumps(summary(succeeded=19_970, failed=28, groups=groups).fields()))
    assert (told["job"], told["left"], told["exit_code"], told["ending"]) == (12, 2, 3, "done")
    assert told["groups"] == [{"code": "GW_4XX", "items": 28, "example": "12-17"}]
    assert told["spent_micros"] == 1_502_000


def test_a_run_that_its_budget_stopped_says_what_did_not_fit_and_what_makes_room() -> None:
    short = {"ending": Ending.BUDGET, "succeeded": 0, "spent_micros": 0, "budget_micros": 10_000}
    said = "\n".join(summary(**short, next_micros=76_800).lines())
    assert "$0.01 of the budget is left, and the next request may cost up to $0.0768." in said
    assert "--max-output-tokens" in said
    assert "higher --budget" in said
    said = "\n".join(summary(**{**short, "spent_micros": 15_000}, next_micros=76_800).lines())
    assert "The money already spent or reserved is $0.005 above this budget." in said


def test_answers_that_came_too_late_are_to_be_accepted_not_paid_again() -> None:
    said = "\n".join(summary(succeeded=19_998, failed=2, late=2).lines())
    assert "backstay job accept-late 12" in said
    assert "To retry the failed requests" not in said, "there is nothing else to try once more"
    assert "To retry the failed requests" in "\n".join(summary(succeeded=19_997, failed=3, late=2).lines())


def test_who_may_pay_twice_by_a_retry_is_warned() -> None:
    failed = {"succeeded": 19_990, "failed": 10}
    assert "twice" in "\n".join(summary(**failed, unknown=3).lines())
    assert "twice" not in "\n".join(summary(**failed).lines())
