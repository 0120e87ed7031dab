"""Headers that people give with remote items: none of ours, none with credentials, nothing that breaks a line."""

from typing import Any, Final

from backstay.core.errors import UsageError
from backstay.handlers.context import Context

HEADERS_MAX: Final = 20
HEADER_LENGTH_MAX: Final = 1_000
_NAME_LENGTH_MAX: Final = 100
_TOKEN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_.")
# A payload is kept as it is, so no credentials.
_SECRET: Final = frozenset(
    {"authorization", "proxy-authorization", "cookie", "set-cookie", "api-key", "x-api-key", "x-auth-token"}
)
TRACEPARENT: Final = "traceparent"
SIGNATURE: Final = frozenset({"webhook-id", "webhook-timestamp", "webhook-signature"})


def check_headers(headers: Any, own: frozenset[str]) -> None:
    """Raises a UsageError for what cannot be sent; `own` are the names that only we may set."""
    if not isinstance(headers, dict) or len(headers) > HEADERS_MAX:
        raise UsageError(f"headers must be an object of at most {HEADERS_MAX} texts")
    for name, value in headers.items():
        _check_header(name, value, own)


def traced(context: Context) -> dict[str, str]:
    """The W3C header by which a remote worker's spans become part of the item's trace."""
    return {} if context.traceparent is None else {TRACEPARENT: context.traceparent}


def _check_header(name: str, value: Any, own: frozenset[str]) -> None:
    low = name.lower()
    if not low or len(low) > _NAME_LENGTH_MAX or not _TOKEN.issuperset(low):
        raise UsageError(f"{name[:40]!r} is no name of a header")
    if low in own:
        raise UsageError(f"the header {low} is not yours to set")
    if low in _SECRET:
        raise UsageError(
            f"the header {low} would be kept in the database", hint="requests are signed: check that instead"
        )
    fits = isinstance(value, str) and len(value) <= HEADER_LENGTH_MAX and value.isascii() and value.isprintable()
    if not fits:
        raise UsageError(f"the header {low} must be a text of printable ASCII")
