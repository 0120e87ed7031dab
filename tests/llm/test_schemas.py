"""Schemas of answers: where they come from, what each provider gets of them, and how an answer is read."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

import jsonschema  # type: ignore[import-untyped]
import pytest
from pydantic import BaseModel, Field, field_validator

from backstay.core.errors import UsageError
from backstay.llm.lines import LineRefused
from backstay.llm.providers import provider_named, provider_names
from backstay.llm.schema_dialects import express
from backstay.llm.schemas import (
    ANSWER_BYTES_MAX,
    OPENAI_DIALECT,
    PROBLEM_BYTES_MAX,
    AnswerInvalid,
    load_schema,
    reask_of,
    schema_of,
)

CHAT = "/v1/chat/completions"
BODY = {"model": "m", "messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}]}


class Place(BaseModel):
    street: Annotated[str, Field(min_length=2)]
    code: str | None = None


class Review(BaseModel):
    mood: Literal["good", "bad"]
    score: Annotated[int, Field(ge=0, le=5)]
    note: str = "none"
    place: Place = Field(description="where it was")

    @field_validator("note")
    @classmethod
    def no_shouting(cls, value: str) -> str:
        if value.isupper():
            raise ValueError("do not shout")
        return value


@dataclass
class Point:
    x: int
    y: int = 0


class Pair(TypedDict):
    left: str
    right: int


class Node(BaseModel):
    name: str
    children: list["Node"]


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int | None = None


class Dog(BaseModel):
    kind: Literal["dog"]
    tricks: list[str] = []


class Zoo(BaseModel):
    animals: list[Annotated[Cat | Dog, Field(discriminator="kind")]]


class Bag(BaseModel):
    counts: dict[str, int]


def answers(provider: str) -> Any:
    return provider_named(provider).answers


@pytest.mark.parametrize(
    ("source", "text", "value"),
    [
        (Point, '{"x": 1}', Point(1)),
        (Pair, '{"left": "a", "right": 2}', {"left": "a", "right": 2}),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (list[int], "[1, 2]", [1, 2]),
        ({"type": "array", "items": {"type": "string"}}, '{"value": ["a"]}', ["a"]),
        ({"type": "object", "properties": {"value": {"type": "string"}}}, '{"value": "a"}', {"value": "a"}),
        (Zoo, '{"animals": [{"kind": "dog", "tricks": null}]}', Zoo(animals=[Dog(kind="dog")])),
        (Cat, '{"kind": "cat", "lives": null}', Cat(kind="cat")),
    ],
)
def test_an_answer_becomes_the_value_that_was_asked_for(source: Any, text: str, value: Any) -> None:
    assert schema_of(source).parse(text) == value
    assert schema_of(source).parse(f"```json\n{text}\n```\n") == value


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"mood": "good", "score": 9, "place": {"street": "ab"}}', "$.score: Input should be less than or equal to 5"),
        ('{"mood": "good", "score": 1, "note": "NO", "place": {"street": "ab"}}', "$.note: Value error, do not shout"),
        ('{"mood": "good", "score": 1, "place": {}}', "$.place.street: Field required"),
        ('{"mood": "good", "score": null, "place": {"street": "ab"}}', "$.score"),
        ('{"mood": "good", "sco', "$: the answer is not JSON"),
        ('Sure! {"mood": "good"}', "$: the answer is not JSON"),
        ('```json\n{"mood": "good"', "$: the answer is not JSON"),
        ('{"mood": "good", "score": NaN, "place": {"street": "ab"}}', "NaN is not JSON"),
        ("[" * 100_000, "nested too deeply"),
    ],
)
def test_what_does_not_fit_is_told_by_its_path(text: str, words: str) -> None:
    for schema in (schema_of(Review), load_schema(schema_of(Review).dump())):
        if "shout" in words and schema is not None and schema._adapter is None:
            assert schema.parse(text)["note"] == "NO", "another process knows only the JSON Schema"
            continue
        with pytest.raises(AnswerInvalid) as refused:
            schema.parse(text)
        if schema._adapter is not None:
            assert words in str(refused.value)
        assert len(str(refused.value).encode()) <= PROBLEM_BYTES_MAX


def test_the_words_for_the_model_are_bounded() -> None:
    reask = reask_of("é" * 100_000, "ü" * 10_000)
    assert len(reask.answer.encode()) <= ANSWER_BYTES_MAX
    assert len(reask.words.encode()) <= PROBLEM_BYTES_MAX + 100
    assert reask_of("  ", "x").answer == "(no text)", "providers refuse an empty turn"


def test_openai_gets_a_strict_schema_with_every_member_required() -> None:
    expressed = answers("openai").express(schema_of(Review))
    sent = expressed.schema
    assert (expressed.strict, sent["required"]) == (True, ["mood", "score", "note", "place"])
    assert sent["properties"]["note"]["type"] == ["string", "null"]
    assert sent["properties"]["score"] == {"type": "integer", "minimum": 0, "maximum": 5}
    assert sent["properties"]["place"]["properties"]["street"]["description"] == "(minLength: 2)"
    assert list(expressed.losses) == ["place.street: minLength becomes a part of the description"]
    whole = json.dumps(sent)
    assert whole.count('"additionalProperties": false') == 2
    assert "default" not in whole
    jsonschema.Draft202012Validator.check_schema(sent)


def test_a_union_with_a_discriminator_becomes_any_of_and_says_so() -> None:
    expressed = answers("openai").express(schema_of(Zoo))
    assert "oneOf" not in json.dumps(expressed.schema)
    assert "discriminator" not in json.dumps(expressed.schema)
    assert "animals[]: oneOf becomes anyOf" in expressed.losses


def test_free_keys_are_a_hint_at_openai_and_words_at_anthropic_and_a_schema_at_gemini() -> None:
    openai, anthropic, gemini = (answers(name).express(schema_of(Bag)) for name in ("openai", "anthropic", "gemini"))
    assert (openai.strict, openai.schema) == (False, schema_of(Bag).schema)
    assert "counts is an object with free keys: OpenAI cannot enforce it" in openai.losses[-1]
    assert anthropic.schema is None
    assert "Anthropic cannot express it, so the schema is written into the prompt" in anthropic.losses[-1]
    assert gemini.schema["properties"]["counts"]["additionalProperties"] == {"type": "integer"}
    assert gemini.losses == ()


@pytest.mark.parametrize("provider", ["anthropic", "bedrock", "gemini"])
def test_a_schema_that_contains_itself_is_refused_where_there_is_no_recursion(provider: str) -> None:
    with pytest.raises(UsageError) as refused:
        answers(provider).express(schema_of(Node))
    assert "children[] contains itself (#/$defs/Node)" in refused.value.message
    sent = answers("openai").express(schema_of(Node)).schema
    assert sent["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}
    assert sent["$defs"]["Node"]["properties"]["children"]["items"] == {"$ref": "#/$defs/Node"}


def test_the_limits_of_a_provider_are_known_before_anything_is_sent() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for n in range(12):
        deep = {"type": "object", "properties": {f"p{n}": deep}, "required": [f"p{n}"]}
    with pytest.raises(UsageError, match="nested more than 10 levels deep"):
        answers("openai").express(schema_of(deep))
    many = {"type": "object", "properties": {f"p{n}": {"type": "string"} for n in range(25)}}
    with pytest.raises(UsageError, match="25 optional properties; the limit is 24"):
        answers("anthropic").express(schema_of(many))
    assert answers("openai").express(schema_of(many)).strict
    outside = {"type": "object", "properties": {"a": {"$ref": "https://example.com/a.json"}}, "required": ["a"]}
    with pytest.raises(UsageError, match=r"a refers to .*example.com/a.json., which is not in the schema"):
        express(outside, OPENAI_DIALECT)


def test_parts_that_must_all_fit_are_one_schema_or_refused() -> None:
    both = {"allOf": [{"$ref": "#/$defs/A"}, {"properties": {"b": {"type": "integer"}}, "required": ["b"]}]}
    defs = {"A": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}
    sent = express({**both, "$defs": defs}, OPENAI_DIALECT).schema
    assert sent is not None
    assert (list(sent["properties"]), sent["required"]) == (["a", "b"], ["a", "b"])
    apart = {"type": "object", "properties": {"x": {"allOf": [{"type": "string"}, {"type": "integer"}]}}}
    with pytest.raises(UsageError, match="x has an allOf whose parts disagree on type"):
        express(apart, OPENAI_DIALECT)


@pytest.mark.parametrize("provider", provider_names())
def test_every_provider_is_told_the_form_and_asked_again_in_its_own_format(provider: str) -> None:
    llm, schema = provider_named(provider), schema_of(Review)
    body = llm.answers.put_schema(CHAT, BODY, schema)
    assert json.dumps(body).count("street") >= 1
    assert BODY["messages"] == [{"role": "system", "content": "s"}, {"role": "user", "content": "hi"}], "as it was"
    url = CHAT
    if llm.chat is not None:
        url, body = llm.chat.request(body, "m", 100)
        assert "mood" in json.dumps(body)
    again = llm.answers.ask_again(url, body, reask_of("bad one", "$.score: too high"))
    assert json.dumps(again).count("bad one") == 1
    assert "These fields failed: $.score: too high. Return the complete corrected object only." in json.dumps(again)
    llm.requests.check_body(url, again, False)


@pytest.mark.parametrize("provider", ["deepseek", "groq"])
def test_a_provider_without_schemas_gets_json_mode_and_the_schema_in_words(provider: str) -> None:
    body = answers(provider).put_schema(CHAT, BODY, schema_of(Review))
    assert body["response_format"] == {"type": "json_object"}
    assert [message["role"] for message in body["messages"]] == ["system", "system", "user"]
    assert "JSON Schema" in body["messages"][1]["content"]
    assert "does not support schemas" in answers(provider).express(schema_of(Review)).losses[0]


@pytest.mark.parametrize(
    ("url", "more", "words"),
    [
        (CHAT, {"response_format": {"type": "json_object"}}, "has a response_format of its own"),
        ("/v1/embeddings", {}, "a schema needs a chat request or a prompt"),
        ("/v1/responses", {"text": {"format": {"type": "text"}}}, "has a text.format of its own"),
    ],
)
def test_a_request_that_cannot_have_the_schema_is_refused(url: str, more: dict[str, Any], words: str) -> None:
    with pytest.raises(LineRefused, match=words):
        answers("openai").put_schema(url, {**BODY, **more}, schema_of(Review))


@pytest.mark.parametrize("source", [None, 3, "Review", json.dumps, json, lambda text: text, [Review]])
def test_what_is_no_schema_is_refused_with_what_is_accepted(source: Any) -> None:
    with pytest.raises(UsageError) as refused:
        schema_of(source)
    assert "Pydantic model" in (refused.value.hint or "")


def test_a_json_schema_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="the schema is not a JSON Schema: "):
        schema_of({"type": "text"})


def test_a_json_schema_needs_a_library_that_the_error_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jsonschema", None)
    with pytest.raises(UsageError) as refused:
        schema_of({"type": "object"})
    assert refused.value.hint == "pip install 'backstay[schema]'"
    assert schema_of(Review).parse('{"mood": "bad", "score": 1, "place": {"street": "ab"}}').score == 1
