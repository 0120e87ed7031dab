"""Coming in with a key, staying for twelve hours or until it is revoked, and forms that only our own pages can send."""

from http.cookies import SimpleCookie
from pathlib import Path

import pytest

from backstay.server.pages import page_request
from backstay.server.pages.page_request import local_path
from backstay.server.service import ServiceOptions
from backstay.store.keys import Role
from tests.server.pages.reader import Held, Reader, reader
from tests.server.rig import Rig, rigged


async def test_a_stranger_is_sent_to_the_login_and_comes_back_from_there(rig: Rig) -> None:
    stranger = Reader(rig)
    reply = await stranger.get("/jobs?state=running")
    assert (reply.status, reply.headers["location"]) == (303, "/login?next=/jobs%3Fstate%3Drunning")
    page = await stranger.held(reply.headers["location"])
    following = next(one["value"] for one in page.all("input") if one.get("name") == "next")
    entered = await stranger.post("/login", key=rig.keys["ada", Role.READ], next=following)
    assert (entered.status, entered.headers["location"]) == (303, "/jobs?state=running")
    assert (await stranger.get("/jobs?state=running")).status == 200


async def test_the_cookie_is_for_this_site_and_no_script(sqlite_rig: Rig) -> None:
    stranger = Reader(sqlite_rig)
    token = await stranger.token()
    before = stranger.cookies[page_request.COOKIE]
    reply = await stranger("POST", "/login", data={"token": token, "key": sqlite_rig.keys["ada", Role.READ]})
    [header] = [one for one in reply.headers.getall("set-cookie") if one.startswith(page_request.COOKIE)]  # type: ignore[attr-defined]
    morsel = SimpleCookie(header)[page_request.COOKIE]
    assert (morsel["httponly"], morsel["samesite"].lower(), morsel["path"]) == (True, "strict", "/")
    assert morsel["max-age"] == "43200"
    assert not morsel["secure"]  # the test speaks plain HTTP
    assert morsel.value != before, "a session that a stranger knew must not become mine"
    assert sqlite_rig.keys["ada", Role.READ].rpartition("_")[2] not in morsel.value


async def test_over_https_the_cookie_never_goes_in_the_clear(sqlite_file_url: str, tmp_path: Path) -> None:
    async with rigged(sqlite_file_url, tmp_path / "data", public_url="https://backstay.example") as rig:
        reply = await Reader(rig).get("/login")
    assert "; Secure" in reply.headers["set-cookie"]


async def test_behind_a_proxy_that_speaks_https_the_cookie_never_goes_in_the_clear(sqlite_rig: Rig) -> None:
    reply = await Reader(sqlite_rig).get("/login", headers={"x-forwarded-proto": "https"})
    assert "; Secure" in reply.headers["set-cookie"]


@pytest.mark.parametrize("key", ["", "nonsense", f"bks_{'0' * 12}_{'x' * 43}", "bks_<script>"])
async def test_a_wrong_key_is_refused_and_not_repeated(sqlite_rig: Rig, key: str) -> None:
    stranger = Reader(sqlite_rig)
    reply = await stranger.post("/login", key=key)
    page = Held(reply.body.decode())
    assert reply.status == 403
    assert "not valid" in page.text
    assert not key or key not in reply.body.decode()
    assert (await stranger.get("/jobs")).status == 303


async def test_guesses_are_counted(sqlite_file_url: str, tmp_path: Path) -> None:
    async with rigged(sqlite_file_url, tmp_path / "data", rate_limit_per_minute=3) as rig:
        stranger = Reader(rig)
        statuses = [(await stranger.post("/login", key="guess")).status for _ in range(5)]
    assert statuses[:3] == [403] * 3
    assert statuses[-1] == 429


async def test_a_session_ends_after_twelve_hours(sqlite_rig: Rig) -> None:
    found = await reader(sqlite_rig)
    service = sqlite_rig.service
    now = service.main.clock.now_ms()
    known = page_request.open_session(service.signer, found.cookies[page_request.COOKIE], now)
    assert known is not None
    for age, status in (
        (page_request.LIVES_MS - 60_000, 200),
        (page_request.LIVES_MS + 1, 303),
        (-60_000, 303),
        (-4_000, 200),
    ):
        found.cookies = {
            page_request.COOKIE: page_request.seal_session(service.signer, known._replace(issued_at=now - age))
        }
        assert (await found.get("/jobs")).status == status


