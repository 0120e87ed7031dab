"""Login with an API key, logout, and the choice of the light or dark theme."""

from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import RedirectResponse

from backstay.server.pages import layout, page_request
from backstay.server.pages.page_request import Visit, local_path, visit_of_anyone, with_form
from backstay.server.problems import Problem
from backstay.server.ratelimit import address_counter

router = APIRouter(include_in_schema=False)

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
