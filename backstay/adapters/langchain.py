"""A chat model of LangChain whose calls go through Backstay: `BackstayChat(model="gpt-5-mini", budget=5.00)`."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from operator import itemgetter
from queue import SimpleQueue
from typing import Any, Final, Unpack

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun, Callbacks
from langchain_core.exceptions import OutputParserException
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.messages.ai import InputTokenDetails, OutputTokenDetails, UsageMetadata
from langchain_core.output_parsers.openai_tools import make_invalid_tool_call, parse_tool_call
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig, RunnableLambda, RunnableMap, RunnablePassthrough
from langchain_core.runnables.config import get_config_list
from langchain_core.utils.function_calling import convert_to_json_schema, convert_to_openai_tool
from pydantic import Field, PrivateAttr
from typing_extensions import override

from backstay.adapters.requests import AdapterSender, Outcome, RequestGroups, RequestRun, reply_of
from backstay.core.errors import BackstayError, UsageError
from backstay.core.models import Flaw
from backstay.rows.answers import INVALID, Answer, AnswerType
from backstay.rows.options import SendOptions

_REFUSALS: Final = (Flaw.REFUSED.value, Flaw.FILTERED.value)  # other chat models return these as messages, too
_UNFIT: Final = (*_REFUSALS, INVALID, Flaw.TRUNCATED.value)
_OF_ONE_CALL: Final = ("temperature", "max_tokens", "model")  # options that a call may change
_SCHEMA, _RAW = "schema", "include_raw"
_NOT_SENT: Final = (_SCHEMA, _RAW, "ls_structured_output_format", "structured_output_format")  # the last two: traces


class ChatOptions(SendOptions, total=False):
    """The options of `backstay.map` that concern requests, and those of every chat model of LangChain."""

    name: str | None
    cache: Any
    verbose: bool
    callbacks: Callbacks
    tags: list[str] | None
    metadata: dict[str, Any] | None
    custom_get_token_ids: Callable[[str], list[int]] | None
    disable_streaming: Any
    output_version: str | None
    profile: Any


@dataclass(slots=True)
class _Ready:
    """The outcome of an input of a batch, for the `invoke` that tells LangChain's callbacks about it."""

    chat: "BackstayChat"
    outcome: Outcome | None


_READY: ContextVar[_Ready | None] = ContextVar("backstay_ready", default=None)


