"""The practice provider as a whole: the APIs that it imitates, its control routes, and how it is served.

And a converter's gateway: POST a PDF to /convert, and it answers with XML. A PDF may ask for a fault, as other requests
do: with a line `%practice: 502x2` near its beginning.
"""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final
from xml.sax.saxutils import quoteattr

from aiohttp import web

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.practice.batch_jobs import ApiPart, ImitatedApi
from backstay.practice.bill import Bill, Counts, parse_price
from backstay.practice.faults import NOT_DONE, AnyFault, Faults, parse_fault
from backstay.practice.openai_shapes import OPENAI, OpenAiError, error_body
from backstay.practice.pipeline import Pipeline, ProviderState
from backstay.practice.replies import EMPTY_REPLY, PracticeReply

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


XML: Final = {"Content-Type": "application/xml"}
FAULT_SEARCH_BYTES: Final = 2_048
TEXTS_SHOWN_MAX: Final = 1_000
_FAULT: Final = re.compile(rb"^%practice: ?([\w-]+)\s*$", re.MULTILINE)
_PAGE: Final = re.compile(rb"/Type\s*/Page\b(?!s)")
_TEXT: Final = re.compile(rb"\(((?:[^()\\]|\\.)*)\)\s*Tj")


class ConverterGateway:
    """Its errors have OpenAI's form."""

    def __init__(self, state: ProviderState) -> None:
        self._state = state

    def add_routes(self, router: web.UrlDispatcher, pipeline: Pipeline) -> None:
        router.add_route("POST", "/convert", pipeline.route(OPENAI, partial(self.convert, pipeline)))

    async def convert(self, pipeline: Pipeline, request: web.Request) -> tuple[PracticeReply, AnyFault | None]:
        pdf = await request.read()
        digest = hashlib.sha256(pdf).hexdigest()
        named = _FAULT.search(pdf[:FAULT_SEARCH_BYTES])
        chosen = pipeline.choose_fault(request, f"convert {digest}", parse_fault(named[1].decode()) if named else None)
        await pipeline.delay_or_refuse(chosen)
        if chosen.fault in NOT_DONE:
            return EMPTY_REPLY, chosen.fault
        if b"%PDF-" not in pdf[:1_024]:
            raise OpenAiError(415, "This is not a PDF.", "unsupported_media_type")
        self._state.bill.charge(request.headers.get("Idempotency-Key", digest), digest, 0, 0)
        return PracticeReply(200, _document(pdf, digest), XML), chosen.fault


def _document(pdf: bytes, digest: str) -> bytes:
    """Not much of a conversion: the number of pages, and the texts that are not compressed."""
    pages = max(len(_PAGE.findall(pdf)), 1)
    texts = [found.decode("latin-1") for found in _TEXT.findall(pdf)[:TEXTS_SHOWN_MAX]]
    shown = "".join(f"  <text value={quoteattr(_printable(text))}/>\n" for text in texts)
    head = '<?xml version="1.0" encoding="UTF-8"?>\n'
    return f'{head}<document pages="{pages}" bytes="{len(pdf)}" sha256="{digest}">\n{shown}</document>\n'.encode()


def _printable(text: str) -> str:
    return "".join(c for c in text if c.isprintable())


class GatewayApi(ImitatedApi):
    def make_parts(self, state: ProviderState) -> Iterable[ApiPart]:
        return (ConverterGateway(state),)


APIS: Final = (GatewayApi,)
