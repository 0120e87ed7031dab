"""Dead letters: failed items of all jobs. Groups, lists, replays by filter, and archives."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel, Field, RootModel
from pydantic_core import from_json, to_json

from backstay.core.errors import ErrorCode, NotFound
from backstay.core.ids import show_item
from backstay.core.states import ItemState
from backstay.server import shapes
from backstay.server.api.items import FullItem
from backstay.server.auth import Admin, Reader, Writer
from backstay.server.service import Serving
from backstay.server.shapes import (
    CHANGES,
    JSON,
    PAGE_DEFAULT,
    PROBLEMS,
    Cursor,
    ItemId,
    ItemPage,
    Limit,
    PageShape,
    Strict,
    answer_with_etag,
    item_bytes,
    item_number,
    item_object,
    job_number,
    page,
    row_number,
)
from backstay.store.archives import Archive
from backstay.store.dead_letters import RATE_MAX, RATE_MIN, REPLAY_ITEMS_MAX, LetterFilter, ReplayRequest, ReplayRow
from backstay.upkeep.archivist import Archivist
from backstay.upkeep.loop import Retention, bounds_of

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
    """Every field narrows the choice; without any field all failed items of the owner are replayed."""

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
    wanted = _filter_of(job, code, older_than_seconds)
    what = f"dead\0{wanted.job_id}\0{code}\0{wanted.age_ms}"
    before = shapes.decode(service, who.owner, what, cursor)
    found, following = await service.store.dead_letters.page(who.owner, wanted, before, limit)
    next_cursor = shapes.encode(service, who.owner, what, following)
    return page(request, map(item_object, found), next_cursor)


@router.get("/groups", response_model=GroupsShape)
async def group_dead_letters(who: Reader, service: Serving, job: Job = None) -> Response:
    """Why items failed, and how many for each reason."""
    found = await service.store.dead_letters.groups(who.owner, None if job is None else job_number(job))
    groups: list[dict[str, Any]] = [
        {**group._asdict(), "oldest": show_item(group.oldest), "newest": show_item(group.newest)}
        for group in found.groups
    ]
    return Response(to_json({**found._asdict(), "groups": groups}), media_type=JSON)


@router.get("/{item_id}", response_model=FullItem)
async def show_dead_letter(request: Request, who: Reader, service: Serving, item_id: ItemId) -> Response:
    """A failed item and its payload; for an archived item, the number of its archive."""
    number = item_number(item_id)
    row = await service.store.item_views.row(number, who.owner)
    if row.state != ItemState.FAILED:
        raise NotFound(f"no failed item {item_id[:40]}", hint="someone may have retried it")
    payload = "null"
    if row.archive_id is None:
        payload = (await service.store.item_views.bodies(number, who.owner)).payload or "null"
    return answer_with_etag(request, item_bytes(row)[:-1] + f',"payload":{payload}}}'.encode())


@router.post("/replay", response_model=ReplayedShape)
async def replay_dead_letters(who: Writer, service: Serving, given: ReplayShape) -> Response:
    """Queues failed items again. Repeating a replay queues each item once: a queued item is no longer failed."""
    wanted = _filter_of(given.job, given.code, given.older_than_seconds)
    replays, by = service.store.replays, None if given.dry_run else ReplayRequest(who.key_id or who.owner, given.rate)
    if given.ids is None:
        done = await replays.replay(who.owner, wanted, by)
    else:
        done = await replays.replay_some(who.owner, wanted, [item_number(one) for one in given.ids], by)
    if not given.dry_run and done.items:
        await service.store.notify()
        service.wake()
    number = None if done.number is None else str(done.number)
    said = {"dry_run": given.dry_run, "items": done.items, "replay": number, "more": done.more}
    return Response(to_json(said), media_type=JSON)


def _filter_of(job: str | None, code: ErrorCode | None, seconds: float) -> LetterFilter:
    return LetterFilter(None if job is None else job_number(job), code, int(seconds * 1000))


archives_router = APIRouter(prefix="/api/dead-letters", tags=["dead letters"], responses=PROBLEMS)

ArchiveId = Annotated[str, Path(description="an archive's number", examples=["3"])]


class ArchiveShape(BaseModel):
    """Failed items whose bodies are in a file. All moments are milliseconds since 1970, UTC."""

    id: str
    items: int
    bytes: int = Field(description="size of the compressed file")
    digest: str = Field(description="SHA-256 of the file")
    first_at: int = Field(description="when the first item failed")
    last_at: int
    created_at: int
    restored_at: int | None


class ArchivePage(PageShape):
    data: list[ArchiveShape]


class FilterShape(RootModel[dict[str, Any]]):
    """The parts of the filter that were given."""


class RowShape(BaseModel):
    id: str
    by: str = Field(description="the id of a key, or the name of the person who ran the command")
    at: int
    filter: FilterShape
    items: int
    rate: float | None = Field(description="items per second; null: all at once")
    until_at: int | None = Field(description="when the last item is due back in the queue")
    expected: int | None = Field(description="the expected number of items, if it was counted before")


class ReplayPage(PageShape):
    data: list[RowShape]


class ArchiveFilter(Strict):
    """Every field narrows the choice; without any field the items beyond the limits of retention are archived."""

    job: str | None = Field(None, max_length=40)
    code: ErrorCode | None = None
    older_than_seconds: float | None = Field(None, ge=0, le=AGE_SECONDS_MAX)


class ArchivedShape(BaseModel):
    items: int


class RestoredShape(BaseModel):
    id: str
    items: int = Field(description="how many items came back now")


@archives_router.get("/replays", response_model=ReplayPage)
async def list_replays(
    request: Request, who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """Lists past replays of dead letters and who ran them, the newest first."""
    before = shapes.decode(service, who.owner, "replays", cursor)
    found = await service.store.replays.page(who.owner, before, limit)
    following = found[-1].id if len(found) == limit else None
    return page(request, map(replay_object, found), shapes.encode(service, who.owner, "replays", following))


@archives_router.get("/archives", response_model=ArchivePage)
async def list_archives(
    request: Request, who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """Lists archives, the newest first, including restored ones."""
    before = shapes.decode(service, who.owner, "archives", cursor)
    found = await service.store.archives.page(who.owner, before, limit)
    following = found[-1].id if len(found) == limit else None
    return page(request, map(archive_object, found), shapes.encode(service, who.owner, "archives", following))


@archives_router.post("/archive", response_model=ArchivedShape)
async def archive_dead_letters(who: Admin, service: Serving, given: ArchiveFilter) -> Response:
    """Moves failed items of ended jobs into archives now, a limited number per call; call again for the rest."""
    store, bounds = service.store, bounds_of(service.backstay.settings)
    retention = Retention(store.archives, service.artifacts, service.main.clock, bounds)
    if not given.model_fields_set:
        items = await retention.run_once(exact=True, owner=who.owner)
    else:
        job = None if given.job is None else job_number(given.job)
        wanted = LetterFilter(job, given.code, int((given.older_than_seconds or 0) * 1000))
        items = await retention.archive(who.owner, wanted)
    return Response(to_json({"items": items}), media_type=JSON)


@archives_router.post("/archives/{archive_id}/restore", response_model=RestoredShape, responses=CHANGES)
async def restore_archive(who: Admin, service: Serving, archive_id: ArchiveId) -> Response:
    """Brings the items of an archive back, after checking that its file is complete. Repeating it is harmless."""
    archive = await service.store.archives.archive(row_number(archive_id, "archive"), who.owner)
    archivist = Archivist(service.store.archives, service.artifacts, service.main.clock)
    items = await archivist.restore(archive, bounds_of(service.backstay.settings).age_ms)
    return Response(to_json({"id": str(archive.id), "items": items}), media_type=JSON)


def archive_object(archive: Archive) -> dict[str, Any]:
    shown = {name: value for name, value in archive._asdict().items() if name in ArchiveShape.model_fields}
    return {**shown, "id": str(archive.id)}


def replay_object(row: ReplayRow) -> dict[str, Any]:
    return {**row._asdict(), "id": str(row.id), "filter": from_json(row.filter)}
