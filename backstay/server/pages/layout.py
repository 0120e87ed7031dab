"""Puts a view into its template, with navigation, banner and notices; and the files that pages load."""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from backstay.core.breaker import Breaker, BreakerState
from backstay.core.errors import NotFound
from backstay.core.ids import job_of, position_of, show_item
from backstay.server.api.providers import shown_breakers
from backstay.server.pages import page_request
from backstay.server.pages.figures import FILTERS
from backstay.server.pages.page_request import TOKEN_FIELD, Visit, here, is_https, local
from backstay.server.problems import Problem
from backstay.server.service import Service, root_of
from backstay.store.keys import Role

router = APIRouter(include_in_schema=False)

TYPES: Final = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8", "svg": "image/svg+xml"}
FOREVER: Final = "public, max-age=31536000, immutable"


class Asset(NamedTuple):
    body: bytes
    digest: str
    media_type: str


@cache
def assets() -> dict[str, Asset]:
    """All there are; nothing else of the disk can be asked for."""
    found = {}
    for file in files("backstay.server.pages").joinpath("static").iterdir():
        kind = TYPES.get(file.name.rpartition(".")[2])
        if kind is not None:
            body = file.read_bytes()
            found[file.name] = Asset(body, hashlib.blake2b(body, digest_size=8).hexdigest(), kind)
    return found


def asset_url(name: str) -> str:
    return f"/static/{name}?v={assets()[name].digest}"


@router.get("/static/{name}")
async def show_asset(request: Request, name: str) -> Response:
    asset = assets().get(name)
    if asset is None:
        raise NotFound(f"no file {name[:40]}")
    kept = FOREVER if request.query_params.get("v") == asset.digest else "no-cache"
    return Response(asset.body, headers={"cache-control": kept}, media_type=asset.media_type)


@router.get("/favicon.ico")
async def show_icon(request: Request) -> Response:
    return await show_asset(request, "favicon.svg")


COOKIE: Final = "backstay_flash"
SECONDS: Final = 60
TEXT_MAX: Final = 500
_LENGTH_MAX: Final = 4_000


class Flash(NamedTuple):
    kind: Literal["done", "refused"]
    text: str


def redirect_with_notice(visit: Visit, path: str, text: str, kind: Literal["done", "refused"] = "done") -> Response:
    """To the page that shows what was done, with a sentence about it; loading that again does nothing again."""
    response = RedirectResponse(local(path), 303)
    said = base64.urlsafe_b64encode(json.dumps([kind, text[:TEXT_MAX]]).encode()).decode()
    value = f"{said}.{visit.service.signer.tag('flash', said)}"
    secure = is_https(visit.request, visit.service)
    response.set_cookie(COOKIE, value, max_age=SECONDS, path="/", secure=secure, httponly=True, samesite="strict")
    return response


def read(request: Request, service: Service) -> Flash | None:
    """What the last form left, if this service wrote it."""
    said, _, tag = request.cookies.get(COOKIE, "")[:_LENGTH_MAX].partition(".")
    if not said or not service.signer.fits(tag, "flash", said):
        return None
    try:
        return Flash(*json.loads(base64.urlsafe_b64decode(said)))
    except (binascii.Error, ValueError, TypeError):
        return None


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
    NavigationEntry("/schedules", "Schedules"),
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


async def show_page(visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
    """A whole page, or with `?part=` one block of it: what a script puts in the place of the one that is there."""
    found = templates().get_template(template)
    part = visit.asked.get("part")
    if part is not None:
        if part not in found.blocks:
            raise Problem(404, f"this page has no section {part[:40]}")
        context = found.new_context(_with_macros({**_around(visit), **values}))
        return HTMLResponse("".join(found.blocks[part](context)), status)
    said = read(visit.request, visit.service)
    busy = await busy_providers(visit) if visit.who is not None else ()
    text = found.render(_with_macros({**_around(visit), "busy": busy, "flash": said, **values}))
    response = HTMLResponse(text, status)
    if COOKIE in visit.request.cookies:
        response.delete_cookie(COOKIE, path="/", httponly=True, samesite="strict")
    if visit.is_new:
        page_request.give(response, visit.request, visit.service, visit.session)
    return response


class Field(NamedTuple):
    """Something that a question asks for besides yes."""

    name: str
    label: str
    hint: str


async def ask_to_confirm(
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
    return await show_page(visit, "confirm.html", **values, **around)


def _around(visit: Visit) -> dict[str, Any]:
    request = visit.request
    return {
        "visit": visit,
        "who": visit.who,
        "token": visit.token,
        "theme": theme_of(request),
        "themes": THEMES,
        "places": [place for place in PLACES if visit.may(place.role)],
        "root": root_of(request),
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
        "root": root_of(request),
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
