"""The formats that all of OpenAI's endpoints share: request bodies, errors, headers and lists."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

from backstay.practice.faults import FAULT_HEADER, requested_fault
from backstay.practice.pipeline import LimitUse, PaidCall
from backstay.practice.replies import (
    JSON,
    ErrorReason,
    PracticeReply,
    Prompt,
    ProviderError,
    count_tokens,
    flatten_content,
    json_reply,
)

MESSAGE_TOKENS = 4  # of a message, beside its text
METADATA_PAIRS_MAX, METADATA_KEY_CHARACTERS_MAX, METADATA_VALUE_CHARACTERS_MAX = 16, 64, 512
# Fields by which a client finds a request again, or says how it wants the answer: without them it is the same request.
FIELDS_NOT_IN_DIGEST = ("metadata", "store", "background", "stream")

Body = Mapping[str, Any]

_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode  # json.dumps would make one every time

# Errors and headers


class OpenAiError(ProviderError):
    """An error with the fields that OpenAI gives it."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(status, message, headers=headers)
        self.code = code
        self.param = param
        self.kind = kind


def missing_parameter(param: str) -> OpenAiError:
    return OpenAiError(400, f"Missing required parameter: '{param}'.", "missing_required_parameter", param)


def wrong_type(param: str, wanted: str) -> OpenAiError:
    return OpenAiError(400, f"Invalid type for '{param}': expected {wanted}.", "invalid_type", param)


def not_found(what: str, name: str) -> OpenAiError:
    return OpenAiError(404, f"No such {what}: '{name}'.", param="id")


class _ErrorFields(NamedTuple):
    code: str | None = None
    param: str | None = None
    kind: str | None = None


_FIELDS_OF_REASON = {
    ErrorReason.OTHER: _ErrorFields(),
    ErrorReason.UNKNOWN_FAULT: _ErrorFields(param=FAULT_HEADER),
    ErrorReason.OUTAGE: _ErrorFields("service_unavailable"),
    ErrorReason.KEY: _ErrorFields("invalid_api_key"),
    ErrorReason.MODEL: _ErrorFields("model_not_found", "model"),
    ErrorReason.RATE_LIMIT: _ErrorFields("rate_limit_exceeded"),
    ErrorReason.QUOTA: _ErrorFields("insufficient_quota", kind="insufficient_quota"),
}
_KIND_OF_STATUS = {401: "authentication_error", 403: "permission_error", 429: "requests"}


def error_body(error: ProviderError) -> dict[str, Any]:
    if isinstance(error, OpenAiError):
        fields = _ErrorFields(error.code, error.param, error.kind)
    else:
        fields = _FIELDS_OF_REASON[error.reason]
    status = error.status
    kind = fields.kind or _KIND_OF_STATUS.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": fields.param, "code": fields.code}}


class OpenAiFormat:
    """OpenAI's keys, request ids, errors and rate limits; Azure's header for the key, too."""

    def api_key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        return key if scheme.lower() == "bearer" else headers.get("api-key")

    def id_headers(self, mark: str) -> Mapping[str, str]:
        return {"x-request-id": f"req_{mark}"}

    def error_reply(self, error: ProviderError) -> PracticeReply:
        # OpenAI's clients send a request again after a 409 unless this header says no.
        stay = {"x-should-retry": "false"} if error.status == 409 else {}
        return PracticeReply(error.status, json.dumps(error_body(error)).encode(), {**JSON, **stay, **error.headers})

    def limit_headers(self, use: LimitUse) -> Mapping[str, str]:
        headers: dict[str, str] = {}
        for kind, limit in use.limits.items():
            headers[f"x-ratelimit-limit-{kind}"] = str(limit)
            headers[f"x-ratelimit-remaining-{kind}"] = str(max(limit - use.used[kind], 0))
            headers[f"x-ratelimit-reset-{kind}"] = go_duration(use.reset_seconds)
        return headers

    def limit_error(self, use: LimitUse) -> ProviderError:
        wait = use.wait_seconds
        waits = {"Retry-After": f"{-(-wait // 1):.0f}", "retry-after-ms": f"{wait * 1000:.0f}"}
        message = f"Rate limit reached on {use.exceeded} per min (practice). Please try again in {go_duration(wait)}."
        headers = {**self.limit_headers(use), **waits}
        return OpenAiError(429, message, "rate_limit_exceeded", kind=use.exceeded, headers=headers)


OPENAI = OpenAiFormat()


def go_duration(seconds: float) -> str:
    """As OpenAI writes it: 12ms, 1.5s, 6m0s."""
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms"
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:.0f}m{rest:g}s" if minutes else f"{rest:g}s"


# Bodies of requests


def read_object(raw: bytes) -> dict[str, Any]:
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise OpenAiError(400, "We could not parse the JSON body of your request.") from None
    if not isinstance(body, dict):
        raise OpenAiError(400, "The body of a request must be a JSON object.")
    return body


def read_call(url: str, body: dict[str, Any], headers: Mapping[str, str]) -> PaidCall:
    digest = digest_of(url, body)
    metadata = body.get("metadata")
    ref = metadata.get("backstay_ref") if isinstance(metadata, dict) else None
    ref = ref or headers.get("Idempotency-Key") or headers.get("X-Client-Request-Id") or digest
    return PaidCall(url, body, str(ref), digest, requested_fault(metadata, body.get("model")))


