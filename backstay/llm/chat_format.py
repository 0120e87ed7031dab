"""Translates OpenAI's chat format into another format and back: the parts that are the same for every provider; and the
texts of requests and replies in any format, for people to read.

A member that the other format does not have is refused by its name. Nothing is left out silently.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, NoReturn, TypeGuard

from backstay.llm.bodies import dict_in, list_in, object_of
from backstay.llm.endpoint import DEFAULT_API
from backstay.llm.lines import LinePart, LineRefused, preview
from backstay.llm.provider import ChatTranslation
from backstay.llm.providers import CHAT, chat_translations, provider_named, provider_of_url

Fields = Mapping[str, Any]
Put = Callable[[Any, dict[str, Any]], None]  # a member of a chat request, and the body that says the same
Blocks = list[dict[str, Any]]
BlockWriters = Mapping[str, Callable[[Fields], Blocks]]  # for the parts of a message, by their types

# Values, besides null, with which a member has no meaning, so that it can be left out.
SAYS_NOTHING: Final[Mapping[str, tuple[Any, ...]]] = {
    "n": (1,),
    "stream": (False,),
    "store": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "logit_bias": ({},),
    "metadata": ({},),
    "modalities": (["text"],),
    "verbosity": ("medium",),
}
NO_PENALTIES: Final[Mapping[str, tuple[Any, ...]]] = {"frequency_penalty": (0,), "presence_penalty": (0,)}
# Why a member cannot be translated, where that helps.
REASONS: Final[Mapping[str, str]] = {"stream": "streams are not supported", "store": "replies are not stored"}
ONE_REPLY: Final = "one reply for each request: write the line several times"
PDF: Final = "application/pdf"
# No other format has any of these, so they show that a request is in this one.
_CHAT_ONLY: Final = frozenset(
    (
        "max_completion_tokens",
        "response_format",
        "stop",
        "reasoning_effort",
        "parallel_tool_calls",
        "functions",
        "frequency_penalty",
        "presence_penalty",
        "logit_bias",
    )
)
_CHAT_ROLES: Final = ("developer", "tool", "function")
_DATA_URL: Final = re.compile(r"data:([\w.+-]+/[\w.+-]+);base64,(.+)", re.DOTALL)
# Members of nearly all chat requests: with no others, a body needs no comparison with other formats.
_USUAL: Final = frozenset(
    ("model", "messages", "max_tokens", "temperature", "top_p", "n", "seed", "tools", "tool_choice", *_CHAT_ONLY)
)


def refuse(reason: str) -> NoReturn:
    raise LineRefused(reason, LinePart.BODY)


def is_dict(value: object) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)


def is_function(tool: Any) -> bool:
    return is_dict(tool) and tool.get("type", "function") == "function" and is_dict(tool.get("function"))


def refuse_chat(fields: Fields, path: str) -> None:
    """Refuses a body in OpenAI's chat format at a path of another format, where it can only fail."""
    signs = [name for name in fields if name in _CHAT_ONLY]
    signs += ["functions as tools"] if any(map(is_function, list_in(fields.get("tools")))) else []
    for message in list_in(fields.get("messages")):
        if is_dict(message) and ("tool_calls" in message or message.get("role") in _CHAT_ROLES):
            signs.append("tool_calls" if "tool_calls" in message else f"the role {message['role']}")
    if signs:
        where = f"which belongs to OpenAI's chat format, not to {path}"
        refuse(f"has {signs[0]}, {where}; with the url {CHAT} it is translated")


class ChatMessages:
    """Reads the messages of a chat request. A subclass writes them as the provider wants them.

    System prompts are a member of their own everywhere, and stand at the beginning.
    """

    provider: ClassVar[str]  # as errors name it
    format_name: ClassVar[str]
    texts: ClassVar[BlockWriters]  # for messages of the system and the assistant
    parts: ClassVar[BlockWriters]  # for messages of the user

    def __init__(self, value: Any) -> None:
        self.system: Blocks = []
        self.turns: list[dict[str, Any]] = []
        if not isinstance(value, list) or not value:
            refuse("has no messages")
        for message in value:
            if not is_dict(message):
                refuse(f"has the message {preview(message)}, which is not an object")
            self._read(message)

    def add_user(self, content: Any) -> None:
        raise NotImplementedError

    def add_assistant(self, content: Any, calls: list[Any]) -> None:
        raise NotImplementedError

    def add_tool_result(self, message: Fields) -> None:
        raise NotImplementedError

    def blocks(self, content: Any, writers: BlockWriters) -> Blocks:
        if isinstance(content, str):
            return writers["text"]({"type": "text", "text": content})
        if not isinstance(content, list) or not content:
            refuse(f"has a message with the content {preview(content)}, which is neither text nor parts")
        made: Blocks = []
        for part in content:
            kind = part.get("type") if is_dict(part) else None
            if not isinstance(kind, str) or kind not in writers:
                refuse(f"has a part of the type {preview(kind)} in a message: {self.provider} has no such input")
            made += writers[kind](part)
        return made

    @classmethod
    def check(
        cls, value: Fields, known: tuple[str, ...], harmless: Mapping[str, tuple[Any, ...]] | None = None
    ) -> None:
        """Refuses members that would be lost. `harmless`: values with which a member has no meaning."""
        for name, given in value.items():
            if given is not None and name not in known and given not in (harmless or {}).get(name, ()):
                refuse(f"has {name} {preview(given)}: that is not in {cls.format_name}")

    def _read(self, message: dict[str, Any]) -> None:
        role = message.get("role")
        if role in ("system", "developer"):
            if self.turns:
                words = "has a system prompt after the first message"
                refuse(f"{words}: {self.provider} takes them only at the beginning")
            self.check(message, ("role", "content"))
            self.system += self.blocks(message.get("content"), self.texts)
        elif role == "user":
            self.check(message, ("role", "content"))
            self.add_user(message.get("content"))
        elif role == "assistant":
            nothing: dict[str, tuple[Any, ...]] = {"refusal": (), "annotations": ([],), "audio": ()}
            self.check(message, ("role", "content", "tool_calls"), nothing)
            calls = message.get("tool_calls")
            if calls is not None and not isinstance(calls, list):
                refuse(f"has the tool_calls {preview(calls)}, which are not a list")
            self.add_assistant(message.get("content"), calls or [])
        elif role == "tool":
            self.add_tool_result(message)
        else:
            known = f"{self.provider} knows system, user, assistant and tool"
            refuse(f"has a message with the role {preview(role)}: {known}")


