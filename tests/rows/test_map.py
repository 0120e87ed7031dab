"""`map`: as many answers as rows, in their order; nothing is sent twice, and nothing is sent that is wrong."""

import asyncio
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from datetime import date
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest
from pydantic import BaseModel
from typing_extensions import override

import backstay
from backstay.core.errors import BackstayError, RequestsRefused, RowsFailed, UsageError
from backstay.rows.mapped_run import MappedRun, prepare
from backstay.rows.mapping import AnswerStream
from backstay.rows.options import read_options
from backstay.rows.progress import BACKGROUND, LastState
from tests.cli.practice_thread import served
from tests.rows.conftest import RowSite

WAIT_SECONDS = 30
REVIEWS = [{"text": "good"}, {"text": "bad"}, {"text": "so so"}]


def said(results: Any) -> list[str]:
    """What the practice provider echoes."""
    return [answer.text.split(" ", 2)[2] for answer in results]


def test_rows_become_answers_in_their_order(site: RowSite) -> None:
    answers = backstay.map(REVIEWS, "Classify: {text}", **site.options)
    assert said(answers) == ["Classify: good", "Classify: bad", "Classify: so so"]
    assert [answer.row["text"] for answer in answers] == ["good", "bad", "so so"]
    assert answers.values() == [answer.text for answer in answers]
    assert answers[-1] == answers[2]
    assert answers[0:2] == [answers[0], answers[1]]
    assert answers.cost is not None
    assert answers.cost == site.practice.bill.total.cost_micros / 1e6
    assert sum(answer.cost or 0 for answer in answers) == pytest.approx(answers.cost)
    assert answers.ok
    assert not answers.errors


def test_the_same_call_again_sends_nothing(site: RowSite) -> None:
    first = backstay.map(REVIEWS, "Classify: {text}", **site.options)
    again = backstay.map(REVIEWS, "Classify: {text}", **site.options)
    assert (site.paid, again.run_id, said(again)) == (3, first.run_id, said(first))


def test_one_more_row_costs_one_call_and_it_is_said_before(site: RowSite, capsys: pytest.CaptureFixture[str]) -> None:
    backstay.map(REVIEWS, "{text}", **site.options)
    more = backstay.map([*REVIEWS, {"text": "new"}], "{text}", **site.with_options(progress=None))
    assert "3 of 4 are known; 1 will be sent" in capsys.readouterr().err
    assert (site.paid, more.summary().reused, len(more.values())) == (4, 3, 4)


def test_a_model_may_be_named_as_other_libraries_name_it() -> None:
    for model in ("openai/gpt-4o-mini", "openai:gpt-4o-mini", "gpt-4o-mini"):
        assert backstay.plan(REVIEWS, "{text}", model=model).first_request["body"]["model"] == "gpt-4o-mini"


def test_an_endpoint_may_be_another_one(site: RowSite) -> None:
    answers = backstay.map(REVIEWS, "{text}", **site.with_options(endpoint="/v1/responses"))
    assert said(answers) == ["good", "bad", "so so"]
    options = site.with_options(endpoint="/v1/embeddings", model="text-embedding-3-small")
    embedded = backstay.map(REVIEWS, "{text}", **options)[0]
    assert embedded.ok
    assert embedded.reply is not None
    assert embedded.reply["data"][0]["embedding"]


def test_another_system_prompt_is_another_request(site: RowSite) -> None:
    backstay.map(REVIEWS, "{text}", **site.options)
    backstay.map(REVIEWS, "{text}", **site.with_options(system="Be brief."))
    assert site.paid == 6


def test_an_edited_check_sends_nothing(site: RowSite) -> None:
    backstay.map(REVIEWS, "{text}", **site.options)
    checked = backstay.map(REVIEWS, "{text}", **site.with_options(check=lambda text: "bad" not in text))
    assert site.paid == 3
    assert [answer.error and answer.error.kind for answer in checked] == [None, "invalid", None]
    assert checked[1].text is not None


def test_an_answer_that_no_longer_fits_is_sent_again_as_the_page_says(site: RowSite) -> None:
    def check(text: str) -> bool:
        return site.paid > 3 or "bad" not in text

    backstay.map(REVIEWS, "{text}", **site.options)
    strict = backstay.map(REVIEWS, "{text}", **site.with_options(check=check))
    assert [answer.index for answer in strict.errors] == [1]
    rows = [answer.row for answer in strict.errors]
    assert backstay.map(rows, "{text}", **site.with_options(check=check, reuse="never")).ok
    assert site.paid == 4


