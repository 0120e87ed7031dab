"""LangChain's messages and tools as requests in OpenAI's chat format, and replies as LangChain's messages."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.exceptions import OutputParserException
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.utils.function_calling import convert_to_openai_tool

from backstay.core.errors import UsageError
from backstay.rows.answers import Answer


def messages_of(messages: Sequence[BaseMessage]) -> list[Any]:
    made = convert_to_openai_messages(list(messages))
    return made if isinstance(made, list) else [made]


def tool_members(tools: Sequence[Any], choice: Any, strict: bool | None) -> dict[str, Any]:
    """The members of a body that offer tools. A choice is one of OpenAI's words, `any`, True or the name of a tool."""
    offered = [convert_to_openai_tool(tool, strict=strict) for tool in tools]
    members: dict[str, Any] = {"tools": offered}
    names = [tool["function"]["name"] for tool in offered if "function" in tool]
    if choice in ("any", True):
        members["tool_choice"] = "required"
    elif isinstance(choice, str) and choice in names:
        members["tool_choice"] = {"type": "function", "function": {"name": choice}}
    elif isinstance(choice, str) and choice not in ("auto", "none", "required"):
        raise UsageError(f"tool_choice names {choice!r}, which is not a tool", hint=f"there are {', '.join(names)}")
    elif choice:
        members["tool_choice"] = choice
    return members


def message_of(reply: Mapping[str, Any], answer: Answer[Any]) -> AIMessage:
    choice: Mapping[str, Any] = next(iter(reply.get("choices") or ()), {})
    said = choice.get("message") or {}
    calls: list[Any] = []
    broken: list[Any] = []
    for call in said.get("tool_calls") or ():
        try:
            calls.append(parse_tool_call(call, return_id=True))
        except OutputParserException as error:
            broken.append(make_invalid_tool_call(call, str(error)))
    return AIMessage(
        content=said.get("content") or "",
        tool_calls=calls,
        invalid_tool_calls=broken,
        additional_kwargs={"refusal": said["refusal"]} if said.get("refusal") else {},
        usage_metadata=_usage_of(reply.get("usage")),
        response_metadata={
            "model_name": reply.get("model"),
            "finish_reason": choice.get("finish_reason"),
            "model_provider": "backstay",
            "backstay": {
                "item": answer.item,
                "reused": answer.reused,
                "cost": answer.cost,
                "attempts": answer.attempts,
                "lane": answer.lane,
            },
        },
    )


def _usage_of(usage: Any) -> UsageMetadata | None:
    """What the reply says; of a reused answer as well, although it was paid for earlier."""
    if not isinstance(usage, Mapping):
        return None
    asked, made = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
    read, thought = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return UsageMetadata(
        input_tokens=asked,
        output_tokens=made,
        total_tokens=usage.get("total_tokens") or asked + made,
        input_token_details=InputTokenDetails(cache_read=read.get("cached_tokens") or 0),
        output_token_details=OutputTokenDetails(reasoning=thought.get("reasoning_tokens") or 0),
    )
