"""Remote items that go out as an HTTP request each, to a URL that their submitter gave."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from backstay.core.callbacks import name_task
from backstay.core.errors import ErrorCode, UsageError
from backstay.core.failures import Failure, FailureKind, failure_of_status, one_line, parse_retry_after
from backstay.core.ids import read_item
from backstay.core.outcomes import Failed
from backstay.handlers.function import dump
from backstay.handlers.handler import Context
from backstay.handlers.outgoing import Outgoing, PostReply

HEADERS_MAX: Final = 20
HEADER_LENGTH_MAX: Final = 1_000
_NAME_LENGTH_MAX: Final = 100
_TOKEN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Payloads are stored as they are, so no header may hold credentials: none whose name has one of these words, or ends
# in token or key.
_SECRET_WORDS: Final = frozenset(
    {
        "authorization",
        "auth",
        "cookie",
        "cookie2",
        "apikey",
        "secret",
        "password",
        "passwd",
        "pwd",
        "credential",
        "credentials",
        "jwt",
    }
)
_PLAIN_KEYS: Final = frozenset(
    {
        "partition",
        "routing",
        "cache",
        "idempotency",
        "correlation",
        "message",
        "sort",
        "shard",
        "surrogate",
        "dedup",
        "deduplication",
        "ordering",
        "group",
        "object",
        "public",
    }
)
TRACEPARENT: Final = "traceparent"
SIGNATURE: Final = frozenset({"webhook-id", "webhook-timestamp", "webhook-signature"})


def check_headers(headers: Any, own: frozenset[str]) -> None:
    """Raises a UsageError for what cannot be sent; `own` are the names that only we may set."""
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise UsageError(f"headers must be an object of at most {HEADERS_MAX} texts")
    for name, value in headers.items():
        _check_header(name, value, own)


def is_credential(name: str) -> bool:
    """Whether a header of this name, in lower case, is one that people send secrets in. New ones appear all the time,
    so words decide: x-goog-api-key, private-token, x-amz-security-token and the like."""
    words = name.replace("_", "-").replace(".", "-").split("-")
    is_key = words[-1] == "key" and not _PLAIN_KEYS.intersection(words[-2:-1])
    return is_key or words[-1] == "token" or not _SECRET_WORDS.isdisjoint(words)


def trace_headers(context: Context) -> dict[str, str]:
    """The W3C header by which a remote worker's spans become part of the item's trace."""
    return {} if context.traceparent is None else {TRACEPARENT: context.traceparent}


def _check_header(name: str, value: Any, own: frozenset[str]) -> None:
    low = name.lower()
    if not low or len(low) > _NAME_LENGTH_MAX or not _TOKEN.issuperset(low):
        raise UsageError(f"{name[:40]!r} is not a valid header name")
    if low in own:
        raise UsageError(f"the header {low} cannot be set: Backstay sets it")
    if is_credential(low):
        raise UsageError(
            f"the header {low} is not allowed: its value would be stored in the database",
            hint="check the signature of the requests instead",
        )
    fits = isinstance(value, str) and len(value) <= HEADER_LENGTH_MAX and value.isascii() and value.isprintable()
    if not fits:
        raise UsageError(f"the header {low} must be a text of printable ASCII")


# Ours to set, or of one connection.
_OWN: Final = SIGNATURE | {
    "host",
    "content-length",
    "content-type",
    "transfer-encoding",
    "connection",
    "keep-alive",
    "te",
    "trailer",
    "upgrade",
    "expect",
    "idempotency-key",
}


@dataclass(frozen=True, slots=True)
class OverHttp:
    """The request's own answer only says that it was taken; what came out is posted to an address of ours."""

    outgoing: Outgoing
    public_url: str | None
    tag: Callable[[Context], str]  # makes a callback's URL one that nobody else can have made
    sign: Callable[[str, str, str], Mapping[str, str]]  # owner, name of the message, body -> headers

    def read(self, payload: dict[str, Any]) -> None:
        if not isinstance(payload.get("url"), str) or "payload" not in payload:
            raise UsageError("a remote item must have a url and a payload", hint='{"url": "https://…", "payload": …}')
        if unknown := payload.keys() - {"url", "payload", "headers"}:
            raise UsageError(f"a remote item has no field {min(map(str, unknown))[:40]!r}")
        check_headers(payload.get("headers", {}), _OWN)

    def check(self, payload: dict[str, Any]) -> None:
        self.outgoing.check(payload["url"])

    def require(self) -> None:
        if self.public_url is None:
            raise UsageError("the service does not know its public URL", hint="set BACKSTAY_PUBLIC_URL")

    def callback_url(self, context: Context) -> str:
        task = name_task(read_item(context.item_id), context.fence)
        return f"{(self.public_url or '').rstrip('/')}/callbacks/{task}/{self.tag(context)}"

    async def send(self, payload: dict[str, Any], context: Context, seconds: float) -> Failed | None:
        text, name = dump(self._request(payload, context)), context.idempotency_key
        own = {"idempotency-key": name, **trace_headers(context), **self.sign(context.owner, name, text)}
        headers = {**payload.get("headers", {}), **own}
        answer = await self.outgoing.post(payload["url"], text, headers, seconds)
        return None if 200 <= answer.status <= 299 else Failed(_refusal(answer))

    def _request(self, payload: dict[str, Any], context: Context) -> dict[str, Any]:
        return {
            "item": context.item_id,
            "attempt": context.attempt,
            "callback_url": self.callback_url(context),
            "deadline_at": context.deadline_at,
            "payload": payload["payload"],
        }


def _refusal(answer: PostReply) -> Failure:
    """A refusal is the item's own: one worker's word must not hold up those of others."""
    said = f"the remote worker answered {answer.status}: {one_line(answer.text)}"
    if answer.status < 400:
        return Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, said, provider_status=answer.status)
    after_ms = parse_retry_after(answer.retry_after, None) if answer.retry_after else None
    failure = failure_of_status(answer.status, said, after_ms)
    return replace(failure, kind=FailureKind.BUSINESS) if failure.kind is FailureKind.HELD else failure
