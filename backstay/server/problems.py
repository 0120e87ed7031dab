"""Errors as RFC 9457 problems with one of the public codes and a hint, also before a body is read."""

import asyncio
from contextlib import suppress
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from backstay.core.display import visible
from backstay.core.errors import (
    BackstayError,
    DatabaseUnreachable,
    ErrorCode,
    FilesUnreachable,
    IdempotencyConflict,
    NotAllowed,
    NotFound,
    UsageError,
    WaitTimeout,
)

LINGER_SECONDS: Final = 3.0
LINGER_BYTES_MAX: Final = 32 << 20


class LingeringResponse(JSONResponse):
    """Reads on for a while before the connection is closed.

    If it were closed at once, with bytes of the sender still unread, the system would reset the connection, and the
    sender would never see the answer.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        headers = [*self.raw_headers, (b"connection", b"close")]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        await send({"type": "http.response.body", "body": self.body, "more_body": True})
        with suppress(TimeoutError):
            async with asyncio.timeout(LINGER_SECONDS):
                await _read_on(receive)
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _read_on(receive: Receive) -> None:
    left = LINGER_BYTES_MAX
    while left > 0:
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
        left -= len(message.get("body", b""))


MEDIA_TYPE: Final = "application/problem+json"
OPENAI_PREFIXES: Final = ("/v1", "/openai/v1", "/openai")  # OpenAI's client calls the first; Azure's the others
OPENAI_PATHS: Final = ("/v1/", "/openai/")
MESSAGES_PATH: Final = "/v1/messages"  # Anthropic's client calls this
_MESSAGES_PATHS: Final = tuple(f"{prefix}/messages" for prefix in OPENAI_PREFIXES)
_WRONG: Final = "invalid_request_error"
_TYPES: Final = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}

ANTHROPIC_TYPES: Final = {
    400: _WRONG,
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}

_PATHS: Final = (
    "/api/openapi.json lists all paths; of OpenAI's API there are /v1/files, /v1/batches and /v1/models, of "
    "Anthropic's /v1/messages/batches"
)

_TITLES: Final = {
    400: "Bad request",
    401: "No valid key",
    403: "Not allowed for this key",
    404: "Not found",
    405: "Method not allowed",
    409: "Not possible now",
    410: "Expired",
    412: "Changed in the meantime",
    413: "Too large",
    415: "Wrong content type",
    422: "Not valid",
    428: "If-Match is missing",
    429: "Too many requests",
    500: "Unexpected error",
    503: "Service unavailable",
}
_CODES: Final = {
    401: ErrorCode.FORBIDDEN,
    403: ErrorCode.FORBIDDEN,
    410: ErrorCode.EXPIRED,
    413: ErrorCode.TOO_LARGE,
    503: ErrorCode.IO_ERROR,
}


class Problem(Exception):
    """An error as an answer."""

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        code: ErrorCode | None = None,
        hint: str = "",
        headers: dict[str, str] | None = None,
        param: str | None = None,
        label: str | None = None,
        type: str | None = None,
        lingers: bool = False,
        is_for_programs: bool = False,
    ) -> None:
        """`param`, `label` and `type` are further fields of OpenAI's errors: which field is wrong, and codes."""
        super().__init__(detail)
        self.status = status
        self.detail = visible(detail)  # it may repeat any text that the client sent
        self.code = code or _CODES.get(status, ErrorCode.UNKNOWN if status >= 500 else ErrorCode.GW_4XX)
        self.hint = hint
        self.headers = headers or {}
        self.param = param
        self.label = label
        self.type = type
        self.is_for_programs = is_for_programs  # its hint names paths of the API, which do not help on a page
        self.lingers = lingers  # the sender is still sending: it gets this answer, then the connection is closed

    def body(self) -> dict[str, Any]:
        return {
            "type": "about:blank",
            "title": _TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
            "code": self.code.value,
            "hint": self.hint,
        }


