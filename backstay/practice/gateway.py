"""A converter's gateway: POST a PDF to /convert, and it answers with XML.

A PDF may ask for a fault, as other requests do: with a line `%practice: 502x2` near its beginning.
"""

import hashlib
import re
from collections.abc import Iterable
from functools import partial
from typing import Final
from xml.sax.saxutils import quoteattr

from aiohttp import web

from backstay.practice.batch_jobs import ApiPart, ImitatedApi
from backstay.practice.faults import NOT_DONE, AnyFault, parse_fault
from backstay.practice.openai_shapes import OPENAI, OpenAiError
from backstay.practice.pipeline import Pipeline, ProviderState
from backstay.practice.replies import EMPTY_REPLY, PracticeReply

XML: Final = {"Content-Type": "application/xml"}
FAULT_SEARCH_BYTES: Final = 2_048
TEXTS_SHOWN_MAX: Final = 1_000
_FAULT: Final = re.compile(rb"^%practice: ?([\w-]+)\s*$", re.MULTILINE)
_PAGE: Final = re.compile(rb"/Type\s*/Page\b(?!s)")
_TEXT: Final = re.compile(rb"\(((?:[^()\\]|\\.)*)\)\s*Tj")


class ConverterGateway:
    """Its errors have OpenAI's form."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        router.add_route("POST", "/convert", pipeline.route(OPENAI, partial(self.convert, pipeline)))

    async def convert(self, pipeline: Pipeline, request: web.Request) -> tuple[PracticeReply, AnyFault | None]:
        pdf = await request.read()
        digest = hashlib.sha256(pdf).hexdigest()
        named = _FAULT.search(pdf[:FAULT_SEARCH_BYTES])
        chosen = pipeline.choose_fault(request, f"convert {digest}", parse_fault(named[1].decode()) if named else None)
        await pipeline.delay_or_refuse(chosen)
        if chosen.fault in NOT_DONE:
            return EMPTY_REPLY, chosen.fault
        if b"%PDF-" not in pdf[:1_024]:
            raise OpenAiError(415, "This is not a PDF.", "unsupported_media_type")
        self._state.bill.charge(request.headers.get("Idempotency-Key", digest), digest, 0, 0)
        return PracticeReply(200, _document(pdf, digest), XML), chosen.fault


def _document(pdf: bytes, digest: str) -> bytes:
    """Not much of a conversion: the number of pages, and the texts that are not compressed."""
    pages = max(len(_PAGE.findall(pdf)), 1)
    texts = [found.decode("latin-1") for found in _TEXT.findall(pdf)[:TEXTS_SHOWN_MAX]]
    shown = "".join(f"  <text value={quoteattr(_printable(text))}/>\n" for text in texts)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<document pages="{pages}" bytes="{len(pdf)}" sha256="{digest}">\n{shown}</document>\n'.encode()


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())


class GatewayApi(ImitatedApi):
    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        return (ConverterGateway(state),)


APIS: Final = (GatewayApi,)
