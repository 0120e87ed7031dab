"""Headers that people give with remote items: none of ours, none with credentials, nothing that breaks a line."""

from typing import Any, Final

from backstay.core.errors import UsageError
from backstay.handlers.context import Context

HEADERS_MAX: Final = 20
HEADER_LENGTH_MAX: Final = 1_000
_NAME_LENGTH_MAX: Final = 100
_TOKEN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# Payloads are stored as they are, so no header may hold credentials: none whose name has one of these words, or ends
# in token or key.
_SECRET_WORDS: Final = frozenset(
    {
        *("authorization", "auth", "cookie", "cookie2", "apikey", "secret", "password", "passwd", "pwd"),
        *("credential", "credentials", "jwt"),
    }
)
_PLAIN_KEYS: Final = frozenset(
    {
        *("partition", "routing", "cache", "idempotency", "correlation", "message", "sort", "shard", "surrogate"),
        *("dedup", "deduplication", "ordering", "group", "object", "public"),
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


def traced(context: Context) -> dict[str, str]:
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
