"""Answers in the form of a schema: for any schema, in every imitated API, broken once or always."""

import json
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from backstay.llm.providers import provider_named
from backstay.llm.schemas import AnswerInvalid, reask_of, schema_of
from backstay.practice.faults import AnswerFault
from backstay.practice.structured import form_answer
from tests.practice.visitor import CHAT, visiting

NODE = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 3, "maxLength": 8},
        "kind": {"enum": ["a", "b", None]},
        "size": {"type": "integer", "minimum": 5, "maximum": 6},
        "share": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 2},
        "even": {"type": "integer", "minimum": 3, "multipleOf": 2},
        "day": {"type": "string", "format": "date"},
        "mail": {"type": "string", "format": "email"},
        "sure": {"type": "boolean"},
        "none": {"type": "null"},
        "maybe": {"type": ["integer", "null"]},
        "pair": {"type": "array", "prefixItems": [{"type": "integer"}, {"const": "x"}], "items": False},
        "few": {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 4, "uniqueItems": True},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "both": {"allOf": [{"$ref": "#/$defs/leaf"}, {"type": "object", "properties": {"z": {"const": 1}}}]},
        "left": {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        "below": {"type": "array", "items": {"$ref": "#"}, "maxItems": 1},
    },
    "required": ["name", "below"],
    "$defs": {"leaf": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}},
}
SIMPLE = schema_of({"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]})


@pytest.mark.parametrize("prompt", [f"prompt {n}" for n in range(30)])
def test_an_answer_fits_its_schema_and_is_always_the_same(prompt: str) -> None:
    text = form_answer(NODE, prompt, None, again=False)
    assert text == form_answer(NODE, prompt, None, again=False)
    jsonschema.validate(json.loads(text or ""), NODE, format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("prompt", [f"prompt {n}" for n in range(30)])
def test_a_broken_answer_never_fits(prompt: str) -> None:
    for fault, again, fits in (
        (AnswerFault.INVALID, True, False),
        (AnswerFault.INVALID_ONCE, False, False),
        (AnswerFault.INVALID_ONCE, True, True),
    ):
        text = form_answer(SIMPLE.schema, prompt, fault, again)
        try:
            SIMPLE.parse(text or "")
        except ValueError:
            assert not fits
        else:
            assert fits


def test_a_request_without_a_schema_is_answered_as_usual() -> None:
    assert form_answer(None, "hello", AnswerFault.INVALID, again=False) is None


@pytest.mark.parametrize("api", ["openai", "groq", "anthropic", "gemini", "bedrock"])
async def test_every_imitated_api_answers_in_the_form_and_heals_when_it_is_asked_again(api: str) -> None:
    llm, model = provider_named(api), "practice-invalid-once"
    body: dict[str, Any] = {"model": model, "max_tokens": 400, "messages": [{"role": "user", "content": "hi"}]}
    body, url = llm.answers.put_schema(CHAT, body, SIMPLE), CHAT
    if llm.chat is not None:
        url, body = llm.chat.request(body, model, 400)
    headers = {"anthropic-version": "2023-06-01"} if api == "anthropic" else {}
    async with visiting() as visitor:
        for again, fits in ((body, False), (llm.answers.ask_again(url, body, reask_of("bad", "$: bad")), True)):
            said = (await visitor.post(url, again, headers)).json
            text = llm.answers.text_of(said if llm.chat is None else llm.chat.reply(said))
            assert text is not None, said
            if fits:
                assert SIMPLE.parse(text)["word"].startswith("practice")
            else:
                with pytest.raises(AnswerInvalid):
                    SIMPLE.parse(text)
