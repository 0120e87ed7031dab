"""Archives of dead letters, and replays: what left the database and can come back, and who had what done again."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel, Field, RootModel
from pydantic_core import from_json, to_json

from backstay.core.errors import ErrorCode
from backstay.server import cursors, etags
from backstay.server.api.dead_letters import AGE_SECONDS_MAX
from backstay.server.api.pages import PAGE_DEFAULT, Cursor, Limit, job_number, page, row_number
from backstay.server.auth import Admin, Reader
from backstay.server.service import Serving
from backstay.server.shapes import CHANGES, PROBLEMS, PageShape, Strict
from backstay.store.archives import Archive
from backstay.store.dead_letters import LetterFilter
from backstay.store.replays import ReplayRow
from backstay.upkeep.archivist import Archivist
from backstay.upkeep.retention import Retention, bounds_of

router = APIRouter(prefix="/api/dead-letters", tags=["dead letters"], responses=PROBLEMS)

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
    """Every part narrows it down; without any, what is over the bounds of retention goes."""

    job: str | None = Field(None, max_length=40)
    code: ErrorCode | None = None
    older_than_seconds: float | None = Field(None, ge=0, le=AGE_SECONDS_MAX)


class ArchivedShape(BaseModel):
    items: int


class RestoredShape(BaseModel):
    id: str
    items: int = Field(description="how many items came back now")


@router.get("/replays", response_model=ReplayPage)
async def list_replays(
    request: Request, who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """Lists past replays of dead letters and who ran them, the newest first."""
    before = cursors.take(service, who.owner, "replays", cursor)
    found = await service.store.replays.page(who.owner, before, limit)
    following = found[-1].id if len(found) == limit else None
    return page(request, map(replay_object, found), cursors.give(service, who.owner, "replays", following))


@router.get("/archives", response_model=ArchivePage)
async def list_archives(
    request: Request, who: Reader, service: Serving, limit: Limit = PAGE_DEFAULT, cursor: Cursor = None
) -> Response:
    """Lists archives, the newest first, including restored ones."""
    before = cursors.take(service, who.owner, "archives", cursor)
    found = await service.store.archives.page(who.owner, before, limit)
    following = found[-1].id if len(found) == limit else None
    return page(request, map(archive_object, found), cursors.give(service, who.owner, "archives", following))


@router.post("/archive", response_model=ArchivedShape)
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
    return Response(to_json({"items": items}), media_type=etags.JSON)


@router.post("/archives/{archive_id}/restore", response_model=RestoredShape, responses=CHANGES)
async def restore_archive(who: Admin, service: Serving, archive_id: ArchiveId) -> Response:
    """Brings the items of an archive back, after checking that its file is complete. Repeating it is harmless."""
    archive = await service.store.archives.archive(row_number(archive_id, "archive"), who.owner)
    archivist = Archivist(service.store.archives, service.artifacts, service.main.clock)
    items = await archivist.restore(archive, bounds_of(service.backstay.settings).age_ms)
    return Response(to_json({"id": str(archive.id), "items": items}), media_type=etags.JSON)


def archive_object(archive: Archive) -> dict[str, Any]:
    shown = {name: value for name, value in archive._asdict().items() if name in ArchiveShape.model_fields}
    return {**shown, "id": str(archive.id)}


def replay_object(row: ReplayRow) -> dict[str, Any]:
    return {**row._asdict(), "id": str(row.id), "filter": from_json(row.filter)}
