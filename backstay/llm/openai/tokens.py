"""How many tokens a request may take, from its body alone: what is likely, and what cannot be exceeded."""

from collections.abc import Mapping
from typing import Any

from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, TokenEstimate

BYTES_PER_TOKEN = 4  # of UTF-8: right for English, and close enough for scripts with more bytes per letter
MESSAGE_TOKENS = 4  # what a message costs besides its text
PREAMBLE_TOKENS_MAX = 64  # what a chat template may put around the messages
TOOLS_TOKENS_MAX = 1024  # what it may put before the first tool
IMAGE_TOKENS_EXPECTED = 1_000
IMAGE_TOKENS_MAX = 50_000  # the model that counts pictures highest has 48,169 for the largest
AUDIO_BYTES_PER_TOKEN = 500  # of base64: speech as MP3
AUDIO_BYTES_PER_TOKEN_MIN = 16  # no format is so compact

# Tuples, because a value in a body may not be hashable.
_IMAGE = ("image_url", "input_image", "image")
_ELSEWHERE = ("file", "input_file", "item_reference", "video_url")
_UNREAD = {"role", "type", "id"}
_WORDLESS = {"content", "text"}  # the names of all other members count too: for example the parameters of a tool
_STORED = ("previous_response_id", "conversation")
_OWN_TOOLS = ("function", "custom")
_ASKED = {"messages", "input", "instructions", "prompt", "tools", "functions", "response_format", "text"}
_BOUNDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# One endpoint's bound on a reply is silently ignored by another.
_BOUNDS_AT = (
    ("/chat/completions", ("max_completion_tokens", "max_tokens")),
    ("/completions", ("max_tokens",)),
    ("/responses", ("max_output_tokens",)),
)


class _Input:
    """Adds up what a body gives the model to read."""

    __slots__ = ("bounded", "bytes", "data_bytes", "data_tokens_max", "tokens")

    def __init__(self) -> None:
        self.bytes = 0  # of text
        self.tokens = 0  # of everything else
        self.data_bytes = 0  # of pictures and sound, which are not read as text
        self.data_tokens_max = 0
        self.bounded = True

    def add(self, value: Any) -> None:
        if isinstance(value, str):
            self.bytes += _utf8(value)
        elif isinstance(value, list):
            for inner in value:
                self.add(inner)
        elif isinstance(value, dict):
            self._add_object(value)
        elif value is not None:
            self.bytes += BYTES_PER_TOKEN  # a number, which may be a token itself

    def add_messages(self, messages: list[Any]) -> None:
        """Nearly all requests have nothing but these, and nearly all of these have nothing but text."""
        for message in messages:
            if isinstance(message, dict) and len(message) == 2 and isinstance(text := message.get("content"), str):
                self.bytes += len(text) if text.isascii() else _utf8(text)
                self.tokens += MESSAGE_TOKENS
            else:
                self.add(message)

    def _add_object(self, value: dict[str, Any]) -> None:
        kind = value.get("type")
        if "role" in value or kind == "function_call":
            self.tokens += MESSAGE_TOKENS
        if kind in _IMAGE:
            self._add_image(value)
        elif kind == "input_audio":
            self._add_audio(value)
        else:
            # A file by its id, an answer stored elsewhere: their lengths are unknown.
            if "file_id" in value or kind in _ELSEWHERE:
                self.bounded = False
            for name, inner in value.items():
                if name not in _UNREAD:
                    self.add(inner)
                    self.bytes += 0 if name in _WORDLESS else len(name)

    def _add_image(self, value: dict[str, Any]) -> None:
        self.data_bytes += _longest(value)
        self.tokens += IMAGE_TOKENS_EXPECTED
        self.data_tokens_max += IMAGE_TOKENS_MAX

    def _add_audio(self, value: dict[str, Any]) -> None:
        size = _longest(value)
        self.data_bytes += size
        self.tokens += size // AUDIO_BYTES_PER_TOKEN
        self.data_tokens_max += size // AUDIO_BYTES_PER_TOKEN_MIN + 1


def estimate(
    url: str, body: str, fields: Mapping[str, Any], output_tokens_expected: int = OUTPUT_TOKENS_EXPECTED
) -> TokenEstimate:
    read = _Input()
    for name, value in fields.items():
        if name == "messages" and isinstance(value, list):
            read.add_messages(value)
        elif name in _ASKED:
            read.add(value)
    bound, replies = _output(url, fields)
    expected = output_tokens_expected if bound is None else min(bound, output_tokens_expected)
    tools = "tools" in fields or "functions" in fields or "web_search_options" in fields
    hosted = tools and _has_hosted_tools(fields)
    most: int | None = None
    if read.bounded and not hosted and not _hangs_on_stored(fields):
        # A token is a byte at least, of JSON too; and its punctuation makes up for what surrounds a message.
        most = _utf8(body) - read.data_bytes + read.data_tokens_max + PREAMBLE_TOKENS_MAX
        most += TOOLS_TOKENS_MAX if tools else 0
    model, tier = fields.get("model"), fields.get("service_tier")
    return TokenEstimate(
        -(-read.bytes // BYTES_PER_TOKEN) + read.tokens,
        expected * replies,
        None if bound is None else bound * replies,
        most,
        replies,
        not hosted,
        model if isinstance(model, str) else None,
        tier if isinstance(tier, str) else None,
    )


def _output(url: str, fields: Mapping[str, Any]) -> tuple[int | None, int]:
    """The bound that a body sets on a reply, if any, and how many replies it asks for."""
    path = url.partition("?")[0].rstrip("/")
    if path.endswith(("/embeddings", "/moderations")):
        return 0, 1
    names = next((names for end, names in _BOUNDS_AT if path.endswith(end)), _BOUNDS)
    bounds = [count for name in names if name in fields and (count := _count(fields[name])) is not None]
    replies = max((_count(_number(fields[name])) or 1 for name in ("n", "best_of") if name in fields), default=1)
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        replies *= len(prompt)
    if not bounds:
        return None, replies
    return max(bounds) + (_predicted(fields) if "prediction" in fields else 0), replies


def _predicted(fields: Mapping[str, Any]) -> int:
    """Predicted text that is not used is paid like output."""
    predicted = _Input()
    predicted.add(fields["prediction"])
    return predicted.bytes


def _number(value: Any) -> Any:
    """Some servers accept "10" as 10. It is not trusted as a bound, but as a number of replies it may be charged."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _count(value: Any) -> int | None:
    """A whole number above zero; the provider refuses or ignores everything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        return None
    return -int(-value // 1)


def _has_hosted_tools(fields: Mapping[str, Any]) -> bool:
    """Tools that the provider runs itself: their output is read, and paid for, as often as the model decides."""
    tools = fields.get("tools")
    if not isinstance(tools, list):
        return "web_search_options" in fields
    return "web_search_options" in fields or any(
        not isinstance(tool, dict) or tool.get("type") not in _OWN_TOOLS for tool in tools
    )


def _hangs_on_stored(fields: Mapping[str, Any]) -> bool:
    return isinstance(fields.get("prompt"), dict) or any(name in fields and fields[name] for name in _STORED)


def _longest(value: Any) -> int:
    """The bytes of the longest text inside: of a picture or a sound that is its data or its address."""
    if isinstance(value, str):
        return _utf8(value)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return max(map(_longest, inner), default=0)


def _utf8(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
