"""Items on their way into the store: as JSON texts, in chunks, with the digest of all up to each chunk's end."""

import hashlib
import json
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple

from backstay.core.errors import UsageError
from backstay.core.failures import one_line
from backstay.core.models import AnswerKey
from backstay.handlers.handler import Weighed, require_cost
from backstay.store.submissions import CHUNK_CHARACTERS, CHUNK_ITEMS, Chunk, NewJob

BODY_CHARACTERS_MAX = 64 << 20
BY_PAYLOAD = "payload"

Items = Iterable[Any] | AsyncIterable[Any]


class KeyedItem(NamedTuple):
    """An item that is submitted once only, and the key that it is known by."""

    item: str | Weighed
    key: str


Encode = Callable[[Any], str | Weighed]


def encode_list(
    items: Items | None, encode: Encode, by: str | Callable[[Any], object] | None
) -> tuple[Items | None, Encode]:
    """The items, and how to encode the rest of them: a list is encoded, and so checked, as a whole. With their keys:
    what a field of each has, or what a function makes of it."""
    if items is None and by is not None:
        said = "item_key needs items: those that come from an earlier job have no keys"
        raise UsageError(said, hint="leave item_key out, or give it to the earlier job")
    if isinstance(items, list | tuple) and by is None:
        return [to_body(encode, item, number) for number, item in enumerate(items)], _keep
    if isinstance(items, list | tuple) and by is not None:
        return [_with_key(number, item, encode, by) for number, item in enumerate(items)], _keep
    if items is None or by is None:
        return items, encode
    return _stream_with_keys(items, encode, by), _keep


def _keep(item: str | Weighed) -> str | Weighed:
    return item


def _body_of(item: str | Weighed | KeyedItem) -> str:
    inner = item.item if isinstance(item, KeyedItem) else item
    return inner.body if isinstance(inner, Weighed) else inner


async def _stream_with_keys(
    items: Items, encode: Encode, by: str | Callable[[Any], object]
) -> AsyncIterator[KeyedItem]:
    number = 0
    async for item in _iterate(items):
        yield _with_key(number, item, encode, by)
        number += 1


def _with_key(number: int, item: Any, encode: Encode, by: str | Callable[[Any], object]) -> KeyedItem:
    encoded = to_body(encode, item, number)
    hint = "a key is a text of 1 to 255 printable characters, or a whole number"
    if callable(by):
        try:
            key = by(item)
        except Exception as error:
            said = one_line(f"{type(error).__name__}: {error}")
            raise UsageError(f"item {number} has no key: its item_key failed: {said}", hint=hint) from error
    else:
        made = json.loads(_body_of(encoded))
        key = made.get(by) if isinstance(made, dict) else None
    if isinstance(key, int) and not isinstance(key, bool):
        key = str(key)
    if not is_key(key):
        what = "its item_key gives none" if callable(by) else f"its field {by!r} has none"
        raise UsageError(f"item {number} has no key: {what}", hint=hint)
    return KeyedItem(encoded, str(key))


def is_key(key: object) -> bool:
    return isinstance(key, str) and 1 <= len(key) <= 255 and key.isprintable()


def unique_key(handler: str, unique: str, items: Items | None) -> str:
    """The idempotency key that stands for a unique job: made of its payloads, or of the key that its submitter gave."""
    parts = [unique]
    if unique == BY_PAYLOAD:
        if not isinstance(items, list | tuple):
            hint = "give the items as a list, or a key: unique='report of May'"
            raise UsageError("unique='payload' needs all items at once", hint=hint)
        parts += [_body_of(item) for item in items]
    text = "\0".join([handler, *parts])
    return f"unique:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()[:40]}"


async def first_chunk(new: NewJob) -> AsyncIterator[Chunk]:
    """The beginning of a job whose items come later, from the jobs that it waits for."""
    if new.after:
        yield Chunk(0, (), _digest(new).hexdigest(), last=False)


def _digest(new: NewJob) -> "hashlib._Hash":
    waits = f"\0{new.after}\0{new.takes}" if new.after else ""
    return hashlib.sha256(f"{new.handler}{waits}".encode())


def only_chunk(new: NewJob, body: str) -> Chunk:
    """The whole of a job with one item."""
    return _chunk(_digest(new), 0, [body], last=True)


def _chunk(digest: "hashlib._Hash", position: int, bodies: list[str], last: bool) -> Chunk:
    digest.update("".join(f"{body}\n" for body in bodies).encode())
    return Chunk(position, bodies, digest.copy().hexdigest(), last)


async def chunks_of(new: NewJob, items: Items, encode: Encode) -> AsyncIterator[Chunk]:
    """The items as JSON texts, in full chunks and a last one, each with the digest of all up to its end.

    With a budget each item must have a worst-case cost: the budget is enforced by reserving it before the call.
    """
    digest = _digest(new)
    bodies: list[str] = []
    weights: list[tuple[int | None, int, int]] = []
    handlers: list[str] = []
    keys: list[str] = []
    answer_keys: list[AnswerKey] = []
    position = characters = 0

    def chunk(last: bool) -> Chunk:
        others = handlers if any(name != new.handler for name in handlers) else None
        made = _chunk(digest, position, bodies, last)
        made = made._replace(weights=weights or None, keys=keys or None, handlers=others)
        return made._replace(answer_keys=answer_keys or None, reuse=new.reuse)

    async for item in _iterate(items):
        if len(bodies) == CHUNK_ITEMS or characters > CHUNK_CHARACTERS:
            yield chunk(last=False)
            position += len(bodies)
            bodies, weights, handlers, keys, answer_keys, characters = [], [], [], [], [], 0
        if isinstance(item, KeyedItem):
            keys.append(item.key)
            item = item.item
        encoded = item if isinstance(item, Weighed) else to_body(encode, item, position + len(bodies))
        if isinstance(encoded, Weighed):
            weights.append((encoded.cost_micros, encoded.tokens, encoded.output_tokens))
            handlers.append(encoded.handler or new.handler)
            if encoded.answer_key is not None:
                answer_keys.append(encoded.answer_key)
        elif new.budget_micros is not None:
            require_cost(new.handler, None)
        bodies.append(_body_of(encoded))
        characters += len(bodies[-1])
    if bodies:
        yield chunk(last=True)


def to_body(encode: Encode, item: Any, number: int) -> str | Weighed:
    try:
        encoded = encode(item)
    except UsageError as error:
        raise UsageError(f"item {number}: {error.message}", hint=error.hint) from error
    if (characters := len(_body_of(encoded))) > BODY_CHARACTERS_MAX:
        raise UsageError(f"item {number} has {characters:,} characters; the limit is {BODY_CHARACTERS_MAX:,}")
    return encoded


async def _iterate(items: Items) -> AsyncIterator[Any]:
    if isinstance(items, AsyncIterable):
        async for item in items:
            yield item
    elif isinstance(items, str | bytes | dict) or not isinstance(items, Iterable):
        raise UsageError(f"items must be a list or an iterator of payloads, not {type(items).__name__}")
    else:
        for item in items:
            yield item
