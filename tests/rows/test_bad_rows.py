"""What is wrong with rows or a prompt is one error before anything is sent or written."""

from pathlib import Path
from typing import Any

import pandas
import pytest

import backstay
from backstay.core.errors import UsageError
from tests.rows.conftest import RowSite


@pytest.mark.parametrize(
    ("rows", "prompt", "more", "words"),
    [
        ([{"text": "a"}, {"other": "b"}], "{text}", {}, "row 2 of the rows has no column 'text'"),
        ([{"text": "a"}, {"text": None}], "{text}", {}, "row 2 of the rows column 'text' has no value"),
        (pandas.DataFrame({"text": [1.5, float("nan")]}), "{text}", {}, "row 2 .* column 'text' has no value"),
        ([{"text": b"\xff\xfe"}], "{text}", {}, "row 1 .* column 'text' has bytes that are not text"),
        ([{"text": "a"}], "{txet}", {}, r"\{txet\}"),
        ([{"text": "a"}], "no place", {}, "the prompt names no column"),
        ([{"text": "a"}], "{{text}}", {}, "may mean a column or braces"),
        ([{"n": 1, "text": "a"}, {"n": 1, "text": "b"}], "{text}", {"id": "n"}, "row 2 .* has the id of row 1 again"),
        ([{"text": "a"}], "{text}", {"id": "n"}, "id names 'n', which is not a column"),
        ([{"error": "a"}], "{error}", {}, "a column 'error'"),
        ([{"text": "a"}], "{text}", {"model": "llama3:8b", "base_url": None, "price": None}, "no provider is known"),
        ([{"text": "a"}], "{text}", {"model": None}, "model"),
        ([{"text": "a"}], lambda row: 7, {}, "row 1 .* got a int from the prompt function"),
        ([{"pdf": "none.pdf"}], ["Read", backstay.File("pdf")], {}, "row 1 .* cannot read none.pdf"),
        ([{"pdf": b"MZ"}], ["Look", backstay.Image("pdf")], {}, "row 1 .* is not an image"),
        ([], "{row}", {}, "there are no rows in the rows"),
        ([{"text": "a"}], "{text}", {"budget": 0}, "budget must be dollars above 0"),
        ([{"text": "a"}], "{text}", {"lane": "bulk"}, "lane must be one of"),
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


def test_the_nearest_column_is_named(site: RowSite) -> None:
    with pytest.raises(UsageError) as refused:
        backstay.map([{"text": "a"}], "{txet}", **site.options)
    assert "did you mean {text}?" in refused.value.hint


def test_a_value_that_is_missing_may_have_a_text(site: RowSite) -> None:
    answers = backstay.map([{"text": None}], "[{text}]", **site.with_options(nulls=""))
    assert answers.values()[0].endswith("[]")
