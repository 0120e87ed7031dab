"""Items on their way into the store: as JSON texts, in chunks, with the digest of all up to each chunk's end."""

import hashlib
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import Any, NamedTuple

from backstay.core.errors import UsageError
from backstay.store.submissions import CHUNK_CHARACTERS, CHUNK_ITEMS, Chunk, NewJob

BODY_CHARACTERS_MAX = 64 << 20
NO_BUDGET = "the cost of an item is known only after it ran"
NO_BUDGET_HINT = "leave budget_micros out; LLM requests can have a budget: backstay run FILE --budget DOLLARS"

Items = Iterable[Any] | AsyncIterable[Any]


class Weighed(NamedTuple):
    """An item that costs money: its text, the most that one call can cost (None: unknown), and its tokens."""

    body: str
    cost_micros: int | None
    tokens: int


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
    position = characters = 0

    def chunk(last: bool) -> Chunk:
        digest.update("".join(f"{body}\n" for body in bodies).encode())
        return Chunk(position, bodies, digest.copy().hexdigest(), last, weights or None)

    async for item in _each(items):
        if len(bodies) == CHUNK_ITEMS or characters > CHUNK_CHARACTERS:
            yield chunk(last=False)
            position += len(bodies)
            bodies, weights, characters = [], [], 0
        if isinstance(item, Weighed):
            weights.append(item[1:])
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
