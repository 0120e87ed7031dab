"""The requests that every contestant of `backstay run` sends: chat completions, each with a prompt of its own."""

from __future__ import annotations

import json
from pathlib import Path

MODEL = "gpt-4o-mini"
TEXT = (
    "Read the following note of a customer and say in one word whether it is praise, a complaint or a question. "
    "Do not explain. The note has the number {number:07d}: the parcel came on time, but the box was open on one side."
)


def messages(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": TEXT.format(number=number)}]


def body(number: int) -> dict[str, object]:
    return {"model": MODEL, "messages": messages(number), "max_tokens": 16}


def write_requests(path: Path, n: int) -> None:
    """A file in the format of OpenAI's Batch API, some 360 bytes a line."""
    with path.open("w") as file:
        for number in range(n):
            line = {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body(number)}
            file.write(json.dumps(line) + "\n")
