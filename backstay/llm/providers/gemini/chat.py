"""OpenAI's chat format for Gemini: a request becomes a generateContent request, and an answer a `chat.completion`."""

import mimetypes
from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar, Final

from backstay.llm.bodies import dict_in, list_in, object_of
from backstay.llm.chat_format import (
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
from backstay.llm.lines import preview
from backstay.llm.providers.gemini.calls import count_in, url_of_model
from backstay.llm.schema_dialects import SchemaDialect
from backstay.llm.schemas import ChatAnswers, Reask

# Members that are settings under another name.
_SETTINGS: Final = {
    "temperature": "temperature",
    "top_p": "topP",
    "top_k": "topK",
    "seed": "seed",
    "presence_penalty": "presencePenalty",
    "frequency_penalty": "frequencyPenalty",
    "n": "candidateCount",
}
_SAYS_NOTHING: Final = {**SAYS_NOTHING, "parallel_tool_calls": (True,), "service_tier": ("auto",)}
_REASONS: Final = {**REASONS, "parallel_tool_calls": "Gemini decides itself how many tools it calls at once"}
_FORMAT: Final = "the format of Gemini"
_CONFIG: Final = "generationConfig"
_OWN_ONLY: Final = frozenset(("contents", "systemInstruction", _CONFIG))
_LEVELS: Final = ("minimal", "low", "medium", "high")
_BUDGETS: Final = {"none": 0, "minimal": 1_024, "low": 1_024, "medium": 8_192, "high": 24_576}
_WITH_BUDGET: Final = ("gemini-2.", "gemini-flash-latest", "gemini-pro-latest")
_TIERS: Final = {"default": "standard", "flex": "flex", "priority": "priority"}
_MODES: Final = {"auto": "AUTO", "none": "NONE", "required": "ANY"}
_STRICT: Final = "VALIDATED"  # calls of functions keep to their schemas, as in ANY
_FILTERED: Final = "content_filter"
_FINISH: Final = {
    **dict.fromkeys(("STOP", "FINISH_REASON_UNSPECIFIED"), "stop"),
    **dict.fromkeys(("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "MODEL_ARMOR"), _FILTERED),
    **dict.fromkeys(("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"), _FILTERED),
}
_CANDIDATES_MAX: Final = 256
# Files that Google itself keeps. Any other URL would be a picture that Gemini does not fetch.
_GOOGLE_FILES: Final = ("https://generativelanguage.googleapis.com/", "gs://")


def is_chat(fields: Fields) -> bool:
    """Whether a body without a url must be translated: a chat request, and also one in Gemini's own format that names
    its model, which belongs into the path."""
    return "messages" in fields or "model" in fields or "contents" not in fields


def own_member(fields: Fields) -> str | None:
    return min(_OWN_ONLY.intersection(fields), default=None)


def request(fields: Fields, model: str | None, output_tokens_default: int | None) -> tuple[str, dict[str, Any]]:
    named = fields.get("model")
    model = named if isinstance(named, str) else model
    if "contents" in fields:
        if "messages" in fields:
            refuse("has messages and contents: write one of them")
        return url_of_model(model), {name: value for name, value in fields.items() if name != "model"}
    rest = {name: value for name, value in fields.items() if name not in ("model", "messages")}
    translated: dict[str, Put] = {**_TRANSLATED, "reasoning_effort": partial(_put_effort, model or "")}
    body = _contents(fields.get("messages"))
    body |= put_members(rest, translated, _FORMAT, nothing=_SAYS_NOTHING, reasons=_REASONS)
    if output_tokens_default is not None:
        body.setdefault(_CONFIG, {}).setdefault("maxOutputTokens", output_tokens_default)
    if any(tool["function"].get("strict") for tool in list_in(fields.get("tools"))):
        calling = body.setdefault("toolConfig", {}).setdefault("functionCallingConfig", {"mode": "AUTO"})
        calling["mode"] = _STRICT if calling["mode"] == "AUTO" else calling["mode"]
    return url_of_model(model), body


def _text(part: Fields) -> Blocks:
    check(part, ("type", "text"))
    return [{"text": text_in(part)}]


def _image(part: Fields) -> Blocks:
    check(part, ("type", "image_url"))
    url = image_url(part, check)
    if (data := data_in(url)) is not None:
        return [_inline(*data)]
    if isinstance(url, str) and url.startswith(_GOOGLE_FILES):
        kind = mimetypes.guess_type(url)[0]
        return [{"fileData": {**({} if kind is None else {"mimeType": kind}), "fileUri": url}}]
    refuse(f"has the image {preview(url)}: Gemini takes it as data: with base64, or as a file of Google's")


def _audio(part: Fields) -> Blocks:
    check(part, ("type", "input_audio"))
    audio = part.get("input_audio")
    if not is_dict(audio) or not isinstance(audio.get("format"), str) or not isinstance(audio.get("data"), str):
        refuse("has an input_audio without data or format")
    check(audio, ("data", "format"))
    return [_inline(f"audio/{audio['format']}", audio["data"])]


def _file(part: Fields) -> Blocks:
    """Gemini has no place for the name of a file, so the name is a text before it."""
    check(part, ("type", "file"))
    data, name = file_in(part, check)
    if data is None:
        refuse(f"has a file without file_data, as data:{PDF};base64,…")
    return [*([] if name is None else [{"text": f"File: {name}"}]), _inline(*data)]


def _inline(mime_type: str, data: str) -> dict[str, Any]:
    return {"inlineData": {"mimeType": mime_type, "data": data}}


class ContentsWriter(ChatMessages):
    """Results of tools are messages of the user. They name their function, which is known from the call."""

    provider = "Gemini"
    format_name = _FORMAT
    texts: ClassVar[BlockWriters] = {"text": _text}
    parts: ClassVar[BlockWriters] = {**texts, "image_url": _image, "input_audio": _audio, "file": _file}

    def __init__(self, value: Any) -> None:
        self._functions: dict[str, Any] = {}
        super().__init__(value)

    def add_user(self, content: Any) -> None:
        self._add("user", self.blocks(content, self.parts))

    def add_assistant(self, content: Any, calls: list[Any]) -> None:
        said = self.blocks(content, self.texts) if content or not calls else []
        self._add("model", said + [self._function_call(call) for call in calls])

    def add_tool_result(self, message: Fields) -> None:
        self.check(message, ("role", "content", "tool_call_id", "name"))
        call_id = message.get("tool_call_id")
        name = self._functions.get(call_id) if isinstance(call_id, str) else None
        if name is None:
            refuse(f"has the result of the tool call {preview(call_id)}, which no message before it makes")
        text = "".join(part["text"] for part in self.blocks(message.get("content"), self.texts))
        said = object_of(text)
        response = {"result": text} if said is None else said  # it must be an object here
        self._add("user", [{"functionResponse": {"id": call_id, "name": name, "response": response}}])

    def _add(self, role: str, parts: Blocks) -> None:
        """The results of several calls are one turn."""
        last = self.turns[-1] if self.turns else None
        if last is not None and last["role"] == role == "user" and "functionResponse" in last["parts"][-1]:
            last["parts"] += parts
        else:
            self.turns.append({"role": role, "parts": parts})

    def _function_call(self, call: Any) -> dict[str, Any]:
        function, given = function_called(call, self.check, ("extra_content",))
        made: dict[str, Any] = {"name": function.get("name"), "args": given}
        if isinstance(call.get("id"), str):
            self._functions[call["id"]] = function.get("name")
            made["id"] = call["id"]
        return {"functionCall": made, **_signature(call.get("extra_content"))}


check = ContentsWriter.check


def _signature(extra: Any) -> dict[str, Any]:
    if extra is None:
        return {}
    google = extra.get("google") if is_dict(extra) else None
    if not is_dict(google) or extra.keys() != {"google"} or google.keys() != {"thought_signature"}:
        refuse(f"has the extra_content {preview(extra)}: only google.thought_signature can be translated")
    return {"thoughtSignature": google["thought_signature"]}


def _contents(value: Any) -> dict[str, Any]:
    messages = ContentsWriter(value)
    if not messages.turns:
        refuse("has no message besides the system prompt")
    system = {"systemInstruction": {"parts": messages.system}} if messages.system else {}
    return {**system, "contents": messages.turns}


def _set(name: str, value: Any, body: dict[str, Any]) -> None:
    body.setdefault(_CONFIG, {})[name] = value


def _put_max_tokens(value: Any, body: dict[str, Any]) -> None:
    same_twice(body.setdefault(_CONFIG, {}), "maxOutputTokens", value, "max_tokens and max_completion_tokens")


def _put_stop(value: Any, body: dict[str, Any]) -> None:
    _set("stopSequences", [value] if isinstance(value, str) else value, body)


def _put_effort(model: str, value: Any, body: dict[str, Any]) -> None:
    """Older models are told how many tokens they may think, newer ones how much."""
    if model.removeprefix("models/").startswith(_WITH_BUDGET):
        if not isinstance(value, str) or value not in _BUDGETS:
            refuse(f"has the reasoning_effort {preview(value)}: {model} has {', '.join(_BUDGETS)}")
        _set("thinkingConfig", {"thinkingBudget": _BUDGETS[value]}, body)
        return
    if value not in _LEVELS:
        refuse(f"has the reasoning_effort {preview(value)}: Gemini has {', '.join(_LEVELS)}")
    _set("thinkingConfig", {"thinkingLevel": value}, body)


def _put_format(value: Any, body: dict[str, Any]) -> None:
    given = None
    if is_dict(value) and value.get("type") == "json_object":
        check(value, ("type",))
    else:
        given = schema_in(value, check, "it must be text, json_object or a json_schema with a schema")
        if given is None:
            return
    _set("responseMimeType", "application/json", body)
    if given is not None:
        check(given, ("name", "schema", "strict", "description"))
        described = {} if given.get("description") is None else {"description": given["description"]}
        _set("responseJsonSchema", {**described, **given["schema"]}, body)


def _put_tools(value: Any, body: dict[str, Any]) -> None:
    functions = []
    for _, function in functions_in(value, check):
        made = {name: function[name] for name in ("name", "description") if function.get(name) is not None}
        if function.get("parameters") is not None:
            made["parametersJsonSchema"] = function["parameters"]
        functions.append(made)
    if functions:
        body["tools"] = [{"functionDeclarations": functions}]


def _put_tool_choice(value: Any, body: dict[str, Any]) -> None:
    function = function_chosen(value, check)
    if isinstance(value, str) and value in _MODES:
        calling: dict[str, Any] = {"mode": _MODES[value]}
    elif function is not None:
        calling = {"mode": "ANY", "allowedFunctionNames": [function]}
    else:
        refuse(f"has the tool_choice {preview(value)}: Gemini has auto, none, required and one function")
    body["toolConfig"] = {"functionCallingConfig": calling}


def _put_tier(value: Any, body: dict[str, Any]) -> None:
    if not isinstance(value, str) or value not in _TIERS:
        refuse(f"has the service_tier {preview(value)}: Gemini has auto, {', '.join(_TIERS)}")
    body["serviceTier"] = _TIERS[value]


_TRANSLATED: Final[Mapping[str, Put]] = {
    **{name: partial(_set, setting) for name, setting in _SETTINGS.items()},
    "max_tokens": _put_max_tokens,
    "max_completion_tokens": _put_max_tokens,
    "stop": _put_stop,
    "response_format": _put_format,
    "tools": _put_tools,
    "tool_choice": _put_tool_choice,
    "service_tier": _put_tier,
}


# Replies


def is_reply(fields: Fields) -> bool:
    return any(name in fields for name in ("candidates", "promptFeedback", "usageMetadata"))


def reply(fields: Fields) -> dict[str, Any]:
    """A blocked prompt is an answer that was filtered."""
    candidates = [each for each in list_in(fields.get("candidates"))[:_CANDIDATES_MAX] if is_dict(each)]
    choices = [_choice(number, each) for number, each in enumerate(candidates)]
    if not choices:
        why = dict_in(fields.get("promptFeedback")).get("blockReason")
        said = {"role": "assistant", "content": None, "refusal": f"The prompt was blocked: {why}." if why else None}
        choices = [choice(said, _FILTERED if why else "length")]
    used = _usage(dict_in(fields.get("usageMetadata")))
    return completion(fields.get("responseId"), fields.get("modelVersion"), choices, used)


def _choice(number: int, candidate: Fields) -> dict[str, Any]:
    content, reason = dict_in(candidate.get("content")), candidate.get("finishReason")
    parts = [part for part in list_in(content.get("parts")) if is_dict(part)]
    message: dict[str, Any] = {
        "role": "assistant",
        "content": join_texts(part.get("text") for part in parts if not part.get("thought")),
        "refusal": None,
    }
    if (thought := join_texts(part.get("text") for part in parts if part.get("thought"))) is not None:
        message["reasoning_content"] = thought
    if images := [_image_said(part["inlineData"]) for part in parts if is_dict(part.get("inlineData"))]:
        message["images"] = images
    calling = [part for part in parts if is_dict(part.get("functionCall"))]
    if calling:
        message["tool_calls"] = [_tool_call(at, part) for at, part in enumerate(calling)]
    finish = _FINISH.get(reason, "length") if isinstance(reason, str) else "stop"
    return choice(message, "tool_calls" if calling and finish == "stop" else finish, number)


def _image_said(data: Fields) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": f"data:{data.get('mimeType')};base64,{data.get('data')}"}}


def _tool_call(at: int, part: Fields) -> dict[str, Any]:
    """A later request must repeat the signature of a call, so it is kept as Google's own OpenAI format does."""
    call = part["functionCall"]
    made = tool_call(call.get("id") or f"call_{at}", call.get("name"), call.get("args"))
    if part.get("thoughtSignature") is not None:
        made["extra_content"] = {"google": {"thought_signature": part["thoughtSignature"]}}
    return made


def _usage(figures: Fields) -> dict[str, Any]:
    names = ("promptTokenCount", "toolUsePromptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")
    asked, used, answered, thought = (count_in(figures.get(name)) or 0 for name in names)
    cached = count_in(figures.get("cachedContentTokenCount")) or 0
    return usage(asked + used, answered + thought, cached, thought)


# Schemas


class GeminiAnswers(ChatAnswers):
    def ask_again(self, url: str, fields: Fields, reask: Reask) -> dict[str, Any]:
        said = ({"role": role, "parts": [{"text": text}]} for role, text in zip(("model", "user"), reask, strict=True))
        return {**fields, "contents": [*fields["contents"], *said]}


ANSWERS: Final = GeminiAnswers(
    SchemaDialect(
        "Gemini",
        keywords=frozenset(("minimum", "maximum", "minItems", "maxItems")),
        formats=frozenset(("date-time", "date", "time")),
        maps=True,
        tuples=True,
        any_value=True,
        const=False,
    )
)
