"""The handlers of an application, by name."""

from backstay import Backstay


def test_a_handler_may_come_while_somebody_goes_through_them() -> None:
    backstay = Backstay("sqlite://")

    @backstay.handler()
    async def first(item: object) -> None: ...

    for handler in backstay.handlers:  # as a worker does, waiting for the database in between
        assert handler.name == "first"

        @backstay.handler()
        async def second(item: object) -> None: ...

    assert [handler.name for handler in backstay.handlers] == ["first", "second"]
