"""Runs that use the answers of earlier runs: what is known is not sent, and not paid."""

import json
from collections.abc import AsyncIterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from backstay.app import Backstay
from backstay.client import chunks
from backstay.llm.endpoint import Endpoint, Lane
from backstay.llm.formats import InputOptions
from backstay.llm.intake import open_source, survey
from backstay.llm.repeated_requests import RequestKeys
from backstay.practice import Practice
from backstay.run.options import NEVER, Reuse
from backstay.run.run import Run
from backstay.run.submission import Order, Submission
from backstay.run.summary import Summary
from backstay.run.view import View
from tests.databases import fresh_database
from tests.llm.request_files import batch_line
from tests.run.results import lines_in

database_url = fresh_database("sqlite", "postgres")
BUDGET = 200
CUT, WRONG = {"max_tokens": 1}, {"metadata": {"practice_fault": "400"}}


class Told:
    """A view that remembers the lines that stay."""

    def __init__(self) -> None:
        self.said: list[str] = []

    def show(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...
    def say(self, text: str) -> None:
        self.said.append(text)


class Bench(NamedTuple):
    app: Backstay
    practice: Practice
    order: Order
    folder: Path

    def file(self, questions: str, **more: dict[str, Any]) -> Path:
        """A request for each letter; the same letter asks the same, with more fields for some letters."""
        file = self.folder / "requests.jsonl"
        lines = [batch_line(f"n{place}", body(name, **more.get(name, {}))) for place, name in enumerate(questions)]
        file.write_text("".join(f"{line}\n" for line in lines))
        return file

    async def run(self, file: Path, name: str, **terms: Any) -> tuple[Summary, list[str], int]:
        """The summary, what was said, and how many calls were paid."""
        paid, told = self.practice.bill.charged, Told()
        order = replace(self.order, out=self.folder / f"{name}.jsonl", **terms)
        with open_source(str(file), InputOptions()) as source:
            run = Run(self.app, order, source, survey(source))
            summary = await run.run(lambda job_id: nullcontext(cast(View, told)))
        return summary, told.said, self.practice.bill.charged - paid

    def answers(self, name: str) -> dict[str, str]:
        lines = lines_in(self.folder / f"{name}.jsonl")
        return {line["custom_id"]: line["response"]["body"]["choices"][0]["message"]["content"] for line in lines}


def body(name: str, **more: Any) -> str:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": f"say {name}"}], **more})


@pytest.fixture
async def bench(database_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    practice = Practice()
    async with practice.serving() as base_url, Backstay(database_url) as app:
        yield Bench(app, practice, Order(Endpoint(base_url), "-"), tmp_path)


async def test_one_more_row_costs_one_call_and_the_result_file_is_complete(bench: Bench) -> None:
    _, said, paid = await bench.run(bench.file("abcd"), "one")
    assert (said, paid) == ([], 4)
    summary, said, paid = await bench.run(bench.file("eabcd"), "two")
    assert (said, paid) == (["4 of 5 are known; 1 will be sent"], 1)
    assert (summary.succeeded, summary.reused, summary.exit_code) == (5, 4, 0)
    before, after = bench.answers("one"), bench.answers("two")
    assert {f"n{n + 1}": before[f"n{n}"] for n in range(4)} == {name: after[name] for name in ("n1", "n2", "n3", "n4")}
    assert "n0" in after
    assert summary.fields()["reused"] == 4
    assert any("4 answers of earlier runs, not sent and not paid" in line for line in summary.lines())


async def test_answers_that_are_cut_off_or_failed_are_asked_for_again_among_good_ones(bench: Bench) -> None:
    file = bench.file("abtw", t=CUT, w=WRONG)
    summary, _, paid = await bench.run(file, "one")
    assert (summary.succeeded, summary.truncated, summary.failed, paid) == (3, 1, 1, 3)
    summary, said, paid = await bench.run(bench.file("xabtw", t=CUT, w=WRONG), "two")
    assert (said, summary.reused, paid) == (["2 of 5 are known; 3 will be sent"], 2, 2)
    assert (summary.succeeded, summary.failed) == (4, 1)


async def test_a_provider_that_refuses_all_that_is_sent_stops_the_run_with_nothing_failed(bench: Bench) -> None:
    await bench.run(bench.file("abcd"), "one")
    summary, _, paid = await bench.run(bench.file("abcdw", w={"metadata": {"practice_fault": "404"}}), "two")
    assert (summary.exit_code, summary.succeeded, summary.failed, summary.left, paid) == (9, 4, 0, 1, 0)


async def test_a_run_may_do_without_or_with_young_answers_only(bench: Bench) -> None:
    await bench.run(bench.file("ab"), "one")
    assert (await bench.run(bench.file("abc"), "never", reuse=NEVER))[2] == 3
    assert (await bench.run(bench.file("abcd"), "old", reuse=Reuse(age_seconds=1e-9)))[2] == 4
    assert (await bench.run(bench.file("abcde"), "young", reuse=Reuse(age_seconds=3600)))[2] == 1


async def test_the_lane_does_not_matter(bench: Bench) -> None:
    await bench.run(bench.file("ab"), "call")
    batch = replace(bench.order.endpoint, lane=Lane.BATCH)
    summary, _, paid = await bench.run(bench.file("ba"), "batch", endpoint=batch)
    assert (summary.reused, paid, sorted(bench.answers("batch"))) == (2, 0, ["n0", "n1"])
    cheapest = {"endpoint": batch, "call_instead": bench.order.endpoint, "deadline_seconds": 3600.0}
    summary, _, paid = await bench.run(bench.file("aab"), "cheapest", **cheapest)
    assert (summary.reused, paid) == (3, 0)


async def test_a_budget_weighs_only_what_is_sent(bench: Bench) -> None:
    priced = replace(bench.order.endpoint, price=(1_000_000, 1_000_000))
    terms = {"endpoint": priced, "output_tokens_default": 50}
    first, _, _ = await bench.run(bench.file("abcdefghijklmnop"), "one", **terms)
    assert first.spent_micros is not None
    assert first.spent_micros > BUDGET
    summary, _, paid = await bench.run(bench.file("abcdefghijklmnopq"), "two", budget_micros=BUDGET, **terms)
    assert (summary.succeeded, summary.reused, paid, summary.exit_code) == (17, 16, 1, 0)
    assert summary.spent_micros is not None
    assert 0 < summary.spent_micros < first.spent_micros


async def test_copies_share_a_known_answer_and_equal_lines_are_sent_without_dedupe(bench: Bench) -> None:
    assert (await bench.run(bench.file("aab"), "one"))[2] == 3
    summary, said, paid = await bench.run(bench.file("aaabcc"), "two", dedupe=True)
    assert (said, paid, summary.copies) == (["2 of 3 are known; 1 will be sent"], 1, 3)
    assert sorted(bench.answers("two")) == [f"n{n}" for n in range(6)]


async def test_a_submit_that_is_cut_off_is_completed_with_nothing_twice(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ITEMS", 2)
    await bench.run(bench.file("abcd"), "one")
    file, client = bench.file("axbycz"), await bench.app.open()
    add, left = client.store.submissions.add_items, iter([True])

    async def break_off(*given: Any) -> None:
        if not next(left, False):
            raise KeyboardInterrupt
        await add(*given)

    with open_source(str(file), InputOptions()) as source, monkeypatch.context() as patched:
        patched.setattr(client.store.submissions, "add_items", break_off)
        submission = Submission(replace(bench.order, out="-"), source, survey(source))
        await submission.find(client)
        await submission.announce(client)
        with pytest.raises(KeyboardInterrupt):
            await submission.send(client, lambda: None)
    newest = (await client.store.job_views.page(client.owner))[0]
    assert (newest.total, newest.reused, newest.sealed) == (4, 2, False)
    summary, _, paid = await bench.run(file, "two")
    assert (summary.job_id, summary.total, summary.reused, paid) == (newest.id, 6, 3, 3)
    assert sorted(bench.answers("two")) == [f"n{n}" for n in range(6)]


def test_a_key_stands_for_all_that_is_sent_and_for_nothing_else() -> None:
    here = ("ann", "openai", "https://api.example/v1", ())
    asked: dict[str, Any] = {"model": "m", "temperature": 0, "tools": [{"a": 1, "b": 2}]}
    key = RequestKeys(*here).key("/v1/chat/completions", asked, "m")
    turned = {"tools": [{"b": 2, "a": 1}], "temperature": 0, "model": "m"}
    assert RequestKeys(*here).key("/v1/chat/completions", turned, "m") == key
    others = [
        RequestKeys("eve", *here[1:]).key("/v1/chat/completions", asked, "m"),
        RequestKeys("ann", "groq", *here[2:]).key("/v1/chat/completions", asked, "m"),
        RequestKeys("ann", "openai", "https://other.example/v1", ()).key("/v1/chat/completions", asked, "m"),
        RequestKeys(*here[:3], [("x-beta", "BETA")]).key("/v1/chat/completions", asked, "m"),
        RequestKeys(*here).key("/v1/responses", asked, "m"),
        RequestKeys(*here).key("/v1/chat/completions", {**asked, "temperature": 1}, "m"),
        RequestKeys(*here).key("/v1/chat/completions", asked, "n"),
        RequestKeys(*here).key("/v1/chat/completions", asked, "m", sample=1),
    ]
    assert len({key[:2], *(other[:2] for other in others)}) == 9