def test_answers_that_are_broken_once_are_healed_by_one_more_attempt(site: RowSite) -> None:
    rows = [f"{n}" for n in range(50)]
    answers = backstay.map(rows, "{row}", schema=Score, **site.with_options(model="practice-invalid-once"))
    assert ([answer.attempts for answer in answers], site.paid) == ([2] * 50, 100)
    assert len(answers.values()) == 50


class Score(BaseModel):
    score: int


def test_equal_rows_are_sent_once_and_all_have_the_answer(site: RowSite) -> None:
    answers = backstay.map([{"text": "same"}] * 100, "{text}", **site.options)
    assert (site.paid, len(answers), len(set(said(answers)))) == (1, 100, 1)
    assert [answer.reused for answer in answers] == [False] + [True] * 99
    assert sum(answer.cost or 0 for answer in answers) == answers.cost


def test_samples_are_requests_of_their_own(site: RowSite) -> None:
    answers = backstay.map(REVIEWS, "{text}", **site.with_options(samples=2))
    assert site.paid == 6
    assert [(answer.index, answer.sample) for answer in answers] == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]
    assert list(answers.to_pandas()["sample"]) == [0, 1, 0, 1, 0, 1]


def test_a_budget_is_kept_and_the_rest_are_budget_errors(site: RowSite) -> None:
    site.practice.change(answer_tokens=100)
    options = site.with_options(budget=0.0008, max_tokens=100, concurrency=2)
    answers = backstay.map([f"row {n}" for n in range(50)], "{row}", **options)
    kinds = {answer.error.kind for answer in answers.errors if answer.error}
    assert kinds == {"budget"}
    assert 0 < len(answers.errors) < 50
    assert answers.cost is not None
    assert answers.cost <= 0.0008
    assert site.practice.bill.total.cost_micros <= 800
    more = backstay.map([f"row {n}" for n in range(50)], "{row}", **site.with_options(budget=5, max_tokens=100))
    assert (len(more.errors), site.paid) == (0, 50)


def test_a_budget_without_a_known_price_is_refused(site: RowSite) -> None:
    with pytest.raises(UsageError, match="budget= cannot be enforced") as refused:
        backstay.map(REVIEWS, "{text}", **site.with_options(budget=1, price=None, model="no-such-model", max_tokens=5))
    assert "price=" in refused.value.hint
    assert site.paid == 0


def test_an_unknown_price_is_an_unknown_cost(site: RowSite) -> None:
    answers = backstay.map(REVIEWS, "{text}", **site.with_options(price=None, model="no-such-model"))
    assert answers.cost is None
    assert answers[0].cost is None


def test_it_works_inside_a_running_event_loop(site: RowSite) -> None:
    async def go() -> tuple[list[str], list[str]]:
        inside = backstay.map(REVIEWS, "{text}", **site.options)
        awaited = await backstay.amap(REVIEWS, "Say {text}", **site.options)
        return said(inside), said(awaited)

    assert asyncio.run(go()) == (["good", "bad", "so so"], ["Say good", "Say bad", "Say so so"])


