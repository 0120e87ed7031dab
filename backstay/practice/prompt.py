"""The text of a request and of its answer, and how many tokens they would be."""

import hashlib
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from backstay.practice.refusals import Refused, missing, wrong_type

ECHO_CHARACTERS = 200
MESSAGE_TOKENS = 4  # what the form of a message costs beside its text
_FILLER = " and so on"


class Prompt(NamedTuple):
    """What a request asks: the whole text, its last part, and the tokens of it."""

    text: str
    last: str
    tokens: int


class Answer(NamedTuple):
    """`whole` is False when the answer did not fit into the tokens that were allowed."""

    text: str
    tokens: int
    whole: bool


def tokens_of(text: str) -> int:
    """About four characters a token, or three bytes where they are not ASCII; never more than there are bytes."""
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "surrogatepass")) + 2) // 3


def read_messages(messages: Any, param: str) -> Prompt:
    """A list of messages, whose content is a text or a list of parts."""
    if not isinstance(messages, list) or not messages:
        raise missing(param) if not messages else wrong_type(param, "an array of objects")
    parts = []
    tokens = MESSAGE_TOKENS
    for message in messages:
        if not isinstance(message, dict):
            raise wrong_type(param, "an array of objects")
        content = message.get("content")
        text = content if isinstance(content, str) else _flat(content)
        tokens += MESSAGE_TOKENS + tokens_of(text)
        parts.append(text)
    return Prompt("\n".join(parts), parts[-1], tokens)


def read_input(value: Any, param: str) -> list[Prompt]:
    """A text, a list of texts, a list of tokens, or a list of such lists: one prompt for each."""
    if isinstance(value, str):
        return [Prompt(value, value, tokens_of(value))]
    if not isinstance(value, list) or not value:
        raise missing(param) if not value else wrong_type(param, "a string or an array")
    if all(isinstance(each, int) for each in value):
        text = json.dumps(value)
        return [Prompt(text, text, len(value))]
    if all(isinstance(each, str) or (isinstance(each, list) and each) for each in value):
        return [prompt for each in value for prompt in read_input(each, param)]
    raise wrong_type(param, "a string or an array")


def tool_tokens(body: Mapping[str, Any]) -> int:
    tools = body.get("tools")
    return len(json.dumps(tools)) // 4 if tools else 0


def bound_of(body: Mapping[str, Any], *names: str) -> int | None:
    """The most tokens that an answer may have; the first of these names that is given counts."""
    for name in names:
        value = body.get(name)
        if value is None:
            continue
        if not isinstance(value, int) or isinstance(value, bool):
            raise wrong_type(name, "an integer")
        if value < 1:
            raise Refused(400, f"Invalid '{name}': it must be at least 1.", "integer_below_min_value", name)
        return value
    return None


def answer(prompt: Prompt, bound: int | None, answer_tokens: int | None) -> Answer:
    """Always the same for the same prompt: its digest, and the beginning of its last part."""
    mark = hashlib.blake2b(prompt.text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    head = f"practice {mark}"
    if answer_tokens is None:
        least = tokens_of(head)
        text = _echo(head, prompt.last[:ECHO_CHARACTERS], bound)
    else:
        least = answer_tokens
        filled = head + _FILLER * (answer_tokens * 4 // len(_FILLER) + 1)
        text = filled[: min(answer_tokens, bound or answer_tokens) * 4]
    return Answer(text, tokens_of(text), bound is None or bound >= least)


def _echo(head: str, said: str, bound: int | None) -> str:
    """The head, and as much of what was said as there is room for."""
    text = f"{head} {said}"
    if bound is None or tokens_of(text) <= bound:
        return text
    if text.isascii():
        return text[: bound * 4]
    room = (bound * 3 - len(head) - 1) // 4  # a character has at most four bytes
    return f"{head} {said[:room]}" if room > 0 else head[: bound * 4]


def _flat(content: Any) -> str:
    if content is None:
        return ""
    if not isinstance(content, list):
        return json.dumps(content)
    return "\n".join(_part(part) for part in content)


def _part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else json.dumps(part)
