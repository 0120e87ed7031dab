"""The converter: a source file is sent to a gateway, and the answer is stored as a new file.

| what happens                                     | code       | tried again |
|--------------------------------------------------|------------|-------------|
| the source does not begin like a PDF             | NOT_PDF    | no          |
| the gateway answers 413, or far too much         | TOO_LARGE  | no          |
| it answers another 4xx, or not with XML          | GW_4XX     | no          |
| it answers 429                                   | GW_4XX     | yes, at no cost |
| it answers 401, 402, 403 or 407                  | FORBIDDEN  | when the provider is released |
| it answers 5xx, cannot be reached, or closes     | GW_5XX     | yes         |
| it answers 408 or 504, or not in time            | GW_TIMEOUT | yes         |
| the file storage does not answer                 | IO_ERROR   | yes         |
| the source is gone                               | EXPIRED    | no          |
"""

import json
import re
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import PurePosixPath
from typing import Any, Final, NamedTuple, Protocol
from xml.parsers.expat import ExpatError, ParserCreate

import aiohttp
from yarl import URL

from backstay.core.display import one_line
from backstay.core.errors import ErrorCode, NotFound, Permanent, Transient, UsageError
from backstay.core.failures import Failure, failure_of_exception, failure_of_status, parse_retry_after
from backstay.core.models import Failed, NeverArrived, Succeeded
from backstay.handlers.handler import ASKS_AT_ONCE, Context, Rules, own_pace

NAME: Final = "gateway"
PDF_MARK: Final = b"%PDF-"
PDF_MARK_WITHIN_BYTES: Final = 1_024  # like PDF readers: some files have a few bytes before it
ERROR_BYTES_MAX: Final = 4_096  # of an error's text
CHUNK_BYTES: Final = 256 << 10
CONNECT_SECONDS: Final = 10.0
BROKEN: Final = "the gateway could not be reached, or closed the connection"
_FILE_ID: Final = re.compile(r"file-[0-9a-f]{24}")


class Source(NamedTuple):
    filename: str
    size: int
    chunks: AsyncIterator[bytes]


class Shelf(Protocol):
    """Where sources are read and results are stored."""

    async def open(self, owner: str, file_id: str) -> Source:
        """Raises NotFound if it is gone, never existed, or belongs to another owner."""
        ...

    async def keep(self, owner: str, item_id: str, filename: str, chunks: AsyncIterator[bytes]) -> dict[str, Any]:
        """Stores a result as a whole, or not at all; returns the item's result."""
        ...


def is_pdf(start: bytes) -> bool:
    return PDF_MARK in start[:PDF_MARK_WITHIN_BYTES]