def test_it_works_in_threads(site: RowSite) -> None:
    found: dict[int, list[str]] = {}

    def go(number: int) -> None:
        found[number] = said(backstay.map([f"{number}-{n}" for n in range(5)], "{row}", **site.options))

    threads = [threading.Thread(target=go, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [f"{number}-{n}" for n in range(5)] for number in range(3)}


def test_it_works_in_a_forked_process(site: RowSite) -> None:
    backstay.map(["before"], "{row}", **site.options)
    child = os.fork()
    if child == 0:
        answers = backstay.map(["after"], "{row}", **site.options)
        os._exit(0 if said(answers) == ["after"] else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_wrong_key_raises_at_once() -> None:
    with served(key="sk-right") as (practice, base_url):
        site = RowSite(practice, base_url, "wrong.db")
        with pytest.raises(RequestsRefused) as refused:
            backstay.map([f"{n}" for n in range(20)], "{row}", **site.options)
        assert "API key" in refused.value.hint
        os.environ["OPENAI_API_KEY"] = "sk-right"
        assert len(backstay.map([f"{n}" for n in range(20)], "{row}", **site.options).values()) == 20


class Review(BaseModel):
    score: int


def test_a_failed_row_is_an_error_or_raises(site: RowSite) -> None:
    def broken(row: dict[str, Any]) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": row["text"]}], "metadata": {"practice_fault": "invalid"}}

    answers = backstay.map(REVIEWS, broken, schema=Review, **site.options)
    assert [answer.error.kind for answer in answers if answer.error] == ["invalid"] * 3
    assert answers[0].text is not None
    assert answers[0].value is None
    assert answers.summary().errors == {"invalid": 3}
    with pytest.raises(RowsFailed, match="3 of 3 rows failed; the first is row 1: invalid"):
        backstay.map(REVIEWS, broken, schema=Review, **site.with_options(on_error="raise"))
    with pytest.raises(RowsFailed):
        answers.values()


def test_failed_rows_are_sent_again_when_asked(site: RowSite) -> None:
    rows = [{"text": "fine", "fault": ""}, {"text": "broken", "fault": "400"}]

    def body(row: dict[str, Any]) -> dict[str, Any]:
        fault = {"metadata": {"practice_fault": "400x2"}} if row["fault"] else {}
        return {"messages": [{"role": "user", "content": row["text"]}], **fault}

    answers = backstay.map(rows, body, **site.options)
    assert [answer.ok for answer in answers] == [True, False]
    assert answers[1].error is not None
    assert not answers[1].error.retryable
    healed = answers.retry_failed()
    assert [answer.ok for answer in healed] == [True, True]


def test_rows_of_an_iterator_are_tried_first_and_sent_again_when_asked(site: RowSite) -> None:
    def body(row: dict[str, Any]) -> dict[str, Any]:
        fault = {"metadata": {"practice_fault": "400x2"}} if row["row"] == "4" else {}
        return {"messages": [{"role": "user", "content": row["row"]}], **fault}

    rows = (f"{n}" for n in range(6))
    answers = backstay.map(rows, body, **site.with_options(sample=2, confirm=lambda tried: True))
    assert [answer.index for answer in answers.errors] == [4]
    assert (len(answers.retry_failed().values()), site.practice.bill.charged) == (6, 6)


def test_only_failed_rows_of_a_new_run_are_sent_again(site: RowSite) -> None:
    def body(row: dict[str, Any]) -> dict[str, Any]:
        fault = {"metadata": {"practice_fault": "400x2"}} if row["row"] == "b" else {}
        return {"messages": [{"role": "user", "content": row["row"]}], **fault}

    answers = backstay.map(["a", "b"], body, **site.with_options(new=True))
    assert answers.retry_failed().ok
    assert site.paid == 2


@pytest.mark.parametrize("more", [{}, {"samples": 2}, {"sample": 2, "confirm": lambda tried: True}])
def test_a_prompt_function_is_called_once_for_each_row(site: RowSite, more: dict[str, Any]) -> None:
    called: list[str] = []

    def prompt(row: dict[str, Any]) -> str:
        called.append(row["row"])
        return f"{row['row']} as number {len(called)}"  # another text each time

    answers = backstay.map(["a", "b", "c"], prompt, **site.with_options(**more))
    assert called == ["a", "b", "c"]
    assert {text.split(" ", 2)[2] for text in answers.values()} == {
        f"{row} as number {n}" for n, row in enumerate(called, 1)
    }


def test_two_calls_at_once_have_checks_of_their_own(site: RowSite) -> None:
    """On the same endpoint: a check of one must not judge the answers of the other."""
    site.practice.change(latency=0.05)
    found: dict[str, int] = {}

    def go(name: str, check: Any) -> None:
        rows = [f"{name} {n}" for n in range(20)]
        found[name] = len(backstay.map(rows, "{row}", **site.with_options(check=check, reasks=0, concurrency=4)).errors)

    threads = [
        threading.Thread(target=go, args=("strict", lambda text: False)),
        threading.Thread(target=go, args=("mild", lambda text: True)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {"strict": 20, "mild": 0}


def test_a_frame_keeps_its_index(site: RowSite) -> None:
    frame = pandas.DataFrame({"text": ["a", "b"]}, index=[5, 5])
    made = backstay.map(frame, "{text}", **site.options).to_frame()
    assert list(made.index) == [5, 5]
    assert list(made.columns) == ["text", "answer", "cost", "error"]
    assert [text.split()[-1] for text in made["answer"]] == ["a", "b"]


def test_a_frame_and_a_dataset_keep_the_types_of_their_columns(site: RowSite) -> None:
    given = {"text": ["a", "b"], "day": [date(2026, 1, 2), None]}
    frame = backstay.map(polars.DataFrame(given), "{text}", **site.with_options(samples=2)).to_frame()
    assert frame.schema["day"] == polars.Date
    assert frame["day"].to_list() == [date(2026, 1, 2), date(2026, 1, 2), None, None]
    assert [text.split()[-1] for text in frame["answer"]] == ["a", "a", "b", "b"]
    datasets = pytest.importorskip("datasets")
    rows = datasets.Dataset.from_dict(given).cast_column("day", datasets.Value("date32"))
    made = backstay.map(rows, "{text}", **site.options).to_frame()
    assert made.features["day"] == datasets.Value("date32")
    assert made["text"][:] == ["a", "b"]
    assert made.column_names == ["text", "day", "answer", "cost", "error"]


def test_answers_become_tables_of_every_kind(site: RowSite, tmp_path: Path) -> None:
    answers = backstay.map(polars.DataFrame(REVIEWS), "{text}", **site.options)
    assert isinstance(answers.to_frame(), polars.DataFrame)
    assert answers.to_dataset().column_names == ["text", "answer", "cost", "error"]
    for name in ("out.csv", "out.jsonl", "out.parquet"):
        answers.to_csv(tmp_path / name)
    assert list(pandas.read_csv(tmp_path / "out.csv")["text"]) == ["good", "bad", "so so"]
    assert len(pandas.read_parquet(tmp_path / "out.parquet")) == 3
    assert "<table>" in answers._repr_html_()


def test_a_pickle_holds_the_answers_themselves(site: RowSite) -> None:
    answers = backstay.map(REVIEWS, "{text}", **site.options)
    stored = pickle.loads(pickle.dumps(answers))
    assert list(stored) == list(answers)
    assert stored.cost == answers.cost
    assert list(stored.to_pandas()["text"]) == ["good", "bad", "so so"]


def test_answers_come_one_by_one_and_all_of_them(site: RowSite) -> None:
    rows = [{"n": n % 7} for n in range(30)]
    came = list(backstay.imap(rows, "{n}", **site.options))
    assert sorted(answer.index for answer in came) == list(range(30))
    assert site.paid == 7
    in_order = backstay.imap(rows, "Say {n}", ordered=True, **site.options)
    assert [answer.index for answer in in_order] == list(range(30))


def test_a_loop_that_is_left_stops_the_run_and_the_same_call_goes_on(site: RowSite) -> None:
    site.practice.change(latency=0.05)
    for _ in backstay.imap([f"{n}" for n in range(60)], "{row}", **site.with_options(concurrency=4)):
        break
    assert site.paid < 60
    answers = backstay.map([f"{n}" for n in range(60)], "{row}", **site.with_options(concurrency=4))
    assert (len(answers.values()), site.practice.bill.charged, site.practice.bill.paid_twice) == (60, 60, [])


class BeforeWork(LastState):
    """Runs something when the job is known and the worker of this run is not yet registered."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__()
        self._work = work

    @override
    def open(self, job_id: int) -> Any:
        self._work()
        return super().open(job_id)


def test_a_run_that_is_stopped_does_not_pause_the_same_run_that_just_began(site: RowSite) -> None:
    site.practice.change(latency=0.05)
    terms = read_options(site.with_options(concurrency=1))
    first, second = (MappedRun(prepare([f"{n}" for n in range(20)], "{row}", None, terms)) for _ in range(2))

    def stop_first() -> None:
        first.stop()
        going.result(WAIT_SECONDS)

    with ThreadPoolExecutor() as threads:
        going = threads.submit(asyncio.run, first.go())
        while site.paid < 1:
            assert not wait((going,), 0.01).done
        second.view = BeforeWork(stop_first)
        assert len(BACKGROUND.start(second.go()).result(WAIT_SECONDS)) == 20
    assert (site.paid, site.practice.bill.paid_twice) == (20, [])


def test_a_run_that_is_stopped_before_it_begins_leaves_later_calls_alone(site: RowSite) -> None:
    stream = AnswerStream(prepare(REVIEWS, "{text}", None, read_options(site.options)))
    stream.stop()
    with pytest.raises(BackstayError, match="stopped before anything was sent"):
        list(stream.answers())
    assert site.paid == 0
    assert said(backstay.map(REVIEWS, "{text}", **site.options)) == ["good", "bad", "so so"]


@pytest.mark.parametrize("end", [SystemExit, KeyboardInterrupt])
def test_a_call_that_ends_the_loop_leaves_later_calls_alone(site: RowSite, end: type[BaseException]) -> None:
    async def fail() -> None:
        raise end

    with pytest.raises(end):
        BACKGROUND.start(fail()).result(WAIT_SECONDS)
    assert said(backstay.map(REVIEWS, "{text}", **site.options)) == ["good", "bad", "so so"]


def test_a_file_becomes_a_table(site: RowSite, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n1,good\n2,bad\n")
    summary = backstay.run_file(tmp_path / "in.csv", "{text}", tmp_path / "out.csv", **site.with_options(id="id"))
    assert (summary.ok, summary.failed) == (2, 0)
    assert list(pandas.read_csv(tmp_path / "out.csv")["id"]) == [1, 2]


def test_the_database_is_the_users_own_by_default(site: RowSite, tmp_path: Path) -> None:
    backstay.map(REVIEWS, "{text}", **site.with_options(db=None))
    assert (tmp_path / "data" / "backstay" / "backstay.db").exists()
