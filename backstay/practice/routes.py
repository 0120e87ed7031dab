"""Which path leads to which part."""

from typing import NamedTuple

from aiohttp import web

from backstay.practice.background import Background
from backstay.practice.batches import Batches
from backstay.practice.bodies import read_object
from backstay.practice.calls import Calls
from backstay.practice.control import Control
from backstay.practice.endpoints import ENDPOINTS
from backstay.practice.files import Files
from backstay.practice.gate import Gate
from backstay.practice.gateway import PATH, Gateway
from backstay.practice.models import list_models, show_model
from backstay.practice.refusals import Refused, Reply, reply_with
from backstay.practice.responses import read_prompt
from backstay.practice.stored import Stored

REQUEST_BYTES_MAX = 1 << 29


class Parts(NamedTuple):
    gate: Gate
    calls: Calls
    stored: Stored
    background: Background
    files: Files
    batches: Batches
    control: Control
    gateway: Gateway


def application(parts: Parts) -> web.Application:
    app = web.Application(client_max_size=REQUEST_BYTES_MAX)
    for path in ENDPOINTS:
        app.router.add_post(path, parts.calls.answer)
    app.router.add_post(PATH, parts.gateway.answer)
    _add_unpaid(app, parts)
    _add_control(app, parts.control)
    app.router.add_route("*", "/{rest:.*}", parts.gate.through(unknown))
    return app


def _add_unpaid(app: web.Application, parts: Parts) -> None:
    stored, background, files, batches = parts.stored, parts.background, parts.files, parts.batches
    for method, path, work in (
        ("POST", "/v1/responses/input_tokens", count_tokens),
        ("GET", "/v1/responses/{id}", background.show),
        ("POST", "/v1/responses/{id}/cancel", background.cancel),
        ("DELETE", "/v1/responses/{id}", background.remove),
        ("GET", "/v1/chat/completions", stored.list_),
        ("GET", "/v1/chat/completions/{id}", stored.show),
        ("DELETE", "/v1/chat/completions/{id}", stored.remove),
        ("POST", "/v1/files", files.upload),
        ("GET", "/v1/files", files.list_),
        ("GET", "/v1/files/{id}", files.show),
        ("DELETE", "/v1/files/{id}", files.remove),
        ("GET", "/v1/files/{id}/content", files.content),
        ("POST", "/v1/batches", batches.create),
        ("GET", "/v1/batches", batches.list_),
        ("GET", "/v1/batches/{id}", batches.show),
        ("POST", "/v1/batches/{id}/cancel", batches.cancel),
        ("GET", "/v1/models", list_models),
        ("GET", "/v1/models/{id}", show_model),
    ):
        app.router.add_route(method, path, parts.gate.through(work))


def _add_control(app: web.Application, control: Control) -> None:
    app.router.add_get("/bill", control.show_bill)
    app.router.add_post("/bill/reset", control.reset_bill)
    app.router.add_get("/counts", control.show_counts)
    app.router.add_get("/faults", control.show_faults)
    app.router.add_post("/faults", control.change_faults)


async def count_tokens(request: web.Request) -> Reply:
    prompt = read_prompt(read_object(await request.read()))
    return reply_with({"object": "response.input_tokens", "input_tokens": prompt.tokens})


async def unknown(request: web.Request) -> Reply:
    raise Refused(404, f"Invalid URL ({request.method} {request.path}).", "unknown_url")
