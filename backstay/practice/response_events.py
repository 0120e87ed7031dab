"""A response as the events of its stream: the same for whoever asks, so that a stream can be gone on with."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

QUEUED_SHARE = 0.3  # of the time that a response takes
ENDED = 1.0

_WORD = re.compile(r"\s*\S+|\s+$")

Value = dict[str, Any]


class Event(NamedTuple):
    """`at` is the share of the response's time after which it is told."""

    at: float
    sequence_number: int
    value: Value

    def dump(self) -> bytes:
        data = json.dumps({**self.value, "sequence_number": self.sequence_number})
        return f"event: {self.value['type']}\ndata: {data}\n\n".encode()


def unfinished(whole: Value, status: str) -> Value:
    """A response that is not what it will be."""
    return whole | {"status": status, "output": [], "usage": None, "error": None, "incomplete_details": None}


def events_of(whole: Value) -> list[Event]:
    """All events of a response that will end like this, in their order."""
    return [Event(at, number, value) for number, (at, value) in enumerate(_told(whole))]


def _told(whole: Value) -> Iterator[tuple[float, Value]]:
    queued = unfinished(whole, "queued")
    yield 0.0, {"type": "response.created", "response": queued}
    yield 0.0, {"type": "response.queued", "response": queued}
    yield QUEUED_SHARE, {"type": "response.in_progress", "response": unfinished(whole, "in_progress")}
    for index, message in enumerate(whole["output"]):
        yield from _told_of_message(message, index)
    yield ENDED, {"type": f"response.{whole['status']}", "response": whole}


def _told_of_message(message: Value, index: int) -> Iterator[tuple[float, Value]]:
    [part] = message["content"]
    item = {"output_index": index}
    within = {"item_id": message["id"], "output_index": index, "content_index": 0}
    begun = message | {"status": "in_progress", "content": []}
    yield QUEUED_SHARE, {"type": "response.output_item.added", **item, "item": begun}
    yield QUEUED_SHARE, {"type": "response.content_part.added", **within, "part": part | {"text": ""}}
    words = _WORD.findall(part["text"])
    for number, word in enumerate(words, 1):
        at = QUEUED_SHARE + (ENDED - QUEUED_SHARE) * number / (len(words) + 1)
        yield at, {"type": "response.output_text.delta", **within, "delta": word, "logprobs": []}
    yield ENDED, {"type": "response.output_text.done", **within, "text": part["text"], "logprobs": []}
    yield ENDED, {"type": "response.content_part.done", **within, "part": part}
    yield ENDED, {"type": "response.output_item.done", **item, "item": message}
