"""Why a provider is busy: operators read its own words, which may tell of another owner's work; all others do not."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from backstay.core.breaker import Breaker, BreakerPolicy, BreakerState, Call
from backstay.core.pace import Answers
from backstay.llm.endpoint import Endpoint
from backstay.server.service import ServiceOptions
from backstay.store.keys import Role
from tests.databases import Leaping, Site
from tests.server.operations import ROLES, Things, form_of, made_by_ada
from tests.server.pages.reader import reader
from tests.server.receiver import Receiver
from tests.server.rig import Rig, rigged
from tests.server.test_matrix import ask, in_order_of_harm
from tests.stories.stage import until

WORDS = "403: project prj-canary has no access to model secret-model"
PAGES = ("/", "/jobs", "/providers", "/schedules", "/dead-letters", "/safety", "/workers", "/keys")
# All but an admin of the owner that the service itself has.
OTHERS = [("bob", role) for role in Role] + [("ada", Role.READ), ("ada", Role.WRITE)]


@pytest.fixture
async def rig(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    options = ServiceOptions(works=False, upstream=Endpoint(f"http://{receiver.place}/v1"))
    async with rigged(database_url, tmp_path / "data", options=options, inside_hosts=receiver.place) as made:
        yield made


class Own(NamedTuple):
    """One owner's unfinished work at the providers."""

    job: str
    batch: str

    @property
    def answers(self) -> list[str]:
        job, item, batch = f"/api/jobs/{self.job}", f"/api/items/{self.job}-0", f"/v1/batches/{self.batch}"
        paths = ["/api/providers", "/api/providers/echo", "/api/stats", job, f"{job}/why", item, f"{item}/why"]
        return [*paths, f"{item}/timeline", batch, f"{batch}/why"]

    @property
    def pages(self) -> list[str]:
        return [*PAGES, f"/jobs/{self.job}", f"/items/{self.job}-0"]


async def work_of(rig: Rig, owner: str) -> Own:
    visitor = rig.visitor(owner)
    job = (await visitor.post("/api/jobs", json={"handler": "echo", "items": [1]})).json["id"]
    file = (await visitor.post("/v1/files", data=form_of("/v1/files"))).json["id"]
    given = {"input_file_id": file, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    batch = (await visitor.post("/v1/batches", json=given)).json["id"]

    async def handler() -> str | None:
        found = await rig.service.store.batches.get(batch, owner)
        return None if found.job_id is None else (await rig.service.store.job_views.get(found.job_id, owner)).handler

    await rig.service.store.providers.hold(await until(handler, "the batch has a job"), WORDS, None)
    return Own(job, batch)


async def everything(rig: Rig, owner: str, role: Role, own: Own) -> dict[str, str]:
    visitor, browser = rig.visitor(owner, role), await reader(rig, owner, role)
    answers = {path: (await visitor.get(path)).body.decode() for path in own.answers}
    return answers | {path: (await browser.get(path)).body.decode() for path in own.pages}


async def breaker_of(rig: Rig, state: BreakerState) -> Breaker:
    store = rig.service.store
    if state is BreakerState.OPEN:
        started = (await store.providers.holds()).now
        calls = [Call(started, started, ok=False)] * 20
        return (await store.providers.observe("echo", calls, BreakerPolicy())).after
    held = await store.providers.hold("echo", WORDS, 0.001)
    if state is BreakerState.HELD:
        return held.after

    async def cooled() -> Breaker | None:
        after = (await store.providers.cool("echo", BreakerPolicy())).after
        return after if after.state is state else None

    found: Breaker = await until(cooled, f"it is {state}")
    return found


@pytest.mark.slow
@pytest.mark.parametrize("state", [BreakerState.HELD, BreakerState.HALF_OPEN])
async def test_the_words_of_a_provider_are_for_operators(rig: Rig, state: BreakerState) -> None:
    own = {owner: await work_of(rig, owner) for owner in ("ada", "bob")}
    assert (await breaker_of(rig, state)).reason == WORDS
    for owner, role in OTHERS:
        seen = await everything(rig, owner, role, own[owner])
        assert [path for path, text in seen.items() if "canary" in text] == [], (owner, role)
    seen = await everything(rig, "ada", Role.ADMIN, own["ada"])
    told = {path for path, text in seen.items() if "canary" in text}
    item, job = f"/items/{own['ada'].job}-0", f"/jobs/{own['ada'].job}"
    paths = {"/api/providers", "/api/providers/echo", "/api/stats", f"/api{item}/why", f"/api{job}/why"}
    if state is BreakerState.HELD:
        assert f"is held because {WORDS}" in seen[item], "not in the banner alone"
    assert told >= paths | {f"/v1/batches/{own['ada'].batch}/why", "/", "/providers", item, job}


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (BreakerState.HELD, "the provider refuses the account, or an operator put the provider on hold"),
        (BreakerState.OPEN, "the provider is failing"),
        (BreakerState.HALF_OPEN, "the provider was failing or held"),
    ],
)
async def test_others_are_told_what_kind_of_trouble_it_is(rig: Rig, state: BreakerState, said: str) -> None:
    own = await work_of(rig, "bob")
    await breaker_of(rig, state)
    shown = (await rig.bob.get("/api/providers/echo")).json
    assert (shown["state"], shown["reason"]) == (state.value, said)
    held = {one["provider"]: one["reason"] for one in (await rig.bob.get("/api/stats")).json["held"]}
    assert held["echo"] == said
    for path in (f"/api/items/{own.job}-0/why", f"/api/jobs/{own.job}/why"):
        reasons = (await rig.bob.get(path)).json["reasons"]
        assert any(said in reason["text"] for reason in reasons), reasons
    assert said in (await (await reader(rig, "bob")).held(f"/items/{own.job}-0")).text


