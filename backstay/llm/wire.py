"""The HTTP client of one endpoint: one request, one reply, and errors that say whether the request can have arrived."""

import base64
import io
from collections.abc import Awaitable, Mapping
from importlib.metadata import version
from typing import Any, BinaryIO, Final, NamedTuple
from urllib.parse import SplitResult
from urllib.request import getproxies, proxy_bypass

import aiohttp
from yarl import URL

from backstay.core.errors import ErrorCode, HandlerError, OutcomeUnknown, Permanent, Transient, UsageError
from backstay.core.failures import error_of_failure, failure_of_exception, failure_of_status
from backstay.llm.credentials import Veil, account_of, headers_of
from backstay.llm.endpoint import Endpoint, parts_of

CONNECT_SECONDS: Final = 10.0
# Below the five seconds after which many servers drop an idle connection: a request must not cross the farewell.
KEEPALIVE_SECONDS: Final = 4.0
DNS_SECONDS: Final = 60
REPLY_BYTES_MAX: Final = 64 << 20
ERROR_BYTES_MAX: Final = 64 << 10  # a refusal says what it has to say in less
_AT_ONCE_BYTES_MAX: Final = 1 << 20  # aiohttp wants larger bodies as files
_PATHS_REMEMBERED_MAX: Final = 1_000
_JSON: Final = "application/json"
_REF: Final = "x-client-request-id"
_CLIENT_ERRORS: Final = (aiohttp.ClientError, OSError)


