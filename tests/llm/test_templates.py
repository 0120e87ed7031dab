"""Templates: {name} is a column, every other brace is itself, and a typing error is found before anything is sent."""

import pytest

from backstay.core.errors import UsageError
from backstay.llm.row_files import Template


@pytest.mark.parametrize(
    ("text", "filled"),
    [
        ('As JSON: {"a": {"b": "…"}} for {a}', 'As JSON: {"a": {"b": "…"}} for x'),
        ("a lone } and { around {a}", "a lone } and { around x"),
        (r"\d{3} and {} and {first name} of {a}", r"\d{3} and {} and Ada of x"),
        ('{"model": "m", "input": "{a} as {\\"b\\": 1}"}', '{"model": "m", "input": "x as {\\"b\\": 1}"}'),
    ],
)
def test_a_brace_that_encloses_no_column_means_itself(text: str, filled: str) -> None:
    assert Template(text).fill({"a": "x", "first name": "Ada"}) == filled


def test_a_name_that_is_no_column_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(UsageError) as refused:
        Template("{txet} {2}").check_columns(["id", "text"])
    assert "{txet}" in refused.value.message
    assert "did you mean {text}?" in refused.value.hint


def test_a_value_is_never_filled_in_again() -> None:
    assert Template("{a}").fill({"a": "{b}", "b": "secret"}) == "{b}"


def test_braces_written_twice_mean_themselves() -> None:
    assert Template("{{{a}}} {{}}").fill({"a": "x"}) == "{x} {}"
