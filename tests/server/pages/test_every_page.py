"""What holds for every page: who may see it, what it carries, and that it loads nothing from elsewhere."""

import re
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

import pytest
from fastapi.routing import APIRoute

from backstay.core.errors import DatabaseUnreachable
from backstay.server.pages import layout, routers
from backstay.server.pages.layout import HEADERS
from backstay.store.keys import Role
from tests.server.pages.reader import Held, Reader, reader
from tests.server.pages.scene import paths, staged
from tests.server.rig import Rig

SCRIPT_BYTES_MAX = 60_000
FOR_ADMINS = ("/workers", "/keys", "/dead-letters/archive")
FOR_ALL = ("/login", "/logout", "/theme", "/favicon.ico", "/static/app.css")


async def test_every_page_is_there_and_wears_the_headers(rig: Rig) -> None:
    scene, found = await staged(rig), await reader(rig)
    for path in paths(scene):
        reply = await found.get(path)
        assert reply.status == 200, (path, reply)
        assert {name: reply.headers[name] for name in HEADERS} == HEADERS
        assert reply.headers["cache-control"] == "no-store"


DOWNLOADS = {f"/items/{{item_id}}/{part}" for part in ("request", "result", "log")} | {
    "/jobs/{job_id}/results.jsonl",
    "/late-results/{number}",
}
NOT_PAGES = DOWNLOADS | {"/live", "/favicon.ico", "/static/{name}"}
ONLY_IN_SOME_STATE = {"/jobs/{job_id}/settle-unknown", "/keys/{key_id}/revoke"}  # their own tests make that state


async def test_every_route_that_a_browser_opens_is_among_the_pages(sqlite_rig: Rig) -> None:
    shown = {path.partition("?")[0] for path in paths(await staged(sqlite_rig))}
    routes = [each for router in routers() for each in router.routes if isinstance(each, APIRoute)]
    opened = [
        each for each in routes if "GET" in (each.methods or ()) and each.path not in NOT_PAGES | ONLY_IN_SOME_STATE
    ]
    assert [each.path for each in opened if not any(each.path_regex.fullmatch(path) for path in shown)] == []


async def test_a_page_that_is_only_asked_about_has_its_headers_and_no_body(sqlite_rig: Rig) -> None:
    await staged(sqlite_rig)
    found = await reader(sqlite_rig)
    for path in ("/", "/jobs", "/login", "/nowhere"):
        asked, got = await found("HEAD", path), await found.get(path)
        assert (asked.status, asked.body) == (got.status, b""), path
        assert asked.headers["content-security-policy"] == HEADERS["content-security-policy"]
    assert (await found("HEAD", "/live")).status == 405


