"""Keys, for admins: create one, which is shown once; rotate; revoke."""

from typing import Final

from fastapi import APIRouter, Request, Response

from backstay.core.errors import NotFound
from backstay.server.pages import layout
from backstay.server.pages.layout import redirect_with_notice
from backstay.server.pages.page_request import Visit, visit_to_act, visit_to_read, whole_number
from backstay.server.problems import Problem
from backstay.store.keys import NewKey, Role

router = APIRouter(include_in_schema=False)

GRACE_SECONDS: Final = 86_400.0
DAYS_MAX: Final = 3_660
DAY_SECONDS: Final = 86_400.0


@router.get("/keys")
async def list_keys(request: Request) -> Response:
    return await _show_keys(await visit_to_read(request, Role.ADMIN))


@router.post("/keys")
async def create(request: Request) -> Response:
    """Answers with the key itself instead of a redirect, so that nothing stores it."""
    visit = await visit_to_act(request, Role.ADMIN)
    role = visit.form.get("role", "")
    if role not in {known.value for known in Role}:
        raise Problem(422, "the role must be read, write or admin")
    made = await visit.service.store.keys.create(
        visit.owner, Role(role), visit.form.get("name", "").strip(), _read_lifetime(visit.form.get("days", ""))
    )
    return await _show_keys(visit, made)


@router.post("/keys/{key_id}/rotate")
async def rotate(request: Request, key_id: str) -> Response:
    visit = await visit_to_act(request, Role.ADMIN)
    return await _show_keys(visit, await visit.service.store.keys.rotate(key_id[:40], visit.owner, GRACE_SECONDS))


@router.get("/keys/{key_id}/revoke")
async def ask_revoke(request: Request, key_id: str) -> Response:
    visit = await visit_to_read(request, Role.ADMIN)
    if key_id not in {key.id for key in await visit.service.store.keys.list(visit.owner)}:
        raise NotFound(f"no key {key_id[:40]}")
    return await layout.ask_to_confirm(
        visit,
        title=f"Revoke key {key_id}?",
        sentences=["Programs that use this key are refused from now on. This cannot be undone."]
        + (["You are logged in with this key."] if key_id == visit.principal.key_id else []),
        action=f"/keys/{key_id}/revoke",
        act="Revoke",
        danger=True,
        back="/keys",
    )


@router.post("/keys/{key_id}/revoke")
async def revoke(request: Request, key_id: str) -> Response:
    visit = await visit_to_act(request, Role.ADMIN)
    await visit.service.store.keys.revoke(key_id[:40], visit.owner)
    return redirect_with_notice(visit, "/keys", f"Key {key_id[:12]} is revoked.")


async def _show_keys(visit: Visit, made: NewKey | None = None) -> Response:
    keys = await visit.service.store.keys.list(visit.owner)
    return await layout.show_page(
        visit, "keys.html", keys=keys, made=made, roles=list(Role), grace_seconds=GRACE_SECONDS
    )


def _read_lifetime(days: str) -> float | None:
    if not days.strip():
        return None
    number = whole_number(days, DAYS_MAX)
    if not number:
        raise Problem(
            422, f"a key must be valid for 1 to {DAYS_MAX} days", hint="leave it empty for a key that never expires"
        )
    return number * DAY_SECONDS
