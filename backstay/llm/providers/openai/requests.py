"""OpenAI's requests: addresses, keys, which lane takes what, and how many tokens they need."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from yarl import URL

from backstay.core.errors import ErrorCode, Permanent
from backstay.llm.bodies import BYTES_PER_TOKEN, InputSize, longest_text, question_in, utf8_length
from backstay.llm.endpoint import Lane, refuse_path, url_below
from backstay.llm.lines import LinePart, LineRefused, Member, body_with_model, members, quote_json
from backstay.llm.provider import OUTPUT_TOKENS_EXPECTED, ProviderAccess, TokenEstimate, request_attributes
from backstay.llm.schemas import AnswerSchema, ChatAnswers, Reask, SchemaMode, instructions_for

MESSAGE_TOKENS = 4  # of a message, besides its text
PREAMBLE_TOKENS_MAX = 64  # that a chat template may add around the messages
TOOLS_TOKENS_MAX = 1024  # that it may add before the first tool
IMAGE_TOKENS_EXPECTED = 1_000
IMAGE_TOKENS_MAX = 50_000  # the model that counts pictures highest has 48,169 for the largest
AUDIO_BYTES_PER_TOKEN = 500  # of base64: speech as MP3
AUDIO_BYTES_PER_TOKEN_MIN = 16  # no format is so compact

# Tuples, because a value in a body may not be hashable.
_IMAGE = ("image_url", "input_image", "image")
_ELSEWHERE = ("file", "input_file", "item_reference", "video_url")
_UNREAD = {"role", "type", "id"}
_WORDLESS = {"content", "text"}  # the names of all other members count too: for example the parameters of a tool
_RESPONSES_END = "/responses"
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


class _Input(InputSize):
    def add_messages(self, messages: list[Any]) -> None:
        """Nearly all requests have nothing but these, and nearly all of these have nothing but text."""
        for message in messages:
            if isinstance(message, dict) and len(message) == 2 and isinstance(text := message.get("content"), str):
                self.bytes += len(text) if text.isascii() else utf8_length(text)
                self.tokens += MESSAGE_TOKENS
            else:
                self.add(message)

    def add_object(self, value: dict[str, Any]) -> None:
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
        self.data_bytes += longest_text(value)
        self.tokens += IMAGE_TOKENS_EXPECTED
        self.data_tokens_max += IMAGE_TOKENS_MAX

    def _add_audio(self, value: dict[str, Any]) -> None:
        size = longest_text(value)
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
        most = utf8_length(body) - read.data_bytes + read.data_tokens_max + PREAMBLE_TOKENS_MAX
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
    names = _bounds_at(url)
    if names is None:
        return 0, 1
    bounds = [count for name in names if name in fields and (count := _count(fields[name])) is not None]
    replies = 1
    if "n" in fields or "best_of" in fields:
        replies = max(_count(_number(fields[name])) or 1 for name in ("n", "best_of") if name in fields)
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int):
        replies *= len(prompt)
    if not bounds:
        return None, replies
    return max(bounds) + (_count_predicted(fields) if "prediction" in fields else 0), replies


@lru_cache(maxsize=1_000)
def _bounds_at(url: str) -> tuple[str, ...] | None:
    """The members that set a bound on replies of this path; None if its replies have no text."""
    path = url.partition("?")[0].rstrip("/")
    if path.endswith(("/embeddings", "/moderations")):
        return None
    return next((names for end, names in _BOUNDS_AT if path.endswith(end)), _BOUNDS)


def _count_predicted(fields: Mapping[str, Any]) -> int:
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


CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
EMBEDDINGS: Final = "/v1/embeddings"
COMPLETIONS: Final = "/v1/completions"
MODEL_NEEDED: Final = frozenset((CHAT, RESPONSES, EMBEDDINGS, COMPLETIONS))
REFERENCE: Final = "backstay_ref"  # the key in a request's metadata

ACCESS: Final = ProviderAccess(
    base_url="https://api.openai.com/v1",
    base_url_env="OPENAI_BASE_URL",
    key_env="OPENAI_API_KEY",
    models_path="/v1/models",
    reference_header="x-client-request-id",
)

_BODY_KEYS: Final = frozenset(("messages", "input", "model"))
_METADATA_PAIRS_MAX: Final = 16  # by the provider's own rule
_PATH_AT_END: Final = re.compile(r"/(?:chat/completions|completions|responses|embeddings|moderations)/*$")
_OPERATIONS: Final = {CHAT: "chat", RESPONSES: "chat", COMPLETIONS: "text_completion", EMBEDDINGS: "embeddings"}
_SERVICES: Final = {
    "api.openai.com": "openai",
    "api.anthropic.com": "anthropic",
    "api.mistral.ai": "mistral_ai",
    "api.groq.com": "groq",
    "api.deepseek.com": "deepseek",
}


def check_base(base: SplitResult) -> None:
    refuse_path(base, _PATH_AT_END)


def address(base: SplitResult, path: str) -> URL:
    """The path of a base URL replaces the /v1 of the request's path; a base URL without a path keeps it."""
    root = base.path.rstrip("/")
    if root and path.startswith("/v1/"):
        path = path[3:]
    return url_below(base, root, path)