async def test_a_revoked_key_is_logged_out_at_once(rig: Rig) -> None:
    found = await reader(rig, "ada", Role.WRITE)
    assert (await found.get("/jobs")).status == 200
    await rig.service.store.keys.revoke(rig.keys["ada", Role.WRITE].split("_")[1], "ada")
    assert (await found.get("/jobs")).status == 303
    assert (await found.get("/jobs?part=live")).status == 401
    assert (await found.post("/jobs/1/pause")).status in (401, 403)


async def test_a_cookie_that_was_changed_is_nobodys(sqlite_rig: Rig) -> None:
    found = await reader(sqlite_rig, "bob")
    value = found.cookies[page_request.COOKIE]
    ada = sqlite_rig.keys["ada", Role.ADMIN].split("_")[1]
    for forged in (value.replace(value.split(".")[0], ada), value[:-1] + "x", "a.b.c.d", "....", "\x00", "a" * 10_000):
        found.cookies = {page_request.COOKIE: forged.replace("\x00", "%00")}
        assert (await found.get("/jobs")).status == 303


async def test_who_logs_out_is_out(sqlite_rig: Rig) -> None:
    found = await reader(sqlite_rig)
    copied = dict(found.cookies)
    assert (await found.post("/logout")).status == 303
    assert (await found.get("/jobs")).status == 303
    found.cookies = copied
    assert (await found.get("/jobs")).status == 303, "a copy of the cookie is of no use"
    assert (await (await reader(sqlite_rig)).get("/jobs")).status == 200, "the key is, to come in anew"


@pytest.mark.parametrize(
    "path",
    ["/jobs/1/pause", "/keys", "/providers/hold", "/dead-letters/replay", "/dead-letters/archive", "/logout", "/theme"],
)
async def test_a_form_without_its_token_does_nothing(sqlite_rig: Rig, path: str) -> None:
    found = await reader(sqlite_rig)
    other = await reader(sqlite_rig, "bob")
    for token in ("", "wrong", "é", await other.token()):
        reply = await found.post(path, token=token)
        assert reply.status == 403, reply
        assert "send the form again" in Held(reply.body.decode()).text
    assert (await found("POST", path, data={})).status == 403


@pytest.mark.parametrize(
    "said",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://[::bad"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
    ],
    ids=str,
)
async def test_a_form_that_another_site_sends_does_nothing(sqlite_rig: Rig, said: dict[str, str]) -> None:
    found = await reader(sqlite_rig)
    job = await sqlite_rig.submit()
    reply = await found.post(f"/jobs/{job}/pause", headers=said)
    assert reply.status == 403
    assert (await sqlite_rig.ada.get(f"/api/jobs/{job}")).json["state"] == "queued"
    own = {"origin": sqlite_rig.url, "sec-fetch-site": "same-origin"}
    assert (await found.post(f"/jobs/{job}/pause", headers=own)).status == 303


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "\\\\evil",
        "javascript:alert(1)",
        "x",
        "/\n/evil",
        "//[x",
    ],
)
def test_nobody_is_sent_to_another_site(path: str) -> None:
    assert local_path(path) == "/"


def test_a_path_of_this_site_is_kept() -> None:
    assert local_path("/jobs?state=running&q=a%20b") == "/jobs?state=running&q=a%20b"
    assert local_path(None) == "/"


async def test_on_this_machine_no_key_is_needed_but_the_token_is(sqlite_file_url: str, tmp_path: Path) -> None:
    async with rigged(sqlite_file_url, tmp_path / "data", options=ServiceOptions(works=False, open_here=True)) as rig:
        here = Reader(rig)
        page = await here.held("/jobs")
        assert "ada · admin" in page.text
        assert (await here("POST", "/theme", data={"theme": "dark"})).status == 403
        assert (await here.post("/theme", theme="dark")).status == 303
        for said in ({"x-forwarded-for": "127.0.0.1"}, {"host": "evil.example"}, {"sec-fetch-site": "cross-site"}):
            assert (await here.get("/jobs", headers=said)).status == 303


async def test_the_theme_is_remembered_and_nothing_else_is_taken_for_one(sqlite_rig: Rig) -> None:
    found = await reader(sqlite_rig)
    for asked, kept in (("dark", "dark"), ("light", "light"), ('"><script>', "light"), ("auto", "auto")):
        reply = await found.post("/theme", theme=asked, next="/jobs")
        assert reply.headers["location"] == "/jobs"
        assert (await found.held("/jobs")).all("html")[0]["data-theme"] == kept
