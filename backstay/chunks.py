"""Items on their way into the store: as JSON texts, in chunks, with the digest of all up to each chunk's end."""

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple

from backstay.core.errors import UsageError
from backstay.store.submissions import CHUNK_CHARACTERS, CHUNK_ITEMS, Chunk, NewJob

BODY_CHARACTERS_MAX = 64 << 20
BY_PAYLOAD = "payload"
NO_BUDGET = "the cost of an item is known only after it ran"
NO_BUDGET_HINT = "leave budget_micros out; LLM requests can have a budget: backstay run FILE --budget DOLLARS"

Items = Iterable[Any] | AsyncIterable[Any]


class Weighed(NamedTuple):
    """An item that costs money: its text, the most that one call can cost (None: unknown), and its tokens."""

    body: str
    cost_micros: int | None
    tokens: int


class Keyed(NamedTuple):
    """An item that is submitted once only: its text, and the key that it is known by."""

    body: str
    key: str


def encode_list(
    items: Items | None, encode: Callable[[Any], str], by: str | Callable[[Any], object] | None
) -> tuple[Items | None, Callable[[Any], str]]:
    """The items, and how to encode the rest of them: a list is encoded, and so checked, as a whole. With their keys:
    what a field of each has, or what a function makes of it."""
    if isinstance(items, list | tuple) and by is None:
        return [to_body(encode, item) for item in items], str
    if isinstance(items, list | tuple) and by is not None:
        return [_keyed(number, item, encode, by) for number, item in enumerate(items)], str
    if items is None or by is None:
        return items, encode
    return _stream_with_keys(items, encode, by), str


async def _stream_with_keys(
    items: Items, encode: Callable[[Any], str], by: str | Callable[[Any], object]
) -> AsyncIterator[Keyed]:
    number = 0
    async for item in _each(items):
        yield _keyed(number, item, encode, by)
        number += 1


def _keyed(number: int, item: Any, encode: Callable[[Any], str], by: str | Callable[[Any], object]) -> Keyed:
    body = to_body(encode, item)
    if callable(by):
        key = by(item)
    else:
        made = json.loads(body)
        key = made.get(by) if isinstance(made, dict) else None
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not is_key(key):
        what = "its item_key gives none" if callable(by) else f"its field {by!r} has none"
        hint = "a key is a text of 1 to 255 printable characters, or a whole number"
        raise UsageError(f"item {number} has no key: {what}", hint=hint)
    return Keyed(body, str(key))


def is_key(key: object) -> bool:
    return isinstance(key, str) and 1 <= len(key) <= 255 and key.isprintable()


def unique_key(handler: str, unique: str, items: Items | None) -> str:
    """The idempotency key that stands for a unique job: made of its payloads, or of the key that its submitter gave."""
    parts = [unique]
    if unique == BY_PAYLOAD:
        if not isinstance(items, list | tuple):
            hint = "give the items as a list, or a key: unique='report of May'"
            raise UsageError("unique='payload' needs all items at once", hint=hint)
        parts += [item if isinstance(item, str) else item[0] for item in items]
    text = "\0".join([handler, *parts])
    return f"unique:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


async def first_chunk(new: NewJob) -> AsyncIterator[Chunk]:
    """The beginning of a job whose items come later, from the jobs that it waits for."""
    if new.after and new.budget_micros is not None:
        raise UsageError(f"a budget cannot be enforced for {new.handler!r}: {NO_BUDGET}", hint=NO_BUDGET_HINT)
    if new.after:
        yield Chunk(0, (), _digest(new).hexdigest(), last=False)


def _digest(new: NewJob) -> "hashlib._Hash":
    waits = f"\0{new.after}\0{new.takes}" if new.after else ""
    return hashlib.sha256(f"{new.handler}{waits}".encode())


async def chunks_of(new: NewJob, items: Items, encode: Callable[[Any], str], budget: bool) -> AsyncIterator[Chunk]:
    """The items as JSON texts, in full chunks and a last one, each with the digest of all up to its end.

    With a budget each item must have a worst-case cost: the budget is enforced by reserving it before the call.
    """
    handler, digest = new.handler, _digest(new)
    bodies: list[str] = []
    weights: list[tuple[int | None, int]] = []
    keys: list[str] = []
    position = characters = 0

    def chunk(last: bool) -> Chunk:
        digest.update("".join(f"{body}\n" for body in bodies).encode())
        return Chunk(position, bodies, digest.copy().hexdigest(), last, weights or None, keys or None)

    async for item in _each(items):
        if len(bodies) == CHUNK_ITEMS or characters > CHUNK_CHARACTERS:
            yield chunk(last=False)
            position += len(bodies)
            bodies, weights, keys, characters = [], [], [], 0
        if isinstance(item, Weighed):
            weights.append(item[1:])
            item = item.body
        elif isinstance(item, Keyed):
            keys.append(item.key)
            item = item.body
        elif budget:
            raise UsageError(f"a budget cannot be enforced for {handler!r}: {NO_BUDGET}", hint=NO_BUDGET_HINT)
        bodies.append(to_body(encode, item))
        characters += len(bodies[-1])
    if bodies:
        yield chunk(last=True)


def to_body(encode: Callable[[Any], str], item: Any) -> str:
    body = encode(item)
    if len(body) > BODY_CHARACTERS_MAX:
        raise UsageError(f"an item has {len(body):,} characters; the limit is {BODY_CHARACTERS_MAX:,}")
    return body


async def _each(items: Items) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    elif isinstance(items, str | bytes | dict) or not isinstance(items, Iterable):
        raise UsageError(f"items must be a list or an iterator of payloads, not {type(items).__name__}")
    else:
        for item in items:
            yield item