def auth_headers(base: SplitResult, key: str | None) -> dict[str, str]:
    if not key:
        return {}
    headers = {"authorization": f"Bearer {key}"}
    if (base.hostname or "").endswith(".openai.azure.com"):
        headers["api-key"] = key
    return headers


def only_path(lane: Lane, reconcilable: bool) -> str | None:
    if lane is Lane.BACKGROUND:
        return RESPONSES
    return CHAT if reconcilable else None


def check_body(url: str, fields: Mapping[str, Any], may_be_background: bool) -> str | None:
    if fields.get("stream"):
        raise LineRefused("asks for a stream, which is not supported", LinePart.BODY)
    if fields.get("background") and not may_be_background:
        reason = "asks for a background response; use --lane background, which waits for it"
        raise LineRefused(reason, LinePart.BODY)
    model = fields.get("model")
    named = model if isinstance(model, str) else None
    if url in MODEL_NEEDED and not named and not (url == RESPONSES and "prompt" in fields):
        raise LineRefused("names no model", LinePart.MODEL)
    if url in _CONTENT and _CONTENT[url].isdisjoint(fields):
        needs = "messages" if url == CHAT else "input"
        raise LineRefused(f"has no {needs}, so it is not a request for {url}", LinePart.BODY)
    return named


# Without any of these a request can only fail: it is probably written for another API.
_CONTENT: Final = {
    CHAT: frozenset(("messages",)),
    RESPONSES: frozenset(("input", "prompt", "messages", "conversation", "previous_response_id")),
}


def is_body(fields: Mapping[str, Any]) -> bool:
    return not _BODY_KEYS.isdisjoint(fields)


def sends_metadata(fields: Mapping[str, Any]) -> bool:
    """Files of bodies are written for OpenAI's cookbook, whose script never sends the metadata, and writes it beside
    the reply. Only together with `"store": true` can it be meant for the provider."""
    return fields.get("store") is True


def url_of_body(fields: Mapping[str, Any], model: str | None) -> str:
    if "messages" in fields:
        return CHAT
    if "input" in fields:
        return EMBEDDINGS if "embed" in str(fields.get("model")) else RESPONSES
    return COMPLETIONS if "prompt" in fields and not isinstance(fields["prompt"], dict) else RESPONSES


def url_of_prompt(model: str | None) -> str:
    return CHAT


def prompt_member(url: str, prompt: str, is_text: bool) -> str:
    path = url.partition("?")[0]
    if path.endswith("/chat/completions"):
        return f'"messages":[{{"role":"user","content":{prompt}}}]' if is_text else f'"messages":{prompt}'
    return f'"prompt":{prompt}' if path.endswith("/completions") else f'"input":{prompt}'


def model_members(fields: Mapping[str, Any], model: str | None) -> list[str]:
    return [f'"model":{quote_json(model)}'] if model is not None and "model" not in fields else []


with_model = body_with_model


