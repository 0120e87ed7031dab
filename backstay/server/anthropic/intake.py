"""The body that creates a message batch: read request by request, checked, and written as lines of a batch file."""

import hashlib
import json
import re
from collections.abc import AsyncIterable, AsyncIterator
from typing import Any, Final, NoReturn

from backstay.core.errors import UsageError
from backstay.llm.lines import LineRefused, LlmRequest, members, text_of
from backstay.run.submission import Scales
from backstay.server.openai.survey import LINE_BYTES_MAX, UNBOUNDED_WORDS, check_values, printable_model
from backstay.server.openai.upstream import MESSAGES
from backstay.server.problems import Problem

REQUESTS_MAX: Final = 100_000
HEAD_BYTES_MAX: Final = 1 << 20  # of a body that does not begin as it should, to say what is wrong with it
ID_CHARACTERS_MAX: Final = 64
_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_HEAD: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"requests"[ \t\r\n]*:[ \t\r\n]*\[')
_BLANK: Final = re.compile(rb"[ \t\r\n]*")
_MARK: Final = re.compile(rb'["\[\]{}]')
_TEXT: Final = re.compile(rb'(?:[^"\\]+|\\.)*', re.DOTALL)


def refuse(message: str) -> NoReturn:
    raise Problem(400, message)


class RequestCutter:
    """Cuts `{"requests": [{…}, {…}]}` into its requests; only the current one is in memory; nothing is read twice."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._at = 0  # how far the current request was scanned
        self._depth = 0
        self._quoted = False
        self._count = 0
        self._begun = False
        self._over = False

    def feed(self, piece: bytes) -> list[bytes]:
        self._held += piece
        if not self._begun and not self._begin():
            return []
        found = []
        while not self._over and (request := self._next()) is not None:
            found.append(request)
        if len(self._held) > LINE_BYTES_MAX:
            refuse(f"requests.{self._count}: a request has more than {LINE_BYTES_MAX:,} bytes")
        return found

    def end(self) -> None:
        if not self._begun:
            self._refuse_head()
        if not self._over or self._held.strip() != b"}":
            refuse('The request body is not valid JSON: it does not end as `{"requests": […]}` does')

    def _begin(self) -> bool:
        head = _HEAD.match(self._held)
        if head is not None:
            self._begun = True
            del self._held[: head.end()]
        elif len(self._held) > HEAD_BYTES_MAX:
            refuse("the body must be an object that has only the member `requests`, a list")
        return self._begun

    def _refuse_head(self) -> NoReturn:
        try:
            value = json.loads(self._held)
        except (ValueError, RecursionError) as error:
            refuse(f"The request body is not valid JSON: {str(error)[:100]}")
        if not isinstance(value, dict):
            refuse("the body must be an object")
        for name in value:
            if name != "requests":
                refuse(f"{name[:64]}: Extra inputs are not permitted")
        refuse("requests: Input should be a valid list" if value else "requests: Field required")

    def _next(self) -> bytes | None:
        """The next request, if it is whole."""
        if self._depth == 0 and not self._quoted and not self._open():
            return None
        while self._depth:
            if self._quoted:
                inside = _TEXT.match(self._held, self._at)
                self._at = inside.end() if inside else self._at
                if self._at >= len(self._held) or self._held[self._at : self._at + 1] != b'"':
                    return None
                self._quoted, self._at = False, self._at + 1
                continue
            mark = _MARK.search(self._held, self._at)
            if mark is None:
                self._at = len(self._held)
                return None
            self._at = mark.end()
            self._quoted = mark[0] == b'"'
            self._depth += 1 if mark[0] in b"[{" else -1 if mark[0] in b"]}" else 0
        request = bytes(self._held[: self._at])
        del self._held[: self._at]
        self._count += 1
        return request

    def _open(self) -> bool:
        """Goes to the brace that opens the next request."""
        blank = _BLANK.match(self._held)
        del self._held[: blank.end() if blank else 0]
        first = bytes(self._held[:1])
        if first == b"]":
            del self._held[:1]
            self._over = True
            return False
        if first and self._count:
            if first != b",":
                refuse(f"The request body is not valid JSON: a comma is missing before requests.{self._count}")
            follows = _BLANK.match(self._held, 1)
            start = follows.end() if follows else 1
            first = bytes(self._held[start : start + 1])
            if not first:
                return False  # the comma is kept until more comes
            del self._held[:start]
        if first and first != b"{":
            refuse(f"requests.{self._count}: Input should be an object")
        self._depth, self._at = (1, 1) if first else (0, 0)
        return bool(first)


class MessageIntake:
    """Receives the requests of one batch. An error of the envelope refuses the whole batch; errors in the params of a
    request are left to the provider, which reports them in that request's result."""

    def __init__(self, scales: Scales | None) -> None:
        """`scales`: of a service with a budget."""
        self._scales = scales
        self._ids: set[str] = set()
        self._models: dict[str, int] = {}
        self._digest = hashlib.sha256()
        self.ended = False  # the body was read to its end

    async def lines(self, chunks: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        cutter = RequestCutter()
        async for chunk in chunks:
            if found := b"".join(map(self._line, cutter.feed(chunk))):
                self._digest.update(found)
                yield found
        self.ended = True
        cutter.end()
        if not self._ids:
            refuse("requests: List should have at least 1 item after validation, not 0")

    @property
    def requests(self) -> int:
        return len(self._ids)

    @property
    def model(self) -> str | None:
        return next(iter(self._models), None)

    def digest(self) -> str:
        return self._digest.hexdigest()

    def survey(self) -> dict[str, Any]:
        """The survey as it is stored with the file."""
        urls = {MESSAGES: [self.requests, [1]]}
        return {
            "requests": self.requests,
            "digest": self.digest(),
            "urls": urls,
            "models": self._models,
            "faults": [],
            "fault_count": 0,
        }

    def _line(self, request: bytes) -> bytes:
        where = f"requests.{len(self._ids)}"
        if len(self._ids) >= REQUESTS_MAX:
            refuse(f"requests: List should have at most {REQUESTS_MAX} items")
        try:
            text = text_of(request)
            check_values(text)
            found = members(text)
        except LineRefused as refused:
            raise Problem(400, f"{where}: the request {refused}") from None
        named = {member.key: member for member in found}
        for name in named:
            if name not in ("custom_id", "params"):
                refuse(f"{where}.{name[:64]}: Extra inputs are not permitted")
        if len(named) != len(found):
            refuse(f"{where}: a member occurs twice")
        for name in ("custom_id", "params"):
            if name not in named:
                refuse(f"{where}.{name}: Field required")
        custom_id = self._check_id(where, named["custom_id"].value)
        params = named["params"]
        body = text[params.start : params.end].replace("\n", " ").replace("\r", " ")  # they stand between tokens
        self._check_params(where, custom_id, body, params.value)
        self._ids.add(custom_id)
        return f'{{"custom_id":"{custom_id}","method":"POST","url":"{MESSAGES}","body":{body}}}\n'.encode()

    def _check_id(self, where: str, custom_id: object) -> str:
        if not isinstance(custom_id, str):
            refuse(f"{where}.custom_id: Input should be a valid string")
        if not custom_id:
            refuse(f"{where}.custom_id: String should have at least 1 character")
        if len(custom_id) > ID_CHARACTERS_MAX:
            refuse(f"{where}.custom_id: String should have at most {ID_CHARACTERS_MAX} characters")
        if not _ID.fullmatch(custom_id):
            refuse(f"{where}.custom_id: String should match pattern '^[a-zA-Z0-9_-]{{1,64}}$'")
        if custom_id in self._ids:
            refuse(f"{where}.custom_id: '{custom_id}' is already used; each custom_id must be unique in a batch")
        return custom_id

    def _check_params(self, where: str, custom_id: str, body: str, params: object) -> None:
        if not isinstance(params, dict):
            refuse(f"{where}.params: Input should be an object")
        if params.get("stream"):
            refuse(f"{where}.params.stream: streaming is not supported in batches")
        if self._scales is not None:
            try:
                self._scales.weigh(LlmRequest(custom_id, MESSAGES, body), params)
            except UsageError:
                raise Problem(400, f"{where}.params: {UNBOUNDED_WORDS}") from None
        model = params.get("model")
        if isinstance(model, str) and not self._models:
            self._models[printable_model(model)] = 1
