"""Results on their way from the database to the files, while others do the work and people retry what failed."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from backstay import Backstay
from backstay.client import Client, Job, Options
from backstay.core.errors import Permanent, UsageError
from backstay.core.ids import item_id
from backstay.llm.lines import LlmRequest, seal
from backstay.run.collector import Collector, verify
from backstay.run.output import ResultFiles, errors_path
from backstay.store.dead_letters import LetterFilter, ReplayRequest
from tests.run.results import ids_in, lines_in, standing


class Bench:
    """A job whose requests fail for the reasons given. Its worker is as good as elsewhere: no collector hears it."""

    def __init__(self, app: Backstay, client: Client, folder: Path) -> None:
        self._app = app
        self.client = client
        self.out = folder / "results.jsonl"
        self.why: dict[str, str] = {}
        self.job = Job(client, 0)
        app.handler("ask", retry="none")(self._ask)

    async def _ask(self, item: Any) -> Any:
        if item["custom_id"] in self.why:
            raise Permanent(self.why[item["custom_id"]])
        return {"status_code": 200, "body": item["body"]}

    async def submit(self, *names: str) -> None:
        items = [seal(LlmRequest(name, "/v1/x", "{}")) for name in names]
        self.job = await self.client.submit("ask", items, Options(), str, lambda: None)

    async def work(self) -> None:
        async with self._app.working(1):
            await self.job.wait(timeout_seconds=30)

    def files(self) -> ResultFiles:
        return ResultFiles(self.out, self.job.id)

    def collector(self, files: ResultFiles, copies: bool = False) -> Collector:
        return Collector(self.client.store, files, self.job.id, self.client.owner, copies)

    def errors(self) -> dict[str, str]:
        return {line["custom_id"]: line["error"]["message"] for line in lines_in(errors_path(self.out))}


@pytest.fixture
async def bench(database_url: str, tmp_path: Path) -> AsyncIterator[Bench]:
    async with Backstay(database_url) as app:
        yield Bench(app, await app.open(), tmp_path)


async def test_failures_retried_while_the_run_goes_on_end_where_they_belong(bench: Bench) -> None:
    bench.why = {"b": "no", "c": "no", "d": "no"}
    await bench.submit("a", "b", "c", "d")
    await bench.work()
    with bench.files() as files:
        collector = bench.collector(files)
        await collector.write()
        assert standing(bench.out) == (["a"], ["b", "c", "d"])
        await bench.job.retry()
        bench.why = {"c": "never"}
        await bench.work()
        await collector.finish()
    assert standing(bench.out) == (["a", "b", "d"], ["c"])
    assert "never" in bench.errors()["c"]


async def test_failures_replayed_from_the_dead_letters_while_the_run_goes_on_end_where_they_belong(
    bench: Bench,
) -> None:
    bench.why = {"b": "no", "c": "no"}
    await bench.submit("a", "b", "c")
    await bench.work()
    with bench.files() as files:
        collector = bench.collector(files)
        await collector.write()
        wanted = LetterFilter(job_id=bench.job.id)
        await bench.client.store.replays.replay(bench.client.owner, wanted, ReplayRequest("ada"))
        bench.why = {"c": "never"}
        await bench.work()
        await collector.finish()
    assert standing(bench.out) == (["a", "b"], ["c"])
    assert "never" in bench.errors()["c"]
    told = await bench.client.store.events.oldest(f"job:{bench.job.id}")
    assert [(event.act, event.detail) for event in told] == [("replayed", "2 items, replay 1 by ada")]


async def test_failures_retried_while_no_run_went_on_are_taken_up_from_the_database(bench: Bench) -> None:
    bench.why = {"b": "no", "c": "no"}
    await bench.submit("a", "b", "c")
    await bench.work()
    with bench.files() as files:
        await bench.collector(files).finish()
    await bench.job.retry()
    bench.why = {"c": "never"}
    await bench.work()
    with bench.files() as files:
        await verify(bench.client.store, files, bench.job.id)
        await bench.collector(files).write()
    assert standing(bench.out) == (["a", "b"], ["c"])
    assert "never" in bench.errors()["c"]


async def test_a_failure_heard_of_before_anything_was_written_is_not_written_if_it_was_retried_since(
    bench: Bench,
) -> None:
    bench.why = {"b": "no"}
    await bench.submit("a", "b")
    with bench.files() as files:
        collector = bench.collector(files)
        bench.client.bus.subscribe(collector)
        await bench.work()
        await bench.job.retry()
        await collector.finish()
    assert standing(bench.out) == (["a"], [])


async def test_failures_that_are_under_way_again_stand_nowhere(bench: Bench) -> None:
    bench.why = {"b": "no", "c": "no"}
    await bench.submit("a", "b", "c")
    await bench.work()
    with bench.files() as files:
        collector = bench.collector(files)
        await collector.write()
        await bench.client.store.jobs.retry(bench.job.id, bench.client.owner, item_id(bench.job.id, 2))
        await collector.finish()
    assert standing(bench.out) == (["a"], ["b"])
    await bench.job.retry()
    with bench.files() as files:
        await verify(bench.client.store, files, bench.job.id)
        await bench.collector(files).finish()
    assert standing(bench.out) == (["a"], [])


async def test_files_of_another_database_are_refused_whatever_became_of_their_items(bench: Bench) -> None:
    bench.why = {"b": "no"}
    await bench.submit("a", "b")
    await bench.work()
    with bench.files() as files:
        await bench.collector(files).finish()
    await bench.job.retry()
    errors = errors_path(bench.out)
    errors.write_bytes(errors.read_bytes().replace(b'"custom_id":"b"', b'"custom_id":"x"'))
    with bench.files() as files, pytest.raises(UsageError, match="of another database"):
        await verify(bench.client.store, files, bench.job.id)


@pytest.mark.parametrize("ordered", [False, True])
async def test_copies_that_somebody_cut_out_of_the_results_are_written_again(bench: Bench, ordered: bool) -> None:
    await bench.submit("a", "b")  # the file: a, b, a2, b2, a3
    await bench.work()
    copies = [(0, 3, "a2"), (1, 4, "b2"), (0, 5, "a3")]
    await bench.client.store.submissions.add_copies(
        [(item_id(bench.job.id, at), number, name) for at, number, name in copies]
    )
    with bench.files() as files:
        collector = bench.collector(files, copies=True)
        await (collector.finish_ordered() if ordered else collector.finish())
    whole = bench.out.read_bytes().splitlines(keepends=True)
    bench.out.write_bytes(b"".join(line for line in whole if b'"custom_id":"a2"' not in line))
    with bench.files() as files:
        await bench.collector(files, copies=True).finish()
    assert sorted(ids_in(bench.out)) == ["a", "a2", "a3", "b", "b2"]
    with bench.files() as files:
        await bench.collector(files, copies=True).finish()
    assert sorted(ids_in(bench.out)) == ["a", "a2", "a3", "b", "b2"]


@pytest.mark.parametrize("failing", [{}, {"a": "no"}], ids=["all_succeed", "one_fails"])
async def test_files_in_order_have_copies_where_their_requests_stand(bench: Bench, failing: dict[str, str]) -> None:
    bench.why = failing
    await bench.submit("a", "b", "c")  # the file: a, a2, b, a3, c, b2, c2
    await bench.work()
    copies = [(0, 2, "a2"), (0, 4, "a3"), (1, 6, "b2"), (2, 7, "c2")]
    await bench.client.store.submissions.add_copies(
        [(item_id(bench.job.id, at), number, name) for at, number, name in copies]
    )
    with bench.files() as files:
        await bench.collector(files, copies=True).finish_ordered()
    if failing:
        assert standing(bench.out) == (["b", "c", "b2", "c2"], ["a", "a2", "a3"])
    else:
        assert ids_in(bench.out) == ["a", "a2", "b", "a3", "c", "b2", "c2"]
