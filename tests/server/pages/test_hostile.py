"""Whatever strangers write, in whichever field, is shown as text: it runs nothing, hides nothing and breaks no page."""

import json
import sqlite3
import tracemalloc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from backstay.app import Backstay
from backstay.core.display import visible
from backstay.core.errors import ErrorCode, Permanent
from backstay.core.ids import read_item
from backstay.server.pages import layout
from backstay.server.pages.figures import excerpt, line
from backstay.server.pages.layout import COOKIE
from backstay.store.keys import Role
from tests.server.pages.reader import Held, Reader, reader
from tests.server.rig import Rig, rigged

MARKUP = "\"'><img src=x onerror=alert(1)><b id=planted>"
SCRIPT = "</textarea></title></script><script>planted()</script>"
REVERSED = "‮gnp.exe⁦‏"  # shown the other way round, if it were let
TEMPLATE = "{{ 7001 * 7 }}{% raw %}"
LONG = "x" * (1 << 20)
NUL = "before\0after"
ALL = (MARKUP, SCRIPT, REVERSED, TEMPLATE, NUL, LONG)
MEANT_TO_HIDE = ("‮", "⁦", "‏", "\0")


def hostile_app(url: str) -> Backstay:
    made = Backstay(url)

    @made.handler(provider=MARKUP)
    async def evil(item: dict[str, Any], context: Any) -> Any:
        context.log(item["text"])
        if item["fails"]:
            raise Permanent(item["text"], ErrorCode.GW_4XX)
        return {"said": item["text"], MARKUP: REVERSED}

    return made


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data", made=hostile_app(sqlite_file_url)) as made:
        yield made


def hidden(page: Held) -> list[str]:
    """Marks that would change how something is read; what a form sends back unseen is as it was."""
    read = [value for _, had in page.elements if had.get("type") != "hidden" for value in had.values()]
    return [text for text in (page.text, *read) if any(mark in text for mark in MEANT_TO_HIDE)]


async def planted(rig: Rig) -> list[str]:
    """Hostile text in every field there is; gives the pages that show it."""
    store, found = rig.service.store, ["/", "/jobs", "/dead-letters", "/providers", "/workers", "/keys"]
    for text in ALL:
        for fails in (False, True):
            label = text.replace("\0", "")[:300]
            job = await rig.submit("evil", [{"text": text, "fails": fails}], label=label)
            found += [f"/jobs/{job}", f"/items/{job}-0"]
        await store.keys.create("ada", Role.READ, text.replace("\0", ""))
    await rig.work()
    await store.providers.hold(MARKUP + REVERSED, (SCRIPT + REVERSED)[:300], 600)
    names = {"text": SCRIPT + REVERSED + MARKUP}
    connection = sqlite3.connect(rig.made.url.removeprefix("sqlite:///"), timeout=30)
    with connection:
        connection.execute("UPDATE workers SET host = :text, id = id || :text", names)
        connection.execute("UPDATE attempts SET message = message || :text WHERE message IS NOT NULL", names)
        connection.execute("UPDATE items SET provider_task_id = :text, account = :text WHERE state = 'failed'", names)
        connection.execute("UPDATE jobs SET idempotency_key = id || :text", names)
        connection.execute("INSERT INTO events (subject, at, act, detail) VALUES ('job:1', 1, :text, :text)", names)
        told = {**names, "filter": json.dumps({"code": names["text"], "job": names["text"]})}
        connection.execute(
            'INSERT INTO replays (owner, "by", at, filter, items, rate, until_at, expected)'
            " VALUES ('ada', :text, 1, :filter, 5, 0.5, 1 << 60, 9)",
            told,
        )
        connection.execute(
            "INSERT INTO archives (owner, blob, items, bytes, first_at, last_at, created_at)"
            " VALUES ('ada', :text, 1, 1, -5, 1 << 62, 1)",
            names,
        )
        late = {"item": read_item("2-0"), "body": '{"result": "</pre><script>planted()</script>"}'}
        connection.execute(
            "INSERT INTO inbox (owner, item_id, fence, kind, received_at, body, is_late, digest, accepted_by)"
            " VALUES ('ada', :item, 1, 'succeeded', 1, :body, 1, 'd', :body)",
            late,
        )
    connection.close()
    return found


@pytest.mark.slow
async def test_hostile_text_in_every_field_runs_nothing_and_hides_nothing(rig: Rig) -> None:
    looking = await reader(rig)
    scene = await planted(rig)
    for path in scene:
        reply = await looking.get(path)
        assert reply.status == 200, (path, reply)
        assert len(reply.body) < 250_000, path
        page = await looking.held(path)
        assert not hidden(page), path
        assert [one["src"] for one in page.all("script")] == [layout.asset_url("app.js")], path
        assert not [one for one in page.elements if one[1].get("id") == "planted"], path
        assert not [one for one in page.elements if any(name.startswith("on") for name in one[1])], path
        assert len(page.all("img")) == 1, path
        assert "49007" not in page.text, path


