"""Answers as values, and the refusals among them in the form that OpenAI gives them."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any, NamedTuple

JSON = {"Content-Type": "application/json"}

_KINDS = {401: "authentication_error", 403: "permission_error", 429: "requests"}


class Stream(NamedTuple):
    """A body that comes piece by piece."""

    pieces: int
    body: AsyncIterator[bytes]


class Reply(NamedTuple):
    """An answer that has not been sent yet."""

    status: int
    body: bytes
    headers: Mapping[str, str] = JSON
    stream: Stream | None = None


def reply_with(value: Any, status: int = 200) -> Reply:
    return Reply(status, json.dumps(value).encode())


class Severed(Exception):
    """The connection ends without an answer."""


class Refused(Exception):
    """An answer with a status of 400 or more."""

    def __init__(
        self,
        status: int,
        message: str,
        code: str | None = None,
        param: str | None = None,
        kind: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.kind = kind or _KINDS.get(status, "server_error" if status >= 500 else "invalid_request_error")
        self.headers = headers or {}

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    @property
    def reply(self) -> Reply:
        # Clients of OpenAI send a 409 again unless they are told not to.
        stay = {"x-should-retry": "false"} if self.status == 409 else {}
        return Reply(self.status, json.dumps(self.body).encode(), {**JSON, **stay, **self.headers})


def missing(param: str) -> Refused:
    return Refused(400, f"Missing required parameter: '{param}'.", "missing_required_parameter", param)


def wrong_type(param: str, wanted: str) -> Refused:
    return Refused(400, f"Invalid type for '{param}': expected {wanted}.", "invalid_type", param)


def not_found(what: str, named: str) -> Refused:
    return Refused(404, f"No such {what}: '{named}'.", param="id")


def no_such_model(model: str) -> Refused:
    return Refused(404, f"The model '{model}' does not exist.", "model_not_found", "model")