def trace_attributes(base_url: str, url: str, fields: Mapping[str, Any]) -> dict[str, str | int]:
    host = urlsplit(base_url).hostname or ""
    operation = _OPERATIONS.get(url, url.rpartition("/")[2])
    service = _SERVICES.get(host, host)
    return request_attributes(base_url, operation, service, fields.get("model"), fields.get("max_tokens"))


def question(fields: Mapping[str, Any]) -> str | None:
    asked = fields.get("messages", fields.get("input", fields.get("prompt")))
    return asked if isinstance(asked, str) else question_in(asked)


def add_reference(body: str, ref: str, added: Mapping[str, str]) -> tuple[str, bool]:
    """The body with members whose values are given as JSON, and with the reference in its metadata; the rest stays byte
    for byte. Also returns whether there was room for the reference."""
    try:
        found = members(text := body.strip())
    except LineRefused as refused:
        raise Permanent(f"the body {refused}", ErrorCode.GW_4XX) from None
    metadata = next((member for member in reversed(found) if member.key == "metadata"), None)
    merged = _merge_metadata(text, metadata, ref)
    return splice(text, found, {**added, **merged}), bool(merged)


def splice(text: str, found: Sequence[Member], values: Mapping[str, str]) -> str:
    """The object with these values: replaced where it has the member, otherwise added at its beginning."""
    pieces: list[str] = []
    at = 1  # after the brace
    for member in found:
        if member.key in values:
            pieces += (text[at : member.start], values[member.key])
            at = member.end
    there = {member.key for member in found}
    new = [f"{json.dumps(key)}:{value}" for key, value in values.items() if key not in there]
    comma = "," if new and found else ""
    return "".join(("{", ",".join(new), comma, *pieces, text[at:]))


def _merge_metadata(text: str, metadata: Member | None, ref: str) -> dict[str, str]:
    """The user's own metadata is kept; if there is no room left, the reference is left out."""
    if metadata is None or metadata.value is None:
        return {"metadata": json.dumps({REFERENCE: ref})}
    if not isinstance(metadata.value, dict) or len({**metadata.value, REFERENCE: ref}) > _METADATA_PAIRS_MAX:
        return {}
    own = text[metadata.start : metadata.end]
    return {"metadata": splice(own, members(own), {REFERENCE: json.dumps(ref)})}


class OpenAiAnswers(ChatAnswers):
    """Chat, and responses as well."""

    def put_schema(self, url: str, fields: Mapping[str, Any], schema: AnswerSchema) -> dict[str, Any]:
        if not url.partition("?")[0].endswith(_RESPONSES_END):
            return super().put_schema(url, fields, schema)
        text = fields.get("text") or {}
        if not isinstance(text, dict) or text.get("format") is not None:
            raise LineRefused("has a text.format of its own, and a schema is given", LinePart.BODY)
        expressed = self.express(schema)
        if expressed.schema is not None:
            form = {"type": "json_schema", "name": schema.name, "schema": expressed.schema, "strict": expressed.strict}
            return {**fields, "text": {**text, "format": form}}
        told = "\n\n".join(filter(None, (fields.get("instructions"), instructions_for(schema))))
        body = {**fields, "instructions": told}
        return body if self.mode is SchemaMode.PROMPT else {**body, "text": {**text, "format": {"type": "json_object"}}}

    def ask_again(self, url: str, fields: Mapping[str, Any], reask: Reask) -> dict[str, Any]:
        if "input" not in fields:
            return super().ask_again(url, fields, reask)
        asked = fields["input"]
        turns = [{"role": "user", "content": asked}] if isinstance(asked, str) else list(asked)
        said = {"role": "assistant", "content": reask.answer}
        return {**fields, "input": [*turns, said, {"role": "user", "content": reask.words}]}

    def text_of(self, reply: Mapping[str, Any]) -> str | None:
        output = reply.get("output")
        if not isinstance(output, list):
            return super().text_of(reply)
        parts = [part for each in output if isinstance(each, dict) for part in each.get("content") or ()]
        texts = [part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)]
        return "".join(texts) if texts else None