async def test_the_policy_allows_nothing_inline_and_nothing_from_elsewhere() -> None:
    policy = dict(part.strip().split(" ", 1) for part in HEADERS["content-security-policy"].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == policy["form-action"] == "'self'"
    assert "unsafe" not in HEADERS["content-security-policy"]


async def test_no_page_has_script_or_style_of_its_own(sqlite_rig: Rig) -> None:
    scene, found = await staged(sqlite_rig), await reader(sqlite_rig)
    for path in paths(scene):
        page = await found.held(path)
        assert [one["src"] for one in page.all("script")] == [layout.asset_url("app.js")]
        assert not page.all("style")
        for tag, attributes in page.elements:
            assert "style" not in attributes, (path, tag)
            assert not [name for name in attributes if name.startswith("on")], (path, tag)
            for name in ("src", "href", "action"):
                assert not urlsplit(attributes.get(name, "")).netloc, (path, tag, attributes)
            if tag == "form" and attributes.get("method") == "post":
                assert attributes["action"].startswith("/")


async def test_every_form_that_acts_brings_its_token(sqlite_rig: Rig) -> None:
    scene, found = await staged(sqlite_rig), await reader(sqlite_rig)
    for path in paths(scene):
        page = await found.held(path)
        tokens = [one["value"] for one in page.all("input") if one.get("name") == "token"]
        assert len(tokens) == len(page.actions), path
        assert all(tokens)


async def test_headings_labels_and_landmarks_are_in_place(sqlite_rig: Rig) -> None:
    scene, found = await staged(sqlite_rig), await reader(sqlite_rig)
    for path in paths(scene):
        page = await found.held(path)
        assert len(page.all("h1")) == len(page.all("main")) == 1, path
        assert page.links[0] == "#main"
        assert page.all("html")[0]["lang"] == "en"
        ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
        assert len(ids) == len(set(ids)), path
        labelled = {one["for"] for one in page.all("label")}
        for tag in ("input", "select"):
            for one in page.all(tag):
                assert one.get("type") == "hidden" or one["id"] in labelled, (path, one)


@pytest.mark.parametrize("role", [Role.READ, Role.WRITE])
async def test_a_role_sees_what_it_may_and_is_offered_nothing_else(sqlite_rig: Rig, role: Role) -> None:
    scene, found = await staged(sqlite_rig), await reader(sqlite_rig, "ada", role)
    for path in paths(scene):
        acts = path.startswith(FOR_ADMINS) or (
            role is Role.READ and path.partition("?")[0].endswith(("/retry", "/cancel", "/replay"))
        )
        page = await found.held(path, 403 if acts else 200)
        assert not {"/workers", "/keys"} & set(page.links)
        offered = {action for action in page.actions if action not in ("/theme", "/logout", "/login")}
        if role is Role.READ:
            assert not offered, path
        assert not [
            action for action in offered if action.startswith(("/keys", "/providers", "/late", "/dead-letters/archive"))
        ], path


@pytest.mark.slow
async def test_acts_are_refused_below_their_role(sqlite_rig: Rig) -> None:
    scene = await staged(sqlite_rig)
    writing = [f"/jobs/{scene.waiting}/{act}" for act in ("pause", "resume", "cancel", "retry")]
    writing += [f"/items/{scene.failed}/retry", "/dead-letters/replay"]
    writing += [f"/schedules/nightly/{act}" for act in ("pause", "resume", "run")]
    ruling = [
        "/keys",
        "/keys/x/revoke",
        "/keys/x/rotate",
        "/providers/hold",
        "/providers/release",
        "/late-results/1/accept",
        "/dead-letters/archive",
        "/dead-letters/archives/1/restore",
    ]
    looking, doing = await reader(sqlite_rig, "ada", Role.READ), await reader(sqlite_rig, "ada", Role.WRITE)
    for path in writing + ruling:
        assert (await looking.post(path)).status == 403, path
    for path in ruling:
        assert (await doing.post(path)).status == 403, path
    assert (await sqlite_rig.ada.get(f"/api/jobs/{scene.waiting}")).json["state"] == "queued"


async def test_another_owner_sees_none_of_it(rig: Rig) -> None:
    scene, bob = await staged(rig), await reader(rig, "bob")
    for path in paths(scene):
        own = not path.startswith(("/jobs/", "/items/"))
        page = await bob.held(path, 200 if own else 404)
        assert "Minutes of October" not in page.text
        assert "nightly" not in page.text
        assert f"/jobs/{scene.failing}" not in page.links
    for path in (
        f"/jobs/{scene.failing}/results.jsonl",
        f"/items/{scene.failed}/request",
        f"/items/{scene.succeeded}/result",
        f"/items/{scene.failed}/log",
        f"/jobs/{scene.failing}?part=live",
    ):
        assert (await bob.get(path)).status == 404, path
    for path in (
        f"/jobs/{scene.failing}/retry",
        f"/jobs/{scene.waiting}/cancel",
        f"/jobs/{scene.waiting}/pause",
        f"/items/{scene.failed}/retry",
        "/schedules/nightly/pause",
        "/schedules/weekly/resume",
        "/schedules/nightly/run",
    ):
        assert (await bob.post(path)).status == 404, path
    assert (await bob.post("/dead-letters/replay", job=scene.failing)).status == 404
    assert (await bob.get(f"/jobs?q={scene.failing}")).status == 200, "an id of another's is no way to it"


@pytest.mark.slow
async def test_a_stranger_is_let_in_nowhere_but_at_the_login(sqlite_rig: Rig) -> None:
    """Over the routes that there are, so that none is forgotten."""
    scene, stranger = await staged(sqlite_rig), Reader(sqlite_rig)
    values = {
        "job_id": scene.failing,
        "item_id": scene.failed,
        "number": "1",
        "key_id": "x",
        "name": "app.css",
        "schedule": "s",
    }
    routes = [route for router in routers() for route in router.routes if isinstance(route, APIRoute)]
    assert len(routes) > 30
    for route in routes:
        path = route.path.format(**values)
        for method in (route.methods or set()) - {"HEAD"} if path not in FOR_ALL else ():
            reply = await (stranger.get(path) if method == "GET" else stranger.post(path))
            assert reply.status == (303 if method == "GET" else 401), (method, path, reply)
            assert method == "POST" or reply.headers["location"].startswith("/login?next=")


async def test_errors_are_pages_in_the_same_style(sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await reader(sqlite_rig)
    missing = await found.held("/nowhere", 404)
    assert "Not found" in missing.text
    assert "/jobs" in missing.links
    assert "openapi" not in missing.text, "paths of the API are for programs"
    unknown = await found.post("/providers/hold", provider="nobody", minutes="1")
    assert unknown.status == 404
    assert "/api/providers" not in str(unknown)
    assert "Not found" in (await found.held("/jobs/999", 404)).text
    assert "Not found" in (await found.held("/items/9-<b>", 404)).text
    refused = await found.held("/jobs?cursor=nonsense", 400)
    assert "cursor" in refused.text

    async def away(*_: Any, **__: Any) -> NoReturn:
        raise DatabaseUnreachable("gone")

    monkeypatch.setattr(sqlite_rig.service.ring, "by_id", away)
    reply = await found.get("/jobs")
    assert (reply.status, reply.headers["retry-after"]) == (503, "1")
    page = Held(reply.body.decode())
    assert "Service unavailable" in page.text
    assert {name: reply.headers[name] for name in HEADERS} == HEADERS


async def test_what_nobody_foresaw_is_a_page_that_says_nothing_of_itself(
    sqlite_rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await reader(sqlite_rig)

    async def breaks(*_: Any, **__: Any) -> NoReturn:
        raise RuntimeError("the secret of the house")

    monkeypatch.setattr(sqlite_rig.service.store.job_views, "choose", breaks)
    reply = await found.get("/jobs")
    assert reply.status == 500
    assert "secret of the house" not in reply.body.decode()
    assert "Unexpected error" in Held(reply.body.decode()).text
    part = await found.get("/jobs?part=live", headers={"accept": "*/*"})
    assert (part.status, part.json["title"]) == (500, "Unexpected error")
    assert {name: part.headers[name] for name in HEADERS} == HEADERS


async def test_programs_get_problems_and_no_pages(sqlite_rig: Rig) -> None:
    for path, accept in (("/nowhere", "*/*"), ("/api/jobs/999", "text/html"), ("/v1/files/x", "text/html")):
        reply = await sqlite_rig.ada.get(path, headers={"accept": accept})
        assert reply.status == 404
        assert "json" in reply.headers["content-type"]
    assert "content-security-policy" not in (await sqlite_rig.ada.get("/api/jobs")).headers


async def test_a_key_in_a_header_is_no_session_and_a_session_no_key(sqlite_rig: Rig) -> None:
    assert (await sqlite_rig.ada.get("/jobs")).status == 303
    found = await reader(sqlite_rig)
    assert (await found.get("/api/jobs")).status == 401


async def test_files_are_kept_by_browsers_and_nothing_else_of_the_disk_is_given(sqlite_rig: Rig) -> None:
    stranger = Reader(sqlite_rig)
    for name in layout.assets():
        reply = await stranger.get(layout.asset_url(name))
        assert (reply.status, reply.headers["cache-control"]) == (200, layout.FOREVER)
        assert (await stranger.get(f"/static/{name}")).headers["cache-control"] == "no-cache"
    for path in ("/static/../visit.py", "/static/%2e%2e/visit.py", "/static/nothing.css", "/static/"):
        assert (await stranger.get(path)).status == 404
    assert (await stranger.get("/favicon.ico")).headers["content-type"] == "image/svg+xml"


def test_the_script_is_small_and_ours() -> None:
    found = layout.assets()
    assert len(found["app.js"].body) < SCRIPT_BYTES_MAX
    for name in ("app.js", "app.css"):
        text = found[name].body.decode()
        assert not re.search(r"https?://|@import|eval\(|new Function|innerHTML|document\.write", text), name


def test_every_template_is_escaped_by_default() -> None:
    folder = Path(layout.__file__).parent / "templates"
    for file in folder.glob("*.html"):
        text = file.read_text(encoding="utf-8")
        assert "| safe" not in text, file.name
        assert "|safe" not in text, file.name
        assert "autoescape" not in text, file.name
