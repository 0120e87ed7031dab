"""What a person does on the pages, by forms alone: no script is needed for any of it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay.core.breaker import BreakerState
from backstay.core.models import Flaw, Succeeded
from backstay.server.pages.operations import PROVIDERS_SHOWN
from backstay.store.keys import Role
from tests.server.converting import convert, converting
from tests.server.pages.reader import Held, Reader, reader
from tests.server.pages.scene import staged
from tests.server.pdfs import pdf
from tests.server.remote_rig import Remote, remote_work
from tests.server.rig import Rig
from tests.store.rare_ends import BUG, LOST, TRUNCATED, ended_as, spent_and_lost


async def test_jobs_are_filtered_and_searched_by_the_url_alone(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    for query, seen in (
        ("", {scene.failing, scene.waiting}),
        ("?state=queued", {scene.waiting}),
        ("?state=completed", {scene.failing}),
        ("?q=october", {scene.failing}),
        ("?q=TICKETS", {scene.waiting}),
        ("?q=%25", set()),
        ("?q=_", {scene.failing}),  # as the letter that it is: fail_as_told
        ("?handler=echo", {scene.waiting}),
        ("?handler=ech", set()),
        ("?state=nonsense", {scene.failing, scene.waiting}),
    ):
        page = await found.held(f"/jobs{query}")
        shown = {link.removeprefix("/jobs/") for link in page.links if link.startswith("/jobs/")}
        assert shown == seen, query


async def test_a_search_for_an_id_goes_there(sqlite_rig: Rig) -> None:
    scene, found = await staged(sqlite_rig), await reader(sqlite_rig)
    assert (await found.get(f"/jobs?q={scene.failing}")).headers["location"] == f"/jobs/{scene.failing}"
    assert (await found.get(f"/jobs?q={scene.failed}")).headers["location"] == f"/items/{scene.failed}"
    for text in ("999", "9-9", "-", "1-x"):
        assert (await found.get(f"/jobs?q={text}")).status == 200


async def test_pages_of_jobs_follow_each_other_with_their_filter(sqlite_rig: Rig) -> None:
    for number in range(30):
        await sqlite_rig.submit("echo", label=f"Run {number}")
    found = await reader(sqlite_rig)
    first = await found.held("/jobs?q=run")
    [following] = [link for link in first.links if "cursor=" in link]
    assert "q=run" in following
    second = await found.held(following)
    shown = [link for page in (first, second) for link in page.links if link.startswith("/jobs/")]
    assert len(shown) == len(set(shown)) == 30


async def test_a_job_is_paused_and_resumed(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    path = f"/jobs/{scene.waiting}"
    page = await found.follow(await found.post(f"{path}/pause"))
    assert f"Job {scene.waiting} is paused" in page.text
    assert f"{path}/resume" in page.actions
    assert f"{path}/pause" not in page.actions
    again = await found.follow(await found.post(f"{path}/pause"))
    assert "is paused already" in again.text
    page = await found.follow(await found.post(f"{path}/resume"))
    assert f"{path}/pause" in page.actions
    assert "is paused" not in (await found.held(path)).text, "what was done is said once"


async def test_a_job_is_cancelled_after_its_items_were_counted(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    path = f"/jobs/{scene.waiting}"
    asked = await found.held(f"{path}/cancel")
    assert "60 items of 60 have not ended" in asked.text
    page = await found.follow(await found.post(f"{path}/cancel"))
    assert "cancelled" in page.text
    assert f"{path}/pause" not in page.actions
    assert "nothing to cancel" in (await found.held(f"{path}/cancel")).text


async def test_what_failed_is_grouped_and_a_group_is_retried_after_it_was_counted(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    path = f"/jobs/{scene.failing}"
    page = await found.held(path)
    assert "GW_5XX 2" in page.text
    assert "told to fail with GW_5XX" in page.text
    asked = await found.held(f"{path}/retry?code=GW_5XX")
    assert "2 failed items will be queued again" in asked.text
    assert [one["value"] for one in asked.all("input") if one.get("name") == "code"] == ["GW_5XX"]
    done = await found.follow(await found.post(f"{path}/retry", code="GW_5XX"))
    assert "2 items queued again" in done.text
    assert "Nothing was retried" in (await found.follow(await found.post(f"{path}/retry", code="GW_5XX"))).text
    assert "4 failed items will be queued again" in (await found.held(f"{path}/retry")).text
    assert "4 items queued again" in (await found.follow(await found.post(f"{path}/retry"))).text
    assert (await found.get(f"{path}/retry?code=nonsense")).status == 400


async def test_items_are_filtered_by_the_url_and_paged(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)

    def items(page: Held) -> list[str]:
        return [link.rpartition("/")[2] for link in page.links if link.startswith("/items/")]

    failed = await found.held(f"/jobs/{scene.failing}?state=failed&code=GW_4XX&part=rows")
    assert items(failed) == [f"{scene.failing}-0", f"{scene.failing}-3"]
    rest = await found.held(f"/jobs/{scene.failing}?from=10&part=rows")
    assert items(rest) == [f"{scene.failing}-10", f"{scene.failing}-11"]
    first = await found.held(f"/jobs/{scene.waiting}?part=rows")
    [following] = [link for link in first.links if "cursor=" in link]
    second = await found.held(f"{following}&part=rows")
    assert (len(items(first)), items(second)[0]) == (25, f"{scene.waiting}-25")
    assert (await found.get(f"/jobs/{scene.waiting}?part=nothing")).status == 404


async def test_results_and_errors_are_downloaded(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig, "ada", Role.READ)
    path = f"/jobs/{scene.failing}/results.jsonl"
    everything, failed = await found.get(path), await found.get(f"{path}?state=failed")
    assert [line["position"] for line in everything.lines] == list(range(12))
    assert {line["payload"]["code"] for line in failed.lines} == {"GW_4XX", "GW_5XX", "UNKNOWN"}
    assert failed.headers["content-disposition"] == f'attachment; filename="job-{scene.failing}-failed.jsonl"'


async def test_an_item_tells_its_story_and_is_retried(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    page = await found.held(f"/items/{scene.failed}")
    assert "Submitted" in page.text
    assert "Call 1: failed" in page.text
    assert "told to fail with GW_4XX" in page.text
    assert '"code": "GW_4XX"' in page.text
    done = await found.follow(await found.post(f"/items/{scene.failed}/retry"))
    assert "queued again" in done.text
    assert "Retried" in done.text
    refused = await found.follow(await found.post(f"/items/{scene.failed}/retry"))
    assert "only a failed item can be retried" in refused.text
    good = await found.held(f"/items/{scene.succeeded}")
    assert f"/items/{scene.succeeded}/retry" not in good.actions
    assert (await found.get(f"/items/{scene.succeeded}/result")).json == {"n": 11}
    assert (await found.get(f"/items/{scene.succeeded}/request")).json == {"n": 11}


async def test_retry_is_off_and_says_why_when_the_source_is_gone(sqlite_file_url: str, tmp_path: Path) -> None:
    async with converting(sqlite_file_url, tmp_path / "data") as (rig, _):
        job = await convert(rig, pdf("two", meets="400x1"))
        found = await reader(rig)
        path = f"/items/{job}-0"
        assert f"{path}/retry" in (await found.held(path)).actions
        source = (await rig.ada.get(f"/api/items/{job}-0?include=payload")).json["payload"]["file"]
        assert (await rig.ada.delete(f"/api/uploads/{source}")).status == 204
        page = await found.held(path)
        assert f"{path}/retry" not in page.actions
        assert "Its source file is gone" in page.text
        [button] = [one for one in page.all("button") if one.get("aria-describedby") == "no-retry"]
        assert "disabled" in button
        assert "its source file is gone" in (await found.follow(await found.post(f"{path}/retry"))).text


async def test_an_item_says_why_it_waits(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    await found.post(f"/jobs/{scene.waiting}/pause")
    page = await found.held(f"/items/{scene.waiting}-0")
    assert f"Job {scene.waiting} is paused" in page.text
    assert "No live worker runs handler" in page.text


async def test_a_provider_is_held_and_released_and_every_page_says_so(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    quiet = await found.held("/jobs")
    assert "jobs resume by themselves" not in quiet.text
    page = await found.follow(
        await found.post("/providers/hold", provider="echo", reason="they asked us to", minutes="15")
    )
    assert "Provider echo is on hold" in page.text
    held = (await rig.service.store.providers.holds()).providers["echo"]
    assert (held.state, held.reason) == (BreakerState.HELD, "they asked us to")
    assert held.until_at is not None
    looking = await reader(rig, "bob", Role.READ)
    for path in ("/jobs", "/dead-letters", "/safety"):
        shown = await looking.held(path)
        assert "Provider echo busy, jobs resume by themselves – until" in shown.text
        assert shown.all("time")
    assert "echo busy, jobs resume by themselves" in (await looking.held("/")).text
    item = await found.held(f"/items/{scene.waiting}-0")
    assert "is held because they asked us to" in item.text
    page = await found.follow(await found.post("/providers/release", provider="echo"))
    assert "Provider echo is released" in page.text
    assert "Breaker held: they asked us to" in page.text
    assert (await found.post("/providers/hold", provider="nobody")).status == 404
    for minutes in ("soon", "0", "0" * 8 + "1" + "9" * 5_000):
        assert (await found.post("/providers/hold", provider="echo", minutes=minutes)).status == 422


async def test_an_admin_of_another_owner_cannot_hold_what_all_share(sqlite_rig: Rig) -> None:
    bob = await reader(sqlite_rig, "bob")
    await sqlite_rig.service.store.providers.hold("echo", "they asked us to", None)
    assert (await bob.held("/providers")).actions == ["/logout", "/theme"]
    for act in ("hold", "release"):
        refused = await bob.post(f"/providers/{act}", provider="echo")
        assert refused.status == 403
        assert "this concerns all owners" in Held(refused.body.decode()).text.lower()
    assert (await sqlite_rig.service.store.providers.holds()).providers["echo"].state is BreakerState.HELD


async def test_a_provider_that_is_held_is_shown_however_many_there_are(sqlite_rig: Rig) -> None:
    store = sqlite_rig.service.store
    for number in range(PROVIDERS_SHOWN):
        await store.providers.hold(f"p{number}", "a while ago", None)
        await store.providers.release(f"p{number}")
    await store.providers.hold("zulu", "out of money", None)
    page = await (await reader(sqlite_rig)).held("/providers")
    assert "zulu held Nothing is sent until it is released" in page.text


async def test_a_key_is_shown_once_and_revoked(rig: Rig) -> None:
    found = await reader(rig)
    reply = await found.post("/keys", name="for the night", role="read", days="30")
    page = Held(reply.body.decode())
    secret = next(word for word in page.text.split() if word.startswith("bks_"))
    assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
    assert (await rig.holder(secret).get("/api/jobs")).status == 200
    later = await found.get("/keys")
    assert secret not in later.body.decode()
    assert secret.split("_", 2)[2] not in str(found.cookies)
    key_id = secret.split("_")[1]
    turned = Held((await found.post(f"/keys/{key_id}/rotate")).body.decode())
    another = next(word for word in turned.text.split() if word.startswith("bks_"))
    assert another != secret
    assert "This cannot be undone" in (await found.held(f"/keys/{key_id}/revoke")).text
    assert "is revoked" in (await found.follow(await found.post(f"/keys/{key_id}/revoke"))).text
    assert await rig.service.store.keys.find(key_id) is None
    for bad in ({"role": "god"}, {"role": "read", "days": "-1"}, {"role": "read", "days": "0036609"}):
        assert (await found.post("/keys", None, **bad)).status == 422
    bob = await reader(rig, "bob")
    for unknown in (another.split("_")[1], "%00", "a%00b", "%ff"):
        assert (await bob.post(f"/keys/{unknown}/revoke")).status == 404, unknown


async def test_home_says_what_needs_attention(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    page = await found.held("/")
    assert "is unknown" not in page.text, "a bug of a handler has the code UNKNOWN, and says nothing of money"
    assert "No live worker runs echo: 60 items wait" in page.text
    assert f"/jobs/{scene.waiting}" in page.links
    assert "Items unfinished 60" in page.text
    bob = await (await reader(rig, "bob")).held("/")
    assert "Nothing. No provider is on hold" in bob.text


async def test_home_says_an_owners_failures_however_many_another_had_since(rig: Rig) -> None:
    await ended_as(rig.service.store, [LOST] * 101, "bob")
    await rig.submit("refuse", [{"n": n} for n in range(1_200)])
    await rig.work()
    bob = await (await reader(rig, "bob")).held("/")
    assert "The outcome of 101 items is unknown" in bob.text
    assert "101 items failed permanently in the last 24 hours; the alarm threshold is 100." in bob.text
    ada = await (await reader(rig)).held("/")
    assert "1,100 or more items failed permanently in the last 24 hours" in ada.text
    assert "is unknown" not in ada.text


async def test_an_unknown_outcome_among_bugs_is_told_alone_and_leads_to_itself(rig: Rig) -> None:
    job, found = await ended_as(rig.service.store, [BUG, LOST, BUG, TRUNCATED]), await reader(rig)
    home = await found.held("/")
    assert "The outcome of 1 item is unknown: the calls may have been processed and paid. Please decide." in home.text
    [link] = [link for link in home.links if link.startswith("/dead-letters?")]
    letters = await found.held(link)
    listed = letters.text.partition("Message")[2].partition("Archives")[0]
    assert f"{job}-1" in listed
    assert not any(f"{job}-{n}" in listed for n in (0, 2, 3))
    asked = await found.held(link.replace("/dead-letters", "/dead-letters/replay"))
    assert "1 failed item will be queued again" in asked.text
    assert "Archive these" not in letters.text
    refused = await found.get(link.replace("/dead-letters", "/dead-letters/archive"))
    assert refused.status == 400, "more would be archived than is shown"
    assert (await found.get("/dead-letters?flaw=nonsense")).status == 400
    page = await found.held(f"/jobs/{job}")
    assert "UNKNOWN outcome unknown 1" in page.text
    for flaw, items in (("unknown", 1), ("none", 2), ("", 3)):
        asked = await found.held(f"/jobs/{job}/retry?code=UNKNOWN&flaw={flaw}")
        assert f"{items} failed item" in asked.text
    await found.post(f"/jobs/{job}/retry", code="UNKNOWN", flaw="none", expected="2")
    assert [(await rig.ada.get(f"/api/items/{job}-{n}")).json["state"] for n in range(3)] == [
        "queued",
        "failed",
        "queued",
    ]


async def test_answers_that_are_not_whole_are_counted_on_the_page_of_their_job(rig: Rig) -> None:
    cut, refused = Succeeded("1", flaw=Flaw.TRUNCATED), Succeeded("1", flaw=Flaw.REFUSED)
    job, found = await ended_as(rig.service.store, [Succeeded("1"), cut, cut, refused, TRUNCATED]), await reader(rig)
    page = await found.held(f"/jobs/{job}")
    assert "Truncated 3 of the answers Refused 1 of the answers" in page.text
    assert "Filtered" not in page.text
    shown = (await rig.ada.get(f"/api/jobs/{job}")).json
    assert (shown["truncated"], shown["refused"], shown["filtered"]) == (3, 1, 0)
    lines = (await rig.ada.get(f"/api/jobs/{job}/results")).lines
    assert [line["flaw"] for line in lines] == [None, "truncated", "truncated", "refused", "truncated"]
    assert (await rig.ada.get(f"/api/items/{job}-1")).json["flaw"] == "truncated"
    item = await found.held(f"/items/{job}-4")
    assert "the last reply <of> it" in item.text, "what the provider answered is kept and shown"


async def test_money_whose_outcome_is_unknown_is_booked_or_released_on_the_page(rig: Rig) -> None:
    job, found = await spent_and_lost(rig.service.store, spent=500_000, lost=1_920_000), await reader(rig)
    path = f"/jobs/{job}/settle-unknown"
    page = await found.held(f"/jobs/{job}")
    assert "May have been spent $1.92" in page.text
    assert {f"{path}?act=book", f"{path}?act=release"} <= set(page.links)
    asked = await found.held(f"{path}?act=book")
    assert "It is not known whether $1.92 was paid" in asked.text
    fields = {one["name"]: one["value"] for one in asked.all("input") if one.get("type") == "hidden"}
    form = {"act": fields["act"], "expected": fields["expected"]}
    done = await found.follow(await found.post(path, None, **form, amount="0.92"))
    assert "$0.92 of job" in done.text
    assert "is booked as spent" in done.text
    again = await found.follow(await found.post(path, None, **form, amount="0.92"))
    assert "has changed" in again.text, "a second click changes nothing"
    shown = (await rig.ada.get(f"/api/jobs/{job}")).json
    assert (shown["spent_micros"], shown["unknown_micros"]) == (1_420_000, 1_000_000)
    done = await found.follow(await found.post(path, None, act="release", expected="1000000", amount=""))
    assert "$1.00 of job" in done.text
    assert "Unknown released" in done.text
    assert "May have been spent" not in done.text
    for bad in (
        {"act": "keep", "expected": "1"},
        {"act": "book", "expected": "x"},
        {"act": "book", "expected": "1", "amount": "1e5"},
    ):
        assert (await found.post(path, None, **bad)).status in (400, 422), bad
    shown = (await rig.ada.get(f"/api/jobs/{job}")).json
    assert (shown["spent_micros"], shown["unknown_micros"]) == (1_420_000, 0)


async def test_who_may_only_read_or_owns_another_job_settles_no_money(rig: Rig) -> None:
    job = await spent_and_lost(rig.service.store, spent=0, lost=10)
    only_reads, bob = await reader(rig, "ada", Role.READ), await reader(rig, "bob")
    path = f"/jobs/{job}/settle-unknown"
    assert not any(link.startswith(path) for link in (await only_reads.held(f"/jobs/{job}")).links)
    assert (await only_reads.get(f"{path}?act=book")).status == 403
    assert (await only_reads.post(path, None, act="book", expected="10")).status == 403
    assert (await bob.get(f"{path}?act=book")).status == 404
    assert (await bob.post(path, None, act="book", expected="10")).status == 404
    assert (await rig.ada.get(f"/api/jobs/{job}")).json["unknown_micros"] == 10


@pytest.fixture
async def remote(database_url: str, tmp_path: Path) -> AsyncIterator[Remote]:
    async with remote_work(database_url, tmp_path / "data") as made:
        yield made


async def test_a_late_result_is_shown_and_an_admin_accepts_it(remote: Remote) -> None:
    address = await remote.miss_deadline()
    await remote.say(address, status="succeeded", result={"grade": "<b>nine</b>"})
    path, [late] = f"/items/{remote.job}-0", await remote.late()
    writer, admin = await reader(remote.rig, "ada", Role.WRITE), await reader(remote.rig)
    page = await writer.held(path)
    assert "A result came late" in page.text
    assert '"grade": "<b>nine</b>"' in page.text
    assert "An admin can accept it" in page.text
    assert "A late result arrived for item" in (await writer.held("/")).text
    done = await admin.follow(await admin.post(f"/late-results/{late['id']}/accept"))
    assert "The late result was accepted" in done.text
    assert "Its late result was accepted" in done.text
    assert (await remote.shown_job())["succeeded"] == 1
    assert json.loads((await admin.get(f"/late-results/{late['id']}")).body) == {"grade": "<b>nine</b>"}
    assert (await Reader(remote.rig).get(f"/late-results/{late['id']}")).status == 303
