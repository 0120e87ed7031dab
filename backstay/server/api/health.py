"""Whether the service lives, and whether it can do its work."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from backstay.core.errors import BackstayError
from backstay.server.service import Serving

router = APIRouter(tags=["health"])


@router.get("/livez", include_in_schema=False)
async def livez() -> dict[str, str]:
    """Checks only that the process answers."""
    return {"status": "ok"}


@router.get("/readyz", include_in_schema=False)
async def readyz(request: Request, service: Serving) -> JSONResponse:
    checks: dict[str, str] = {}
    verbose = request.query_params.get("verbose", "0").lower() not in ("0", "false")  # the bare word is a yes
    try:
        await service.store.providers.holds()
        checks["database"] = "ok"
    except BackstayError as error:
        checks["database"] = type(error).__name__
    ready = set(checks.values()) == {"ok"}
    if verbose and service.shared is not None:  # without it the service is slower, and as ready as with it
        checks["redis"] = "ok" if await service.shared.ask(lambda redis: redis.ping()) else "does not answer"
    said: dict[str, Any] = {"status": "ok" if ready else "not ready", **({"checks": checks} if verbose else {})}
    return JSONResponse(said, 200 if ready else 503)