class Reply(NamedTuple):
    """What a provider answered. Bytes that are no UTF-8 stand in the text as lone surrogates."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    text: str
    cut: bool = False  # there was more than is ever read


class Wire:
    """Sends each request once: whether it may be sent again is not for a client to decide."""

    def __init__(
        self,
        endpoint: Endpoint,
        key: str | None,
        connections_max: int,
        reply_bytes_max: int = REPLY_BYTES_MAX,
    ) -> None:
        self._base = parts_of(endpoint.base_url)
        self._connections_max = connections_max
        self._reply_bytes_max = reply_bytes_max
        further = headers_of(endpoint)
        self._headers = {**_own_headers(self._base, key), **further}
        self._veil = Veil((key, *further.values()))
        self._urls: dict[str, URL] = {}
        self._timeouts: dict[float, aiohttp.ClientTimeout] = {}
        self._proxy: dict[str, Any] = {}
        self._each: dict[str, str] = {}
        self._session: aiohttp.ClientSession | None = None
        self.account = account_of(key)

    def __repr__(self) -> str:
        return f"<Wire to {self._base.netloc}>"

    async def open(self) -> None:
        if self._session is not None:
            return
        # Not trust_env: aiohttp would look the proxy up anew for every request, in a thread.
        self._proxy = _proxy_of(self._base)
        # What a session always sends it also shows to a proxy, so then each request brings the key along by itself.
        self._each = self._headers if self._proxy else {}
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=self._connections_max, keepalive_timeout=KEEPALIVE_SECONDS, ttl_dns_cache=DNS_SECONDS
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=None if self._proxy else self._headers,
        )

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def post(self, path: str, body: str, timeout_seconds: float, ref: str | None = None) -> Reply:
        """`ref` names the request to the provider, should anyone ask about it there."""
        data = body.encode()
        payload: aiohttp.Payload
        if len(data) <= _AT_ONCE_BYTES_MAX:
            payload = aiohttp.BytesPayload(data, content_type=_JSON)
        else:
            payload = aiohttp.BytesIOPayload(io.BytesIO(data), content_type=_JSON)
        return await self._exchange("POST", path, timeout_seconds, {_REF: ref} if ref else {}, data=payload)

    async def get(self, path: str, params: Mapping[str, str] | None = None, timeout_seconds: float = 60) -> Reply:
        return await self._exchange("GET", path, timeout_seconds, {}, params=params)

    async def upload(
        self, path: str, fields: Mapping[str, str], filename: str, file: BinaryIO, timeout_seconds: float = 600
    ) -> Reply:
        """Sends a file with form fields before it. The file is closed afterwards."""
        form = aiohttp.FormData(dict(fields))
        form.add_field("file", file, filename=filename, content_type="application/octet-stream")
        return await self._exchange("POST", path, timeout_seconds, {}, data=form)

    async def download(self, path: str, into: BinaryIO, bytes_max: int, timeout_seconds: float = 600) -> int:
        """Writes what is there into a file; returns how many bytes that were."""
        size = 0
        try:
            response = await self._request("GET", path, timeout_seconds, {})
            try:
                if response.status != 200:
                    raw, _ = await self._body(response)
                    raise error_of_failure(failure_of_status(response.status, self._veil.over(_decoded(raw))))
                async for chunk in response.content.iter_any():
                    size += len(chunk)
                    if size > bytes_max:
                        raise Permanent(f"there are more than {bytes_max} bytes to download", ErrorCode.TOO_LARGE)
                    into.write(chunk)
            finally:
                response.release()
        except _CLIENT_ERRORS as error:
            raise _meaning(error, timeout_seconds) from None
        return size

    async def _exchange(
        self, method: str, path: str, timeout_seconds: float, headers: Mapping[str, str], **more: Any
    ) -> Reply:
        try:
            response = await self._request(method, path, timeout_seconds, headers, **more)
            try:
                raw, cut = await self._body(response)
            finally:
                if not response.closed:  # it closes itself where its body ends, which is nearly always
                    response.release()
        except _CLIENT_ERRORS as error:
            # Not from the error, which may hold the headers that were sent, and with them the key.
            raise _meaning(error, timeout_seconds) from None
        said = self._veil.over_headers({name.lower(): value for name, value in response.headers.items()})
        return Reply(response.status, said, self._veil.over(_decoded(raw)), cut)

    def _request(
        self, method: str, path: str, timeout_seconds: float, headers: Mapping[str, str], **more: Any
    ) -> Awaitable[aiohttp.ClientResponse]:
        if self._session is None:
            raise Transient("the wire is closed, so nothing was sent")
        return self._session.request(
            method,
            self._urls.get(path) or self._remember_url(path),
            timeout=self._timeouts.get(timeout_seconds) or self._remember_timeout(timeout_seconds),
            headers={**self._each, **headers} if self._each else headers,
            allow_redirects=False,
            **self._proxy,
            **more,
        )

    async def _body(self, response: aiohttp.ClientResponse) -> tuple[bytes | bytearray, bool]:
        if response.status < 300:
            return await _read(response, self._reply_bytes_max)
        try:
            return await _read(response, ERROR_BYTES_MAX)
        except _CLIENT_ERRORS:
            return b"", True  # its status alone says what became of the request

    def _remember_url(self, path: str) -> URL:
        if len(self._urls) >= _PATHS_REMEMBERED_MAX:
            self._urls.clear()
        url = self._urls[path] = _joined(self._base, path)
        return url

    def _remember_timeout(self, seconds: float) -> aiohttp.ClientTimeout:
        if len(self._timeouts) >= _PATHS_REMEMBERED_MAX:
            self._timeouts.clear()
        # Half of it at most, so that what never was connected is told from what was sent and not answered.
        timeout = aiohttp.ClientTimeout(total=seconds, connect=min(CONNECT_SECONDS, seconds / 2))
        self._timeouts[seconds] = timeout
        return timeout


def _joined(base: SplitResult, path: str) -> URL:
    """A base URL stands for the /v1 of the path; one without any path leaves it there."""
    if not path.startswith("/"):
        raise Permanent(f"the url of a request must begin with a slash, not {path[:40]!r}", ErrorCode.GW_4XX)
    root = base.path.rstrip("/")
    if root and path.startswith("/v1/"):
        path = path[3:]
    where, _, query = path.partition("#")[0].partition("?")
    query = "&".join(part for part in (base.query, query) if part)
    return URL(f"{base.scheme}://{base.netloc}{root}{where}{'?' if query else ''}{query}")


def _own_headers(base: SplitResult, key: str | None) -> dict[str, str]:
    headers = {
        "accept": _JSON,
        "accept-encoding": "gzip, deflate",
        "user-agent": f"backstay/{version('backstay')}",
    }
    if key:
        headers["authorization"] = f"Bearer {key}"
        if (base.hostname or "").endswith(".openai.azure.com"):
            headers["api-key"] = key
    return headers


def _proxy_of(base: SplitResult) -> dict[str, Any]:
    """The proxy that the environment names for this host, if any, as aiohttp takes it."""
    named = getproxies().get(base.scheme)
    if not named or proxy_bypass(base.netloc):
        return {}
    try:
        proxy = URL(named if "://" in named else f"http://{named}")
    except ValueError:
        proxy = URL()
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise UsageError(f"the {base.scheme}_proxy of the environment is no URL of an HTTP proxy")
    if proxy.user is None:
        return {"proxy": proxy}
    login = base64.b64encode(f"{proxy.user}:{proxy.password or ''}".encode()).decode()
    # Under this name aiohttp takes a proxy's login for requests through a tunnel and for those without one.
    return {"proxy": proxy.with_user(None), "proxy_headers": {"Authorization": f"Basic {login}"}}


async def _read(response: aiohttp.ClientResponse, bytes_max: int) -> tuple[bytes | bytearray, bool]:
    """The body, if it has at most so many bytes once it is unpacked; else its beginning, and that there was more."""
    content = response.content
    if content.is_eof() and content.total_bytes <= bytes_max:
        return content.read_nowait(), False  # a short one is here together with the headers
    length = response.content_length
    if length is not None and length <= bytes_max and "Content-Encoding" not in response.headers:
        return await response.read(), False
    body = bytearray()
    async for chunk in content.iter_any():
        body += chunk
        if len(body) > bytes_max:
            response.close()
            return body[: min(bytes_max, ERROR_BYTES_MAX)], True
    return body, False


def _decoded(raw: bytes | bytearray) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw.decode("utf-8", "surrogateescape")


def _meaning(error: Exception, timeout_seconds: float) -> HandlerError:
    """What an error of the client means: nothing was sent, or it may have been done and paid for."""
    if type(error) is TimeoutError:
        return OutcomeUnknown(f"no answer within {timeout_seconds:g} s")
    failure = failure_of_exception(error)
    if isinstance(error, aiohttp.ClientResponseError) and failure.provider_status is None:
        return OutcomeUnknown(f"the provider's answer is no HTTP: {error.message}")
    return error_of_failure(failure)
