"""Templates: a typing error in one is found before anything is sent."""

import pytest

from backstay.core.errors import UsageError
from backstay.llm.formats import Template


@pytest.mark.parametrize(
    ("text", "lone"),
    [
        ("Translate: {text", "{"),
        ("Translate: text}", "}"),
        ("{a} and {b {c}", "{"),
        ('{"model": "m", "input": "Translate: {text"}', "{"),
    ],
)
def test_a_lone_brace_is_refused_and_shown_where_it_stands(text: str, lone: str) -> None:
    with pytest.raises(UsageError) as refused:
        Template(text)
    assert refused.value.message.startswith(f"the template has a lone {lone} in ")
    assert refused.value.hint == "to write a brace, double it"


def test_braces_written_twice_mean_themselves() -> None:
    assert Template("{{{a}}} {{}}").fill({"a": "x"}) == "{x} {}"
