"""What all pages share: the template with navigation, banner and notices, static files, security headers, and errors as
pages.

And a stream that tells a page that something has changed; the page then fetches that part of itself.
"""

import asyncio
import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.clock import Tasks, wait_for_event
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.errors import BackstayError, DatabaseUnreachable, NotFound
from backstay.core.ids import job_of, position_of, show_item
from backstay.server.api.events import (
    BEAT,
    BEAT_SECONDS,
    KEY_SECONDS,
    RETRY,
    SEND_SECONDS_MAX,
    STREAM_SECONDS_MAX,
    Subject,
    Watcher,
)
from backstay.server.api.operations import visible_breakers
from backstay.server.pages import page_request
from backstay.server.pages.figures import FILTERS
from backstay.server.pages.page_request import (
    TOKEN_FIELD,
    Visit,
    is_https,
    local_path,
    own_path,
    visit_of_anyone,
    visit_to_read,
)
from backstay.server.problems import MEDIA_TYPE, OPENAI_PATHS, Problem, problem_json, problem_of, wants_html
from backstay.server.service import Service, root_of
from backstay.server.shapes import item_number, job_number
from backstay.store.keys import Role

router = APIRouter(include_in_schema=False)

TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FOREVER: Final = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    body: bytes
    digest: str
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """All static files; no other file can be requested."""
    found = {}
    for file in files("backstay.server.pages").joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            found[file.name] = Asset(body, hashlib.blake2b(body, digest_size=8).hexdigest(), kind)
    return found


def asset_url(name: str) -> str:
    return f"/static/{name}?v={assets()[name].digest}"


@router.get("/static/{name}")
async def show_asset(request: Request, name: str) -> Response:
    asset = assets().get(name)
    if asset is None:
        raise NotFound(f"no file {name[:40]}")
    kept = FOREVER if request.query_params.get("v") == asset.digest else "no-cache"
    return Response(asset.body, headers={"cache-control": kept}, media_type=asset.media_type)


@router.get("/favicon.ico")
async def show_icon(request: Request) -> Response:
    return await show_asset(request, "favicon.svg")


COOKIE: Final = "backstay_flash"
SECONDS: Final = 60
TEXT_MAX: Final = 500
_LENGTH_MAX: Final = 4_000


class Flash(NamedTuple):
    kind: Literal["done", "refused"]
    text: str


def redirect_with_notice(visit: Visit, path: str, text: str, kind: Literal["done", "refused"] = "done") -> Response:
    """Redirects to a page that shows a notice. Reloading that page does not repeat the act."""
    response = RedirectResponse(local_path(path), 303)
    said = base64.urlsafe_b64encode(json.dumps([kind, text[:TEXT_MAX]]).encode()).decode()
    value = f"{said}.{visit.service.signer.tag('flash', said)}"
    secure = is_https(visit.request, visit.service)
    response.set_cookie(COOKIE, value, max_age=SECONDS, path="/", secure=secure, httponly=True, samesite="strict")
    return response


def read_notice(request: Request, service: Service) -> Flash | None:
    """The notice of the last form, if this service signed it."""
    said, _, tag = request.cookies.get(COOKIE, "")[:_LENGTH_MAX].partition(".")
    if not said or not service.signer.fits(tag, "flash", said):
        return None
    try:
        return Flash(*json.loads(base64.urlsafe_b64decode(said)))
    except (binascii.Error, ValueError, TypeError):
        return None


THEME_COOKIE: Final = "backstay_theme"
THEMES: Final = ("auto", "light", "dark")
BUSY_MAX: Final = 5


class NavigationEntry(NamedTuple):
    path: str
    label: str
    role: Role = Role.READ


PLACES: Final = (
    NavigationEntry("/", "Home"),
    NavigationEntry("/jobs", "Jobs"),
    NavigationEntry("/dead-letters", "Dead letters"),
    NavigationEntry("/schedules", "Schedules"),
    NavigationEntry("/providers", "Providers"),
    NavigationEntry("/safety", "Safety"),
    NavigationEntry("/workers", "Workers", Role.ADMIN),
    NavigationEntry("/keys", "Keys", Role.ADMIN),
)


