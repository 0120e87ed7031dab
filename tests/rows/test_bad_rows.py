"""What is wrong with rows or a prompt is one error before anything is sent or written."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import pytest

import backstay
from backstay.core.errors import UsageError
from tests.rows.conftest import RowSite


def nested(levels: int) -> Any:
    return "deep" if levels == 0 else [nested(levels - 1)]


def inside_itself() -> dict[str, Any]:
    made: dict[str, Any] = {}
    made["self"] = made
    return made


@pytest.mark.parametrize(
    ("rows", "prompt", "more", "words"),
    [
        ([{"text": "a"}, {"other": "b"}], "{text}", {}, "row 2 of the rows has no column 'text'"),
        ([{"text": "a"}, {"text": None}], "{text}", {}, "row 2 of the rows has no value in the column 'text'"),
        (pandas.DataFrame({"text": [1.5, float("nan")]}), "{text}", {}, "row 2 .* has no value in the column 'text'"),
        ([{"text": b"\xff\xfe"}], "{text}", {}, "row 1 .* has bytes in the column 'text' that are not text"),
        ([{"text": "a"}], "{txet}", {}, r"\{txet\}"),
        ([{"text": "a"}], "no place", {}, "the prompt names no column"),
        ([{"text": "a"}], "{{text}}", {}, "is ambiguous: a column, or braces as text"),
        (
            [{"n": 1, "text": "a"}, {"n": 1, "text": "b"}],
            "{text}",
            {"id": "n"},
            r"row 2 of the rows \(column 'n'\) has the id of row 1 again",
        ),
        ([{"text": "a"}], "{text}", {"id": "n"}, "id names 'n', which is not a column"),
        ([{"error": "a"}], "{error}", {}, "a column 'error'"),
        ([{"text": "a"}], "{text}", {"model": "llama3:8b", "base_url": None, "price": None}, "no provider is known"),
        ([{"text": "a"}], "{text}", {"model": None}, "model"),
        ([{"text": "a"}], lambda row: 7, {}, "row 1 .* gets from the prompt function a value of the type int"),
        (
            [{"pdf": "none.pdf"}],
            ["Read", backstay.File("pdf")],
            {},
            "row 1 .* names the file none.pdf in the column 'pdf', which cannot be read",
        ),
        ([{"pdf": b"MZ"}], ["Look", backstay.Image("pdf")], {}, "row 1 .* has no image in the column 'pdf'"),
        ([{"text": "a"}, {"text": "\udcff"}], "{text}", {}, "row 2 .* column 'text' a text that is not Unicode"),
        ([{"text": ["\ud800"]}], "{text}", {}, "row 1 .* column 'text' a text that is not Unicode"),
        ([{"text": "a", "more": {"\ud800": 1}}], "{text}", {}, "row 1 .* column 'more' a text that is not Unicode"),
        ([{"text": "a"}], lambda row: "\ud800", {}, "row 1 .* gets from .* a text that is not valid Unicode"),
        (
            [{"text": "a"}],
            lambda row: [{"role": "user", "content": object()}],
            {},
            "row 1 .* a value of the type object",
        ),
        ([{"n": "\x01", "text": "a"}], "{text}", {"id": "n"}, "row 1 .* characters that cannot be printed"),
        (
            [{"n": "x" * 513, "text": "a"}],
            "{text}",
            {"id": "n"},
            r"row 1 .* \(column 'n'\) has an id of 513 characters",
        ),
        (
            [{"n": 1}, {"n": 0}],
            backstay.Jinja("{{ 1 / n }}"),
            {},
            "row 2 .* cannot fill the Jinja prompt: ZeroDivisionError: division by zero",
        ),
        ([{"text": "a"}, {"text": nested(200)}], "{text}", {}, "row 2 .* column 'text' .* nested more than 128 levels"),
        ([{"text": "a"}, {"text": inside_itself()}], "{text}", {}, "row 2 .* column 'text' .* nested more than"),
        ([{"text": "a"}, {}], lambda row: row["text"], {}, "raised KeyError for row 2: 'text'"),
        ([], "{row}", {}, "there are no rows in the rows"),
        ([{"text": "a"}], "{text}", {"budget": 0}, "budget must be dollars above 0"),
        ([{"text": "a"}], "{text}", {"lane": "bulk"}, "lane must be one of"),
        ([{"text": "a"}], "{text}", {"timeout": "long"}, "timeout must be seconds above 0, not 'long'"),
        ([{"text": "a"}], "{text}", {"deadline": -1}, "deadline must be seconds above 0, not -1"),
        ([{"text": "a"}], "{text}", {"max_tokens": "many"}, "max_tokens must be a whole number"),
        ([{"text": "a"}], "{text}", {"temperature": float("nan")}, "temperature must be a number, not nan"),
        ([{"text": "a"}], "{text}", {"extra": {"stop": object()}}, "extra cannot be sent as JSON"),
        ([{"text": "a"}], "{text}", {"extra": "top_p"}, "extra must be a dict"),
        ([{"text": "a"}], "{text}", {"system": 7}, "system must be a text, not 7"),
        ([{"text": "a"}], "{text}", {"check": 7}, "check must be a function, not 7"),
        ([{"text": "a"}], "{text}", {"header": "X-Team: a"}, "header must be a list of texts"),
        ([{"text": "a"}], "{text}", {"wait": "yes"}, "wait must be True or False"),
        ([{"text": "a"}], "{text}", {"response_format": 1}, "no option 'response_format'"),
    ],
)
def test_bad_input_is_one_error_and_nothing_is_sent(
    site: RowSite,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: Any,
    prompt: Any,
    more: dict[str, Any],
    words: str,
) -> None:
    if more.get("model") == "llama3:8b":
        monkeypatch.delenv("OPENAI_API_KEY")
    with pytest.raises(UsageError, match=words):
        backstay.map(rows, prompt, **site.with_options(**{"db": str(tmp_path / "none.db"), **more}))
    assert site.paid == 0
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    ("rows", "prompt", "more", "hint"),
    [
        ([{"text": None}], "{text}", {}, "nulls=''"),
        ([{"n": None, "text": "a"}], "{text}", {"id": "n"}, "nothing was sent"),
        ([{"pdf": None}], lambda row: ["Read", backstay.File("pdf")], {}, "nothing was sent"),
    ],
)
def test_the_option_for_missing_values_is_named_only_where_it_helps(
    site: RowSite, rows: Any, prompt: Any, more: dict[str, Any], hint: str
) -> None:
    with pytest.raises(UsageError, match="has no value in the column") as refused:
        backstay.map(rows, prompt, **site.with_options(**more))
    assert hint in refused.value.hint


def test_the_error_of_a_prompt_function_keeps_its_traceback(site: RowSite) -> None:
    with pytest.raises(UsageError) as refused:
        backstay.map([{"text": "a"}], lambda row: row["txet"], **site.options)
    assert isinstance(refused.value.__cause__, KeyError)


def broken_rows() -> Iterator[str]:
    yield "a"
    raise RuntimeError("the source broke")


def test_rows_that_break_in_the_middle_send_nothing(site: RowSite) -> None:
    with pytest.raises(RuntimeError, match="the source broke"):
        backstay.map(broken_rows(), "{row}", **site.options)
    assert site.paid == 0


def test_one_bad_row_among_many_sends_none_of_them_and_without_it_all(site: RowSite) -> None:
    rows: list[dict[str, Any]] = [{"text": f"row {n}"} for n in range(60)]
    with pytest.raises(UsageError, match=r"row 41 of the rows has no column 'text'\n"):
        backstay.map([*rows[:40], {}, *rows[40:]], "{text}", **site.options)
    assert site.paid == 0
    assert backstay.map(rows, "{text}", **site.options).ok


def test_the_nearest_column_is_named(site: RowSite) -> None:
    with pytest.raises(UsageError) as refused:
        backstay.map([{"text": "a"}], "{txet}", **site.options)
    assert "did you mean {text}?" in refused.value.hint


def test_a_value_that_is_missing_may_have_a_text(site: RowSite) -> None:
    answers = backstay.map([{"text": None}], "[{text}]", **site.with_options(nulls=""))
    assert answers.values()[0].endswith("[]")
