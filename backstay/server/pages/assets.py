"""What pages load besides themselves: a style, a script, icons. All from here; browsers keep each under its digest."""

import hashlib
from functools import cache
from importlib.resources import files
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.core.errors import NotFound

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
