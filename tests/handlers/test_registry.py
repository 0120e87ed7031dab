"""The handlers of an application, by name."""

import math
from typing import Any

import pytest

from backstay import Backstay
from backstay.core.errors import UsageError

YEAR = 366 * 86_400


def test_a_handler_may_come_while_somebody_goes_through_them() -> None:
    backstay = Backstay("sqlite://")

    @backstay.handler()
    async def first(item: object) -> None: ...

    for handler in backstay.handlers:  # as a worker does, waiting for the database in between
        assert handler.name == "first"

        @backstay.handler()
        async def second(item: object) -> None: ...

    assert [handler.name for handler in backstay.handlers] == ["first", "second"]


def test_a_handler_that_was_taken_away_is_not_known_and_may_come_again() -> None:
    backstay = Backstay("sqlite://")

    @backstay.handler()
    async def convert(item: object) -> None: ...

    backstay.handlers.remove("convert")
    with pytest.raises(UsageError, match="no handler 'convert'"):
        backstay.handlers["convert"]
    backstay.handlers.add(convert)
    assert "convert" in backstay.handlers


@pytest.mark.parametrize("name", ["", " ", "a ", "\ta", "a\0b", "a\nb", "\ud800", "x" * 301, 5, b"call", ["call"]])
def test_a_name_that_cannot_be_stored_or_shown_is_refused_where_it_stands(name: Any) -> None:
    backstay = Backstay("sqlite:///never-made.db")
    with pytest.raises(UsageError, match="cannot be the name of a handler") as refused:
        backstay.handler(name)(lambda item: item)
    assert "1 to 300 printable characters" in refused.value.hint
    with pytest.raises(UsageError, match="cannot be the name of a handler"):
        backstay.task(name)
    if name:
        with pytest.raises(UsageError, match="cannot be the name of a provider"):
            backstay.handler("call", provider=name)(lambda item: item)
    backstay.handler("x" * 300)(lambda item: item)
    backstay.handler("Übersetzen 2")(lambda item: item)
    assert len(backstay.handlers) == 2


@pytest.mark.parametrize(
    ("rule", "wrong", "said"),
    [
        *(
            (rule, wrong, f"a handler's {rule} must be a number from 0.001 to {YEAR}, not")
            for rule in ("timeout", "deadline", "hold_seconds")
            for wrong in (0, -1, "5", True, math.nan, math.inf, 1e300, YEAR + 1)
        ),
        *(
            ("concurrency", wrong, "a handler's concurrency must be a whole number from 1 to 1000000, not")
            for wrong in (0, 1.5, True, "5", math.nan, 10**30)
        ),
        *(
            ("tokens_per_minute", wrong, "tokens_per_minute must be a whole number from 1 to 1000000000000, not")
            for wrong in (0, 1.0, True, "5", math.inf, 10**12 + 1)
        ),
    ],
)
def test_a_rule_that_would_stop_the_worker_is_refused_where_it_stands(rule: str, wrong: Any, said: str) -> None:
    backstay = Backstay("sqlite:///never-made.db")
    given: Any = {rule: wrong}
    with pytest.raises(UsageError, match=said):
        backstay.handler("call", **given)(lambda item: item)
    assert len(backstay.handlers) == 0


@pytest.mark.parametrize("owner", ["", "a\0b", "a\nb", "\ud800", "x" * 101, 5])
def test_an_owner_that_cannot_be_stored_or_shown_is_refused(owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="owner"):
        Backstay("sqlite:///never-made.db", owner=owner)
    if owner == "a\nb":
        monkeypatch.setenv("BACKSTAY_OWNER", owner)
        with pytest.raises(UsageError, match="an owner must have 1 to 100 printable characters"):
            Backstay("sqlite:///never-made.db")
