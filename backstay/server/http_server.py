"""The server that listens: it takes its port, opens the service, and at the end closes its long streams first."""

import asyncio
import errno
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack
from ipaddress import ip_network
from types import FrameType
from typing import Any, Final

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from backstay.app import Backstay
from backstay.core.errors import UsageError
from backstay.process import enter_when_reachable

HEAD_BYTES_MAX: Final = 64 << 10
HEAD_SECONDS: Final = 30.0


class BoundedHeads(HttpToolsProtocol):
    """One connection, with limits for the size and time of a head. Bodies are limited where they are read."""

    _head_bytes = 0  # received since the parser last made progress
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._wait()

    def on_headers_complete(self) -> None:
        self._head_bytes = 0
        self._stop_waiting()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._head_bytes = 0
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
            self.send_400_response("The headers of the request are too long.")

    def _wait(self) -> None:
        self._stop_waiting()
        self._patience = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()


def server_config(app: ASGIApp, trusted_proxies: str, **more: Any) -> uvicorn.Config:
    """How the service listens. A client's address is that of its connection. X-Forwarded headers are trusted only from
    proxies that an operator has named, because anyone could write them."""
    return uvicorn.Config(
        app,
        http=BoundedHeads,
        log_config=None,  # uvicorn's messages become log lines like ours
        log_level="warning",
        access_log=False,
        server_header=False,
        forwarded_allow_ips=_networks(trusted_proxies),
        **more,
    )


def _networks(text: str) -> list[str]:
    named = [part.strip() for part in text.split(",") if part.strip()]
    for one in named:
        try:
            ip_network(one)
        except ValueError:
            hint = "write proxies like 127.0.0.1 or 10.0.0.0/8, separated by commas"
            raise UsageError(f"trusted_proxies: {one[:60]!r} is not an address or a network", hint=hint) from None
    return named


class ServiceServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, app: FastAPI, made: Backstay, started: Callable[[], None]) -> None:
        """Starts and stops the application itself (`lifespan="off"`), so that `serve` raises an error of the start."""
        super().__init__(config)
        self._app = app
        self._made = made
        self._started = started
        self._starting: asyncio.Task[object] | None = None
        self._life = AsyncExitStack()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._starting = asyncio.current_task()
        assert self._starting is not None
        try:
            await enter_when_reachable(self._life, self._made, lambda: self._app.router.lifespan_context(self._app))
        except asyncio.CancelledError:
            if not self.should_exit:
                raise
            self._starting.uncancel()
            return  # nothing has started that would have to end
        finally:
            self._starting = None
        try:
            await super().startup(sockets)
        except BaseException:
            await self._life.aclose()
            raise
        self._started()

    @override
    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        if (starting := self._starting) is not None:
            starting.get_loop().call_soon_threadsafe(starting.cancel)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._app.state.service.lookout.close()
        await super().shutdown(sockets)
        await self._life.aclose()


def take_port(host: str, port: int) -> list[socket.socket]:
    """Sockets at all addresses of a host, so that a port in use is found before anything else starts."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        raise UsageError(f"the host {host!r} has no address to listen on", hint="check --host") from None
    sockets: list[socket.socket] = []
    for family, kind, protocol, _, address in dict.fromkeys(found):
        made = socket.socket(family, kind, protocol)
        sockets.append(made)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            made.bind((address[0], port, *address[2:]))
        except OSError as error:
            for one in sockets:
                one.close()
            raise _listen_error(host, port, error) from None
        port = made.getsockname()[1]
    return sockets


def _listen_error(host: str, port: int, error: OSError) -> UsageError:
    match error.errno:
        case errno.EADDRINUSE:
            return UsageError(
                f"port {port} of {host} is in use", hint="stop the program that uses it, or choose another --port"
            )
        case errno.EACCES:
            return UsageError(f"port {port} needs special permissions", hint="choose a --port above 1023")
        case errno.EADDRNOTAVAIL:
            return UsageError(f"this machine has no address {host}", hint="--host 0.0.0.0 listens on all addresses")
        case _:
            return UsageError(
                f"cannot listen on port {port} of {host}: {error.strerror}", hint="check --host and --port"
            )