@cache
def templates() -> Environment:
    made = Environment(
        loader=PackageLoader("backstay.server.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.filters["item"] = show_item
    made.globals.update(asset=asset_url, token_field=TOKEN_FIELD, job_of=job_of, position_of=position_of)
    return made


async def show_page(visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
    """A whole page, or with `?part=` one block of it, which a script puts in place of the old one."""
    found = templates().get_template(template)
    part = visit.query.get("part")
    if part is not None:
        if part not in found.blocks:
            raise Problem(404, f"this page has no section {part[:40]}")
        context = found.new_context(_with_macros({**_shared_values(visit), **values}))
        return HTMLResponse("".join(found.blocks[part](context)), status)
    said = read_notice(visit.request, visit.service)
    busy = await busy_providers(visit) if visit.who is not None else ()
    text = found.render(_with_macros({**_shared_values(visit), "busy": busy, "flash": said, **values}))
    response = HTMLResponse(text, status)
    if COOKIE in visit.request.cookies:
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    if visit.is_new:
        page_request.set_session_cookie(response, visit.request, visit.service, visit.session)
    return response


class Field(NamedTuple):
    """An input field of a confirmation."""

    name: str
    label: str
    hint: str


async def ask_to_confirm(
    visit: Visit,
    *,
    title: str,
    sentences: Sequence[str],
    action: str,
    act: str,
    back: str,
    fields: Mapping[str, str] | None = None,
    asks: Sequence[Field] = (),
    danger: bool = False,
) -> Response:
    """Asks for confirmation, on a page or in a dialog. Without `act` there is nothing to confirm."""
    around: dict[str, Any] = {"action": action, "act": act, "back": back, "danger": danger}
    values: dict[str, Any] = {
        "title": title,
        "sentences": sentences,
        "fields": fields or {},
        "asks": asks if act else (),
    }
    return await show_page(visit, "confirm.html", **values, **around)


def _shared_values(visit: Visit) -> dict[str, Any]:
    request = visit.request
    return {
        "visit": visit,
        "who": visit.who,
        "token": visit.token,
        "theme": theme_of(request),
        "themes": THEMES,
        "places": [place for place in PLACES if visit.may(place.role)],
        "root": root_of(request),
        "path": request.url.path,
        "here": own_path(request),
        "now": visit.service.main.clock.now_ms(),
    }


def show_without_visit(request: Request, template: str, status: int, **values: Any) -> Response:
    """A page without a visitor, because the database does not answer or an unexpected error occurred."""
    around: dict[str, Any] = {
        "visit": None,
        "who": None,
        "token": "",
        "theme": theme_of(request),
        "themes": THEMES,
        "places": [],
        "root": root_of(request),
    }
    found = templates().get_template(template)
    said = {**around, "path": request.url.path, "here": "/", "now": 0, "busy": (), "flash": None, **values}
    return HTMLResponse(found.render(_with_macros(said)), status)


def _with_macros(values: dict[str, Any]) -> dict[str, Any]:
    """Passes the macros as `m`: a block that is rendered alone would not have an import."""
    return {**values, "m": templates().get_template("macros.html").make_module(values)}


def theme_of(request: Request) -> str:
    theme = request.cookies.get(THEME_COOKIE, "")
    return theme if theme in THEMES else THEMES[0]


async def busy_providers(visit: Visit) -> list[Breaker]:
    """The providers that are not called now."""
    breakers, _ = await visible_breakers(visit.service, visit.principal)
    return [one for one in breakers.values() if one.state is not BreakerState.CLOSED][:BUSY_MAX]


def query(path: str, wanted: Mapping[str, Any]) -> str:
    """A link with a filter in its query string, without empty values."""
    given = {name: value for name, value in wanted.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


OTHERS: Final = ("/api/", "/callbacks/", *OPENAI_PATHS)
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
NO_STORE: Final = "no-store"
LIVE: Final = "/live"  # which never ends
_KEPT: Final = ("retry-after", "x-request-id", "allow")


class PageMiddleware:
    """Adds security headers to pages, and shows errors as pages. Requests of programs pass unchanged."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(OTHERS):
            return await self._app(scope, receive, send)
        if scope["method"] == "HEAD" and scope["path"] != LIVE:
            scope = {**scope, "method": "GET"}  # the server sends no body for HEAD
        request, begun, body = Request(scope), False, bytearray()
        start: Message = {}

        async def send_with_headers(message: Message) -> None:
            nonlocal begun, start
            if message["type"] == "http.response.start":
                start = message
                if not _is_problem_for_browser(request, message):
                    begun = True
                    await send(_with_headers(message))
            elif begun:
                await send(message)
            else:
                body.extend(message.get("body", b""))

        try:
            await self._app(scope, receive, send_with_headers)
        except Exception as error:
            if not begun:
                problem = problem_of(error)
                page = _bare_problem_page(request, problem.body(), {}) if wants_html(request) else problem_json(problem)
                await page(scope, receive, _add_headers_to(send))
            raise
        if not begun and start:
            kept = {n: v for n, v in MutableHeaders(raw=start["headers"]).items() if n in _KEPT}
            await (await _problem_page(request, json.loads(bytes(body)), kept))(scope, receive, _add_headers_to(send))


def _is_problem_for_browser(request: Request, start: Message) -> bool:
    """A problem page with a message, not a redirect."""
    kind = MutableHeaders(raw=start["headers"]).get("content-type", "")
    return kind.startswith(MEDIA_TYPE) and start["status"] >= 400 and wants_html(request)


def _add_headers_to(send: Send) -> Send:
    async def send_with_headers(message: Message) -> None:
        await send(_with_headers(message) if message["type"] == "http.response.start" else message)

    return send_with_headers


def _with_headers(message: Message) -> Message:
    headers = MutableHeaders(raw=list(message["headers"]))
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("cache-control", NO_STORE)
    return {**message, "headers": headers.raw}


def _bare_problem_page(request: Request, body: dict[str, Any], headers: dict[str, str]) -> ASGIApp:
    response = show_without_visit(request, "error.html", body["status"], problem=body)
    response.headers.update(headers)
    return response


async def _problem_page(request: Request, body: dict[str, Any], headers: dict[str, str]) -> ASGIApp:
    """With the navigation of the visitor, unless the database is the problem."""
    if body["status"] < 500:
        with suppress(BackstayError, Problem):
            visit = await visit_of_anyone(request)
            response = await show_page(visit, "error.html", body["status"], problem=body)
            response.headers.update(headers)
            return response
    return _bare_problem_page(request, body, headers)


SUBJECTS_MAX: Final = 50
CHANGED: Final = b"event: changed\ndata: {}\n\n"
HELLO: Final = b"event: hello\ndata: {}\n\n"


@router.get("/live")
async def watch(request: Request) -> Response:
    """`?job=12&job=13&item=12-3`; without any it only shows that the service is reachable."""
    visit = await visit_to_read(request)
    wanted = request.query_params.multi_items()[:SUBJECTS_MAX]
    subjects = [Subject("job", job_number(text), visit.owner) for name, text in wanted if name == "job"]
    subjects += [Subject("item", item_number(text), visit.owner) for name, text in wanted if name == "item"]
    return Pulse(visit, subjects)


class Pulse(Response):
    """The stream of one page. It carries no data, only the fact that something changed."""

    media_type = "text/event-stream"

    def __init__(self, visit: Visit, subjects: list[Subject]) -> None:
        super().__init__(headers={"cache-control": "no-store", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._visit = visit
        self._clock = visit.service.main.clock
        self._lookout = visit.service.lookout
        self._subjects = subjects
        self._news = asyncio.Event()
        self._left = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watchers: list[Watcher] = []
        leaving = Tasks().start(self._notice_leaving(receive))
        try:
            for subject in self._subjects:
                watcher = self._lookout.join(subject)
                watcher.changed = self._news
                watchers.append(watcher)
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._stream(send, watchers)
        except TimeoutError:
            pass  # the client has stopped reading
        finally:
            leaving.cancel()
            for watcher in watchers:
                self._lookout.leave(watcher)
        if not self._left:
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _notice_leaving(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._news.set()

    async def _stream(self, send: Send, watchers: list[Watcher]) -> None:
        await self._send(send, RETRY + HELLO)
        now = self._clock.monotonic()
        ends_at, key_at, beat_at = now + STREAM_SECONDS_MAX, now, now
        known: dict[int, str] = {}
        while not self._left and not self._lookout.closed and (now := self._clock.monotonic()) < ends_at:
            if now >= key_at + KEY_SECONDS:
                key_at = now
                if not await self._may_see():
                    return
            self._news.clear()
            if self._is_news(known, watchers):
                await self._send(send, CHANGED)
                beat_at = now
            elif now >= beat_at + BEAT_SECONDS:
                await self._send(send, BEAT)
                beat_at = now
            await wait_for_event(self._news, KEY_SECONDS)

    def _is_news(self, known: dict[int, str], watchers: list[Watcher]) -> bool:
        """Whether something changed. The first look counts: the subject may have changed since the page was made."""
        looked = {number: self._lookout.latest(watcher) for number, watcher in enumerate(watchers)}
        news = {number: found.id for number, found in looked.items() if found and known.get(number) != found.id}
        known.update(news)
        return bool(news)

    async def _may_see(self) -> bool:
        """Whether the visitor still has access. While the database does not answer, the stream stays open."""
        try:
            who = (await visit_of_anyone(self._visit.request)).who
        except DatabaseUnreachable:
            return True
        return who is not None and who.owner == self._visit.owner

    async def _send(self, send: Send, text: bytes) -> None:
        async with asyncio.timeout(SEND_SECONDS_MAX):
            await send({"type": "http.response.body", "body": text, "more_body": True})