def digest_of(url: str, body: dict[str, Any]) -> str:
    """The same for every order of keys, and with or without the fields that only help a client to find a request."""
    if not body.keys().isdisjoint(FIELDS_NOT_IN_DIGEST):
        body = {name: value for name, value in body.items() if name not in FIELDS_NOT_IN_DIGEST}
    return hashlib.blake2b(f"{url} {_canonical(body)}".encode(), digest_size=8).hexdigest()


def check_metadata(metadata: Any) -> None:
    """At most sixteen pairs of short texts."""
    if metadata is None:
        return
    if not isinstance(metadata, dict):
        raise wrong_type("metadata", "an object")
    if len(metadata) > METADATA_PAIRS_MAX:
        message = f"'metadata' has more than {METADATA_PAIRS_MAX} pairs."
        raise OpenAiError(400, message, "object_above_max_properties", "metadata")
    for key, value in metadata.items():
        if not isinstance(value, str):
            raise wrong_type(f"metadata.{key}", "a string")
        if len(key) > METADATA_KEY_CHARACTERS_MAX or len(value) > METADATA_VALUE_CHARACTERS_MAX:
            raise OpenAiError(400, f"'metadata.{key}' is too long.", "string_above_max_length", f"metadata.{key}")


def read_model(body: Body) -> str:
    model = body.get("model")
    if model is None:
        raise missing_parameter("model")
    if not isinstance(model, str):
        raise wrong_type("model", "a string")
    return model


def read_messages(messages: Any, param: str) -> Prompt:
    """A list of messages, whose content is a text or a list of parts."""
    if not isinstance(messages, list) or not messages:
        raise missing_parameter(param) if not messages else wrong_type(param, "an array of objects")
    parts = []
    tokens = MESSAGE_TOKENS
    for message in messages:
        if not isinstance(message, dict):
            raise wrong_type(param, "an array of objects")
        text = flatten_content(message.get("content"))
        tokens += MESSAGE_TOKENS + count_tokens(text)
        parts.append(text)
    return Prompt("\n".join(parts), parts[-1], tokens)


def read_input(value: Any, param: str) -> list[Prompt]:
    """A text, a list of texts, a list of tokens, or a list of such lists: one prompt for each."""
    if isinstance(value, str):
        return [Prompt(value, value, count_tokens(value))]
    if not isinstance(value, list) or not value:
        raise missing_parameter(param) if not value else wrong_type(param, "a string or an array")
    if all(isinstance(each, int) for each in value):
        text = json.dumps(value)
        return [Prompt(text, text, len(value))]
    if all(isinstance(each, str) or (isinstance(each, list) and each) for each in value):
        return [prompt for each in value for prompt in read_input(each, param)]
    raise wrong_type(param, "a string or an array")


def count_tool_tokens(body: Body) -> int:
    tools = body.get("tools")
    return len(json.dumps(tools)) // 4 if tools else 0


def count_schema_tokens(body: Body) -> int:
    """The tokens of the answer's schema, which the model reads too."""
    form = body.get("response_format") or (body.get("text") if isinstance(body.get("text"), dict) else None)
    return len(json.dumps(form)) // 4 if form else 0


def read_tokens_max(body: Body, *names: str) -> int | None:
    """The most tokens that an answer may have; the first of these names that is given counts."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(name, "an integer")
        if value < 1:
            raise OpenAiError(400, f"Invalid '{name}': it must be at least 1.", "integer_below_min_value", name)
        return value
    return None


# Lists


class HasId(Protocol):
    @property
    def id(self) -> str: ...


Listed = TypeVar("Listed", bound=HasId)


class Paging(NamedTuple):
    after: str | None
    limit: int
    order: str

    @classmethod
    def read(cls, query: Mapping[str, str], limit_max: int, order: str, limit: int = 20) -> "Paging":
        given = query.get("limit", str(limit))
        if not given.isdecimal() or not 1 <= int(given) <= limit_max:
            raise OpenAiError(400, f"Invalid 'limit': 1 to {limit_max}.", "invalid_value", "limit")
        order = query.get("order", order)
        if order not in ("asc", "desc"):
            raise OpenAiError(400, "Invalid 'order': asc or desc.", "invalid_value", "order")
        return cls(query.get("after") or None, int(given), order)


def list_page(items: Sequence[Listed], paging: Paging, dump: Callable[[Listed], dict[str, Any]]) -> PracticeReply:
    """One page of a list; `items` are in the order in which they were made."""
    ordered = items if paging.order == "asc" else items[::-1]
    start = 0
    if paging.after is not None:
        places = {each.id: place for place, each in enumerate(ordered)}
        if paging.after not in places:
            raise not_found("object to list after", paging.after)
        start = places[paging.after] + 1
    shown = ordered[start : start + paging.limit]
    return json_reply(
        {
            "object": "list",
            "data": [dump(each) for each in shown],
            "first_id": shown[0].id if shown else None,
            "last_id": shown[-1].id if shown else None,
            "has_more": start + paging.limit < len(ordered),
        }
    )
