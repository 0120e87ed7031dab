"""Requests to queue, in the format of OpenAI's Batch API."""

import json
from collections.abc import Iterable


def request_lines(numbers: Iterable[int]) -> str:
    """A line for each number; no two are alike."""
    return "".join(json.dumps(_request(number)) + "\n" for number in numbers)


def _request(number: int) -> dict[str, object]:
    messages = [{"role": "user", "content": f"number {number}"}]
    body = {"model": "gpt-4o-mini", "messages": messages}
    return {"custom_id": f"r{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
