"""Bodies as they come in: whole ones up to a bound, and lines one by one, in constant memory."""

import json
from collections.abc import AsyncIterator
from typing import Final, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from backstay.llm import lines
from backstay.server.problems import Problem

BODY_BYTES_MAX: Final = 16 << 20
LINE_BYTES_MAX: Final = 16 << 20

M = TypeVar("M", bound=BaseModel)


async def whole_bytes(request: Request, bytes_max: int, hint: str = "") -> bytes:
    """A body that fits into memory."""
    held = bytearray()
    async for chunk in _chunks(request, bytes_max, hint):
        held += chunk
    return bytes(held)


async def whole_body(request: Request, shape: type[M]) -> M:
    """A JSON body that fits into memory, checked."""
    hint = "send the items as lines: content-type application/x-ndjson"
    held = await whole_bytes(request, BODY_BYTES_MAX, hint)
    check_characters(held)
    try:
        return shape.model_validate_json(held)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise Problem(422, f"the body is not JSON: {first['msg'].removeprefix('Invalid JSON: ')}") from None
        where = ".".join(str(part) for part in first["loc"]) or "the body"
        raise Problem(422, f"{where}: {first['msg']}") from None


def check_characters(body: bytes) -> None:
    """Raises a Problem if a text in a JSON body holds half of a character: no database and no encoder takes it.

    JSON can write it as an escape, and Python's reader also takes it as bytes that are not UTF-8, and in UTF-16.
    """
    if body.isascii() and b"\\u" not in body and b"\0" not in body:
        return
    try:
        json.dumps(json.loads(body), ensure_ascii=False).encode()
    except UnicodeEncodeError:
        hint = "write both halves of the surrogate pair, or leave it out"
        raise Problem(400, "a text in the body contains a lone surrogate (half of a character)", hint=hint) from None
    except (ValueError, RecursionError):
        return  # it is not JSON, and its reader says so


async def numbered_lines(request: Request, bytes_max: int) -> AsyncIterator[tuple[int, str]]:
    """Every line that is not blank, with its number, from 1."""
    rest, number = bytearray(), 0  # grows in place: a line that comes byte by byte is not copied for each of them
    async for chunk in _chunks(request, bytes_max, "split it into several jobs"):
        *whole, last = chunk.split(b"\n")
        for line in whole:
            number += 1
            if text := _text(number, bytes(rest) + line):
                yield number, text
            rest.clear()
        rest += last
        _check_length(number + 1, rest)
    if text := _text(number + 1, bytes(rest)):
        yield number + 1, text


def _text(number: int, line: bytes) -> str:
    _check_length(number, line)
    try:
        return lines.text_of(line)
    except lines.LineRefused as refused:
        raise Problem(422, f"line {number} {refused}") from None


def _check_length(number: int, line: bytes | bytearray) -> None:
    if len(line) > LINE_BYTES_MAX:
        raise Problem(413, f"line {number} has more than {LINE_BYTES_MAX:,} bytes", hint="write one item per line")


async def _chunks(request: Request, bytes_max: int, hint: str) -> AsyncIterator[bytes]:
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise Problem(415, "a compressed body is not supported", hint="send the body uncompressed")
    too_large = Problem(413, f"the body has more than {bytes_max:,} bytes", hint=hint)
    declared = request.headers.get("content-length", "0")
    if declared.isdigit() and int(declared[:20]) > bytes_max:
        raise too_large
    size = 0
    try:
        async for chunk in request.stream():
            size += len(chunk)
            if size > bytes_max:
                raise too_large
            yield chunk
    except ClientDisconnect:
        raise Problem(400, "the body ended too early") from None
