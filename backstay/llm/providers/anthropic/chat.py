"""OpenAI's chat format for Anthropic: a request becomes a Messages request, and a message a `chat.completion`."""

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from backstay.llm.bodies import dict_in, list_in, whole_in
from backstay.llm.chat_format import (
    NO_PENALTIES,
    ONE_REPLY,
    PDF,
    REASONS,
    SAYS_NOTHING,
    Blocks,
    BlockWriters,
    ChatMessages,
    Fields,
    Put,
    choice,
    completion,
    data_in,
    file_in,
    function_called,
    function_chosen,
    functions_in,
    image_url,
    is_dict,
    is_function,
    join_texts,
    put_members,
    refuse,
    same_twice,
    schema_in,
    text_in,
    tool_call,
    usage,
)
from backstay.llm.lines import preview
from backstay.llm.providers.anthropic.calls import ADD_TOKENS, MESSAGES
from backstay.llm.schema_dialects import SchemaDialect
from backstay.llm.schemas import ChatAnswers

# Members that are passed on under the same name.
_SAME: Final = ("model", "top_p", "top_k", "thinking", "cache_control")
_SAYS_NOTHING: Final = {**SAYS_NOTHING, **NO_PENALTIES}
_REASONS: Final = {**REASONS, "n": ONE_REPLY}
_FORMAT: Final = "Anthropic's format"
_TOOL_RESULT: Final = "tool_result"
_EFFORTS: Final = ("low", "medium", "high", "xhigh", "max")
_TIERS: Final = {"auto": "auto", "default": "standard_only"}
_TOOL_CHOICES: Final = {"auto": "auto", "none": "none", "required": "any"}
_FINISH: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "length",
    "refusal": "content_filter",
}

_CHAT_ONLY: Final = frozenset(
    (
        "max_completion_tokens",
        "response_format",
        "stop",
        "reasoning_effort",
        "parallel_tool_calls",
        "user",
        "seed",
        "functions",
        *_SAYS_NOTHING,
    )
) - {"stream", "metadata"}
_OWN_ONLY: Final = frozenset(("system", "stop_sequences", "thinking", "output_config", "max_tokens", "cache_control"))
_NEVER_IN_CHAT: Final = frozenset(("system", "stop_sequences"))  # services like OpenAI may know the others
_CHAT_ROLES: Final = ("system", "developer", "tool", "function")
_CHAT_PARTS: Final = ("image_url", "input_audio", "file")
_OWN_PARTS: Final = ("image", "document", "tool_use", "tool_result", "thinking")


def is_chat(fields: Fields) -> bool:
    """Whether a body without a url is a chat request. Many bodies are the same in both formats: these are none."""
    tools = fields.get("tools")
    if not _CHAT_ONLY.isdisjoint(fields) or (isinstance(tools, list) and any(map(is_function, tools))):
        return True
    messages = [message for message in list_in(fields.get("messages")) if isinstance(message, dict)]
    parts = [part.get("type") for message in messages for part in list_in(message.get("content")) if is_dict(part)]
    if any(message.get("role") in _CHAT_ROLES or message.get("tool_calls") for message in messages):
        return True
    if any(part in _CHAT_PARTS for part in parts):
        return True
    return bool(messages) and _OWN_ONLY.isdisjoint(fields) and not any(part in _OWN_PARTS for part in parts)


def own_member(fields: Fields) -> str | None:
    return min(_NEVER_IN_CHAT.intersection(fields), default=None)


def request(fields: Fields, model: str | None, output_tokens_default: int | None) -> tuple[str, dict[str, Any]]:
    named = {**fields, "model": fields.get("model") or model}
    body = put_members(named, _TRANSLATED, _FORMAT, same=_SAME, nothing=_SAYS_NOTHING, reasons=_REASONS)
    if fields.get("parallel_tool_calls") is False and fields.get("tools") and fields.get("tool_choice") != "none":
        body.setdefault("tool_choice", {"type": "auto"})["disable_parallel_tool_use"] = True
    if "max_tokens" not in body:
        if output_tokens_default is None:
            refuse(f"has no max_tokens, which Anthropic requires{ADD_TOKENS}")
        body["max_tokens"] = output_tokens_default
    return MESSAGES, body


def _text(part: Fields) -> Blocks:
    check(part, ("type", "text", "cache_control"))
    return [_with_cache(part, {"type": "text", "text": text_in(part)})]


