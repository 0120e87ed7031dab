"""Structured output: the schema that answers must fit, how a provider is told of it, and how an answer is read."""

import inspect
import json
import re
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib import import_module
from typing import Any, Final, NamedTuple

from backstay.core.errors import UsageError
from backstay.core.failures import one_line
from backstay.llm.lines import LinePart, LineRefused
from backstay.llm.schema_dialects import ExpressedSchema, Schema, SchemaDialect, drop_nulls, express, resolve

REASKS_DEFAULT: Final = 2
REASKS_MAX: Final = 10
ANSWER_BYTES_MAX: Final = 32_000  # of a bad answer that is shown to the model again
PROBLEM_BYTES_MAX: Final = 1_000  # of what is wrong with it
REASK_TOKENS: Final = 64  # of the words and the messages around both, at most
PROBLEMS_SHOWN_MAX: Final = 10
NAME_CHARACTERS_MAX: Final = 64
SCHEMA_CHARACTERS_MAX: Final = 1 << 18
_VALUE: Final = "value"  # the member that holds an answer which is not an object
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_-]+")
_FENCED: Final = re.compile(r"\s*```[\w-]*[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_CHAT_END: Final = "/chat/completions"
_NO_TEXT: Final = "(no text)"

AnswerCheck = Callable[[str], object]  # of an answer's text: raises ValueError or AssertionError if it does not fit


class AnswerInvalid(ValueError):
    """An answer that does not fit: in words for the model and for people."""


class AnswerSchema:
    """The schema of every answer of a run: made with `schema_of`, or read with `load_schema` from the text of `dump`.

    `parse` makes the Python value of an answer's text, or raises AnswerInvalid. It is what a run takes as its `check`.
    """

    def __init__(self, name: str, schema: Schema, adapter: Any = None) -> None:
        self.name = (_NOT_IN_NAMES.sub("_", name).strip("_") or "answer")[:NAME_CHARACTERS_MAX]
        self.schema = schema
        self._adapter = adapter
        root = resolve(schema, schema)
        kind = root.get("type") if isinstance(root, dict) else None
        self.wrapped = not (isinstance(root, dict) and (kind == "object" or (kind is None and "properties" in root)))

    @property
    def provider_schema(self) -> Schema:
        """The schema that a provider gets: it must be one of an object, so that any other one is a member of it."""
        if not self.wrapped:
            return self.schema
        inner, shared = dict(self.schema), Schema()
        for name in ("$defs", "definitions"):
            if name in inner:
                shared[name] = inner.pop(name)
        whole = {"type": "object", "properties": {_VALUE: inner}, "required": [_VALUE], "additionalProperties": False}
        return {**whole, **shared}

    def dump(self) -> str:
        text = json.dumps({"name": self.name, "schema": self.schema}, sort_keys=False, separators=(",", ":"))
        if len(text) > SCHEMA_CHARACTERS_MAX:
            raise UsageError(f"the schema has {len(text):,} characters; the limit is {SCHEMA_CHARACTERS_MAX:,}")
        return text

    def parse(self, text: str) -> Any:
        value = _read_json(text)
        if self.wrapped and isinstance(value, dict) and value.keys() == {_VALUE}:
            value = value[_VALUE]
        try:
            value = drop_nulls(value, self.schema, self.schema)
            return self._validate(value)
        except RecursionError:
            raise AnswerInvalid("$: it is nested too deeply") from None

    def _validate(self, value: Any) -> Any:
        if self._adapter is not None:
            try:
                return self._adapter.validate_json(json.dumps(value))
            except ValueError as error:  # pydantic's ValidationError among them
                raise AnswerInvalid(describe_problem(error)) from None
        problems = sorted(self._validator.iter_errors(value), key=lambda error: str(error.json_path))
        if problems:
            raise AnswerInvalid(_list_problems((problem.json_path, problem.message) for problem in problems))
        return value

    def plain(self, value: Any) -> Any:
        """What `parse` made, as JSON has it."""
        return value if self._adapter is None else self._adapter.dump_python(value, mode="json")

    @cached_property
    def _validator(self) -> Any:
        return _validator_of(self.schema)

    def require_validator(self) -> None:
        """Raises UsageError if a library that checks answers is missing."""
        if self._adapter is None:
            _ = self._validator


def _validator_of(schema: Schema) -> Any:
    try:
        jsonschema: Any = import_module("jsonschema")
    except ImportError:
        raise UsageError("a JSON Schema needs jsonschema", hint="pip install 'backstay[schema]'") from None
    kind = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    try:
        kind.check_schema(schema)
    except jsonschema.SchemaError as error:
        raise UsageError(
            f"the schema is not a JSON Schema: {error.json_path}: {one_line(error.message, 200)}"
        ) from None
    return kind(schema, format_checker=kind.FORMAT_CHECKER)


def schema_of(source: Any, name: str | None = None) -> AnswerSchema:
    """The schema of a Pydantic model, a dataclass, a TypedDict, any other type that Pydantic can check, or of a JSON
    Schema. Raises UsageError for anything else."""
    if isinstance(source, AnswerSchema):
        return source
    if isinstance(source, dict):
        title = source.get("title")
        made = AnswerSchema(name or (title if isinstance(title, str) else "answer"), source)
        made.require_validator()
        return made
    from pydantic import TypeAdapter
    from pydantic.errors import PydanticUserError

    hint = "give a Pydantic model, a dataclass, a TypedDict or a JSON Schema"
    plain = (str, bytes, int, float, list, tuple, type(None))
    if isinstance(source, plain) or inspect.isroutine(source) or inspect.ismodule(source):
        raise UsageError(f"{one_line(repr(source), 80)} is not a schema", hint=hint)
    try:
        adapter = TypeAdapter(_checkable_type(source))
        schema = adapter.json_schema()
    except (PydanticUserError, TypeError, NameError, AttributeError) as error:
        why = one_line(str(error), 200)
        raise UsageError(f"{one_line(repr(source), 80)} is not a schema: {why}", hint=hint) from None
    return AnswerSchema(name or str(getattr(source, "__name__", "answer")), schema, adapter)


def _checkable_type(source: Any) -> Any:
    """Before Python 3.12 Pydantic does not take a TypedDict of `typing`, but one of `typing_extensions`."""
    if sys.version_info >= (3, 12) or not typing.is_typeddict(source) or source.__class__.__module__ != "typing":
        return source
    from typing_extensions import TypedDict

    hints = typing.get_type_hints(source, include_extras=True)
    members = {
        name: kind if name in source.__required_keys__ else typing.NotRequired[kind] for name, kind in hints.items()
    }
    return TypedDict(source.__name__, members)  # type: ignore[operator]


@lru_cache(maxsize=64)
def load_schema(text: str) -> AnswerSchema:
    """The schema as an endpoint stores it: another process has no Python type for it."""
    said = json.loads(text)
    return AnswerSchema(said["name"], said["schema"])


def _read_json(text: str) -> Any:
    found = _FENCED.fullmatch(text)
    try:
        return json.loads(found[1] if found else text, parse_constant=_refuse_constant)
    except RecursionError:
        raise AnswerInvalid("$: it is nested too deeply") from None
    except ValueError as error:
        raise AnswerInvalid(f"$: the answer is not JSON: {one_line(str(error), 100)}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def describe_problem(error: Exception) -> str:
    """The problems of an answer, from the error of its check: each member by its path."""
    if isinstance(error, AnswerInvalid):
        return str(error)
    listed = getattr(error, "errors", None)
    if callable(listed):  # of pydantic
        return _list_problems((_path(problem["loc"]), problem["msg"]) for problem in listed(include_url=False))
    return _clip(f"$: {one_line(str(error) or type(error).__name__, PROBLEM_BYTES_MAX)}", PROBLEM_BYTES_MAX)


def _path(parts: Iterable[int | str]) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def _list_problems(problems: Iterable[tuple[str, str]]) -> str:
    shown = [f"{path}: {one_line(message, 200)}" for path, message in problems]
    more = f"; and {len(shown) - PROBLEMS_SHOWN_MAX} more" if len(shown) > PROBLEMS_SHOWN_MAX else ""
    return _clip("; ".join(shown[:PROBLEMS_SHOWN_MAX]) + more, PROBLEM_BYTES_MAX)


def _clip(text: str, bytes_max: int) -> str:
    """The beginning of a text, in at most so many bytes: no token is shorter than a byte."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= bytes_max else raw[: bytes_max - 3].decode("utf-8", "ignore") + "…"


# What is sent


class SchemaMode(StrEnum):
    """How a provider is told which form its answers must have."""

    JSON_SCHEMA = "json_schema"  # it has schemas of its own
    JSON_OBJECT = "json_object"  # it answers in JSON; the schema is a part of the prompt
    PROMPT = "prompt"  # the schema is a part of the prompt, and no more


class Reask(NamedTuple):
    """A bad answer as the model is shown it, and the message about its problems."""

    answer: str
    words: str


def reask_of(answer: str, problem: str) -> Reask:
    words = f"These fields failed: {_clip(problem, PROBLEM_BYTES_MAX)}. Return the complete corrected object only."
    return Reask(_clip(answer, ANSWER_BYTES_MAX) if answer.strip() else _NO_TEXT, words)


@dataclass(frozen=True)
class ChatAnswers:
    """The form of answers at a provider that takes OpenAI's chat format, or whose format that is translated into.

    A provider that has further formats, or whose messages are written in another way, has a subclass of this.
    """

    dialect: SchemaDialect
    mode: SchemaMode = SchemaMode.JSON_SCHEMA

    def express(self, schema: AnswerSchema) -> ExpressedSchema:
        """Raises UsageError for a schema that the provider would refuse."""
        if self.mode is SchemaMode.JSON_SCHEMA:
            return _express(self.dialect, schema.dump())
        words = f"{self.dialect.provider} does not support schemas, so the schema is written into the prompt"
        return ExpressedSchema(None, False, (words,))

    def put_schema(self, url: str, fields: Mapping[str, Any], schema: AnswerSchema) -> dict[str, Any]:
        """The body with the schema. Raises LineRefused if the request cannot have one."""
        if not url.partition("?")[0].endswith(_CHAT_END):
            raise LineRefused(f"is for {url}; a schema needs a chat request or a prompt", LinePart.URL)
        if fields.get("response_format") is not None:
            raise LineRefused("has a response_format of its own, and a schema is given", LinePart.BODY)
        expressed = self.express(schema)
        if expressed.schema is not None:
            named = {"name": schema.name, "schema": expressed.schema, "strict": expressed.strict}
            return {**fields, "response_format": {"type": "json_schema", "json_schema": named}}
        body = {**fields, "messages": _with_instructions(fields.get("messages"), instructions_for(schema))}
        if self.mode is SchemaMode.JSON_OBJECT:
            body["response_format"] = {"type": "json_object"}
        return body

    def ask_again(self, url: str, fields: Mapping[str, Any], reask: Reask) -> dict[str, Any]:
        """The body with a bad answer to it, and what is wrong with that."""
        said = {"role": "assistant", "content": reask.answer}
        return {**fields, "messages": [*fields["messages"], said, {"role": "user", "content": reask.words}]}

    def text_of(self, reply: Mapping[str, Any]) -> str | None:
        """The text of an answer in chat format; if the model called a tool instead, the arguments of the call."""
        choices = reply.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(message, dict):
            return None
        content = message.get("content")
        if isinstance(content, list):
            content = "".join(str(part.get("text") or "") for part in content if isinstance(part, dict))
        if isinstance(content, str) and content.strip():
            return content
        calls = message.get("tool_calls")
        function = (
            calls[0].get("function") if isinstance(calls, list) and calls and isinstance(calls[0], dict) else None
        )
        arguments = function.get("arguments") if isinstance(function, dict) else None
        return arguments if isinstance(arguments, str) else content if isinstance(content, str) else None


@lru_cache(maxsize=64)
def _express(dialect: SchemaDialect, text: str) -> ExpressedSchema:
    return express(load_schema(text).provider_schema, dialect)


def instructions_for(schema: AnswerSchema) -> str:
    """For a provider that has no schemas."""
    text = json.dumps(schema.provider_schema, ensure_ascii=False)
    return f"Answer with one JSON object and no other text. It must fit this JSON Schema:\n{text}"


def _with_instructions(messages: Any, words: str) -> Any:
    """After the system prompts at the beginning."""
    if not isinstance(messages, list):
        return messages
    system = ("system", "developer")
    at = next((n for n, each in enumerate(messages) if not isinstance(each, dict) or each.get("role") not in system), 0)
    return [*messages[:at], {"role": "system", "content": words}, *messages[at:]]


# The features that OpenAI enforces with `strict`; services that speak its API support as much or more.
OPENAI_DIALECT: Final = SchemaDialect(
    "OpenAI",
    keywords=frozenset(("pattern", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"))
    | {"minItems", "maxItems"},
    formats=frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid")),
    all_required=True,
    recursion=True,
    not_enforced=True,
    depth_max=10,
    properties_max=5_000,
)
OPENAI_ANSWERS: Final = ChatAnswers(OPENAI_DIALECT)
