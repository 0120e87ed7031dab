"""Bodies in any provider's format: reads values from replies, which are untrusted, and measures the input of
requests."""

import json
from datetime import UTC, datetime
from typing import Any, Final

from backstay.core.errors import Transient
from backstay.llm.provider import ProviderReply

_ID_CHARACTERS_MAX: Final = 500


def object_in(reply: ProviderReply) -> dict[str, Any] | None:
    """The reply's content, if it is a JSON object."""
    return object_of(reply.text)


def require_object(reply: ProviderReply) -> dict[str, Any]:
    if (said := object_in(reply)) is None:
        raise Transient("the provider's answer is not a JSON object")
    return said


def object_of(text: str | bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def id_in(value: dict[str, Any] | None, key: str = "id") -> str | None:
    """The id of what the provider created, if it can be stored and asked for."""
    named = value.get(key) if value is not None else None
    return named if isinstance(named, str) and 0 < len(named) <= _ID_CHARACTERS_MAX and named.isprintable() else None


def dict_in(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def list_in(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def text_in(value: object) -> str | None:
    """Some providers write an empty text instead of null."""
    return value if isinstance(value, str) and value else None


def whole_in(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def moment_ms(text: object) -> int | None:
    """A time like 2026-11-17T17:00:00Z, in milliseconds since 1970."""
    try:
        moment = datetime.fromisoformat(text) if isinstance(text, str) else None
        if moment is None:
            return None
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return None


# The size of the input of a request

BYTES_PER_TOKEN: Final = 4  # of UTF-8: right for English, and close enough for scripts with more bytes per letter


class InputSize:
    """Adds up the input of a body. Each format has objects of its own: see `add_object`."""

    __slots__ = ("bounded", "bytes", "data_bytes", "data_tokens_max", "tokens")

    def __init__(self) -> None:
        self.bytes = 0  # of text
        self.tokens = 0  # of everything else
        self.data_bytes = 0  # of pictures and sound, which are not read as text
        self.data_tokens_max = 0
        self.bounded = True

    def add(self, value: Any) -> None:
        if isinstance(value, str):
            self.bytes += utf8_length(value)
        elif isinstance(value, list):
            for inner in value:
                self.add(inner)
        elif isinstance(value, dict):
            self.add_object(value)
        elif value is not None:
            self.bytes += BYTES_PER_TOKEN  # a number, which may be a token itself

    def add_object(self, value: dict[str, Any]) -> None:
        raise NotImplementedError


def longest_text(value: Any) -> int:
    """The bytes of the longest text in a value: in a picture or a sound, that is its data or its address."""
    if isinstance(value, str):
        return utf8_length(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(longest_text, inner), default=0)


def utf8_length(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


# What a person reads


def question_in(messages: object, member: str = "content") -> str | None:
    """The last message of the user, whose text or parts are in this member; None if there is none."""
    for message in reversed(list_in(messages)):
        if isinstance(message, dict) and message.get("role", "user") == "user":
            said = message.get(member)
            return said if isinstance(said, str) else "\n".join(map(_part_shown, list_in(said)))
    return None


def _part_shown(part: object) -> str:
    return part if isinstance(part, str) else text_in(dict_in(part).get("text")) or "[attachment]"