def _image(part: Fields) -> Blocks:
    check(part, ("type", "image_url", "cache_control"))
    url = image_url(part, check)
    if (data := data_in(url)) is not None:
        source = {"type": "base64", "media_type": data[0], "data": data[1]}
    elif isinstance(url, str) and url.startswith(("https://", "http://")):
        source = {"type": "url", "url": url}
    else:
        refuse(f"has the image {preview(url)}: its url must be https: or data: with base64")
    return [_with_cache(part, {"type": "image", "source": source})]


def _file(part: Fields) -> Blocks:
    check(part, ("type", "file", "cache_control"))
    data, name = file_in(part, check)
    if data is None or data[0] != PDF:
        refuse(f"has a file that is not a PDF in file_data, as data:{PDF};base64,…")
    source = {"type": "base64", "media_type": data[0], "data": data[1]}
    title = {} if name is None else {"title": name}
    return [_with_cache(part, {"type": "document", "source": source, **title})]


def _with_cache(part: Fields, block: dict[str, Any]) -> dict[str, Any]:
    control = part.get("cache_control")
    return block if control is None else {**block, "cache_control": control}


class MessagesWriter(ChatMessages):
    """Results of tools are messages of the user."""

    provider = "Anthropic"
    format_name = _FORMAT
    texts: ClassVar[BlockWriters] = {"text": _text}
    parts: ClassVar[BlockWriters] = {**texts, "image_url": _image, "file": _file}

    def add_user(self, content: Any) -> None:
        self._add("user", content if isinstance(content, str) else self.blocks(content, self.parts))

    def add_assistant(self, content: Any, calls: list[Any]) -> None:
        if isinstance(content, str) and not calls:
            self._add("assistant", content)
            return
        said = self.blocks(content, self.texts) if content or not calls else []
        self._add("assistant", said + [_tool_use(call) for call in calls])

    def add_tool_result(self, message: Fields) -> None:
        self.check(message, ("role", "content", "tool_call_id"))
        content = message.get("content")
        said = content if isinstance(content, str) else self.blocks(content, self.parts)
        self._add("user", [{"type": _TOOL_RESULT, "tool_use_id": message.get("tool_call_id"), "content": said}])

    def _add(self, role: str, content: str | Blocks) -> None:
        """A text stays a text. A user's text after results of tools belongs to the same message."""
        last = self.turns[-1] if self.turns else None
        if last is None or not last["role"] == role == "user" or not _has_tool_result(last["content"]):
            self.turns.append({"role": role, "content": content})
        else:
            last["content"] += self.blocks(content, self.texts) if isinstance(content, str) else content


check = MessagesWriter.check


def _has_tool_result(content: Any) -> bool:
    return isinstance(content, list) and any(block.get("type") == _TOOL_RESULT for block in content)


def _tool_use(call: Any) -> dict[str, Any]:
    function, given = function_called(call, check)
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": given}


def _put_messages(value: Any, body: dict[str, Any]) -> None:
    messages = MessagesWriter(value)
    if system := messages.system:
        plain = len(system) == 1 and system[0].keys() == {"type", "text"}
        body["system"] = system[0]["text"] if plain else system
    body["messages"] = messages.turns


def _put_max_tokens(value: Any, body: dict[str, Any]) -> None:
    same_twice(body, "max_tokens", value, "max_tokens and max_completion_tokens")


def _put_stop(value: Any, body: dict[str, Any]) -> None:
    body["stop_sequences"] = [value] if isinstance(value, str) else value


def _put_temperature(value: Any, body: dict[str, Any]) -> None:
    if isinstance(value, int | float) and value > 1:
        refuse(f"has the temperature {value:g}: at Anthropic it is at most 1")
    body["temperature"] = value


def _put_effort(value: Any, body: dict[str, Any]) -> None:
    if value == "none":
        same_twice(body, "thinking", {"type": "disabled"}, "a reasoning_effort and thinking")
    elif value in _EFFORTS:
        body.setdefault("output_config", {})["effort"] = value
    else:
        refuse(f"has the reasoning_effort {preview(value)}: Anthropic has none, {', '.join(_EFFORTS)}")


def _put_format(value: Any, body: dict[str, Any]) -> None:
    given = schema_in(value, check, "at Anthropic it must be a json_schema with a schema")
    if given is not None:
        check(given, ("name", "schema", "strict", "description"))
        described = {} if given.get("description") is None else {"description": given["description"]}
        schema = {**described, **given["schema"]}
        body.setdefault("output_config", {})["format"] = {"type": "json_schema", "schema": schema}