class GatewayHandler:
    """Items are {"file": "file-…"}: files that their owner has uploaded."""

    account: str | None = None
    askable = False
    asks_at_once = ASKS_AT_ONCE

    def __init__(self, url: str, shelf: Shelf, rules: Rules, bytes_max: int) -> None:
        if not url.startswith(("http://", "https://")):
            raise UsageError("the gateway's URL must begin with http:// or https://", hint="set BACKSTAY_GATEWAY_URL")
        self.name = self.provider = NAME
        self.rules = rules
        self.pace_name, self.answers = own_pace(NAME, rules)
        self._url = url
        self._secrets = _secrets_of(url)
        self._shelf = shelf
        self._bytes_max = bytes_max
        self._session: aiohttp.ClientSession | None = None

    def check(self, payload: Any) -> None:
        if not isinstance(payload, dict) or payload.keys() != {"file"}:
            raise UsageError('a gateway item must be {"file": "file-…"}')
        if not isinstance(payload["file"], str) or not _FILE_ID.fullmatch(payload["file"]):
            raise UsageError("there is no file with this id", hint="upload it first; the answer has its id")

    async def run(self, body: str, context: Context) -> Succeeded | Failed:
        payload = json.loads(body)
        self.check(payload)
        try:
            source = await self._shelf.open(context.owner, payload["file"])
        except NotFound:
            raise Permanent("the source file is gone", ErrorCode.EXPIRED) from None
        sending = _Sending(source)
        await sending.begin()
        context.guard()
        context.log(f"attempt {context.attempt}: sending {source.size} bytes to the gateway")
        try:
            return await self._convert(sending, context)
        except (aiohttp.ClientError, OSError) as error:
            if sending.error is not None:  # the source failed, not the gateway
                raise sending.error from None
            context.log(f"attempt {context.attempt}: {BROKEN}")
            found = failure_of_exception(error)  # the original message contains hosts and ports
            return Failed(Failure(found.code, found.kind, BROKEN))

    async def _convert(self, sending: "_Sending", context: Context) -> Succeeded | Failed:
        headers = {
            "Content-Type": "application/pdf",
            "Content-Length": str(sending.source.size),
            "Accept": "application/xml",
            "Accept-Encoding": "identity",
            "Idempotency-Key": context.idempotency_key,
        }
        request = self._open().post(self._url, data=sending.chunks(), headers=headers, allow_redirects=False)
        async with request as answer:
            context.progress(50)
            if not 200 <= answer.status <= 299:
                refused = await _refusal(answer, self._secrets)
                context.log(f"attempt {context.attempt}: {refused.message}")
                return Failed(refused)
            name = PurePosixPath(sending.source.filename).stem + ".xml"
            result = await self._shelf.keep(context.owner, context.item_id, name, self._check_chunks(answer))
            context.log(f"attempt {context.attempt}: {result['bytes']} bytes came back")
            return Succeeded(json.dumps(result), context.used, answer.status)

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            time = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)  # the engine keeps the rest
            self._session = aiohttp.ClientSession(
                timeout=time,
                auto_decompress=False,
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _check_chunks(self, answer: aiohttp.ClientResponse) -> AsyncIterator[bytes]:
        """The chunks of the gateway's answer. Raises if it is not XML or too large; then nothing of it is stored."""
        if "xml" not in answer.content_type or answer.headers.get("Content-Encoding", "identity") != "identity":
            raise Permanent(f"the gateway answered {one_line(answer.content_type, 60)}, not XML", ErrorCode.GW_4XX)
        parser, size = ParserCreate(), 0
        try:
            async for chunk in answer.content.iter_chunked(CHUNK_BYTES):
                size += len(chunk)
                if size > self._bytes_max:
                    raise Permanent(f"the result has more than {self._bytes_max} bytes", ErrorCode.TOO_LARGE)
                parser.Parse(chunk)
                yield chunk
            if size == 0:
                raise Transient("the gateway's answer is empty")
            parser.Parse(b"", True)
        except ExpatError:
            raise Permanent("the gateway's answer is not well-formed XML", ErrorCode.GW_4XX) from None

    async def ask(self, client_ref: str, since_ms: int = 0) -> NeverArrived:
        raise TypeError("a gateway cannot be asked about earlier calls")

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


class _Sending:
    """A source during its upload. It is checked before the first byte is sent; its own errors are remembered, so that
    they are not taken for errors of the gateway."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.error: Exception | None = None
        self._first = b""

    async def begin(self) -> None:
        self._first = await anext(self.source.chunks, b"")
        if not is_pdf(self._first):
            raise Permanent("the source file is not a PDF", ErrorCode.NOT_PDF)

    async def chunks(self) -> AsyncIterator[bytes]:
        yield self._first
        try:
            async for chunk in self.source.chunks:
                yield chunk
        except Exception as error:
            self.error = error
            raise


def _secrets_of(url: str) -> tuple[str, ...]:
    """The secrets that a gateway could repeat: the password in its URL, and the header made of it."""
    try:
        parts = URL(url)
    except ValueError:
        raise UsageError("the gateway's URL is not valid", hint="set BACKSTAY_GATEWAY_URL") from None
    if not parts.password:
        return ()
    made = b64encode(f"{parts.user or ''}:{parts.password}".encode("latin-1", "replace")).decode()
    return made, parts.password


async def _refusal(answer: aiohttp.ClientResponse, secrets: tuple[str, ...]) -> Failure:
    text = (await answer.content.read(ERROR_BYTES_MAX)).decode("utf-8", "replace")
    for secret in secrets:
        text = text.replace(secret, "<secret>")
    message = f"the gateway answered {answer.status}"
    if "html" not in answer.content_type and (shown := one_line(text, 200)):
        message = f"{message}: {shown}"
    after = answer.headers.get("Retry-After")
    return failure_of_status(answer.status, message, parse_retry_after(after, None) if after else None)
