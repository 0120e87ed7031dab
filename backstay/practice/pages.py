"""Lists in pages, as OpenAI gives them: after, limit, order, and whether there is more."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from backstay.practice.refusals import Refused, Reply, not_found, reply_with


class Listed(Protocol):
    @property
    def id(self) -> str: ...

    def dump(self) -> dict[str, Any]: ...


class Paging(NamedTuple):
    after: str | None
    limit: int
    order: str

    @classmethod
    def read(cls, query: Mapping[str, str], limit_max: int, order: str, limit: int = 20) -> "Paging":
        given = query.get("limit", str(limit))
        if not given.isdecimal() or not 1 <= int(given) <= limit_max:
            raise Refused(400, f"Invalid 'limit': 1 to {limit_max}.", "invalid_value", "limit")
        order = query.get("order", order)
        if order not in ("asc", "desc"):
            raise Refused(400, "Invalid 'order': asc or desc.", "invalid_value", "order")
        return cls(query.get("after") or None, int(given), order)


def page(items: Sequence[Listed], paging: Paging) -> Reply:
    """`items` are in the order in which they were made."""
    ordered = items if paging.order == "asc" else items[::-1]
    start = 0
    if paging.after is not None:
        places = {each.id: place for place, each in enumerate(ordered)}
        if paging.after not in places:
            raise not_found("object to list after", paging.after)
        start = places[paging.after] + 1
    shown = ordered[start : start + paging.limit]
    return reply_with(
        {
            "object": "list",
            "data": [each.dump() for each in shown],
            "first_id": shown[0].id if shown else None,
            "last_id": shown[-1].id if shown else None,
            "has_more": start + paging.limit < len(ordered),
        }
    )
