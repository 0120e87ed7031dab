"""Puts a view into its template, with what is around every page: navigation, the banner, what was just done."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from backstay.core.breaker import Breaker, BreakerState
from backstay.core.ids import job_of, position_of, show_item
from backstay.server.api.providers import shown_breakers
from backstay.server.pages import notices, session
from backstay.server.pages.assets import asset_url
from backstay.server.pages.figures import FILTERS
from backstay.server.pages.page_request import TOKEN_FIELD, Visit, here
from backstay.server.problems import Problem
from backstay.store.keys import Role

THEME_COOKIE: Final = "backstay_theme"
THEMES: Final = ("auto", "light", "dark")
BUSY_MAX: Final = 5


class NavigationEntry(NamedTuple):
    path: str
    label: str
    role: Role = Role.READ


PLACES: Final = (
    NavigationEntry("/", "Home"),
    NavigationEntry("/jobs", "Jobs"),
    NavigationEntry("/dead-letters", "Dead letters"),
    NavigationEntry("/providers", "Providers"),
    NavigationEntry("/safety", "Safety"),
    NavigationEntry("/workers", "Workers", Role.ADMIN),
    NavigationEntry("/keys", "Keys", Role.ADMIN),
)


@cache
def templates() -> Environment:
    made = Environment(
        loader=PackageLoader("backstay.server.pages"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    made.filters["item"] = show_item
    made.globals.update(asset=asset_url, token_field=TOKEN_FIELD, job_of=job_of, position_of=position_of)
    return made


async def shown(visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
    """A whole page, or with `?part=` one block of it: what a script puts in the place of the one that is there."""
    found = templates().get_template(template)
    part = visit.asked.get("part")
    if part is not None:
        if part not in found.blocks:
            raise Problem(404, f"this page has no section {part[:40]}")
        context = found.new_context(_with_macros({**_around(visit), **values}))
        return HTMLResponse("".join(found.blocks[part](context)), status)
    said = notices.read(visit.request, visit.service)
    busy = await busy_providers(visit) if visit.who is not None else ()
    text = found.render(_with_macros({**_around(visit), "busy": busy, "flash": said, **values}))
    response = HTMLResponse(text, status)
    if notices.COOKIE in visit.request.cookies:
        response.delete_cookie(notices.COOKIE, path="/", httponly=True, samesite="strict")
    if visit.is_new:
        session.give(response, visit.request, visit.service, visit.session)
    return response


class Field(NamedTuple):
    """Something that a question asks for besides yes."""

    name: str
    label: str
    hint: str


async def asked(
    visit: Visit,
    *,
    title: str,
    sentences: Sequence[str],
    action: str,
    act: str,
    back: str,
    fields: Mapping[str, str] | None = None,
    asks: Sequence[Field] = (),
    danger: bool = False,
) -> Response:
    """A question before an act, on a page of its own or in a dialog; without an `act` there is nothing to be done."""
    around: dict[str, Any] = {"action": action, "act": act, "back": back, "danger": danger}
    values: dict[str, Any] = {
        "title": title,
        "sentences": sentences,
        "fields": fields or {},
        "asks": asks if act else (),
    }
    return await shown(visit, "confirm.html", **values, **around)


def _around(visit: Visit) -> dict[str, Any]:
    request = visit.request
    return {
        "visit": visit,
        "who": visit.who,
        "token": visit.token,
        "theme": theme_of(request),
        "themes": THEMES,
        "places": [place for place in PLACES if visit.may(place.role)],
        "path": request.url.path,
        "here": here(request),
        "now": visit.service.main.clock.now_ms(),
    }


def bare(request: Request, template: str, status: int, **values: Any) -> Response:
    """A page for when nobody can say who looks at it: the database does not answer, or something broke."""
    around: dict[str, Any] = {
        "visit": None,
        "who": None,
        "token": "",
        "theme": theme_of(request),
        "themes": THEMES,
        "places": [],
    }
    found = templates().get_template(template)
    said = {**around, "path": request.url.path, "here": "/", "now": 0, "busy": (), "flash": None, **values}
    return HTMLResponse(found.render(_with_macros(said)), status)


def _with_macros(values: dict[str, Any]) -> dict[str, Any]:
    """As `m`, not by an import: a block that is shown alone would not have it."""
    return {**values, "m": templates().get_template("macros.html").make_module(values)}


def theme_of(request: Request) -> str:
    theme = request.cookies.get(THEME_COOKIE, "")
    return theme if theme in THEMES else THEMES[0]


async def busy_providers(visit: Visit) -> list[Breaker]:
    """Those that take nothing now."""
    breakers, _ = await shown_breakers(visit.service, visit.principal)
    return [one for one in breakers.values() if one.state is not BreakerState.CLOSED][:BUSY_MAX]


def query(path: str, wanted: Mapping[str, Any]) -> str:
    """A link that holds a filter: what is not set is not in it."""
    given = {name: value for name, value in wanted.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path