class BackstayChat(BaseChatModel):
    """A chat model whose calls go through Backstay. `batch`, `abatch` and `batch_as_completed`, also of a chain, send
    all inputs as one run; single calls that arrive together are one run, too. `budget` is for all of them together."""

    options: dict[str, Any] = Field(default_factory=dict)
    _sender: AdapterSender = PrivateAttr()
    _groups: RequestGroups = PrivateAttr()

    def __init__(self, **options: Unpack[ChatOptions]) -> None:
        given: dict[str, Any] = {**options}
        own = {name: given.pop(name) for name in list(given) if name in BaseChatModel.model_fields}
        # LangChain makes copies with other settings from the fields of a model.
        own["options"] = {**given.pop("options", {}), **given}
        super().__init__(**own)
        self._connect()

    def _connect(self) -> None:
        self._sender = AdapterSender(self.options, "LangChain")  # type: ignore[arg-type]
        self._groups = RequestGroups(self._sender)

    def __getstate__(self) -> dict[Any, Any]:
        return {**super().__getstate__(), "__pydantic_private__": None}

    def __setstate__(self, state: dict[Any, Any]) -> None:
        super().__setstate__({**state, "__pydantic_private__": {}})
        self._connect()

    @property
    def model_name(self) -> str | None:
        return self.options.get("model")

    @property
    @override
    def _llm_type(self) -> str:
        return "backstay"

    @property
    @override
    def _identifying_params(self) -> Mapping[str, Any]:
        plain = (str, int, float, bool)
        return {"model_name": self.model_name} | {k: v for k, v in self.options.items() if isinstance(v, plain)}

    @override
    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        outcome = self._ready()
        if outcome is None:
            asked = self._groups.ask(self._body(messages, stop, kwargs), kwargs.get(_SCHEMA))
            try:
                outcome = asked.result()
            finally:
                asked.cancel()  # after Ctrl-C nobody wants it
        return _result(outcome, kwargs)

    @override
    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        outcome = self._ready()
        if outcome is None:
            body = self._body(messages, stop, kwargs)
            outcome = await asyncio.wrap_future(self._groups.ask(body, kwargs.get(_SCHEMA)))
        return _result(outcome, kwargs)

    def _ready(self) -> Outcome | None:
        ready = _READY.get()
        if ready is None or ready.chat is not self:
            return None
        outcome, ready.outcome = ready.outcome, None
        return outcome

    def _body(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, kwargs: Mapping[str, Any]
    ) -> dict[str, Any]:
        for name in kwargs:
            if name in SendOptions.__annotations__ and name not in _OF_ONE_CALL:
                raise UsageError(f"{name} is an option of BackstayChat(...), not of one call")
        own = {name: value for name, value in kwargs.items() if name not in _NOT_SENT and value is not None}
        return self._sender.body(messages_of(messages), {**own, **({"stop": stop} if stop else {})})

    # many inputs

    @override
    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        configs = get_config_list(config, len(inputs)) if inputs else []
        outcomes = dict(self._outcomes(inputs, configs, kwargs))
        made = [self._told(each, configs[at], outcomes[at], kwargs) for at, each in enumerate(inputs)]
        return _all_or_raise(made, return_exceptions)

    @override
    async def abatch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> list[AIMessage]:
        configs = get_config_list(config, len(inputs)) if inputs else []
        pump = _Pump(lambda run: self._outcomes(inputs, configs, kwargs, run))
        outcomes = {at: outcome async for at, outcome in pump.aoutcomes()}
        made = [await self._atold(each, configs[at], outcomes[at], kwargs) for at, each in enumerate(inputs)]
        return _all_or_raise(made, return_exceptions)

    @override
    def batch_as_completed(  # type: ignore[override]  # its two overloads say the same
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> Iterator[tuple[int, AIMessage | Exception]]:
        configs = get_config_list(config, len(inputs)) if inputs else []
        for at, outcome in _Pump(lambda run: self._outcomes(inputs, configs, kwargs, run)).outcomes():
            yield at, _or_raise(self._told(inputs[at], configs[at], outcome, kwargs), return_exceptions)

    @override
    async def abatch_as_completed(  # type: ignore[override]  # its two overloads say the same
        self,
        inputs: Sequence[LanguageModelInput],
        config: RunnableConfig | Sequence[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: Any,
    ) -> AsyncIterator[tuple[int, AIMessage | Exception]]:
        configs = get_config_list(config, len(inputs)) if inputs else []
        async for at, outcome in _Pump(lambda run: self._outcomes(inputs, configs, kwargs, run)).aoutcomes():
            yield at, _or_raise(await self._atold(inputs[at], configs[at], outcome, kwargs), return_exceptions)

    def _outcomes(
        self,
        inputs: Sequence[LanguageModelInput],
        configs: Sequence[RunnableConfig],
        kwargs: Mapping[str, Any],
        begun: Callable[[RequestRun], None] = lambda run: None,
    ) -> Iterator[tuple[int, Outcome]]:
        """One run for all inputs. An input that is no message is an error of its own."""
        bodies: list[dict[str, Any]] = []
        places: list[int] = []
        for at, each in enumerate(inputs):
            try:
                messages = self._convert_input(each).to_messages()
                bodies.append(self._body(messages, kwargs.get("stop"), {**kwargs, "stop": None}))
                places.append(at)
            except UsageError:
                raise
            except Exception as error:
                yield at, BackstayError(f"the input cannot be sent: {error}")
        if not bodies:
            return
        most = configs[0].get("max_concurrency")
        run = self._sender.run(bodies, kwargs.get(_SCHEMA), **({} if most is None else {"concurrency": most}))
        begun(run)
        left = set(places)
        try:
            for at, outcome in run.outcomes():
                left.remove(places[at])
                yield places[at], outcome
        except BackstayError as error:
            for at in sorted(left):
                yield at, error

    def _told(
        self, given: LanguageModelInput, config: RunnableConfig, outcome: Outcome, kwargs: Mapping[str, Any]
    ) -> AIMessage | Exception:
        """LangChain's own `invoke` makes the message, so that callbacks, traces and the count of tokens are as ever."""
        token = _READY.set(_Ready(self, outcome))
        try:
            return self.invoke(given, config, **kwargs)
        except Exception as error:
            return error
        finally:
            _READY.reset(token)

    async def _atold(
        self, given: LanguageModelInput, config: RunnableConfig, outcome: Outcome, kwargs: Mapping[str, Any]
    ) -> AIMessage | Exception:
        token = _READY.set(_Ready(self, outcome))
        try:
            return await self.ainvoke(given, config, **kwargs)
        except Exception as error:
            return error
        finally:
            _READY.reset(token)

    # tools and schemas

    @override
    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | Any],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        return self.bind(**tool_members(tools, tool_choice, strict), **kwargs)

    @override
    def with_structured_output(
        self, schema: dict[str, Any] | type, *, include_raw: bool = False, method: str = "json_schema", **kwargs: Any
    ) -> Runnable[LanguageModelInput, Any]:
        """Backstay sends the schema, checks each answer and asks again with the error (`reasks`). The method
        `function_calling` lets the model call a tool instead; its arguments are checked by LangChain, once."""
        if method == "function_calling":
            return super().with_structured_output(schema, include_raw=include_raw, **kwargs)
        kwargs.pop("strict", None)  # it always is where the provider can
        if method != "json_schema" or kwargs:
            raise ValueError(f"unsupported: method={method!r} {kwargs}; known: 'json_schema', 'function_calling'")
        wanted: Any = schema if isinstance(schema, type) else _json_schema(schema)
        asked = self.bind(**{_SCHEMA: wanted, _RAW: include_raw})
        reader = AnswerType[Any](wanted)
        parse = RunnableLambda(lambda message: reader.parse(message.text))
        if not include_raw:
            return asked | parse
        parsed = RunnablePassthrough.assign(parsed=itemgetter("raw") | parse, parsing_error=lambda _: None)
        failed = RunnablePassthrough.assign(parsed=lambda _: None)
        return RunnableMap({"raw": asked}) | parsed.with_fallbacks([failed], exception_key="parsing_error")


_Came = tuple[int, Outcome] | BaseException | None  # None: there are no more


class _Pump:
    """Reads a run in a thread of its own: it goes on while its reader does something else, also with the same model,
    and it stops when nobody reads any more."""

    def __init__(self, outcomes: Callable[[Callable[[RequestRun], None]], Iterator[tuple[int, Outcome]]]) -> None:
        self._outcomes = outcomes
        self._came: SimpleQueue[_Came] = SimpleQueue()
        self._run: RequestRun | None = None
        self._left = False

    def outcomes(self) -> Iterator[tuple[int, Outcome]]:
        self._start(self._came.put)
        try:
            while (came := self._came.get()) is not None:
                yield _came(came)
        finally:
            self._stop()

    async def aoutcomes(self) -> AsyncIterator[tuple[int, Outcome]]:
        """No thread of the caller's loop waits for an outcome, so a call that is cancelled leaves none behind."""
        loop, more = asyncio.get_running_loop(), asyncio.Event()

        def put(came: _Came) -> None:
            self._came.put(came)
            with suppress(RuntimeError):  # the loop of a reader that has left may be closed
                loop.call_soon_threadsafe(more.set)

        self._start(put)
        try:
            while True:
                await more.wait()
                more.clear()
                while not self._came.empty():
                    if (came := self._came.get()) is None:
                        return
                    yield _came(came)
        finally:
            self._stop()

    def _start(self, put: Callable[[_Came], None]) -> None:
        threading.Thread(target=self._read, args=(put,), name="backstay-batch", daemon=True).start()

    def _begun(self, run: RequestRun) -> None:
        self._run = run
        if self._left:
            run.stop()

    def _stop(self) -> None:
        self._left = True
        if self._run is not None:
            self._run.stop()

    def _read(self, put: Callable[[_Came], None]) -> None:
        try:
            for each in self._outcomes(self._begun):
                put(each)
            put(None)
        except BaseException as error:  # it is raised where the outcomes are read
            put(error)


def _came(came: tuple[int, Outcome] | BaseException) -> tuple[int, Outcome]:
    if isinstance(came, BaseException):
        raise came
    return came


def _result(outcome: Outcome, kwargs: Mapping[str, Any]) -> ChatResult:
    kept = _UNFIT if kwargs.get(_RAW) else () if kwargs.get(_SCHEMA) else _REFUSALS
    reply = reply_of(outcome, kept)
    assert isinstance(outcome, Answer)
    return ChatResult(generations=[ChatGeneration(message=message_of(reply, outcome))])


def _json_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON Schema as it is; a function or a tool of OpenAI as the schema of its arguments."""
    is_schema = "properties" in schema or "$ref" in schema or schema.get("type") == "object"
    return dict(schema) if is_schema else convert_to_json_schema(dict(schema))


def _or_raise(made: AIMessage | Exception, return_exceptions: bool) -> Any:
    if isinstance(made, Exception) and not return_exceptions:
        raise made
    return made


def _all_or_raise(made: list[AIMessage | Exception], return_exceptions: bool) -> list[Any]:
    """The first failure is raised after all inputs are done, as every answer is saved."""
    return [_or_raise(each, return_exceptions) for each in made]


# LangChain's messages and tools as requests in OpenAI's chat format, and replies as LangChain's messages


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
