"""Anthropic's messages, the counting of their tokens, and its models: shapes, errors and limits as its clients know
them."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from aiohttp import web

from backstay.practice.faults import RequestedFault, model_named_after, requested_fault
from backstay.practice.pipeline import LimitUse, PaidCall, Pipeline, ProviderState
from backstay.practice.replies import (
    JSON,
    NO_STREAMS,
    ErrorReason,
    GeneratedReply,
    PracticeReply,
    Prompt,
    ProviderError,
    ReplyStamp,
    count_tokens,
    flatten_content,
    json_reply,
    moment,
    write_answer,
)
from backstay.practice.structured import form_answer, shows_answer

MESSAGES: Final = "/v1/messages"
VERSION_HEADER: Final = "anthropic-version"  # every client of this API sends it, and no other one
MESSAGE_TOKENS: Final = 4  # of a message, beside its text
MODELS: Final = ("claude-practice", "claude-practice-mini")
MODEL_CREATED_AT: Final = "2026-01-01T00:00:00Z"
UNKNOWN_MODEL: Final = model_named_after(404)
PARAMETERS: Final = frozenset(
    (
        "model",
        "max_tokens",
        "messages",
        "system",
        "stop_sequences",
        "tools",
        "tool_choice",
        "thinking",
        "output_config",
        "cache_control",
        "metadata",
        "service_tier",
        "speed",
        "inference_geo",
        "container",
        "diagnostics",
        "stream",
        "temperature",
        "top_p",
        "top_k",
    )
)
TYPE_OF_STATUS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
SPEND_LIMIT: Final = "enforced_spend_limit_reached"
NOT_IN_DIGEST: Final = ("metadata", "stream")

Body = Mapping[str, Any]
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def invalid(message: str) -> ProviderError:
    return ProviderError(400, message)


def not_found(what: str) -> ProviderError:
    return ProviderError(404, f"{what} was not found.")


def error_body(error: ProviderError) -> dict[str, Any]:
    status = error.status
    kind = TYPE_OF_STATUS.get(status, "api_error" if status >= 500 or status == 0 else "invalid_request_error")
    details = {"details": {"error_code": SPEND_LIMIT}} if error.reason is ErrorReason.QUOTA else {}
    return {"type": "error", "error": {"type": kind, "message": error.message, **details}, "request_id": None}


class AnthropicFormat:
    """Anthropic's keys, request ids, errors and rate limits. Newer clients send the key as OpenAI's do."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state

    def api_key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        return headers.get("x-api-key") or (key if scheme.lower() == "bearer" else None)

    def id_headers(self, mark: str) -> Mapping[str, str]:
        return {"request-id": f"req_{mark}"}

    def error_reply(self, error: ProviderError) -> PracticeReply:
        # Anthropic's clients send a request again after a 409 unless this header says no.
        stay = {"x-should-retry": "false"} if error.status == 409 else {}
        return PracticeReply(error.status, json.dumps(error_body(error)).encode(), {**JSON, **stay, **error.headers})

    def limit_headers(self, use: LimitUse) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        reset = moment(self._state.clock.now_ms() + int(use.reset_seconds * 1000))
        for kind, limit in use.limits.items():
            headers[f"anthropic-ratelimit-{kind}-limit"] = str(limit)
            headers[f"anthropic-ratelimit-{kind}-remaining"] = str(max(limit - use.used[kind], 0))
            headers[f"anthropic-ratelimit-{kind}-reset"] = reset
        return headers

    def limit_error(self, use: LimitUse) -> ProviderError:
        message = f"This request would exceed your rate limit of {use.exceeded} per minute (practice)."
        headers = {**self.limit_headers(use), "Retry-After": f"{-(-use.wait_seconds // 1):.0f}"}
        return ProviderError(429, message, ErrorReason.RATE_LIMIT, headers)


# Requests and replies


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise invalid("The request body is not valid JSON.") from None
    if not isinstance(body, dict):
        raise invalid("The request body must be a JSON object.")
    return body


def read_call(body: dict[str, Any]) -> PaidCall:
    """A fault is requested by the model, or by the user's id in the metadata, each with a name such as practice-529."""
    said = {name: value for name, value in body.items() if name not in NOT_IN_DIGEST}
    digest = hashlib.blake2b(f"{MESSAGES} {_canonical(said)}".encode(), digest_size=8).hexdigest()
    return PaidCall(MESSAGES, body, digest, digest, _fault_in(body))


def _fault_in(body: Body) -> RequestedFault | None:
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, dict) else None
    return requested_fault(None, user) or requested_fault(None, body.get("model"))


def check_body(body: Body, *required: str) -> None:
    for name in required:
        if body.get(name) is None:
            raise invalid(f"{name}: Field required")
    if unknown := sorted(body.keys() - PARAMETERS):
        raise invalid(f"{unknown[0]}: Extra inputs are not permitted")
    if not isinstance(body["model"], str):
        raise invalid("model: Input should be a valid string")
    tokens = body.get("max_tokens")
    if tokens is not None and (type(tokens) is not int or tokens < 1):
        raise invalid("max_tokens: Input should be greater than or equal to 1")
    messages = body["messages"]
    if not isinstance(messages, list) or not messages:
        raise invalid("messages: at least one message is required")
    for number, message in enumerate(messages):
        if not isinstance(message, dict) or message.get("role") not in ("user", "assistant"):
            raise invalid(f"messages.{number}.role: Input should be 'user' or 'assistant'")
        if not isinstance(message.get("content"), str | list):
            raise invalid(f"messages.{number}.content: Input should be a valid string or list")
    if body.get("stream"):
        raise invalid(f"stream: {NO_STREAMS}")


