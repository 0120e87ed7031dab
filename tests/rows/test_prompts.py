"""Prompts: templates, Jinja, messages, bodies, functions, images and PDFs."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from backstay.core.errors import UsageError
from backstay.llm.formats import InputOptions
from backstay.rows.prompts import File, Image, Jinja, Prompt, PromptOptions, RowPrompt

PNG = b"\x89PNG\r\n\x1a\n rest"


def body_of(prompt: Prompt, row: dict[str, Any], options: PromptOptions | None = None) -> dict[str, Any]:
    made = RowPrompt(prompt, list(row), options or PromptOptions())
    found: dict[str, Any] = json.loads(made.request("row-1", row, InputOptions(model="m")).body)
    return found


def content_of(prompt: Prompt, **row: Any) -> Any:
    return body_of(prompt, row)["messages"][-1]["content"]


def test_json_in_a_prompt_stays_as_it_is() -> None:
    assert content_of('As {"a": {"b": 1}}: {text}', text="x") == 'As {"a": {"b": 1}}: x'


def test_values_that_are_no_text_are_json() -> None:
    assert content_of("{tags} {n} {yes}", tags={"b": 1, "a": "é"}, n=1.5, yes=True) == '{"a": "é", "b": 1} 1.5 true'


def test_jinja_is_strict_and_in_a_sandbox(tmp_path: Path) -> None:
    assert content_of(Jinja("{% for tag in tags %}<{{ tag }}>{% endfor %}"), tags=["a", "b"]) == "<a><b>"
    (tmp_path / "prompt.j2").write_text("Hi {{ name }}")
    assert content_of(tmp_path / "prompt.j2", name="Ada") == "Hi Ada"
    assert content_of(str(tmp_path / "prompt.j2"), name="Ada") == "Hi Ada"
    with pytest.raises(UsageError, match="nmae"):
        content_of(Jinja("{{ nmae }}"), name="Ada")
    with pytest.raises(Exception, match="unsafe"):
        content_of(Jinja("{{ name.__class__.__mro__ }}"), name="Ada")


def test_messages_and_bodies_are_templates_inside() -> None:
    messages = [{"role": "system", "content": "Be {tone}"}, {"role": "user", "content": "{text}"}]
    assert [each["content"] for each in body_of(messages, {"tone": "kind", "text": "{x}"})["messages"]] == [
        "Be kind",
        "{x}",
    ]
    body = body_of({"messages": [{"role": "user", "content": "{text}"}], "top_p": 0.5}, {"text": "hi"})
    assert (body["top_p"], body["model"], body["messages"][0]["content"]) == (0.5, "m", "hi")


def test_what_is_the_same_for_all_is_in_every_body() -> None:
    options = PromptOptions(system="Be brief, {name}.", body={"temperature": 0, "max_tokens": 5})
    body = body_of("{text}", {"text": "hi", "name": "Ada"}, options)
    assert body["messages"][0] == {"role": "system", "content": "Be brief, Ada."}
    assert (body["temperature"], body["max_tokens"]) == (0, 5)


def test_images_and_pdfs_by_path_or_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(PNG)
    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    for value in (PNG, str(tmp_path / "a.png"), {"bytes": PNG, "path": None}):
        text, image = content_of(["What is it, {name}?", Image("photo")], name="Ada", photo=value)
        assert text == {"type": "text", "text": "What is it, Ada?"}
        assert image["image_url"]["url"] == url
    assert content_of([Image("photo")], photo="https://a.b/c.png")[0]["image_url"]["url"] == "https://a.b/c.png"
    assert content_of([File("pdf")], pdf=b"%PDF-1.7")[0]["file"]["file_data"].startswith("data:application/pdf;base64,")


def test_a_function_makes_a_text_messages_or_a_body() -> None:
    assert content_of(lambda row: f"Say {row['text']}", text="x") == "Say x"
    assert content_of(lambda row: [{"role": "user", "content": row["text"]}], text="x") == "x"
    part = content_of(lambda row: [{"role": "user", "content": [Image("photo")]}], photo=PNG)[0]
    assert part["type"] == "image_url"
