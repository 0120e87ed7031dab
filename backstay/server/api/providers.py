"""Providers: their breakers, and holding and releasing them. All owners share them, so only an operator may act."""

from typing import Annotated, Final

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from backstay.core.breaker import Breaker, hide_reason
from backstay.core.failures import one_line
from backstay.server.auth import Operator, Principal, Reader, operates
from backstay.server.problems import Problem
from backstay.server.service import Service, Serving
from backstay.server.shapes import JSON, PROBLEMS, ProviderShape, Strict, provider_object

router = APIRouter(prefix="/api/providers", tags=["providers"], responses=PROBLEMS)

HOLD_SECONDS_MAX: Final = 366 * 86_400
Name = Annotated[str, Path(min_length=1, max_length=300)]


class ProvidersShape(BaseModel):
    data: list[ProviderShape]
    now: int


class HoldShape(Strict):
    reason: str = Field(default="an operator asked for it", max_length=1_000)
    seconds: float | None = Field(
        default=None, gt=0, le=HOLD_SECONDS_MAX, description="without it, until it is released"
    )


@router.get("", response_model=ProvidersShape)
async def list_providers(who: Reader, service: Serving) -> Response:
    """Lists the providers that workers use or that are on hold, with their circuit breakers."""
    breakers, now = await known_breakers(service, who)
    data = [provider_object(breakers[name]) for name in sorted(breakers)]
    return Response(to_json({"data": data, "now": now}), media_type=JSON)


@router.get("/{provider}", response_model=ProviderShape)
async def show_provider(who: Reader, service: Serving, provider: Name) -> Response:
    return _answer(await known_provider(service, who, provider))


@router.post("/{provider}/hold", response_model=ProviderShape)
async def hold_provider(who: Operator, service: Serving, provider: Name, given: HoldShape | None = None) -> Response:
    """Stops sending to the provider: its items stay queued and lose no attempt."""
    given = given or HoldShape()
    await known_provider(service, who, provider)
    change = await service.store.providers.hold(provider, one_line(given.reason), given.seconds)
    return _answer(change.after)


@router.post("/{provider}/release", response_model=ProviderShape)
async def release_provider(who: Operator, service: Serving, provider: Name) -> Response:
    """Closes the provider's circuit breaker, or ends its hold: its items run again at once."""
    await known_provider(service, who, provider)
    change = await service.store.providers.release(provider)
    await service.store.notify()
    service.wake()
    return _answer(change.after)


async def visible_breakers(service: Service, who: Principal) -> tuple[dict[str, Breaker], int]:
    """The breakers of providers that were ever called or held, and the time now. Reasons are for operators only."""
    holds = await service.store.providers.holds()
    if operates(who, service):
        return holds.providers, holds.now
    return {name: hide_reason(breaker) for name, breaker in holds.providers.items()}, holds.now


async def known_breakers(service: Service, who: Principal) -> tuple[dict[str, Breaker], int]:
    """The same for all providers, including those that were never called."""
    observed, now = await visible_breakers(service, who)
    told = {name for worker in await service.store.workers.page() for name in worker.providers.values()}
    told |= {handler.provider for handler in service.backstay.handlers}
    return {name: Breaker(name) for name in told} | observed, now


async def known_provider(service: Service, who: Principal, provider: str) -> Breaker:
    found = (await known_breakers(service, who))[0].get(provider)
    if found is None:
        detail, hint = f"no provider {one_line(provider)[:100]}", "GET /api/providers lists the providers"
        raise Problem(404, detail, hint=hint, is_for_programs=True)
    return found


def _answer(breaker: Breaker) -> Response:
    return Response(to_json(provider_object(breaker)), media_type=JSON)
