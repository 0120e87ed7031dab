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


def answer_text(body: object) -> str | None:
    """The text of a reply of chat, completions, responses, messages, Gemini or Converse. Tool calls, vectors and other
    forms are returned as JSON; None if there is no reply."""
    reply = dict_in(body)
    texts = [text for part in _answer_parts(reply) if (text := _part_text(part)) is not None]
    if texts:
        return "".join(texts)
    vectors = [vector for each in _list_in(reply.get("data")) if (vector := dict_in(each).get("embedding")) is not None]
    if vectors:
        return json.dumps(vectors[0] if len(vectors) == 1 else vectors)
    if "choices" in reply or "candidates" in reply or "content" in reply or "output" in reply:
        return ""
    return None if body is None else json.dumps(body, ensure_ascii=False)


def _answer_parts(reply: dict[str, Any]) -> list[Any]:
    """The parts of the answer; of the first answer, if the request asks for several."""
    for choice in map(dict_in, _list_in(reply.get("choices"))[:1]):
        message = dict_in(choice.get("message"))
        said = message.get("content", choice.get("text"))
        return _list_in(said) or ([said] if said else _list_in(message.get("tool_calls")))
    for candidate in map(dict_in, _list_in(reply.get("candidates"))[:1]):
        return _list_in(dict_in(candidate.get("content")).get("parts"))
    if isinstance(output := reply.get("output"), dict):
        return _list_in(dict_in(output.get("message")).get("content"))
    if isinstance(output, list):
        said = [part for item in map(dict_in, output) for part in _list_in(item.get("content"))]
        return said or [item for item in map(dict_in, output) if item.get("type") == "function_call"]
    return _list_in(reply.get("content"))


def _part_text(part: object) -> str | None:
    """Thoughts are not part of the answer."""
    if isinstance(part, str):
        return part
    fields = dict_in(part)
    if fields.get("thought") or fields.get("type") in ("thinking", "redacted_thinking", "reasoning"):
        return None
    for name in ("text", "refusal"):
        if isinstance(said := fields.get(name), str):
            return said
    called = next((fields[name] for name in ("function", "functionCall", "toolUse") if name in fields), None)
    if called is None and fields.get("type") in ("tool_use", "function_call"):
        called = fields
    return None if called is None else json.dumps(called, ensure_ascii=False)


def _list_in(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def prompt_text(body: object) -> str | None:
    """The question of a request, in any provider's format: the last message of the user, or the body as JSON."""
    fields = dict_in(body)
    for name in ("messages", "input", "contents"):
        for message in map(dict_in, reversed(_list_in(fields.get(name)))):
            if message.get("role", "user") != "user":
                continue
            said = message.get("content", message.get("parts"))
            texts = [said] if isinstance(said, str) else [_part_text(part) or "[attachment]" for part in _list_in(said)]
            return "\n".join(texts)
    asked = next((fields[name] for name in ("prompt", "input") if isinstance(fields.get(name), str)), None)
    return asked if asked is not None or body is None else json.dumps(body, ensure_ascii=False)