def _put_tools(value: Any, body: dict[str, Any]) -> None:
    tools = []
    for tool, function in functions_in(value, check, ("type", "function", "cache_control")):
        made = {"name": function.get("name"), "input_schema": function.get("parameters") or {"type": "object"}}
        if function.get("description") is not None:
            made["description"] = function["description"]
        if function.get("strict") is True:
            made["strict"] = True
        tools.append(_with_cache(tool, made))
    if tools:
        body["tools"] = tools


def _put_tool_choice(value: Any, body: dict[str, Any]) -> None:
    function = function_chosen(value, check)
    if isinstance(value, str) and value in _TOOL_CHOICES:
        body["tool_choice"] = {"type": _TOOL_CHOICES[value]}
    elif function is not None:
        body["tool_choice"] = {"type": "tool", "name": function}
    else:
        refuse(f"has the tool_choice {preview(value)}: Anthropic has auto, none, required and one function")


def _put_parallel(value: Any, body: dict[str, Any]) -> None:
    if value is not True and value is not False:
        refuse(f"has parallel_tool_calls {preview(value)}, which is neither true nor false")


def _put_user(value: Any, body: dict[str, Any]) -> None:
    same_twice(body, "metadata", {"user_id": value}, "a user and a safety_identifier")


def _put_tier(value: Any, body: dict[str, Any]) -> None:
    if not isinstance(value, str) or value not in _TIERS:
        refuse(f"has the service_tier {preview(value)}: Anthropic has {' and '.join(_TIERS)}")
    body["service_tier"] = _TIERS[value]


_TRANSLATED: Final[Mapping[str, Put]] = {
    "messages": _put_messages,
    "max_tokens": _put_max_tokens,
    "max_completion_tokens": _put_max_tokens,
    "stop": _put_stop,
    "temperature": _put_temperature,
    "reasoning_effort": _put_effort,
    "response_format": _put_format,
    "tools": _put_tools,
    "tool_choice": _put_tool_choice,
    "parallel_tool_calls": _put_parallel,
    "user": _put_user,
    "safety_identifier": _put_user,
    "service_tier": _put_tier,
}


# Replies


def is_reply(fields: Fields) -> bool:
    return isinstance(fields.get("content"), list)


def reply(fields: Fields) -> dict[str, Any]:
    blocks = [block for block in list_in(fields.get("content")) if is_dict(block)]
    reason = fields.get("stop_reason")
    finish = _FINISH.get(reason, "stop") if isinstance(reason, str) else "stop"
    message: dict[str, Any] = {
        "role": "assistant",
        "content": _text_of(blocks, "text"),
        "refusal": _refusal(fields) if reason == "refusal" else None,
    }
    if (thought := _text_of(blocks, "thinking")) is not None:
        message["reasoning_content"] = thought
    used = [block for block in blocks if block.get("type") == "tool_use"]
    if used:
        message["tool_calls"] = [tool_call(each.get("id"), each.get("name"), each.get("input")) for each in used]
    return completion(fields.get("id"), fields.get("model"), [choice(message, finish)], _usage(fields.get("usage")))


def _text_of(blocks: Blocks, kind: str) -> str | None:
    return join_texts(block.get(kind) for block in blocks if block.get("type") == kind)


def _refusal(fields: Fields) -> str:
    details = fields.get("stop_details")
    why = details.get("explanation") if is_dict(details) else None
    return why if isinstance(why, str) and why else "The model refused to answer."


def _usage(said: Any) -> dict[str, Any]:
    figures = dict_in(said)
    hit, kept = _count(figures, "cache_read_input_tokens"), _count(figures, "cache_creation_input_tokens")
    thought = _count(dict_in(figures.get("output_tokens_details")), "thinking_tokens")
    return usage(_count(figures, "input_tokens") + hit + kept, _count(figures, "output_tokens"), hit, thought)


def _count(figures: Fields, name: str) -> int:
    return whole_in(figures.get(name)) or 0


# Schemas: it enforces types and names, and gets the rest in words

ANSWERS: Final = ChatAnswers(
    SchemaDialect(
        "Anthropic",
        formats=frozenset(
            ("date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid")
        ),
        optional_max=24,
        unions_max=16,
    )
)