def read_prompt(body: Body) -> Prompt:
    texts = [flatten_content(body["system"])] if body.get("system") else []
    texts += [flatten_content(message["content"]) for message in body["messages"]]
    tools = sum(len(json.dumps(body[name])) // 4 for name in ("tools", "output_config") if body.get(name))
    tokens = MESSAGE_TOKENS + tools + sum(MESSAGE_TOKENS + count_tokens(text) for text in texts)
    return Prompt("\n".join(texts), texts[-1], tokens)


def generate_message(body: Body, stamp: ReplyStamp, tier: str = "standard") -> GeneratedReply:
    """A message; it calls a tool if the request says which one, or that one must be called."""
    check_body(body, "model", "max_tokens", "messages")
    prompt, tokens_max = read_prompt(body), body["max_tokens"]
    form = form_answer(_schema_in(body), prompt.text, stamp.fault, shows_answer(body["messages"]))
    answer = write_answer(prompt, tokens_max, stamp.answer_tokens, form)
    content: dict[str, Any] = {"type": "text", "text": answer.text, "citations": None}
    reason = "end_turn" if answer.whole else "max_tokens"
    if (tool := _chosen_tool(body)) is not None:
        given = {"answer": answer.text}
        content = {"type": "tool_use", "id": f"toolu_{stamp.mark}", "name": tool, "input": given, "caller": None}
        reason = "tool_use"
    value = {
        "id": f"msg_{stamp.mark}",
        "type": "message",
        "role": "assistant",
        "model": body["model"],
        "content": [content],
        "stop_reason": reason,
        "stop_sequence": None,
        "stop_details": None,
        "container": None,
        "usage": {
            "input_tokens": prompt.tokens,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 0,
            "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
            "output_tokens": answer.tokens,
            "server_tool_use": None,
            "service_tier": tier,
        },
    }
    return GeneratedReply(json.dumps(value), prompt.tokens, answer.tokens, prompt.tokens + tokens_max)


def _schema_in(body: Body) -> Any:
    config = body.get("output_config")
    form = config.get("format") if isinstance(config, dict) else None
    return form.get("schema") if isinstance(form, dict) else None


def _chosen_tool(body: Body) -> str | None:
    choice, tools = body.get("tool_choice"), body.get("tools")
    named = choice.get("type") if isinstance(choice, dict) else None
    if not isinstance(choice, dict) or not isinstance(tools, list) or named not in ("tool", "any"):
        return None
    return str(choice.get("name") if named == "tool" else tools[0]["name"])


class AnthropicCalls:
    """Messages, which cost money, and the counting of their tokens, which does not."""

    def __init__(self, form: AnthropicFormat) -> None:
        self._form = form

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        router.add_route("POST", MESSAGES, pipeline.paid_route(self._form, self))
        router.add_route("POST", f"{MESSAGES}/count_tokens", pipeline.unpaid_route(self._form, self.count_tokens))

    def read_call(self, request: web.Request, raw: bytes) -> PaidCall:
        return read_call(read_object(raw))

    def generate(self, call: PaidCall, stamp: ReplyStamp) -> GeneratedReply:
        return generate_message(call.body, stamp)

    def finish(self, call: PaidCall, made: GeneratedReply, charge: Callable[[], None]) -> PracticeReply:
        charge()
        return PracticeReply(200, made.text.encode())

    async def count_tokens(self, request: web.Request) -> PracticeReply:
        body = read_object(await request.read())
        check_body(body, "model", "messages")
        return json_reply({"input_tokens": read_prompt(body).tokens})


async def list_models(request: web.Request) -> PracticeReply:
    return list_page(MODELS, request.query, str, model_object)


async def show_model(request: web.Request) -> PracticeReply:
    """Any name is a model, except the one that asks for a 404."""
    name = request.match_info["id"]
    if name == UNKNOWN_MODEL:
        raise not_found(f"model: {name}")
    return json_reply(model_object(name))


def model_object(name: str) -> dict[str, Any]:
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": MODEL_CREATED_AT,
        "lifecycle": "active",
        "max_input_tokens": 1_000_000,
        "max_tokens": 64_000,
        "capabilities": None,
    }


Listed = TypeVar("Listed")


def list_page(
    ordered: Sequence[Listed],
    query: Mapping[str, str],
    id_of: Callable[[Listed], str],
    dump: Callable[[Listed], dict[str, Any]],
) -> PracticeReply:
    """One page of a list in its order: after an id, or the last ones before it."""
    given = query.get("limit", "20")
    if not given.isdecimal() or not 1 <= int(given) <= 1_000:
        raise invalid("limit: Input should be from 1 to 1000")
    limit, ids = int(given), [id_of(each) for each in ordered]
    start, end = 0, len(ids)
    for name in ("after_id", "before_id"):
        if (cursor := query.get(name)) and cursor not in ids:
            raise not_found(f"{name}: {cursor}")
    if cursor := query.get("after_id"):
        start = ids.index(cursor) + 1
    elif cursor := query.get("before_id"):
        end = ids.index(cursor)
        start = max(end - limit, 0)
    shown = ordered[start : min(start + limit, end)]
    has_more = start > 0 if query.get("before_id") else start + limit < end
    return json_reply(
        {
            "data": [dump(each) for each in shown],
            "has_more": has_more,
            "first_id": id_of(shown[0]) if shown else None,
            "last_id": id_of(shown[-1]) if shown else None,
        }
    )
