"""OpenAI's chat format for Bedrock: a request becomes one of Converse, and its reply a `chat.completion`."""

import json
import re
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
    join_texts,
    put_members,
    refuse,
    same_twice,
    schema_in,
    text_in,
    tool_call,
    usage,
)
from backstay.llm.lines import LinePart, LineRefused, preview
from backstay.llm.providers.bedrock.calls import path_to
from backstay.llm.schema_dialects import SchemaDialect
from backstay.llm.schemas import ChatAnswers, Reask

# Members that are passed on under the same name.
_SAME: Final = ("additionalModelRequestFields", "guardrailConfig", "performanceConfig", "requestMetadata")
_SAYS_NOTHING: Final = {**SAYS_NOTHING, **NO_PENALTIES, "parallel_tool_calls": (True,)}
_REASONS: Final = {
    **REASONS,
    "n": ONE_REPLY,
    "top_k": "each model has its own name for it: write it into additionalModelRequestFields",
}
_FORMAT: Final = "the format of Converse"
_TIERS: Final = ("default", "flex", "priority", "reserved")
_FINISH: Final = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "malformed_model_output": "length",
    "malformed_tool_use": "length",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
    "refusal": "content_filter",
}
_NEVER_IN_CHAT: Final = frozenset(("system", "inferenceConfig", "toolConfig"))
_OWN_ONLY: Final = _NEVER_IN_CHAT | {"anthropic_version", "schemaVersion", "modelId", *_SAME}


_PICTURES: Final = {
    **{"image/png": "png", "image/jpeg": "jpeg", "image/jpg": "jpeg"},
    **{"image/gif": "gif", "image/webp": "webp"},
}
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9()\[\] -]+")
_CACHE_TIMES: Final = ("5m", "1h")
_CONFIG: Final = "inferenceConfig"


def is_chat(fields: Fields) -> bool:
    """Whether a body without a url is a chat request: the parts of Converse's messages have no type."""
    messages = [message for message in list_in(fields.get("messages")) if is_dict(message)]
    if not messages or not _OWN_ONLY.isdisjoint(fields):
        return False
    contents = [message.get("content") for message in messages]
    parts = [part for content in contents for part in list_in(content)]
    return not parts or any(is_dict(part) and "type" in part for part in parts)


def own_member(fields: Fields) -> str | None:
    return min(_NEVER_IN_CHAT.intersection(fields), default=None)


def request(fields: Fields, model: str | None, output_tokens_default: int | None) -> tuple[str, dict[str, Any]]:
    named = fields.get("model") or model
    if not isinstance(named, str):
        raise LineRefused("names no model", LinePart.MODEL)
    rest = {name: value for name, value in fields.items() if name != "model"}
    body = put_members(rest, _TRANSLATED, _FORMAT, same=_SAME, nothing=_SAYS_NOTHING, reasons=_REASONS)
    if output_tokens_default is not None:
        body.setdefault(_CONFIG, {}).setdefault("maxTokens", output_tokens_default)
    if "toolConfig" in body and "tools" not in body["toolConfig"]:
        refuse("has a tool_choice and no tools")
    return path_to(named), body


def _text(part: Fields) -> Blocks:
    check(part, ("type", "text", "cache_control"))
    return _with_cache(part, {"text": text_in(part)})


def _image(part: Fields) -> Blocks:
    check(part, ("type", "image_url", "cache_control"))
    url = image_url(part, check)
    data = data_in(url)
    if data is None or data[0] not in _PICTURES:
        kinds = ", ".join(dict.fromkeys(_PICTURES.values()))
        refuse(f"has the image {preview(url)}: at Bedrock it must be data: with base64, of {kinds}")
    return _with_cache(part, {"image": {"format": _PICTURES[data[0]], "source": {"bytes": data[1]}}})


