"""What every page wears: the headers that keep a browser from doing what it was not asked to, and errors as pages."""

import json
from contextlib import suppress
from typing import Any, Final

from fastapi import Request
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.core.errors import BackstayError
from backstay.server.pages import layout
from backstay.server.pages.page_request import visit_of_anyone
from backstay.server.problems import MEDIA_TYPE, OPENAI_PATHS, Problem, answer, problem_of, reads

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


class Dressed:
    """Stands around everything; what programs ask for goes through as it is."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith(OTHERS):
            return await self._app(scope, receive, send)
        if scope["method"] == "HEAD" and scope["path"] != LIVE:
            scope = {**scope, "method": "GET"}  # the server, which knows better, sends no body
        request, begun, body = Request(scope), False, bytearray()
        start: Message = {}

        async def dressed(message: Message) -> None:
            nonlocal begun, start
            if message["type"] == "http.response.start":
                start = message
                if not _is_for_a_reader(request, message):
                    begun = True
                    await send(_with_headers(message))
            elif begun:
                await send(message)
            else:
                body.extend(message.get("body", b""))

        try:
            await self._app(scope, receive, dressed)
        except Exception as error:
            if not begun:
                problem = problem_of(error)
                told = _page(request, problem.body(), {}) if reads(request) else answer(problem)
                await told(scope, receive, _wrapped(send))
            raise
        if not begun and start:
            kept = {n: v for n, v in MutableHeaders(raw=start["headers"]).items() if n in _KEPT}
            await (await _found_page(request, json.loads(bytes(body)), kept))(scope, receive, _wrapped(send))


def _is_for_a_reader(request: Request, start: Message) -> bool:
    """A problem page with a message, not a redirect."""
    kind = MutableHeaders(raw=start["headers"]).get("content-type", "")
    return kind.startswith(MEDIA_TYPE) and start["status"] >= 400 and reads(request)


def _wrapped(send: Send) -> Send:
    async def dressed(message: Message) -> None:
        await send(_with_headers(message) if message["type"] == "http.response.start" else message)

    return dressed


def _with_headers(message: Message) -> Message:
    headers = MutableHeaders(raw=list(message["headers"]))
    for name, value in HEADERS.items():
        headers[name] = value
    headers.setdefault("cache-control", NO_STORE)
    return {**message, "headers": headers.raw}


def _page(request: Request, body: dict[str, Any], headers: dict[str, str]) -> ASGIApp:
    response = layout.bare(request, "error.html", body["status"], problem=body)
    response.headers.update(headers)
    return response


async def _found_page(request: Request, body: dict[str, Any], headers: dict[str, str]) -> ASGIApp:
    """With the navigation of the visitor, unless the database is the problem."""
    if body["status"] < 500:
        with suppress(BackstayError, Problem):
            visit = await visit_of_anyone(request)
            response = await layout.show_page(visit, "error.html", body["status"], problem=body)
            response.headers.update(headers)
            return response
    return _page(request, body, headers)
