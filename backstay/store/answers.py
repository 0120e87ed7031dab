"""Answers that later runs may use again: the keys of requests, the answers that they find, and the deletion of keys.
Results stay."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from backstay.core.ids import item_id, item_range
from backstay.core.models import AnswerKey
from backstay.store.databases.database import Database
from backstay.store.queries import Ask, Script, one, record

JOBS_PAGE: Final = 1_000
CLEARED_ITEMS: Final = 20_000  # by one transaction


class Search(NamedTuple):
    """Which answers a run may use: not older than `age_ms`. Answers of first providers, and of these handlers of its
    own."""

    age_ms: int | None = None
    handlers: tuple[str, ...] = ()


@record
class FoundAnswer(NamedTuple):
    """The answer of another item for the request with this number."""

    number: int
    item_id: int
    fence: int
    handler: str
    source: int  # the item that was answered first
    answered_at: int


@record
class AnswerSum(NamedTuple):
    """The usable answers of one model. `cost_micros` is what all calls for them have cost."""

    model: str
    answers: int
    oldest_at: int
    newest_at: int
    cost_micros: int

    def plus(self, other: "AnswerSum") -> "AnswerSum":
        oldest, newest = min(self.oldest_at, other.oldest_at), max(self.newest_at, other.newest_at)
        counts = (self.answers + other.answers, oldest, newest, self.cost_micros + other.cost_micros)
        return AnswerSum(self.model, *counts)


class AnswerKeys:
    def __init__(self, database: Database) -> None:
        self._db = database

    async def any(self) -> bool:
        """Whether there is any key at all, of whatever owner."""
        [row] = await self._db.read(one("any_answers"))
        return bool(row["keys"])

    async def find(self, owner: str, keys: Sequence[AnswerKey], search: Search) -> set[int]:
        """The numbers of those of these requests that have an answer."""
        found = await self._db.read(lambda: find_answers(owner, keys, search))
        return {answer.number for answer in found}

    async def sums(self, owner: str) -> list[AnswerSum]:
        """An owner's usable answers by model, those with the most answers first."""
        sums: dict[str, AnswerSum] = {}
        for job_id, _ in await self._jobs(owner):
            first, after = item_range(job_id)
            for part in await self._db.read(one("sum_answers", {"first": first, "after": after})):
                sums[part.model] = sums[part.model].plus(part) if part.model in sums else part
        return sorted(sums.values(), key=lambda each: (-each.answers, each.model))

    async def clear(self, owner: str, age_ms: int | None = None, model: str | None = None) -> int:
        """Deletes an owner's keys: all, those of a model, or those of older answers. Returns how many."""
        cleared = 0
        for job_id, total in await self._jobs(owner):
            for position in range(0, total, CLEARED_ITEMS):
                first = item_id(job_id, position)
                values = {"first": first, "after": first + CLEARED_ITEMS, "age_ms": age_ms, "model": model}
                cleared += len(await self._db.write(one("clear_answers", values)))
        return cleared

    async def _jobs(self, owner: str) -> list[tuple[int, int]]:
        """Every job of an owner, with the number of its items."""
        found: list[tuple[int, int]] = []
        place: dict[str, str | int] = {"owner": owner, "n": JOBS_PAGE, "cursor": 0}
        while page := await self._db.read(one("jobs_after", place)):
            found += [(row["id"], row["total"]) for row in page]
            place["cursor"], _ = found[-1]
        return found


def find_answers(
    owner: str, keys: Sequence[AnswerKey], search: Search, job_id: int | None = None
) -> Script[list[FoundAnswer]]:
    """The newest answer for each of these requests that has one, of any job but this one."""
    numbers: dict[tuple[int, int], list[int]] = {}
    for number, (high, low, _) in enumerate(keys):
        numbers.setdefault((high, low), []).append(number)
    first, after = (0, 0) if job_id is None else item_range(job_id)
    handlers = f"|{'|'.join(search.handlers)}|"
    values = {"owner": owner, "age_ms": search.age_ms, "handlers": handlers, "first": first, "after": after}
    rows: list[FoundAnswer] = yield Ask("find_answers", values, [(same[0], *key) for key, same in numbers.items()])
    places = {same[0]: same for same in numbers.values()}
    return [row._replace(number=number) for row in rows for number in places[row.number]]
