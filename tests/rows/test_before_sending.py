"""What is looked at before all rows are sent: the place of the table, the plan, and a sample."""

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import backstay
from backstay.core.errors import RowsFailed, UsageError
from tests.rows.conftest import RowSite

REVIEWS = [{"text": "good"}, {"text": "bad"}, {"text": "so so"}]


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("in.csv", "is the input itself"),
        ("notes.csv", "already exists, and is not a table of this run"),
        ("out.xlsx", "is not a table"),
        ("none/out.csv", "cannot be written"),
    ],
)
def test_a_place_for_no_table_is_refused_before_anything_is_sent(
    site: RowSite, tmp_path: Path, out: str, words: str
) -> None:
    for name in ("in.csv", "notes.csv"):
        (tmp_path / name).write_text(f"{name[0]},text\n1,good\n")
    with pytest.raises(UsageError, match=words) as refused:
        backstay.run_file(tmp_path / "in.csv", "{text}", tmp_path / out, **site.options)
    assert "--" not in str(refused.value)
    assert (site.paid, (tmp_path / "in.csv").read_text()) == (0, "i,text\n1,good\n")


def test_the_table_of_a_file_is_there_also_if_failed_rows_raise(site: RowSite, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\ngood\n")
    options = site.with_options(model="practice-400", on_error="raise")
    for _ in range(2):  # its own table may be replaced
        with pytest.raises(RowsFailed):
            backstay.run_file(tmp_path / "in.csv", "{text}", tmp_path / "out.csv", **options)
        assert "GW_4XX" in (tmp_path / "out.csv").read_text()


def test_a_plan_is_about_what_would_be_sent(site: RowSite) -> None:
    options = site.with_options(max_tokens=10)
    one = backstay.plan(["a"], "{row}", **options)
    backstay.map(["a", "b"], "{row}", **options)
    more = backstay.plan(["a", "b", "c", "c"], "{row}", **options)
    assert (more.reused, more.to_send, more.cost_expected, more.cost_high) == (2, 1, one.cost_expected, one.cost_high)
    done = backstay.plan(["a", "b"], "{row}", **options)
    assert (done.reused, done.to_send, done.cost_expected) == (2, 0, 0.0)
    assert str(done) == "2 of 2 are known; 0 will be sent, about $0.00, at most $0.00"
    fresh = backstay.plan(["a", "b"], "{row}", **site.with_options(max_tokens=10, reuse="never", new=True))
    assert (fresh.reused, fresh.to_send) == (0, 2)


def test_a_plan_tells_failed_rows_from_those_that_it_would_send(site: RowSite) -> None:
    options = site.with_options(model="practice-400")
    backstay.map(["a"], "{row}", **options)
    plan = backstay.plan(["a"], "{row}", **options)
    assert (plan.reused, plan.failed, plan.to_send) == (0, 1, 0)


def test_a_plan_knows_the_terms_of_a_run(site: RowSite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROQ_API_KEY", "sk-practice")
    once = backstay.plan(["a"], "{row}", schema=Scores, **site.with_options(max_tokens=10, reasks=0))
    thrice = backstay.plan(["a"], "{row}", schema=Scores, **site.with_options(max_tokens=10, reasks=2))
    other = backstay.plan(["a"], "{row}", **site.with_options(max_tokens=10, fallback="groq:any=1000/1000"))
    assert (once.cost_high or 0) * 3 < (thrice.cost_high or 0)
    assert (other.cost_high or 0) > 0.01
    assert "free keys" in thrice.schema_losses["openai"][0]
    assert site.paid == 0


class Scores(BaseModel):
    scores: dict[str, int]


def test_a_plan_sends_nothing_and_knows_what_is_known(site: RowSite) -> None:
    plan = backstay.plan([*REVIEWS, *REVIEWS], "{text}", **site.with_options(max_tokens=10))
    assert (plan.rows, plan.unique, plan.to_send, plan.reused, site.paid) == (6, 3, 3, 0, 0)
    assert plan.cost_high is not None
    assert plan.cost_low is not None
    assert plan.cost_low <= plan.cost_high
    assert plan.first_request["body"]["messages"][0]["content"] == "good"
    backstay.map([*REVIEWS, *REVIEWS], "{text}", **site.with_options(max_tokens=10))
    assert backstay.plan([*REVIEWS, *REVIEWS], "{text}", **site.with_options(max_tokens=10)).reused == 3


def test_a_few_rows_are_tried_first_and_the_rest_only_after_a_yes(site: RowSite) -> None:
    shown: list[int] = []

    def refuse(tried: backstay.Results[Any]) -> bool:
        shown.append(len(tried))
        return False

    rows = [f"{n}" for n in range(10)]
    few = backstay.map(rows, "{row}", **site.with_options(sample=3, confirm=refuse))
    assert (len(few), site.paid, shown) == (3, 3, [3])
    every = backstay.map(rows, "{row}", **site.with_options(sample=3, confirm=lambda tried: True))
    assert (len(every), site.paid) == (10, 10)


@pytest.mark.parametrize("more", [{"reuse": "never"}, {"new": True}, {"reuse": 0.001}])
def test_the_rows_that_were_tried_are_not_paid_again(site: RowSite, more: dict[str, Any]) -> None:
    options = site.with_options(sample=3, confirm=lambda tried: True, **more)
    assert len(backstay.map([f"{n}" for n in range(10)], "{row}", **options).values()) == 10
    assert site.paid == 10


def test_the_cost_of_the_sample_is_part_of_the_budget(site: RowSite) -> None:
    """One dollar for each row: a budget for four rows is three that are tried, and one more."""
    site.practice.change(answer_tokens=100)
    prices: dict[str, Any] = {"price": "0/10000", "max_tokens": 100}
    options = site.with_options(**prices, sample=3, confirm=lambda tried: True, budget=4.5)
    cheaper = site.with_options(**prices, sample=3, confirm=lambda tried: True, budget=3.0)
    answers = backstay.map([f"{n}" for n in range(10)], "{row}", **options)
    assert (len(answers) - len(answers.errors), site.paid) == (4, 4)
    with pytest.raises(UsageError, match="the sample has used the budget"):
        backstay.map([f"n{n}" for n in range(10)], "{row}", **cheaper)


def test_the_question_shows_the_cost_and_the_forecast(
    site: RowSite, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def refuse(question: str) -> str:
        asked.append(question)
        return "n"

    monkeypatch.setattr("builtins.input", refuse)
    options = site.with_options(sample=2, price="1000/1000")
    few = backstay.map([f"\x1b[2J1\n2 {n}" for n in range(10)], "{row}", **options)
    assert (len(few), site.paid) == (2, 2)
    assert "all would cost about $" in asked[0]
    assert "Send the other 8 requests?" in asked[0]
    shown = capsys.readouterr().out
    assert "row 2: practice" in shown
    assert ("\x1b" in shown, "1\n2" in shown) == (False, True)


def test_a_sample_of_known_answers_costs_nothing_and_the_forecast_is_that_of_the_others(
    site: RowSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def refuse(question: str) -> str:
        asked.append(question)
        return "n"

    monkeypatch.setattr("builtins.input", refuse)
    options = site.with_options(price="1000/1000", max_tokens=10)
    rows = [f"{n}" for n in range(10)]
    backstay.map(rows[:4], "{row}", **options)
    forecast = backstay.plan(rows, "{row}", **options)
    backstay.map(rows, "{row}", **site.with_options(price="1000/1000", max_tokens=10, sample=2))
    assert asked == [f"these cost $0.00; all would cost about ${forecast.cost_expected:.2f}. {SIX_LEFT}"]


SIX_LEFT = "Send the other 6 requests? [y/N] "


def test_nothing_is_asked_if_nothing_would_be_sent(site: RowSite) -> None:
    options = site.with_options(sample=2, confirm=lambda tried: True)
    rows = ["a", "b", "c", "a", "b"]
    backstay.map(rows, "{row}", **options)
    assert len(backstay.map(rows, "{row}", **site.with_options(sample=2, confirm=lambda tried: False))) == 5
    assert site.paid == 3


@pytest.mark.parametrize("nobody", [EOFError, NotImplementedError, RuntimeError])
def test_where_nobody_can_answer_the_others_are_not_sent(
    site: RowSite, monkeypatch: pytest.MonkeyPatch, nobody: type[Exception]
) -> None:
    def ask(question: str) -> str:
        raise nobody

    monkeypatch.setattr("builtins.input", ask)
    assert len(backstay.map([f"{n}" for n in range(10)], "{row}", **site.with_options(sample=2))) == 2
    assert site.paid == 2


def test_a_sample_is_refused_where_nobody_is_asked(site: RowSite) -> None:
    with pytest.raises(UsageError, match=r"sample works with map\(\), not with imap\(\)"):
        backstay.imap(REVIEWS, "{text}", **site.with_options(sample=2))
    assert site.paid == 0


def test_a_stream_may_raise_for_failed_rows_after_the_last_answer(site: RowSite) -> None:
    stream = backstay.imap(REVIEWS, "{text}", **site.with_options(model="practice-400", on_error="raise"))
    assert sum(1 for _ in islice(stream, 3)) == 3
    with pytest.raises(RowsFailed):
        next(stream)
