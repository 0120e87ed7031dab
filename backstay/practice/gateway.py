"""A converter's gateway: POST a PDF to /convert, and it answers with XML.

A PDF may say what it wants to meet, as requests do: a line `%practice: 502x2` near its beginning.
"""

import hashlib
import re
from typing import Final
from xml.sax.saxutils import quoteattr

from aiohttp import web

from backstay.practice.bill import Bill
from backstay.practice.gate import NOTHING, Gate
from backstay.practice.mishaps import METADATA, UNDONE
from backstay.practice.refusals import Refused, Reply

PATH: Final = "/convert"
XML: Final = {"Content-Type": "application/xml"}
LOOK_BYTES: Final = 2_048
PAGES_SHOWN_MAX: Final = 1_000
_WANTED: Final = re.compile(rb"^%practice: ?([\w-]+)\s*$", re.MULTILINE)
_PAGE: Final = re.compile(rb"/Type\s*/Page\b(?!s)")
_TEXT: Final = re.compile(rb"\(((?:[^()\\]|\\.)*)\)\s*Tj")


class Gateway:
    def __init__(self, gate: Gate, bill: Bill) -> None:
        self._gate = gate
        self._bill = bill

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return await self._gate.attend(request, self._meet)

    async def _meet(self, request: web.Request) -> tuple[Reply, str]:
        self._gate.enter(request)
        pdf = await request.read()
        digest = hashlib.sha256(pdf).hexdigest()
        wanted = _WANTED.search(pdf[:LOOK_BYTES])
        asked = {"metadata": {METADATA: wanted[1].decode()}} if wanted else {}
        fate = self._gate.fate(f"convert {digest}", asked, request.headers)
        await self._gate.suffer(fate)
        if fate.mishap in UNDONE:
            return NOTHING, fate.mishap
        if b"%PDF-" not in pdf[:1_024]:
            raise Refused(415, "This is not a PDF.", "unsupported_media_type")
        self._bill.charge(request.headers.get("Idempotency-Key", digest), digest, 0, 0)
        return Reply(200, _document(pdf, digest), XML), fate.mishap


def _document(pdf: bytes, digest: str) -> bytes:
    """Not much of a conversion: how many pages there are, and the texts that stand in it uncompressed."""
    pages = max(len(_PAGE.findall(pdf)), 1)
    texts = [found.decode("latin-1") for found in _TEXT.findall(pdf)[:PAGES_SHOWN_MAX]]
    shown = "".join(f"  <text value={quoteattr(_printable(text))}/>\n" for text in texts)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<document pages="{pages}" bytes="{len(pdf)}" sha256="{digest}">\n{shown}</document>\n'.encode()


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())