async def test_text_that_is_cut_has_a_way_to_the_whole(rig: Rig) -> None:
    job = await rig.submit("evil", [{"text": LONG, "fails": False}])
    await rig.work()
    looking = await reader(rig)
    page = await looking.held(f"/items/{job}-0")
    assert "This is the beginning of 1,0" in page.text
    for part, found in (("request", "text"), ("result", "said")):
        assert f"/items/{job}-0/{part}" in page.links
        assert (await looking.get(f"/items/{job}-0/{part}")).json[found] == LONG
    log = await looking.get(f"/items/{job}-0/log")
    assert log.headers["content-type"].startswith("text/plain")
    assert f"/items/{job}-0/log" in page.links


async def test_what_is_downloaded_is_no_page(rig: Rig) -> None:
    job = await rig.submit("evil", [{"text": SCRIPT, "fails": False}])
    await rig.work()
    looking = await reader(rig)
    for path in (
        f"/items/{job}-0/request",
        f"/items/{job}-0/result",
        f"/items/{job}-0/log",
        f"/jobs/{job}/results.jsonl",
    ):
        reply = await looking.get(path)
        assert reply.status == 200
        assert "html" not in reply.headers["content-type"]
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in reply.headers["content-security-policy"]


@pytest.mark.parametrize("text", [MARKUP, SCRIPT, REVERSED, TEMPLATE, NUL, "\ud800", "x" * 5_000, "%00%ff"])
async def test_hostile_filters_are_filters(rig: Rig, text: str) -> None:
    looking = await reader(rig)
    asked = quote(text.encode("utf-8", "surrogatepass"))
    for path in (
        f"/jobs?q={asked}&state={asked}&handler={asked}",
        f"/jobs?cursor={asked}",
        f"/dead-letters?code={asked}",
        f"/dead-letters?job={asked}&hours={asked}",
        f"/jobs/{asked}",
        f"/items/{asked}",
        f"/?span={asked}",
        f"/login?next={asked}",
        f"/login?next=//[{asked}",
        f"/keys/{asked}/revoke",
        f"/late-results/{asked}",
        f"/live?job={asked}",
        f"/{asked}",
    ):
        reply = await looking.get(path)
        assert reply.status in (200, 400, 404), (path, reply)
        body = reply.body.decode()
        assert "<script>planted" not in body
        assert "<b id=planted>" not in body
        assert not hidden(Held(body)), path


async def test_a_flash_that_this_service_did_not_write_is_not_shown(rig: Rig) -> None:
    looking = await reader(rig)
    looking.cookies[COOKIE] = "WyJkb25lIiwgIjxiPnBsYW50ZWQ8L2I+Il0=.AAAAAAAAAAAAAAAAAAAAAA"
    assert "planted" not in (await looking.held("/jobs")).text


async def test_hostile_forms_are_refused(rig: Rig) -> None:
    looking = await reader(rig)
    token = await looking.token()
    for body, status in (
        (b"token=" + token.encode() + b"&x=" + b"y" * 100_000, 413),
        (b"&".join(b"f%d=1" % number for number in range(500)), 413),
        (b"\xff\xfe\x00", 403),
        (b"", 403),
    ):
        reply = await looking("POST", "/keys", data=body, headers={"content-type": "application/x-www-form-urlencoded"})
        assert reply.status == status, reply


@pytest.mark.parametrize("day", ["2026-99-99 99:99:99 UTC", "2026-01-02 03:04:05 UTC"])
async def test_a_moment_that_a_stranger_wrote_is_shown_as_it_was_written(rig: Rig, day: str) -> None:
    """Only our own moments are for the page's script, which shows them in the viewer's zone."""
    job, looking = await rig.submit("evil", [{"text": "", "fails": False}]), await reader(rig)
    await rig.service.store.providers.hold("evil", f"down since {day}", 600)
    page = await looking.held(f"/items/{job}-0")
    assert f"Provider evil is held because down since {day}, until" in page.text
    assert day.replace(" UTC", "").replace(" ", "T") not in str(page.all("time"))
    assert " min), or until `backstay provider release evil`" in page.text


async def test_a_stranger_sees_no_more_of_the_login_than_he_wrote(rig: Rig) -> None:
    page = await Reader(rig).held("/login?next=/jobs%3Fq%3D%22%3E%3Cscript%3Eplanted()%3C/script%3E")
    assert len(page.all("script")) == 1


def test_what_would_hide_is_shown_by_its_number() -> None:
    assert visible("a‮b\0") == "a⟨U+202E⟩b⟨U+0000⟩"
    assert visible("plain, é, 漢字, 🙂") == "plain, é, 漢字, 🙂"
    assert line("two\nlines\tand " + "x" * 500, 20) == "two lines and xxxxxx…"
    assert line(None) == ""


@pytest.mark.parametrize("text", ['{"a": 1e999}', "[" * 100_000, "not json", '"\\ud800"', '{"a": "\\u0000"}'])
def test_a_body_of_any_kind_can_be_shown(text: str) -> None:
    found = excerpt(text)
    assert found is not None
    found.text.encode()
    assert "\0" not in found.text


def test_deep_json_is_indented_only_as_far_as_it_is_shown() -> None:
    text = "[" * 150 + ",".join("0" * 40_000) + "]" * 150
    tracemalloc.start()
    try:
        found = excerpt(text)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found is not None
    assert found.is_cut
    assert most < 4_000_000, "all of it with its blanks is three times that"
