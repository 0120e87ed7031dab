"""Idempotency-Key: a repeated POST has no second effect, and gets the same answer.

For routes there is nothing to do: `Idempotent` stands before all of them, for every POST under /api, /v1 and /openai.
The first request with a key runs; its answer, if it is a success, is kept for a day and repeated (with the header
`x-backstay-replayed: 1`) to the same request of the same owner. Another body, path or query with the key is 422 (409
with `x-should-retry: false` under /v1); the same while the first still runs is 409, `retry-after: 1`. An error
is not kept: nothing was done, and the key is free again. Bodies are digested while they stream, never held.

Two things are for routes:

- `EffectKey` (a dependency, `str | None`) is the key as sent: hand it to `client.submit(..., idempotency_key=…)`.
- `EffectId` (a dependency, `str` of 24 hex digits) names what the route creates (`batch_…`, `file-…`, `wh_…`): derived
  from owner, path and key where there is a key, new otherwise. Insert it with ON CONFLICT DO NOTHING and answer with
  the row that is there: then even a process that died between the effect and its answer leaves no second one.

An answer with a secret in it says `cache-control: no-store`: it is shown once and not kept; sent again, it is 409.
"""

import asyncio
import contextlib
import hashlib
import json
import re
from typing import Annotated, Final

from fastapi import Depends, Header, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from backstay.clock import Clock, Tasks, new_id
from backstay.core.errors import BackstayError
from backstay.server.auth import Principal, principal
from backstay.server.problems import OPENAI_PATHS, Problem, problem_response
from backstay.server.service import Service, service_of
from backstay.store.keys import LEASE_MS, KeptReply, KeyClaim, Replies, Role

_BOUNDARY: Final = re.compile(r'^multipart/[^;]+;.*\bboundary="?([^";]{1,70})"?', re.IGNORECASE)


class BodyDigest:
    """Receives a body and digests it on the way.

    The boundary between the parts of a form is left out: a client draws a new one each time it sends the same form.
    """

    def __init__(self, receive: Receive, start: bytes, content_type: str, bytes_max: int) -> None:
        self._receive = receive
        self._digest = hashlib.sha256(start + b"\0")
        found = _BOUNDARY.match(content_type)
        self._boundary = found[1].encode() if found else b""
        self._tail = b""  # may be the beginning of a boundary
        self._left = bytes_max
        self._whole = False
        self._gone = False

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._gone = True
        elif not self._whole:
            self._add(message.get("body", b""))
            self._whole = not message.get("more_body", False)
        return message

    async def drain(self) -> bool:
        """Reads the rest of the body; returns whether it is complete and within the limit."""
        while not self._whole and not self._gone and self._left >= 0:
            await self.receive()
        return self._whole and self._left >= 0

    def hexdigest(self) -> str:
        """The digest of the whole body; nothing may be added afterwards."""
        self._digest.update(self._tail)
        self._tail = b""
        return self._digest.hexdigest()

    def _add(self, chunk: bytes) -> None:
        self._left -= len(chunk)
        if not self._boundary:
            self._digest.update(chunk)
            return
        *before, last = (self._tail + chunk).split(self._boundary)
        for piece in before:
            self._digest.update(piece)
        keep = len(last) - len(self._boundary) + 1
        self._digest.update(last[: max(keep, 0)])
        self._tail = last[max(keep, 0) :]


KEY_HEADER: Final = "idempotency-key"
KEY_CHARACTERS_MAX: Final = 255
PATHS: Final = ("/api/", *OPENAI_PATHS)
REPLY_BYTES_MAX: Final = 1 << 20
OVERHEAD_BYTES: Final = 1 << 20  # of a form around the largest file that is taken
KEPT_HEADERS: Final = ("content-type", "location", "etag")
REPLAYED: Final = {"x-backstay-replayed": "1"}

EffectKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=KEY_CHARACTERS_MAX,
        description="Repeating a request with the same key has no second effect.",
    ),
]


async def effect_id(request: Request, found: Annotated[Principal, Depends(principal)], key: EffectKey = None) -> str:
    """Async, because FastAPI would run a plain function in a thread."""
    if key is None:
        return new_id()
    return hashlib.sha256("\0".join((found.owner, request.url.path, key)).encode()).hexdigest()[:24]


EffectId = Annotated[str, Depends(effect_id)]


