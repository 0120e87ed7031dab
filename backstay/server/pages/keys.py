"""Keys, for admins: create one, which is shown once; rotate; revoke. And login with an API key,
logout, and the choice of the light or dark theme.
"""

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from backstay.core.errors import NotFound
from backstay.server.pages import layout, page_request
from backstay.server.pages.layout import redirect_with_notice
from backstay.server.pages.page_request import (
    Visit,
    local_path,
    visit_of_anyone,
    visit_to_act,
    visit_to_read,
    whole_number,
    with_form,
)
from backstay.server.problems import Problem
from backstay.server.request_limits import address_counter
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


YEAR_SECONDS: Final = 366 * 86_400


@router.get("/login")
async def show_login(request: Request) -> Response:
    visit = await visit_of_anyone(request)
    return await _form(visit, local_path(visit.query.get("next")))


@router.post("/login")
async def login(request: Request) -> Response:
    """Attempts are counted by address, like wrong keys in headers."""
    visit = await with_form(await visit_of_anyone(request))
    limit = visit.service.rate_limit
    left, reset = await limit.hit(address_counter(request, "login"))
    if left < 0:
        raise Problem(429, "too many attempts to log in", hint="wait a minute", headers={"retry-after": str(reset)})
    key = await visit.service.ring.find(visit.form.get("key", "").strip())
    following = local_path(visit.form.get("next"))
    if key is None:
        return await _form(visit, following, 403, "This key is not valid. It may have been revoked, or have expired.")
    response = RedirectResponse(following, 303)
    page_request.set_session_cookie(response, request, visit.service, page_request.begin_session(visit.service, key.id))
    return response


@router.post("/logout")
async def logout(request: Request) -> Response:
    """Ends all sessions of the key so far: copies of their cookies are not valid any more."""
    visit = await with_form(await visit_of_anyone(request))
    if visit.session.key_id:
        await visit.service.store.keys.end_sessions(visit.session.key_id, visit.session.issued_at)
    response = RedirectResponse("/login", 303)
    page_request.delete_session_cookie(response, request, visit.service)
    return response


@router.post("/theme")
async def choose_theme(request: Request) -> Response:
    visit = await with_form(await visit_of_anyone(request))
    theme = visit.form.get("theme", "")
    response = RedirectResponse(local_path(visit.form.get("next")), 303)
    if theme in layout.THEMES:
        secure = page_request.is_https(request, visit.service)
        response.set_cookie(
            layout.THEME_COOKIE, theme, max_age=YEAR_SECONDS, path="/", secure=secure, httponly=True, samesite="lax"
        )
    return response


async def _form(visit: Visit, following: str, status: int = 200, refused: str | None = None) -> Response:
    open_here = visit.service.options.open_here
    return await layout.show_page(
        visit, "login.html", status, following=following, refused=refused, open_here=open_here
    )
