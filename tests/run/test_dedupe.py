"""Runs with --dedupe: identical requests are paid for once, and each of them has its result."""

import json
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

import pytest

from backstay.app import Backstay
from backstay.llm.endpoint import Endpoint
from backstay.llm.formats import InputOptions
from backstay.llm.intake import open_source, survey
from backstay.practice import Practice
from backstay.run.run import Run
from backstay.run.submission import Order
from backstay.run.view import View
from tests.llm.lane_rig import chats
from tests.llm.request_files import batch_line
from tests.run.results import lines_in


class Unseen:
    """A view that shows nothing to anyone."""

    def show(self, *_: object) -> None: ...
    def say(self, *_: object) -> None: ...
    def end(self, *_: object) -> None: ...


def show(job_id: int) -> AbstractContextManager[View]:
    return nullcontext(cast(View, Unseen()))


def write(file: Path, questions: list[int]) -> None:
    """A request for each number; the same number asks the same."""
    bodies = [json.dumps(body) for body in chats(max(questions) + 1)]
    lines = [batch_line(f"n{place}", bodies[number]) for place, number in enumerate(questions)]
    file.write_text("".join(f"{line}\n" for line in lines))


@pytest.mark.parametrize(("dedupe", "paid"), [(True, 3), (False, 7)])
async def test_identical_requests_are_paid_for_once_if_that_is_wanted(
    database_url: str, tmp_path: Path, dedupe: bool, paid: int
) -> None:
    file, out = tmp_path / "requests.jsonl", tmp_path / "out.jsonl"
    write(file, [0, 1, 0, 0, 1, 2, 0])
    practice = Practice()
    async with practice.serving() as base_url, Backstay(database_url) as app:
        order = Order(Endpoint(base_url), out, dedupe=dedupe)
        with open_source(str(file), InputOptions()) as source:
            summary = await Run(app, order, source, survey(source)).run(show)
    assert (practice.bill.charged, summary.total, summary.copies) == (paid, paid, 7 - paid)
    said = {line["custom_id"]: content(line) for line in lines_in(out)}
    assert sorted(said) == [f"n{place}" for place in range(7)]
    assert said["n0"] == said["n2"] == said["n3"] == said["n6"] != said["n1"] == said["n4"] != said["n5"]


def content(line: dict[str, Any]) -> str:
    text: str = line["response"]["body"]["choices"][0]["message"]["content"]
    return text