# Parts of messages, and members of requests


def data_in(url: object) -> tuple[str, str] | None:
    """The type and the base64 text of a data: URL."""
    found = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    return None if found is None else (found[1], found[2])


def image_url(part: Fields, check: Callable[..., None]) -> Any:
    given = part.get("image_url")
    image = {"url": given} if isinstance(given, str) else given if is_dict(given) else {}
    check(image, ("url",), {"detail": ("auto",)})
    return image.get("url")


def file_in(part: Fields, check: Callable[..., None]) -> tuple[tuple[str, str] | None, Any]:
    """The data of a file, if it has any, and its name."""
    file = part.get("file")
    file = file if is_dict(file) else {}
    check(file, ("file_data", "filename"))
    return data_in(file.get("file_data")), file.get("filename")


def text_in(part: Fields) -> str:
    text = part.get("text")
    if not isinstance(text, str):
        refuse(f"has the text {preview(text)}, which is not a text")
    return text


def function_called(
    call: Any, check: Callable[..., None], more: tuple[str, ...] = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The function of a tool call, and the arguments that it was called with. `more`: members that the caller reads."""
    function = call.get("function") if is_dict(call) else None
    if not is_dict(function) or call.get("type", "function") != "function":
        refuse(f"has the tool call {preview(call)}: only calls of functions can be translated")
    arguments = function.get("arguments") or "{}"
    given = object_of(arguments) if isinstance(arguments, str) else None
    if given is None:
        refuse(f"has a tool call whose arguments are not a JSON object: {preview(arguments)}")
    check(call, ("id", "type", "function", "index", *more))
    check(function, ("name", "arguments"))
    return function, given


def functions_in(
    value: Any, check: Callable[..., None], members: tuple[str, ...] = ("type", "function")
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each tool, and the function that it is."""
    for tool in value if isinstance(value, list) else [value]:
        if not is_function(tool):
            refuse(f"has the tool {preview(tool)}: only functions can be translated")
        check(tool, members)
        check(tool["function"], ("name", "description", "parameters"), {"strict": (True, False)})
        yield tool, tool["function"]


def function_chosen(value: Any, check: Callable[..., None]) -> str | None:
    """The name of the one function that a tool_choice asks for."""
    function = value.get("function") if is_dict(value) and value.get("type") == "function" else None
    if not is_dict(function) or not isinstance(name := function.get("name"), str):
        return None
    check(value, ("type", "function"))
    check(function, ("name",))
    return name


def schema_in(value: Any, check: Callable[..., None], must_be: str) -> dict[str, Any] | None:
    """The json_schema of a response_format, with its schema; None for plain text."""
    kind = value.get("type") if is_dict(value) else None
    if kind == "text":
        check(value, ("type",))
        return None
    given = value.get("json_schema") if kind == "json_schema" else None
    if not is_dict(given) or not is_dict(given.get("schema")):
        refuse(f"has the response_format {preview(value)}: {must_be}")
    check(value, ("type", "json_schema"))
    return given


def put_members(
    fields: Fields,
    translated: Mapping[str, Put],
    format_name: str,
    *,
    same: Sequence[str] = (),
    nothing: Mapping[str, tuple[Any, ...]],
    reasons: Mapping[str, str],
) -> dict[str, Any]:
    """The body with every member of a chat request, under the same name or translated; the rest is refused.

    `nothing`: the values with which a member says nothing. `reasons`: why a member cannot be translated."""
    body = {name: fields[name] for name in same if fields.get(name) is not None}
    for name, value in fields.items():
        if value is None or name in same or value in nothing.get(name, ()):
            continue
        if name not in translated:
            refuse(f"has {name} {preview(value)}: {reasons.get(name, f'that is not in {format_name}')}")
        translated[name](value, body)
    return body


def same_twice(body: dict[str, Any], name: str, value: Any, names: str) -> None:
    """Refuses two members that mean the same and have different values."""
    if body.setdefault(name, value) != value:
        refuse(f"has {names}, and they are not the same")


# Replies


def completion(reply_id: Any, model: Any, choices: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
    """Replies of other formats have no time of their own, so `created` is 0."""
    head = {"id": reply_id, "object": "chat.completion", "created": 0, "model": model}
    return {**head, "choices": choices, "usage": usage}


def choice(message: dict[str, Any], finish: str, number: int = 0) -> dict[str, Any]:
    return {"index": number, "message": message, "logprobs": None, "finish_reason": finish}


def join_texts(texts: Iterator[Any]) -> str | None:
    found = [text for text in texts if isinstance(text, str)]
    return "".join(found) if found else None


def tool_call(call_id: Any, name: Any, arguments: Any) -> dict[str, Any]:
    function = {"name": name, "arguments": json.dumps(arguments or {})}
    return {"id": call_id, "type": "function", "function": function}


def usage(read: int, written: int, cached: int = 0, thought: int = 0) -> dict[str, Any]:
    """The usage in tokens. Input tokens include those from a cache, and output tokens include thinking."""
    return {
        "prompt_tokens": read,
        "completion_tokens": written,
        "total_tokens": read + written,
        "prompt_tokens_details": {"cached_tokens": cached},
        "completion_tokens_details": {"reasoning_tokens": thought},
    }


# The format of a body that is not known


def foreign_member(fields: Fields) -> str | None:
    """A member of a body in another format than OpenAI's chat format; None: there is none."""
    if fields.keys() <= _USUAL:
        return None  # the other providers need not be loaded
    return next((name for chat in chat_translations() if (name := chat.own_member(fields)) is not None), None)


def reply_in_chat(own: ChatTranslation, fields: dict[str, Any]) -> dict[str, Any]:
    """A `chat.completion` from the reply of a provider, which may pass on the replies of other makers' models. One in a
    form that is not known stays as it came."""
    chat = own if own.is_reply(fields) else _chat_of_reply(fields)
    return fields if chat is None else chat.reply(fields)


def _chat_of_reply(fields: Fields) -> ChatTranslation | None:
    return next((each for each in chat_translations() if each.is_reply(fields)), None)


def prompt_text(url: str, body: str) -> str:
    """The question of a request, in the format of its path; the whole body, if it has another form."""
    fields, owner = object_of(body), None if url == CHAT else provider_of_url(url)
    asked = None if fields is None else provider_named(owner or DEFAULT_API).requests.question(fields)
    return body if asked is None else asked


def answer_text(body: object) -> str | None:
    """The text of a reply in any provider's format. Tool calls, vectors and other forms are returned as JSON; None if
    there is no reply."""
    fields = dict_in(body)
    said = _said(fields)
    if said is None and fields:
        chat = _chat_of_reply(fields)
        said = None if chat is None else _said(chat.reply(fields))
    return said if said is not None or body is None else json.dumps(body, ensure_ascii=False)


def _said(reply: Fields) -> str | None:
    """The text of a reply of OpenAI's chat, completions, responses or embeddings; None if it has another form. Of
    several answers it is the first."""
    if "choices" in reply:
        return "".join(_choice_said(choice) for choice in map(dict_in, list_in(reply["choices"])[:1]))
    if isinstance(output := reply.get("output"), list):
        items = [item for item in output if is_dict(item)]
        said = [part for item in items for part in list_in(item.get("content"))]
        return _texts(said) or "\n".join(map(_as_json, (i for i in items if i.get("type") == "function_call")))
    vectors = [each["embedding"] for each in list_in(reply.get("data")) if is_dict(each) and "embedding" in each]
    return json.dumps(vectors[0] if len(vectors) == 1 else vectors) if vectors else None


def _choice_said(choice: Fields) -> str:
    """The text, and the calls of functions after it; if there is neither, why the model refused."""
    message = dict_in(choice.get("message"))
    said = message.get("content", choice.get("text"))
    text = said if isinstance(said, str) else _texts(list_in(said))
    calls = (_as_json(dict_in(call).get("function", call)) for call in list_in(message.get("tool_calls")))
    refusal = message.get("refusal")
    return "\n".join(filter(None, (text, *calls))) or (refusal if isinstance(refusal, str) else "")


def _texts(parts: list[Any]) -> str:
    """Thoughts are not part of the answer."""
    said = (part.get("text", part.get("refusal")) if is_dict(part) else part for part in parts if not _is_thought(part))
    return join_texts(said) or ""


def _is_thought(part: object) -> bool:
    return is_dict(part) and part.get("type") in ("thinking", "redacted_thinking", "reasoning")


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
