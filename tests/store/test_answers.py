"""Answers of earlier jobs: which are found again, for whom, and what becomes of their keys."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from backstay.core.ids import item_id
from backstay.core.models import AnswerKey, Flaw, Succeeded
from backstay.core.states import JobState
from backstay.llm.endpoint import Endpoint, Lane
from backstay.store.submissions import Chunk, Search
from tests.databases import Site
from tests.store.store_rig import OK, WRONG, Scene, new_job

FIRST = Endpoint("http://127.0.0.1:9/v1")
FALLBACK = Endpoint("http://127.0.0.1:9/v1", Lane.CALL, model="other")
ALL = Search()


@pytest.fixture
async def scene(site: Site) -> AsyncIterator[Scene]:
    made = Scene(site)
    await made.store.open()
    for endpoint in (FIRST, FALLBACK):
        await made.store.providers.save_endpoint(endpoint.name, endpoint.dump())
    yield made
    await made.store.close()


def asked(names: str, last: bool = True, position: int = 0, reuse: Search | None = ALL) -> Chunk:
    """A request for each letter; the same letter asks the same."""
    keys = [AnswerKey(ord(name), -ord(name), "m") for name in names]
    weights = [(1_000, 10, 5)] * len(names)
    bodies = [f'"{name}"' for name in names]
    return Chunk(position, bodies, "digest", last, weights, answer_keys=keys, reuse=reuse)


async def submit(scene: Scene, names: str, reuse: Search | None = ALL, **options: Any) -> int:
    job = new_job(handler=FIRST.name, **options)
    return (await scene.store.submissions.open(job, asked(names, reuse=reuse))).id


async def answer(scene: Scene, *outcomes: Any, handler: str = FIRST.name) -> None:
    """The next items end so, one after the other."""
    claimed = await scene.claim(len(outcomes), handler=handler)
    for item, outcome in zip(claimed, outcomes, strict=True):
        await scene.settle(item, outcome, retry="none")


async def known(scene: Scene, names: str, owner: str = "ann", search: Search = ALL) -> str:
    keys = asked(names).answer_keys
    assert keys is not None
    return "".join(names[n] for n in sorted(await scene.store.answers.find(owner, keys, search)))


async def test_a_request_that_was_answered_is_not_queued_again_and_has_its_answer(scene: Scene) -> None:
    first = await submit(scene, "ab")
    await answer(scene, Succeeded('"of a"'), Succeeded('"of b"'))
    second = await submit(scene, "cab", budget_micros=1_000)
    view = await scene.job(second)
    assert (view.total, view.succeeded, view.reused, view.ended) == (3, 2, 2, False)
    assert (view.spent_micros, view.reserved_micros) == (0, 0)
    assert await scene.states(second) == ["queued", "succeeded", "succeeded"]
    rows = [row async for row in scene.store.results.all(second, "ann")]
    assert [(row.body, row.result) for row in rows] == [('"a"', '"of a"'), ('"b"', '"of b"')]
    item = await scene.item(second, 1)
    assert (item.reused_from, item.attempt_count, item.calls, item.progress) == (item_id(first, 0), 0, 0, 100)
    [attempt] = await scene.store.item_views.attempts(item.id)
    assert (attempt.cost_micros, attempt.input_tokens) == (0, None)
    await answer(scene, OK)
    assert (await scene.job(second)).state is JobState.COMPLETED


async def test_a_job_whose_requests_are_all_known_ends_when_it_is_submitted(scene: Scene) -> None:
    await submit(scene, "ab")
    await answer(scene, OK, OK)
    view = await scene.job(await submit(scene, "ba"))
    assert (view.state, view.succeeded, view.reused, view.total) == (JobState.COMPLETED, 2, 2, 2)


async def test_what_is_not_a_whole_answer_is_never_used(scene: Scene) -> None:
    names = "goodtfruw"
    flaws = [Flaw.TRUNCATED, Flaw.FILTERED, Flaw.REFUSED, Flaw.UNFINISHED]
    await submit(scene, names)
    await answer(scene, *[OK] * 4, *(Succeeded('"x"', flaw=flaw) for flaw in flaws), WRONG)
    await submit(scene, "q")  # never answered
    assert await known(scene, "goodtfruwq?") == "good"


async def test_another_owner_with_the_same_request_never_gets_the_answer(scene: Scene) -> None:
    await submit(scene, "a")
    await answer(scene, OK)
    theirs = await submit(scene, "a", owner="eve")
    assert (await scene.job(theirs, "eve")).reused == 0
    assert await known(scene, "a", owner="eve") == ""
    assert await known(scene, "a") == "a"


async def test_the_same_request_twice_in_a_job_is_sent_twice(scene: Scene) -> None:
    job = await submit(scene, "aa")
    assert await scene.states(job) == ["queued", "queued"]
    await answer(scene, OK, OK)
    opened = await scene.store.submissions.open(new_job(handler=FIRST.name), asked("x", last=False))
    await answer(scene, OK)
    await scene.store.submissions.add_items(FIRST.name, opened, asked("xa", position=1))
    assert await scene.states(opened.id) == ["succeeded", "queued", "succeeded"]
    assert (await scene.job(opened.id)).reused == 1


async def test_an_answer_is_as_old_as_the_first_one_however_often_it_was_reused(scene: Scene) -> None:
    first = await submit(scene, "a")
    await answer(scene, OK)
    await scene.site.advance(60)
    second = await submit(scene, "a")
    assert (await scene.item(second)).reused_from == item_id(first, 0)
    await scene.store.jobs.disown(first, "ann")
    await scene.store.jobs.purge(first)
    assert await known(scene, "a", search=Search(age_ms=60_000)) == "a"
    await scene.site.advance(1)
    assert await known(scene, "a", search=Search(age_ms=60_000)) == ""
    third = await submit(scene, "a")
    assert (await scene.item(third)).reused_from == item_id(first, 0)


async def test_an_answer_of_a_fallback_is_only_for_runs_that_have_this_fallback(scene: Scene) -> None:
    await submit(scene, "ab")
    [row] = await scene.site.rows("SELECT min(id) FROM items")
    await scene.site.rows(f"UPDATE items SET handler = '{FALLBACK.name}' WHERE id = {row[0]}")
    await answer(scene, OK)
    await answer(scene, OK, handler=FALLBACK.name)
    assert await known(scene, "ab") == "b"
    with_it = Search(handlers=(FIRST.name, FALLBACK.name))
    assert await known(scene, "ab", search=with_it) == "ab"
    job = await submit(scene, "ab", reuse=with_it)
    assert [(await scene.item(job, n)).handler for n in range(2)] == [FALLBACK.name, FIRST.name]


async def test_a_job_that_may_not_reuse_still_leaves_answers_for_later_jobs(scene: Scene) -> None:
    for _ in range(2):
        job = await submit(scene, "a", reuse=None)
        assert await scene.states(job) == ["queued"]
        await answer(scene, OK)
    assert await known(scene, "a") == "a"


async def test_keys_go_with_their_job_and_only_keys_go_when_they_are_cleared(scene: Scene) -> None:
    await submit(scene, "ab")
    await answer(scene, OK, OK)
    kept = await scene.everything()
    assert await scene.store.answers.clear("eve") == 0
    assert await scene.store.answers.clear("ann", model="other") == 0
    assert await scene.store.answers.clear("ann", age_ms=1_000) == 0
    assert await known(scene, "ab") == "ab"
    assert await scene.store.answers.clear("ann", age_ms=0, model="m") == 2
    assert (await known(scene, "ab"), await scene.everything()) == ("", kept)
    assert await scene.site.rows("SELECT * FROM answer_keys") == []

    again = await submit(scene, "ab")
    await scene.end(again, "cancel")
    await scene.store.jobs.disown(again, "ann")
    await scene.store.jobs.purge(again)
    assert await scene.site.rows("SELECT * FROM answer_keys") == []


async def test_the_sums_count_each_answer_once_with_what_it_cost(scene: Scene) -> None:
    await submit(scene, "ab")
    await answer(scene, OK, OK)
    await scene.site.rows("UPDATE attempts SET cost_micros = 250")
    await submit(scene, "ab")
    await submit(scene, "c")
    [found] = await scene.store.answers.sums("ann")
    assert (found.model, found.answers, found.cost_micros) == ("m", 2, 500)
    assert found.oldest_at == found.newest_at == scene.site.clock.ms
    assert await scene.store.answers.sums("eve") == []


async def test_jobs_that_are_submitted_at_once_each_have_all_their_items(scene: Scene) -> None:
    await submit(scene, "abcd")
    await answer(scene, OK, OK, OK, OK)
    store = await scene.site.open_store()  # the audit reads table by table, and nothing may change meanwhile
    new = new_job(handler=FIRST.name)
    jobs = await asyncio.gather(*(store.submissions.open(new, asked("badcx")) for _ in range(5)))
    for job in jobs:
        assert await scene.states(job.id) == ["succeeded"] * 4 + ["queued"]
        assert (await scene.job(job.id)).reused == 4