def problem_of(error: Exception) -> Problem:
    """Turns any exception into a problem. The text of an unexpected one is not shown."""
    match error:
        case Problem():
            return error
        case RequestValidationError():
            return _of_validation(error)
        case HTTPException(status_code=404):
            return Problem(404, "this path does not exist", hint=_PATHS, is_for_programs=True)
        case HTTPException():
            return Problem(error.status_code, str(error.detail), headers=dict(error.headers or {}))
        case NotFound():
            return Problem(404, error.message, hint=error.hint)
        case IdempotencyConflict():
            return Problem(422, error.message, hint=error.hint)
        case NotAllowed():
            return Problem(409, error.message, hint=error.hint, headers={"x-should-retry": "false"})
        case UsageError():
            return Problem(400, error.message, hint=error.hint)
        case DatabaseUnreachable():
            return Problem(503, "the database does not answer", hint="try again", headers={"retry-after": "1"})
        case FilesUnreachable():
            return Problem(503, error.message, hint="try again", headers={"retry-after": "1"})
        case WaitTimeout():
            return Problem(504, error.message, code=ErrorCode.GW_TIMEOUT, hint=error.hint)
        case BackstayError():
            return Problem(500, error.message, hint=error.hint)
        case _:
            return Problem(500, "an unexpected error occurred", hint="see the log of the service")


def _of_validation(error: RequestValidationError) -> Problem:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return Problem(422, _not_json(str(error.body), first["loc"][-1], first["ctx"]["error"]), label="invalid_json")
    where = ".".join(str(part) for part in first["loc"] if part != "body") or "the body"
    return Problem(422, f"{where}: {first['msg']}", param=where, label="invalid_value")


def _not_json(text: str, at: int, why: str) -> str:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    return f"the body is not JSON: {why[:1].lower()}{why[1:]} at line {line} column {column}"


def wants_html(request: Request) -> bool:
    """Whether a browser asks for a page. A script that fetches a part of a page only needs the status."""
    return "text/html" in request.headers.get("accept", "")


def problem_json(problem: Problem) -> JSONResponse:
    kind = LingeringResponse if problem.lingers else JSONResponse
    return kind(problem.body(), problem.status, headers=problem.headers, media_type=MEDIA_TYPE)


def answer_openai(problem: Problem) -> JSONResponse:
    """In OpenAI's format: its client makes its exceptions of this."""
    said = {
        "message": f"{problem.detail}. {problem.hint}" if problem.hint else problem.detail,
        "type": problem.type or _TYPES.get(problem.status, "server_error" if problem.status > 499 else _WRONG),
        "param": problem.param,
        "code": problem.label,
    }
    kind = LingeringResponse if problem.lingers else JSONResponse
    status = 400 if problem.status == 422 else problem.status  # OpenAI uses 400 for everything that is not valid
    return kind({"error": said}, status, headers=problem.headers)


def answer_anthropic(problem: Problem) -> JSONResponse:
    """In Anthropic's format."""
    status = 400 if problem.status == 422 else problem.status
    kind = ANTHROPIC_TYPES.get(status, "api_error" if status > 499 else _WRONG)
    message = f"{problem.detail}. {problem.hint}" if problem.hint else problem.detail
    said = {"type": "error", "error": {"type": kind, "message": message}, "request_id": None}
    response = LingeringResponse if problem.lingers else JSONResponse
    return response(said, status, headers=problem.headers)


def is_for_messages(path: str) -> bool:
    """Whether a path is of Anthropic's API."""
    return path.startswith(_MESSAGES_PATHS)


def problem_response(request: Request, problem: Problem) -> JSONResponse:
    """In the format of the API that was called."""
    if is_for_messages(request.url.path):
        return answer_anthropic(problem)
    return answer_openai(problem) if request.url.path.startswith(OPENAI_PATHS) else problem_json(problem)


def install(app: FastAPI) -> None:
    async def handle(request: Request, error: Exception) -> JSONResponse:
        problem = problem_of(error)
        if problem.is_for_programs and wants_html(request):
            problem.hint = ""
        return problem_response(request, problem)

    for kind in (Problem, RequestValidationError, HTTPException, BackstayError, Exception):
        app.add_exception_handler(kind, handle)
