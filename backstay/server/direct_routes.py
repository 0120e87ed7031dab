"""The few things that many ask for again and again: to their routes without the detour through the framework.

The framework matches a path against routes, parses parameters against types and keeps stacks of what to close. None of
that has anything to do where a path ends in an id and nothing else is asked, and it costs more than the answer itself.
The same functions are routes, too: for requests with a query, and for the description of the API.
"""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from backstay.core.errors import BackstayError
from backstay.server.problems import Problem, problem_of, said

Show = Callable[[Request, str], Awaitable[Response]]


class Direct:
    def __init__(self, app: ASGIApp, shown: Mapping[str, Show]) -> None:
        """`shown` says which function shows what is below a path, by its id."""
        self._app = app
        self._shown = shown

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start, _, name = scope.get("path", "").rpartition("/")
        show = self._shown.get(start)
        if show is None or not name or scope["type"] != "http" or scope["method"] != "GET" or scope["query_string"]:
            return await self._app(scope, receive, send)
        request = Request(scope)
        try:
            answer = await show(request, name)
        except (Problem, BackstayError) as error:
            answer = said(request, problem_of(error))
        return await answer(scope, receive, send)
