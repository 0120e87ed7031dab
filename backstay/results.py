"""The result of one item, as programs see it."""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from backstay.core.ids import position_of, show_item
from backstay.core.outcomes import Flaw
from backstay.core.states import ItemState
from backstay.store.results import ResultRow

SHOWN_CHARACTERS_MAX = 300  # of a result, at a prompt

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V_co = TypeVar("V_co", covariant=True, default=Any)  # what the handler of a job returns
else:
    from typing import TypeVar

    V_co = TypeVar("V_co", covariant=True)


class Result(NamedTuple, Generic[V_co]):
    """One ended item: `value` when it succeeded, an error code and a message when it did not.

    `value` has the type that the handler returns if the job was submitted with the handler itself. Of a job that was
    submitted by name or found by its id, it is plain JSON.
    """

    item: str
    position: int
    state: ItemState
    payload: Any
    value: V_co | None
    error_code: str | None
    message: str | None
    attempts: int
    repeats: int
    flaw: Flaw | None  # what is wrong besides the state; UNKNOWN: it may have been processed and paid

    @property
    def ok(self) -> bool:
        """Whether the item succeeded: then `value` is what its handler returned."""
        return self.state is ItemState.SUCCEEDED

    def __repr__(self) -> str:
        """Short enough for a prompt: a large value is cut, a failure shows its reason."""
        value = repr(self.value) if self.ok else ""
        why = [part for part in (self.error_code, self.message, value) if part]
        said = ": ".join([f"{self.item} {self.state}", *why])
        return f"<Result {said if len(said) <= SHOWN_CHARACTERS_MAX else said[: SHOWN_CHARACTERS_MAX - 1] + '…'}>"


def make_result(row: ResultRow, load: Callable[[str], V_co]) -> Result[V_co]:
    return Result(
        item=show_item(row.id),
        position=position_of(row.id),
        state=ItemState(row.state),
        payload=json.loads(row.body),
        value=load(row.result) if row.result is not None and row.state == ItemState.SUCCEEDED else None,
        error_code=row.error_code,
        message=row.message,
        attempts=row.attempt_count,
        repeats=row.repeats,
        flaw=Flaw(row.flaw) if row.flaw else None,
    )