def _file(part: Fields) -> Blocks:
    check(part, ("type", "file", "cache_control"))
    data, given = file_in(part, check)
    if data is None or data[0] != PDF:
        refuse(f"has a file that is not a PDF in file_data, as data:{PDF};base64,…")
    # Bedrock takes no other characters in a name.
    name = _NOT_IN_NAMES.sub(" ", str(given or "document")).strip()[:200] or "document"
    document = {"format": "pdf", "name": re.sub(r" {2,}", " ", name), "source": {"bytes": data[1]}}
    return _with_cache(part, {"document": document})


def _with_cache(part: Fields, block: dict[str, Any]) -> Blocks:
    control = part.get("cache_control")
    if control is None:
        return [block]
    if not is_dict(control) or control.get("type") != "ephemeral" or control.get("ttl") not in (None, *_CACHE_TIMES):
        refuse(f"has the cache_control {preview(control)}: Bedrock has ephemeral, for {' or '.join(_CACHE_TIMES)}")
    check(control, ("type", "ttl"))
    ttl = {} if control.get("ttl") is None else {"ttl": control["ttl"]}
    return [block, {"cachePoint": {"type": "default", **ttl}}]


class ConverseWriter(ChatMessages):
    """Results of tools are messages of the user. User and assistant alternate: several messages of one in a row become
    one."""

    provider = "Bedrock"
    format_name = _FORMAT
    texts: ClassVar[BlockWriters] = {"text": _text}
    parts: ClassVar[BlockWriters] = {**texts, "image_url": _image, "file": _file}

    def add_user(self, content: Any) -> None:
        self._add("user", self.blocks(content, self.parts))

    def add_assistant(self, content: Any, calls: list[Any]) -> None:
        said = self.blocks(content, self.texts) if content or not calls else []
        self._add("assistant", said + [_tool_use(call) for call in calls])

    def add_tool_result(self, message: Fields) -> None:
        self.check(message, ("role", "content", "tool_call_id"))
        said = self.blocks(message.get("content"), self.parts)
        self._add("user", [{"toolResult": {"toolUseId": message.get("tool_call_id"), "content": said}}])

    def _add(self, role: str, blocks: Blocks) -> None:
        if self.turns and self.turns[-1]["role"] == role:
            self.turns[-1]["content"] += blocks
        else:
            self.turns.append({"role": role, "content": blocks})


check = ConverseWriter.check


def _tool_use(call: Any) -> dict[str, Any]:
    function, given = function_called(call, check)
    return {"toolUse": {"toolUseId": call.get("id"), "name": function.get("name"), "input": given}}


def _put_messages(value: Any, body: dict[str, Any]) -> None:
    messages = ConverseWriter(value)
    if messages.system:
        body["system"] = messages.system
    body["messages"] = messages.turns


def _put_max_tokens(value: Any, body: dict[str, Any]) -> None:
    same_twice(body.setdefault(_CONFIG, {}), "maxTokens", value, "max_tokens and max_completion_tokens")


def _put_top_p(value: Any, body: dict[str, Any]) -> None:
    body.setdefault(_CONFIG, {})["topP"] = value


def _put_stop(value: Any, body: dict[str, Any]) -> None:
    body.setdefault(_CONFIG, {})["stopSequences"] = [value] if isinstance(value, str) else value


def _put_temperature(value: Any, body: dict[str, Any]) -> None:
    if isinstance(value, int | float) and value > 1:
        refuse(f"has the temperature {value:g}: at Bedrock it is at most 1")
    body.setdefault(_CONFIG, {})["temperature"] = value


def _put_effort(value: Any, body: dict[str, Any]) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= 16:
        refuse(f"has the reasoning_effort {preview(value)}, which is not the name of an effort")
    body.setdefault("outputConfig", {})["effort"] = value


def _put_format(value: Any, body: dict[str, Any]) -> None:
    given = schema_in(value, check, "at Bedrock it must be a json_schema with a schema")
    if given is not None:
        check(given, ("name", "schema", "description"), {"strict": (True, False)})
        made = {name: given[name] for name in ("name", "description") if given.get(name) is not None}
        structure = {"jsonSchema": {"schema": json.dumps(given["schema"]), **made}}
        body.setdefault("outputConfig", {})["textFormat"] = {"type": "json_schema", "structure": structure}


