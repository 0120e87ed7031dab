"""What a program does with Anthropic's client, whichever major is installed; run with (practice or service), url, key.

It knows nothing of Backstay. What it saw it prints as JSON.
"""

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import anthropic

MODEL = "claude-sonnet-4-5"


def params(text: str, **more: Any) -> dict[str, Any]:
    return {"model": MODEL, "max_tokens": 50, "messages": [{"role": "user", "content": text}], **more}


def error_of(ask: Callable[..., Any], *given: Any, **more: Any) -> list[Any] | None:
    try:
        ask(*given, **more)
    except anthropic.APIStatusError as error:
        body: Any = error.body
        return [type(error).__name__, error.status_code, body["error"]["type"], bool(error.request_id)]
    return None


def ended(batches: Any, batch: Any) -> Any:
    until = time.monotonic() + 60
    while batch.processing_status != "ended" and time.monotonic() < until:
        time.sleep(0.05)
        batch = batches.retrieve(batch.id)
    return batch


def visit_batches(client: Any) -> dict[str, Any]:
    batches = client.messages.batches
    requests = [{"custom_id": f"r{n}", "params": params(f"Say {n}")} for n in range(5)]
    requests.append({"custom_id": "missing", "params": params("x", model="practice-404")})
    batch = ended(batches, batches.create(requests=requests))
    results = {each.custom_id: each.result for each in batches.results(batch.id)}
    other = batches.create(requests=requests[:1])
    seen = {
        "counts": batch.request_counts.model_dump(),
        "texts": [results[f"r{n}"].message.content[0].text.rpartition(" ")[2] for n in range(5)],
        "errored": [results["missing"].type, results["missing"].error.error.type],
        "listed": [each.id for each in batches.list(limit=1)] == [other.id, batch.id],
        "cancelled": error_of(batches.cancel, batch.id),
        "twice": error_of(batches.create, requests=[requests[0], requests[0]]),
        "empty": error_of(batches.create, requests=[]),
        "deleted": batches.delete(batch.id).type,
        "gone": error_of(batches.retrieve, batch.id),
    }
    ended(batches, other)
    return seen


def visit_calls(client: Any) -> dict[str, Any]:
    reply = client.messages.with_raw_response.create(**params("hello"))
    message = reply.parse()
    return {
        "text": message.content[0].text.endswith(" hello"),
        "counted": client.messages.count_tokens(model=MODEL, messages=params("hello")["messages"]).input_tokens
        == message.usage.input_tokens,
        "remaining": reply.headers["anthropic-ratelimit-requests-remaining"],
        "models": [model.id for model in client.models.list(limit=1)],
        "busy": error_of(client.messages.create, **params("x", model="practice-529")),
        "limited": error_of(client.messages.create, **params("x", model="practice-429")),
        "stream": error_of(client.messages.create, **params("x", stream=True)),
    }


def visit(place: str, url: str, key: str) -> dict[str, Any]:
    given: dict[str, Any] = {"base_url": url, "max_retries": 0, "_strict_response_validation": True}
    client = anthropic.Anthropic(api_key=key, **given)
    stranger = anthropic.Anthropic(api_key="wrong-key-0123456789", **given)
    return {
        "version": anthropic.__version__,
        "stranger": error_of(lambda: list(stranger.messages.batches.list())),
        **visit_batches(client),
        **(visit_calls(client) if place == "practice" else {}),
    }


print(json.dumps(visit(*sys.argv[1:])))