async def test_a_pause_of_all_calls_is_a_reason_for_own_handlers_and_for_requests(rig: Rig) -> None:
    own, store = await work_of(rig, "bob"), rig.service.store
    upstream = rig.service.options.upstream
    assert upstream is not None
    lane = {upstream.name: upstream.provider_of("account")}
    await store.workers.register("w1", "host", 1, "place", json.dumps(lane))
    paths = [f"/api/items/{own.job}-0/why", f"/api/jobs/{own.job}/why", f"/v1/batches/{own.batch}/why"]
    for paused in ("handler:echo", upstream.pace_name):
        answers = Answers()
        answers.add(0.1, throttled=False, exhausted_ms=50_000)
        await store.providers.set_pace(paused, (600, None), 10)
        pace, _ = await store.providers.judge_pace(paused, answers)
        told = {path: await pauses_of(rig, path) for path in paths}
        assert told == {path: [pace.resume_at] if (path == paths[2]) == ("#" in paused) else [] for path in paths}
        await Site(rig.made.url, Leaping()).rows("UPDATE paces SET resume_at = 0")


async def pauses_of(rig: Rig, path: str) -> list[int]:
    reasons = (await rig.bob.get(path)).json["reasons"]
    return [reason["until_at"] for reason in reasons if reason["code"] == "rate_limit"]


async def test_a_closed_provider_has_no_reason(rig: Rig) -> None:
    assert (await rig.bob.get("/api/providers/echo")).json["reason"] == ""


async def test_what_happened_to_a_provider_before_is_told_without_its_words(rig: Rig) -> None:
    """In its history, and in the story of an item that waited for it."""
    job = (await rig.bob.post("/api/jobs", json={"handler": "echo", "items": [1]})).json["id"]
    mine = await rig.submit("echo")
    store = rig.service.store
    await store.providers.hold("echo", WORDS, None)
    await store.providers.release("echo")
    await store.providers.hold("echo", "quiet words", None)
    await store.providers.release("echo")
    await age(rig)
    await rig.work()
    browser, operator = await reader(rig, "bob"), await reader(rig)
    history, story = await browser.held("/providers"), await browser.held(f"/items/{job}-0")
    assert "Breaker held" in history.text
    assert "provider echo was held" in story.text
    assert "canary" not in history.text + story.text
    assert "canary" in (await operator.held("/providers")).text
    assert "canary" in (await operator.held(f"/items/{mine}-0")).text


async def age(rig: Rig) -> None:
    """The items have waited long enough for that to be told."""
    for change in (
        "UPDATE items SET created_at = created_at - 60000, queued_at = queued_at - 60000",
        "UPDATE events SET at = at - 30000",
    ):
        await Site(rig.made.url, Leaping()).rows(change)


@pytest.mark.slow
async def test_no_operation_shows_another_owner_the_words(rig: Rig, receiver: Receiver) -> None:
    """Whatever there is to read, also what is yet to be thought of."""
    things: Things = await made_by_ada(rig, receiver)
    await rig.service.store.providers.hold("echo", WORDS, None)
    for operation in sorted(ROLES, key=in_order_of_harm):
        if operation.startswith("GET"):
            assert b"canary" not in (await ask(rig.bob, operation, things)).body, operation