def _put_tools(value: Any, body: dict[str, Any]) -> None:
    tools: Blocks = []
    for tool, function in functions_in(value, check, ("type", "function", "cache_control")):
        spec = {"name": function.get("name"), "inputSchema": {"json": function.get("parameters") or {"type": "object"}}}
        spec |= {name: function[name] for name in ("description", "strict") if function.get(name)}
        tools += _with_cache(tool, {"toolSpec": spec})
    if tools:
        body.setdefault("toolConfig", {})["tools"] = tools


def _put_tool_choice(value: Any, body: dict[str, Any]) -> None:
    function = function_chosen(value, check)
    if value == "auto":
        return  # the same as no tool_choice
    if value == "required":
        chosen: dict[str, Any] = {"any": {}}
    elif function is not None:
        chosen = {"tool": {"name": function}}
    else:
        refuse(f"has the tool_choice {preview(value)}: Bedrock has auto, required and one function")
    body.setdefault("toolConfig", {})["toolChoice"] = chosen


def _put_user(value: Any, body: dict[str, Any]) -> None:
    same_twice(body.setdefault("requestMetadata", {}), "user", value, "a user and a safety_identifier")


def _put_tier(value: Any, body: dict[str, Any]) -> None:
    if value == "auto":
        return
    if value not in _TIERS:
        refuse(f"has the service_tier {preview(value)}: Bedrock has auto, {', '.join(_TIERS)}")
    body["serviceTier"] = {"type": value}


_TRANSLATED: Final[Mapping[str, Put]] = {
    "messages": _put_messages,
    "max_tokens": _put_max_tokens,
    "max_completion_tokens": _put_max_tokens,
    "stop": _put_stop,
    "temperature": _put_temperature,
    "top_p": _put_top_p,
    "reasoning_effort": _put_effort,
    "response_format": _put_format,
    "tools": _put_tools,
    "tool_choice": _put_tool_choice,
    "user": _put_user,
    "safety_identifier": _put_user,
    "service_tier": _put_tier,
}


# Replies


def is_reply(fields: Fields) -> bool:
    return is_dict(fields.get("output"))


def reply(fields: Fields) -> dict[str, Any]:
    """A reply of Converse has no id and no model of its own."""
    said = dict_in(dict_in(fields.get("output")).get("message"))
    blocks = [block for block in list_in(said.get("content")) if is_dict(block)]
    reason = fields.get("stopReason")
    message: dict[str, Any] = {
        "role": "assistant",
        "content": join_texts(block.get("text") for block in blocks),
        "refusal": None,
    }
    if reason == "refusal":
        message["refusal"] = message["content"] or "The model refused to answer."
    if (thought := join_texts(map(_thinking_text, blocks))) is not None:
        message["reasoning_content"] = thought
    if used := [use for block in blocks if is_dict(use := block.get("toolUse"))]:
        message["tool_calls"] = [tool_call(each.get("toolUseId"), each.get("name"), each.get("input")) for each in used]
    finish = _FINISH.get(reason, "stop") if isinstance(reason, str) else "stop"
    return completion(None, None, [choice(message, finish)], _usage(dict_in(fields.get("usage"))))


def _thinking_text(block: Fields) -> Any:
    return dict_in(dict_in(block.get("reasoningContent")).get("reasoningText")).get("text")


def _usage(figures: Fields) -> dict[str, Any]:
    names = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
    read, written, hit, kept = (whole_in(figures.get(name)) or 0 for name in names)
    return usage(read + hit + kept, written, hit)


# Schemas


class BedrockAnswers(ChatAnswers):
    def ask_again(self, url: str, fields: Fields, reask: Reask) -> dict[str, Any]:
        said = ({"role": role, "content": [{"text": text}]} for role, text in zip(_ROLES, reask, strict=True))
        return {**fields, "messages": [*fields["messages"], *said]}


_ROLES: Final = ("assistant", "user")
ANSWERS: Final = BedrockAnswers(SchemaDialect("Bedrock"))
