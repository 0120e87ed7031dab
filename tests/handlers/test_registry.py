"""The handlers of an application, by name."""

import pytest

from backstay import Backstay
from backstay.core.errors import UsageError


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
