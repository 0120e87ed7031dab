"""Sends an answer as its mishap wants it: whole, slowly, half, as nonsense, or not at all."""

from aiohttp import web

from backstay.clock import Clock
from backstay.practice.faults import Faults
from backstay.practice.mishaps import HANG, NONSENSE, OK
from backstay.practice.nonsense import nonsense
from backstay.practice.refusals import Reply, Stream

PIECES = 10
_LOOK_SECONDS = 0.5


async def deliver(request: web.Request, reply: Reply, mishap: str, faults: Faults, clock: Clock) -> web.StreamResponse:
    if mishap == OK and reply.stream is None:
        return web.Response(status=reply.status, body=reply.body, headers=reply.headers)
    if mishap in ("cut", "cut-billed"):
        return cut(request)
    if mishap in HANG:
        while not _gone(request):
            await clock.sleep(_LOOK_SECONDS)
        return cut(request)
    if reply.stream is not None and mishap not in NONSENSE:
        return await _streamed(request, reply, reply.stream, cut_off=mishap == "cut-half")
    if mishap == "cut-half":
        return await _half(request, reply)
    if mishap == "slow":
        return await _slowly(request, reply, faults.slow_seconds, clock)
    if mishap in NONSENSE:
        reply = nonsense(mishap, reply, faults.huge_bytes)
    return web.Response(status=reply.status, body=reply.body, headers=reply.headers)


def _gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def cut(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)  # goes nowhere


async def _streamed(request: web.Request, reply: Reply, stream: Stream, cut_off: bool) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    await response.prepare(request)
    sent = 0
    async for piece in stream.body:
        await response.write(piece)
        sent += 1
        if cut_off and sent >= stream.pieces // 2:
            return cut(request)
    return response


async def _half(request: web.Request, reply: Reply) -> web.StreamResponse:
    """The length of the whole is announced, and half of it comes."""
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(reply.body)
    await response.prepare(request)
    await response.write(reply.body[: len(reply.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


async def _slowly(request: web.Request, reply: Reply, seconds: float, clock: Clock) -> web.StreamResponse:
    response = web.StreamResponse(status=reply.status, headers=reply.headers)
    response.content_length = len(reply.body)
    await response.prepare(request)
    size = len(reply.body) // PIECES + 1
    for start in range(0, len(reply.body), size):
        if _gone(request):
            break
        await response.write(reply.body[start : start + size])
        await clock.sleep(seconds / PIECES)
    return response