class Idempotent:
    """The middleware that runs each POST with a key only once."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or not scope["path"].startswith(PATHS):
            return await self._app(scope, receive, send)
        key = Headers(scope=scope).get(KEY_HEADER)
        if key is None:
            return await self._app(scope, receive, send)
        request = Request(scope)
        try:
            found = await principal(request)
        except Problem:
            return await self._app(scope, receive, send)  # the route refuses it
        if found.role is Role.READ:
            return await self._app(scope, receive, send)
        try:
            await self._once(request, found, key, receive, send)
        except Problem as problem:
            await problem_response(request, problem)(scope, receive, send)

    async def _once(self, request: Request, found: Principal, key: str, receive: Receive, send: Send) -> None:
        if not (1 <= len(key) <= KEY_CHARACTERS_MAX and key.isascii() and key.isprintable()):
            raise Problem(400, f"an idempotency key must have 1 to {KEY_CHARACTERS_MAX} printable ASCII characters")
        service = service_of(request)
        bytes_max = service.backstay.settings.upload_max_bytes + OVERHEAD_BYTES
        body = BodyDigest(receive, _start_of(request, found), request.headers.get("content-type", ""), bytes_max)
        taken = await service.store.replies.take(found.owner, key)
        if isinstance(taken, KeptReply):
            await (await _answer_again(taken, body, request))(request.scope, receive, send)
        else:
            await _FirstRequest(service, taken, body, send).run(self._app, request.scope)


def _start_of(request: Request, found: Principal) -> bytes:
    """The parts besides the body that must be the same. With the role, so that no key gets an answer above its role."""
    parts = (request.method, request.url.path, request.url.query, found.role.value)
    return "\0".join(parts).encode()


async def _answer_again(reply: KeptReply, body: BodyDigest, request: Request) -> Response:
    """The answer to a key that was used before."""
    if reply.status is None:
        headers = {"retry-after": "1", "x-should-retry": "true"}
        raise Problem(
            409, "another request with this idempotency key is still running", hint="try again", headers=headers
        )
    final = {"x-should-retry": "false"}
    if not await body.drain() or body.hexdigest() != reply.digest:
        status = 409 if request.url.path.startswith(OPENAI_PATHS) else 422
        hint = "use a new key for a new request"
        raise Problem(status, "this idempotency key was used for another request", hint=hint, headers=final)
    if reply.body is None:
        raise Problem(409, "this request was already done, and its answer is shown only once", headers=final)
    return Response(reply.body, reply.status, headers={**json.loads(reply.headers or "{}"), **REPLAYED})


class _FirstRequest:
    """The first request with a key: it runs, and its answer is stored before it is sent."""

    def __init__(self, service: Service, claim: KeyClaim, body: BodyDigest, send: Send) -> None:
        self._replies: Replies = service.store.replies
        self._clock: Clock = service.main.clock
        self._claim = claim
        self._body = body
        self._send = send
        self._held: list[Message] = []  # the answer so far, until it is whole or too large to keep
        self._held_bytes = 0
        self._passing = False
        self._over = False  # the key is kept or given back

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        beat = Tasks().start(self._beat())
        try:
            await app(scope, self._body.receive, self._take)
        finally:
            beat.cancel()
            if not self._over:
                with contextlib.suppress(BackstayError):  # then the claim's lease runs out
                    await asyncio.shield(self._replies.give(self._claim))

    async def _beat(self) -> None:
        while True:
            await self._clock.sleep(LEASE_MS / 3000)
            with contextlib.suppress(BackstayError):
                await self._replies.hold(self._claim)

    async def _take(self, message: Message) -> None:
        if message["type"] == "http.response.start" and not 200 <= message["status"] < 400:
            await self._free()
        if self._passing:
            return await self._send(message)
        self._held.append(message)
        self._held_bytes += len(message.get("body", b""))
        whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        if whole or self._held_bytes > REPLY_BYTES_MAX:
            await self._keep()
            self._passing = True
            for held in self._held:
                await self._send(held)
            self._held.clear()

    async def _free(self) -> None:
        """Nothing was done. The key is freed before the client gets the answer, so that it can retry at once."""
        self._passing = True
        with contextlib.suppress(BackstayError):  # it is tried once more at the end, or else its lease runs out
            await self._replies.give(self._claim)
            self._over = True

    async def _keep(self) -> None:
        if not await self._body.drain():
            return
        start = self._held[0]
        headers = Headers(raw=start["headers"])
        kept = json.dumps({name: headers[name] for name in KEPT_HEADERS if name in headers})
        reply = KeptReply(self._body.hexdigest(), start["status"], kept, self._text(headers))
        self._over = True  # or at least done: a key given back would do it again
        with contextlib.suppress(BackstayError):
            await self._replies.keep(self._claim, reply)

    def _text(self, headers: Headers) -> str | None:
        if self._held_bytes > REPLY_BYTES_MAX or "no-store" in headers.get("cache-control", ""):
            return None
        try:
            return b"".join(message.get("body", b"") for message in self._held).decode()
        except UnicodeDecodeError:
            return None
