"""Dead letters: the items that failed, over all jobs, and are in no archive. Groups, a list, one, replays by filter."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.errors import ErrorCode, NotFound
from backstay.core.ids import show_item
from backstay.core.states import ItemState
from backstay.server import cursors, etags
from backstay.server.api.items import FullItem
from backstay.server.api.pages import PAGE_DEFAULT, Cursor, ItemId, Limit, item_number, job_number, page
from backstay.server.auth import Reader, Writer
from backstay.server.service import Serving
from backstay.server.shapes import PROBLEMS, ItemPage, Strict, item_bytes, item_object
from backstay.store.dead_letters import LetterFilter
from backstay.store.replays import RATE_MAX, RATE_MIN, REPLAY_ITEMS_MAX, By

router = APIRouter(prefix="/api/dead-letters", tags=["dead letters"], responses=PROBLEMS)

IDS_MAX: Final = 10_000
AGE_SECONDS_MAX: Final = 100 * 366 * 86_400

Job = Annotated[str | None, Query(max_length=40, description="only items of this job")]
Age = Annotated[float, Query(ge=0, le=AGE_SECONDS_MAX, description="only items that failed at least this long ago")]


class GroupShape(BaseModel):
    error_code: ErrorCode
    items: int
    oldest: str = Field(description="the item's id")
    newest: str
    first_at: int
    last_at: int


class GroupsShape(BaseModel):
    """The groups count the first failures of the newest jobs; `complete` says whether these are all there are."""

    groups: list[GroupShape]
    jobs: int
    items: int = Field(description="all failed items of these jobs")
    complete: bool


class ReplayShape(Strict):
    """Every part narrows it down; without any, all failed items of the owner are meant."""

    job: str | None = Field(None, max_length=40)
    code: ErrorCode | None = None
    older_than_seconds: float = Field(0, ge=0, le=AGE_SECONDS_MAX)
    ids: list[Annotated[str, Field(max_length=40)]] | None = Field(None, min_length=1, max_length=IDS_MAX)
    dry_run: bool = Field(False, description="only count")
    rate: float | None = Field(
        None, ge=RATE_MIN, le=RATE_MAX, description="items per second; without it they come back all at once"
    )


class ReplayedShape(BaseModel):
    dry_run: bool
    items: int = Field(description="how many items were queued again, or would be")
    replay: str | None = Field(description="the number of the replay in the list of replays; null if no items matched")
    more: bool = Field(description=f"there may be more: one call handles about {REPLAY_ITEMS_MAX:,}; call again")


@router.get("", response_model=ItemPage)
async def list_dead_letters(
    request: Request,
    who: Reader,
    service: Serving,
    limit: Limit = PAGE_DEFAULT,
    cursor: Cursor = None,
    job: Job = None,
    code: ErrorCode | None = None,
    older_than_seconds: Age = 0,
) -> Response:
    """Lists dead letters; the last items of the newest jobs come first."""
    wanted = _wanted(job, code, older_than_seconds)
    what = f"dead\0{wanted.job_id}\0{code}\0{wanted.age_ms}"
    before = cursors.take(service, who.owner, what, cursor)
    found, following = await service.store.dead_letters.page(who.owner, wanted, before, limit)
    next_cursor = cursors.give(service, who.owner, what, following)
    return page(request, map(item_object, found), next_cursor)


@router.get("/groups", response_model=GroupsShape)
async def group_dead_letters(who: Reader, service: Serving, job: Job = None) -> Response:
    """Why items failed, and how many for each reason."""
    found = await service.store.dead_letters.groups(who.owner, None if job is None else job_number(job))
    groups: list[dict[str, Any]] = [
        {**group._asdict(), "oldest": show_item(group.oldest), "newest": show_item(group.newest)}
        for group in found.groups
    ]
    return Response(to_json({**found._asdict(), "groups": groups}), media_type=etags.JSON)


@router.get("/{item_id}", response_model=FullItem)
async def show_dead_letter(request: Request, who: Reader, service: Serving, item_id: ItemId) -> Response:
    """A failed item and its payload; for an archived item, the number of its archive."""
    number = item_number(item_id)
    row = await service.store.listing.item(number, who.owner)
    if row.state != ItemState.FAILED:
        raise NotFound(f"no failed item {item_id[:40]}", hint="someone may have retried it")
    payload = "null"
    if row.archive_id is None:
        payload = (await service.store.listing.bodies(number, who.owner)).payload or "null"
    return etags.answer(request, item_bytes(row)[:-1] + f',"payload":{payload}}}'.encode())


@router.post("/replay", response_model=ReplayedShape)
async def replay_dead_letters(who: Writer, service: Serving, given: ReplayShape) -> Response:
    """Queues failed items again. Repeating a replay queues each item once: a queued item is no longer failed."""
    wanted = _wanted(given.job, given.code, given.older_than_seconds)
    replays, by = service.store.replays, None if given.dry_run else By(who.key_id or who.owner, given.rate)
    if given.ids is None:
        done = await replays.replay(who.owner, wanted, by)
    else:
        done = await replays.replay_some(who.owner, wanted, [item_number(one) for one in given.ids], by)
    if not given.dry_run and done.items:
        await service.store.notify()
        service.wake()
    number = None if done.number is None else str(done.number)
    said = {"dry_run": given.dry_run, "items": done.items, "replay": number, "more": done.more}
    return Response(to_json(said), media_type=etags.JSON)


def _wanted(job: str | None, code: ErrorCode | None, seconds: float) -> LetterFilter:
    return LetterFilter(None if job is None else job_number(job), code, int(seconds * 1000))
