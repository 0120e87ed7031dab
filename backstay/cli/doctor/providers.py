"""The services behind the work: whether they are held, answer, and take the key. Nothing that costs money is asked."""

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from backstay.cli.command import again
from backstay.cli.doctor.finding import Finding, Setup, fail, ok, warn
from backstay.core.errors import BackstayError

if TYPE_CHECKING:
    from backstay.llm.endpoint import Endpoint

ASK_SECONDS: Final = 10.0
ENDPOINTS_MAX: Final = 5
_PORTS: Final = {"http": 80, "https": 443}


async def breakers(setup: Setup) -> AsyncIterator[Finding]:
    """Which providers are sent nothing now, and why."""
    from backstay.core.breaker import BreakerState

    found = (await setup.store.providers.holds()).providers
    held = [one for one in found.values() if one.state in (BreakerState.OPEN, BreakerState.HELD)]
    for one in held:
        advice = f"fix the reason; then work resumes by itself, or: {again(f'provider release {one.provider}')}"
        yield warn(f"{one.provider} is {one.state.value}: {one.reason}", advice)
    if not held:
        yield ok("no provider is open or held")


async def providers(setup: Setup) -> AsyncIterator[Finding]:
    """Whether the services of unfinished requests, the gateway and --base-url answer, and take the key."""
    endpoints = [setup.endpoint] if setup.endpoint is not None else []
    if setup.client is not None:
        endpoints += await _unfinished(setup)
    asked = [_ask(setup, endpoint) for endpoint in endpoints[:ENDPOINTS_MAX]]
    knocked = [_knock(setup.settings.gateway_url)] if setup.settings.gateway_url else []
    for finding in await asyncio.gather(*asked, *knocked):
        yield finding
    if not endpoints and not setup.settings.gateway_url:
        yield ok("no --base-url is given, and no LLM requests are unfinished")


async def _unfinished(setup: Setup) -> "list[Endpoint]":
    from backstay.llm.endpoint import load_endpoint

    loaded = [load_endpoint(spec) for _, spec in await setup.store.providers.endpoints()]
    return list({endpoint.provider: endpoint for endpoint in loaded}.values())


async def _ask(setup: Setup, endpoint: "Endpoint") -> Finding:
    """Asks for the list of models: every provider has one, and none takes money for it."""
    from backstay.llm.credentials import key_of
    from backstay.llm.http.wire import Wire
    from backstay.llm.registry import provider_named

    place = urlsplit(endpoint.base_url).netloc
    key = key_of(endpoint, setup.environ)
    wire = Wire(endpoint, key, 1, http=setup.settings.http)
    try:
        await wire.open()
        reply = await wire.get(provider_named(endpoint.api).access.models_path, timeout_seconds=ASK_SECONDS)
    except BackstayError as error:
        return fail(f"{place} cannot be reached: {error.message}", "check the base URL, the network and the proxy")
    finally:
        await wire.close()
    if reply.status in (401, 403):
        said = "refuses the key of" if key else "needs a key in"
        return fail(
            f"{place} {said} {endpoint.key_env} (status {reply.status})", f"set {endpoint.key_env} to a valid key"
        )
    if reply.status >= 500:
        return warn(
            f"{place} answers with status {reply.status}", "see the provider's status page; work resumes by itself"
        )
    return ok(
        f"{place} answers" + ("" if reply.status == 200 else f", but its list of models has status {reply.status}")
    )


async def _knock(url: str) -> Finding:
    """Of what a gateway does nothing is known: whether it accepts connections is all that is asked."""
    parts = urlsplit(url)
    place = parts.netloc.rpartition("@")[2]
    port = parts.port or _PORTS.get(parts.scheme, 80)
    try:
        async with asyncio.timeout(ASK_SECONDS):
            _, writer = await asyncio.open_connection(parts.hostname, port)
    except (OSError, TimeoutError) as error:
        why = str(error) or "it did not answer in time"
        return fail(
            f"the gateway at {place} cannot be reached: {why}", "start the gateway, or correct BACKSTAY_GATEWAY_URL"
        )
    writer.close()
    return ok(f"the gateway at {place} accepts connections")
