"""An editor and mypy know the options, and what a job's results are."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, assert_type

import pytest
from pydantic import BaseModel, field_validator

from backstay import Backstay, Job, Result, SyncBackstay
from backstay.client import Options, SubmitOptions
from backstay.core.errors import UsageError

ROOT = Path(__file__).parents[2]
MYPY_SECONDS_MAX = 300

MISSPELT = """
from backstay import Backstay, SyncBackstay

app = Backstay("sqlite:///unused.db")

@app.handler(timout=1)
async def shout(item: str) -> str:
    return item.upper()

@app.task("work", concurency=1)
class Work: ...

async def go() -> None:
    await app.submit(shout, ["a"], prioritty=1)
    await app.submit("shout", ["a"], priority="high")
    await app.submit(shout, ["a"], priority=1, label="fine")
    Backstay("sqlite:///unused.db", ownr="ada")

SyncBackstay(app).submit(shout, ["a"], idempotency="k")
"""


def test_mypy_finds_a_misspelt_option(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(MISSPELT, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(program)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=MYPY_SECONDS_MAX,
    )
    wrong = {int(line) for line in re.findall(r"program\.py:(\d+): error", ran.stdout)}
    lines = MISSPELT.splitlines()
    said = {word for number in wrong for word in re.findall(r"\w+(?==)", lines[number - 1])}
    assert said == {"timout", "concurency", "prioritty", "priority", "ownr", "idempotency"}, ran.stdout + ran.stderr
    assert len(wrong) == 6, ran.stdout


@dataclass
class Page:
    number: int
    words: list[str]


def made() -> tuple[Backstay, Callable[..., Any]]:
    app = Backstay("sqlite:///unused.db")

    @app.handler()
    def shout(item: str) -> str:
        return item.upper()

    return app, shout


async def test_a_misspelt_option_is_named_with_those_there_are() -> None:
    app, shout = made()
    misspelt: dict[str, Any] = {"timout": 1}
    with pytest.raises(UsageError, match="no option 'timout'") as refused:
        app.handler(**misspelt)(shout)
    assert "timeout" in refused.value.hint
    misspelt = {"prioritty": 1}
    with pytest.raises(UsageError, match=r"submit\(\) has no option 'prioritty'") as refused:
        await app.submit("shout", ["a"], **misspelt)
    assert "priority" in refused.value.hint


def test_the_options_of_submit_are_the_fields_of_what_it_makes_of_them() -> None:
    assert list(SubmitOptions.__annotations__) == [field.name for field in fields(Options)]
    assert SubmitOptions.__annotations__ == {field.name: field.type for field in fields(Options)}


async def test_a_job_carries_the_type_that_its_handler_returns(database_url: str) -> None:
    """assert_type is for mypy, which checks this file; the rest is what Python has at run time."""
    async with Backstay(database_url) as app:

        @app.handler()
        async def read(item: int) -> Page:
            return Page(item, ["a"])

        @app.handler()
        def shout(item: str) -> str:
            return item.upper()

        pages, shouts = await app.submit(read, [1]), await app.submit(shout, ["a"])
        named = await app.submit("read", [2])
        assert_type(pages, Job[Page])
        assert_type(shouts, Job[str])
        assert_type(named, Job[Any])
        assert_type(await read(1), Page)
        assert_type(shout("a"), str)
        async with app.working():
            for job in (pages, shouts, named):
                await job.wait(timeout_seconds=30)
        async for result in pages.results():
            assert_type(result, Result[Page])
            assert_type(result.value, Page | None)
            assert result.value == Page(1, ["a"])
        assert [result.value async for result in shouts.results()] == ["A"]
        assert [result.value async for result in named.results()] == [{"number": 2, "words": ["a"]}]


async def test_one_result_that_is_not_as_annotated_does_not_hide_the_others(database_url: str) -> None:
    async with Backstay(database_url) as app:

        @app.handler()
        async def read(item: int) -> Page:
            return Page(item, ["a"]) if item != 2 else {"number": "two"}  # type: ignore[return-value]

        job = await app.submit(read, [1, 2, 3])
        async with app.working():
            await job.wait(timeout_seconds=30)
        values: list[object] = [result.value async for result in job.results()]
        assert values == [Page(1, ["a"]), {"number": "two"}, Page(3, ["a"])]


async def test_what_no_json_becomes_is_returned_as_plain_json(database_url: str) -> None:
    class Odd:
        """Nothing that pydantic knows."""

    async with Backstay(database_url) as app:

        async def read(item: int) -> Odd:
            return {"n": item}  # type: ignore[return-value]

        read.__annotations__["return"] = Odd  # a local class: its name could not be looked up
        job = await app.submit(app.handler()(read), [1])
        async with app.working():
            await job.wait(timeout_seconds=30)
        values: list[object] = [result.value async for result in job.results()]
        assert values == [{"n": 1}]


class Graded(BaseModel):
    points: int

    @field_validator("points")
    @classmethod
    def check(cls, points: int) -> int:
        return {1: points, 3: points}[points]


async def test_a_result_whose_validator_breaks_does_not_hide_the_others(database_url: str) -> None:
    async with Backstay(database_url) as app:

        @app.handler()
        async def grade(item: int) -> Graded:
            return Graded.model_construct(points=item)

        job = await app.submit(grade, [1, 2, 3])
        async with app.working():
            await job.wait(timeout_seconds=30)
        values: list[object] = [result.value async for result in job.results()]
        assert values == [Graded(points=1), {"points": 2}, Graded(points=3)]


def test_the_sync_face_carries_the_type_too(sqlite_file_url: str) -> None:
    app = Backstay(sqlite_file_url)

    @app.handler()
    async def read(item: int) -> Page:
        return Page(item, [])

    with SyncBackstay(app) as backstay, backstay.working():
        job = backstay.submit(read, [7])
        job.wait(timeout_seconds=30)
        for result in job.results():
            assert_type(result, Result[Page])
            assert result.value == Page(7, [])
        assert_type(next(backstay.submit("read", [1]).results(), None), Result[Any] | None)
