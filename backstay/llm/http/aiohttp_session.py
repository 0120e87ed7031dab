"""Requests over aiohttp: files, which are streamed, all requests through a proxy, and all calls if the setting says
so."""

import io
import socket
from collections.abc import Mapping
from typing import Any, BinaryIO, Final

import aiohttp
from aiohappyeyeballs import AddrInfoType
from yarl import URL

from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Permanent
from backstay.core.failures import error_of_failure, failure_of_exception, failure_of_status
from backstay.llm.endpoint import Veil
from backstay.llm.http.connection import (
    ADDRESS_SECONDS,
    ERROR_BYTES_MAX,
    HEAD_BYTES_MAX,
    KEEPALIVE_SECONDS,
    HttpAnswer,
    Proxy,
    send_probes,
)

_AT_ONCE_BYTES_MAX: Final = 1 << 20  # aiohttp expects larger bodies as files
_REDIRECTS: Final = (301, 302, 303, 307, 308)
_REDIRECTS_MAX: Final = 5
_CLIENT_ERRORS: Final = (aiohttp.ClientError, OSError)


class AiohttpSession:
    def __init__(
        self,
        headers: Mapping[str, str],
        proxy: Proxy | None,
        veil: Veil,
        connections_max: int,
        connect_seconds: float,
        reply_bytes_max: int,
    ) -> None:
        self._veil = veil
        self._connect_seconds = connect_seconds
        self._reply_bytes_max = reply_bytes_max
        # Not trust_env: aiohttp would look up the proxy for every request, in a thread.
        self._proxy = proxy
        # The default headers of a session are also sent to a proxy, so each request adds the key itself.
        # They are the wire's own: it changes them with a new key.
        self._headers = headers
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=connections_max,
                keepalive_timeout=KEEPALIVE_SECONDS,
                ttl_dns_cache=int(ADDRESS_SECONDS),
                socket_factory=_socket,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            max_line_size=HEAD_BYTES_MAX,
            max_field_size=HEAD_BYTES_MAX,
        )

    async def close(self) -> None:
        await self._session.close()

    async def exchange(
        self,
        method: str,
        url: URL,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        secret: bool = True,
    ) -> HttpAnswer:
        if isinstance(data, bytes) and len(data) > _AT_ONCE_BYTES_MAX:
            data = io.BytesIO(data)
        try:
            async with self._request(method, url, seconds, headers, data, secret) as response:
                raw, cut = await self._body(response)
        except _CLIENT_ERRORS as error:
            # Not chained from the error, which may hold the headers that were sent, and with them the key.
            raise _error_for(error, seconds) from None
        return HttpAnswer(response.status, {name.lower(): value for name, value in response.headers.items()}, raw, cut)

    async def upload(
        self, url: URL, fields: Mapping[str, str], filename: str, file: BinaryIO, seconds: float
    ) -> HttpAnswer:
        form = aiohttp.FormData(dict(fields))
        form.add_field("file", file, filename=filename, content_type="application/octet-stream")
        return await self.exchange("POST", url, seconds, data=form)

    async def download(self, url: URL, own: URL, into: BinaryIO, bytes_max: int, seconds: float) -> int:
        """Follows redirects to another host that keeps the files; secrets are sent only to `own`."""
        try:
            for _ in range(_REDIRECTS_MAX + 1):
                async with self._request("GET", url, seconds, secret=url.origin() == own) as response:
                    if (target := _redirect_target(response)) is None:
                        return await self._save(response, into, bytes_max)
                    url = target
        except _CLIENT_ERRORS as error:
            raise _error_for(error, seconds) from None
        raise Permanent("the provider redirects a download too many times")

    async def _save(self, response: aiohttp.ClientResponse, into: BinaryIO, bytes_max: int) -> int:
        if response.status != 200:
            raw, _ = await self._body(response)
            said = self._veil.over(raw.decode("utf-8", "surrogateescape"))
            raise error_of_failure(failure_of_status(response.status, said))
        size = 0
        async for chunk in response.content.iter_any():
            size += len(chunk)
            if size > bytes_max:
                raise Permanent(f"there are more than {bytes_max} bytes to download", ErrorCode.TOO_LARGE)
            into.write(chunk)
        return size

    def _request(
        self,
        method: str,
        url: URL,
        seconds: float,
        headers: Mapping[str, str] | None = None,
        data: Any = None,
        secret: bool = True,
    ) -> Any:
        timeout = aiohttp.ClientTimeout(total=seconds, connect=min(self._connect_seconds, seconds / 2))
        sent = {**(self._headers if secret else {}), **(headers or {})}
        by, shown = (None, None) if self._proxy is None else (self._proxy.url, self._proxy.headers or None)
        return self._session.request(
            method,
            url,
            timeout=timeout,
            headers=sent,
            data=data,
            allow_redirects=False,
            proxy=by,
            proxy_headers=shown,
        )

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[bytes | bytearray, bool]:
        if response.status < 300:
            return await _read(response, self._reply_bytes_max)
        try:
            return await _read(response, ERROR_BYTES_MAX)
        except _CLIENT_ERRORS:
            return b"", True  # its status alone gives the outcome of the request


def _socket(address: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, _ = address
    made = socket.socket(family, kind, protocol)
    send_probes(made)
    return made


def _redirect_target(response: aiohttp.ClientResponse) -> URL | None:
    """The target of a redirect, if there is one: never to a less secure scheme."""
    named = response.headers.get("location")
    if response.status not in _REDIRECTS or named is None:
        return None
    try:
        target = response.url.join(URL(named))
    except ValueError:
        target = URL()
    if target.scheme not in ("https", response.url.scheme) or not target.host:
        raise Permanent(
            f"the provider redirects a download to {target.scheme}://{target.host or ''}, which is not safe"
        )
    return target


async def _read(response: aiohttp.ClientResponse, bytes_max: int) -> tuple[bytes | bytearray, bool]:
    """The body, if it has at most so many bytes once it is unpacked; otherwise its beginning, and True."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > bytes_max:
            response.close()
            return body[: min(bytes_max, ERROR_BYTES_MAX)], True
    return body, False


def _error_for(error: Exception, seconds: float) -> HandlerError:
    """The meaning of an error of the client: nothing was sent, or the call may have been processed and paid."""
    if type(error) is TimeoutError:
        return OutcomeUnknown(f"no answer within {seconds:g} s")
    failure = failure_of_exception(error)
    if isinstance(error, aiohttp.ClientResponseError) and failure.provider_status is None:
        return OutcomeUnknown(f"the provider's answer is not HTTP: {error.message}")
    return error_of_failure(failure)
