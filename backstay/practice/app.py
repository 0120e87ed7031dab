"""The practice provider as a whole: the APIs that it imitates, its control routes, and how it is served."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from aiohttp import web

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.practice.batch_jobs import ImitatedApi
from backstay.practice.bill import Bill, Counts, parse_price
from backstay.practice.faults import Faults
from backstay.practice.openai_shapes import OPENAI, OpenAiError, error_body
from backstay.practice.pipeline import Pipeline, ProviderState
from backstay.practice.replies import PracticeReply

PRICE = "0.15/0.60"
BACKLOG = 4_096
SHUTDOWN_SECONDS = 0.1
REQUEST_BYTES_MAX = 1 << 29


class Practice:
    """`async with Practice(Faults(fail=0.1)).serving() as base_url`; its `bill` and `counts` can be read meanwhile."""

    def __init__(
        self,
        faults: Faults | None = None,
        price: str = PRICE,
        bill_file: Path | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._state = ProviderState(faults or Faults(), clock or Clock(), Bill(parse_price(price), bill_file))

    @property
    def bill(self) -> Bill:
        return self._state.bill

    @property
    def counts(self) -> Counts:
        return self._state.counts

    @property
    def faults(self) -> Faults:
        return self._state.faults

    @property
    def clock(self) -> Clock:
        """The provider's time. A test may put another clock here while it runs."""
        return self._state.clock

    @clock.setter
    def clock(self, clock: Clock) -> None:
        self._state.clock = clock

    def change(self, **values: object) -> None:
        """Other faults from now on; `outage_seconds` is an outage that begins now."""
        self._state.change(values)

    @asynccontextmanager
    async def serving(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serves until the block ends, and then stops everything that still runs at once."""
        state = self._state
        apis = [api(state) for api in imitated_apis()]
        app = _application(state, apis)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=SHUTDOWN_SECONDS)
        async with AsyncExitStack() as stack:
            self.bill.open()
            stack.callback(self.bill.close)
            for api in apis:
                stack.callback(api.remove_files)
            stack.push_async_callback(runner.cleanup)
            for api in apis:
                stack.push_async_callback(api.stop)
            await runner.setup()
            await web.TCPSite(runner, host, port, backlog=BACKLOG).start()
            yield f"http://{f'[{host}]' if ':' in host else host}:{runner.addresses[0][1]}/v1"


class ControlRoutes:
    """The bill, the counts and the faults. They answer also during an outage, and without a key."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state

    def add_routes(self, router: web.UrlDispatcher) -> None:
        router.add_get("/bill", self.show_bill)
        router.add_post("/bill/reset", self.reset_bill)
        router.add_get("/counts", self.show_counts)
        router.add_get("/faults", self.show_faults)
        router.add_post("/faults", self.change_faults)

    async def show_bill(self, request: web.Request) -> web.Response:
        summary = request.query.get("summary", "0") not in ("", "0", "false")
        return web.json_response({"calls": self._state.counts.calls, **self._state.bill.dump(summary)})

    async def reset_bill(self, request: web.Request) -> web.Response:
        self._state.reset_bill()
        return await self.show_bill(request)

    async def show_counts(self, request: web.Request) -> web.Response:
        return web.json_response(self._state.counts.dump())

    async def show_faults(self, request: web.Request) -> web.Response:
        shown = self._state.faults.dump()
        return web.json_response({**shown, "key": None if shown["key"] is None else "…"})

    async def change_faults(self, request: web.Request) -> web.Response:
        try:
            values = json.loads(await request.read())
            if not isinstance(values, dict):
                raise UsageError("the faults to change are one JSON object")
            self._state.change(values)
        except (ValueError, TypeError, RecursionError, UsageError) as error:
            hint = getattr(error, "hint", "")
            refused = OpenAiError(400, f"{error}; {hint}" if hint else str(error))
            return web.json_response(error_body(refused), status=400)
        return await self.show_faults(request)


@cache
def imitated_apis() -> list[type[ImitatedApi]]:
    """The APIs of all modules in this package, in the order of their routes."""
    modules = [import_module(f"{__package__}.{found.name}") for found in iter_modules([str(Path(__file__).parent)])]
    found = [api for module in modules for api in getattr(module, "APIS", ())]
    return sorted(found, key=lambda api: not api.by_header)


def _application(state: ProviderState, apis: list[ImitatedApi]) -> web.Application:
    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    pipeline = Pipeline(state)
    for api in apis:
        api.add_routes(app.router, pipeline)
    ControlRoutes(state).add_routes(app.router)
    app.router.add_route("*", "/{rest:.*}", pipeline.unpaid_route(OPENAI, _refuse_unknown_path))
    return app


async def _refuse_unknown_path(request: web.Request) -> PracticeReply:
    raise OpenAiError(404, f"Invalid URL ({request.method} {request.path}).", "unknown_url")
