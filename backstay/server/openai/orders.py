"""What a request to create a batch may say, and what OpenAI answers when it says something else."""

import json
import re
from typing import Annotated, Any, Final, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from backstay.server.problems import Problem
from backstay.server.request_bodies import whole_bytes

ENDPOINTS: Final = (
    "/v1/responses",
    "/v1/chat/completions",
    "/v1/embeddings",
    "/v1/completions",
    "/v1/moderations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/videos",
)
BODY_BYTES_MAX: Final = 1 << 20
PAIRS_MAX: Final = 16
WINDOW_SECONDS_MAX: Final = 30 * 86_400
BACKGROUND: Final = "background"
STRICT_WINDOW: Final = "24h"
_WINDOW: Final = re.compile(r"([1-9][0-9]{0,6})([smhdw])")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

MetadataKey = Annotated[str, Field(min_length=1, max_length=64)]
MetadataValue = Annotated[str, Field(max_length=512)]


class OutputExpiresAfter(BaseModel):
    model_config = ConfigDict(strict=True)

    anchor: Literal["created_at"]
    seconds: int = Field(ge=3_600, le=2_592_000)


class BatchOrder(BaseModel):
    """A batch to be made of an uploaded file."""

    model_config = ConfigDict(strict=True)

    input_file_id: str = Field(pattern=r"^[!-~]{1,200}$")
    endpoint: str
    completion_window: str
    metadata: dict[MetadataKey, MetadataValue] | None = Field(None, max_length=PAIRS_MAX)
    output_expires_after: OutputExpiresAfter | None = None

    def window_seconds(self, strict: bool) -> int:
        said = self.completion_window
        if strict and said != STRICT_WINDOW:
            raise _unsupported("completion_window", said, [STRICT_WINDOW])
        if said == BACKGROUND:
            return WINDOW_SECONDS_MAX
        form = _WINDOW.fullmatch(said)
        seconds = int(form[1]) * _UNIT_SECONDS[form[2]] if form else 0
        if not 0 < seconds <= WINDOW_SECONDS_MAX:
            raise _unsupported("completion_window", said, [STRICT_WINDOW, "1h", "30d", BACKGROUND])
        return seconds

    def check_endpoint(self, strict: bool) -> None:
        """Azure's clients leave the version out."""
        if self.endpoint not in ENDPOINTS and (strict or f"/v1{self.endpoint}" not in ENDPOINTS):
            raise _unsupported("endpoint", self.endpoint, ENDPOINTS)


async def read_order(request: Request) -> BatchOrder:
    try:
        value = json.loads(await whole_bytes(request, BODY_BYTES_MAX))
    except (ValueError, RecursionError):
        raise Problem(400, "We could not parse the JSON body of your request", label="invalid_json") from None
    if not isinstance(value, dict):
        raise Problem(400, "the body must be a JSON object", label="invalid_type")
    try:
        return BatchOrder.model_validate(value)
    except ValidationError as error:
        raise _refused(error, value) from None


def _refused(error: ValidationError, value: dict[str, Any]) -> Problem:
    first = error.errors()[0]
    param = ".".join(str(part) for part in first["loc"] if part != "[key]")
    if first["type"] == "missing":
        return Problem(400, f"Missing required parameter: '{param}'", param=param, label="missing_required_parameter")
    code = "invalid_type" if first["type"].endswith("_type") else "invalid_value"
    said = first["msg"][:1].lower() + first["msg"][1:]
    return Problem(400, f"Invalid {code.removeprefix('invalid_')} for '{param}': {said}", param=param, label=code)


def _unsupported(param: str, value: str, supported: Any) -> Problem:
    listed = ", ".join(f"'{one}'" for one in supported)
    detail = f"Invalid value for {param}: '{value[:100]}'. Supported values are: {listed}"
    return Problem(400, detail, param=param, label="invalid_value")
