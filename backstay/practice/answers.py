"""What the practice provider answers, for every API that it imitates: the text, its tokens, and the generated reply."""

import hashlib
import json
from json.encoder import encode_basestring_ascii
from typing import Any, NamedTuple

from backstay.practice.faults import AnyFault

ECHO_CHARACTERS = 200
_FILLER = " and so on"

json_text = encode_basestring_ascii  # a string as JSON, many times faster than json.dumps


class Prompt(NamedTuple):
    """The text of a request, the last part of that text, and its tokens."""

    text: str
    last: str
    tokens: int


class AnswerText(NamedTuple):
    """`whole` is False when the answer did not fit into the allowed tokens."""

    text: str
    tokens: int
    whole: bool


class ReplyStamp(NamedTuple):
    """What a reply contains that does not come from its request."""

    mark: str  # unique, the end of an id
    created: int
    answer_tokens: int | None = None
    fault: AnyFault | None = None


class GeneratedReply(NamedTuple):
    """The JSON of a reply and its tokens. A rate limit counts `reserved_tokens`: the prompt and the longest answer."""

    text: str
    input_tokens: int
    output_tokens: int
    reserved_tokens: int
    free: bool = False


def count_tokens(text: str) -> int:
    """About four characters a token, or three bytes where they are not ASCII; never more than there are bytes."""
    if text.isascii():
        return (len(text) + 3) // 4
    return (len(text.encode("utf-8", "surrogatepass")) + 2) // 3


def write_answer(prompt: Prompt, tokens_max: int | None, answer_tokens: int | None) -> AnswerText:
    """Always the same for the same prompt: its digest, and the beginning of its last part."""
    mark = hashlib.blake2b(prompt.text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    head = f"practice {mark}"
    if answer_tokens is None:
        needed = count_tokens(head)
        text = _echo(head, prompt.last[:ECHO_CHARACTERS], tokens_max)
    else:
        needed = answer_tokens
        filled = head + _FILLER * (answer_tokens * 4 // len(_FILLER) + 1)
        text = filled[: min(answer_tokens, tokens_max or answer_tokens) * 4]
    return AnswerText(text, count_tokens(text), tokens_max is None or tokens_max >= needed)


def _echo(head: str, echoed: str, tokens_max: int | None) -> str:
    """The head, and as much of the echoed text as there is room for."""
    text = f"{head} {echoed}"
    if tokens_max is None or count_tokens(text) <= tokens_max:
        return text
    if text.isascii():
        return text[: tokens_max * 4]
    room = (tokens_max * 3 - len(head) - 1) // 4  # a character has at most four bytes
    return f"{head} {echoed[:room]}" if room > 0 else head[: tokens_max * 4]


def flatten_content(content: Any) -> str:
    """The text of a message, whose content is a text or a list of parts."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return json.dumps(content)
    return "\n".join(_flatten_part(part) for part in content)


def _flatten_part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else json.dumps(part)
