"""Routes in branches by the beginning of their paths: a request is not held against every route that there is."""

from collections.abc import Iterable
from typing import Final

from fastapi import APIRouter
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

_SEGMENTS: Final = 2  # /api/jobs, /v1/batches


class Branch(APIRouter):
    """The routes whose paths begin alike, in their order."""

    def __init__(self, start: str, routes: list[BaseRoute]) -> None:
        super().__init__()
        self._start = start
        self.routes.extend(routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if not scope["path"].startswith(self._start):
            return Match.NONE, {}
        return super().matches(scope)


def branches(routers: Iterable[APIRouter], prefix: str = "") -> list[Branch]:
    """All routes of some routers, to be included under a prefix."""
    grouped: dict[str, list[BaseRoute]] = {}
    for router in routers:
        for route in router.routes:
            grouped.setdefault(_start_of(prefix + getattr(route, "path", "")), []).append(route)
    return [Branch(start, routes) for start, routes in grouped.items()]


def _start_of(path: str) -> str:
    """What every path of a route begins with, as far as it tells branches apart."""
    segments = path.split("/")[1:]
    fixed = [segment for segment in segments[: _SEGMENTS + path.startswith("/openai/v1/")] if "{" not in segment]
    return "/" + "/".join(fixed)
