"""The services besides the database: the broker, Redis and the providers."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from backstay.cli.command import next_command
from backstay.cli.doctor import Finding, Setup, fail, ok, warn
from backstay.core.errors import BackstayError, BrokerUnreachable

if TYPE_CHECKING:
    from backstay.llm.endpoint import Endpoint
    from backstay.messaging.queues import InspectedPart
    from backstay.messaging.topology import Topology


_ELSEWHERE = "set BACKSTAY_BROKER_QUEUES or BACKSTAY_BROKER_PREFIX"


async def broker(setup: Setup) -> AsyncIterator[Finding]:
    """Whether the broker answers, its exchanges and queues are correct, and a worker consumes them."""
    from importlib.util import find_spec

    url = setup.settings.broker_url
    if url is None:
        if setup.client is not None and await setup.store.outbox.is_open():
            advice = f"set BACKSTAY_BROKER_URL, or if you use no broker any more: {next_command('broker off')}"
            yield warn("no broker URL is set here, but this database writes hints for a broker", advice)
        else:
            yield ok("no broker is set: workers poll the database")
        return
    if find_spec("aio_pika") is None:
        return  # the extras say so
    from backstay.messaging.broker_session import topology_of
    from backstay.messaging.connection import connect_once, show_url
    from backstay.messaging.queues import inspect

    topology = topology_of(setup.settings)
    names = {handler.name for handler in setup.app.handlers}
    if setup.client is not None:
        names |= {waiting.handler for waiting in await setup.store.job_views.backlog()}
    try:
        async with connect_once(url, "backstay doctor") as connection:
            found = await inspect(connection, topology, sorted(names))
    except BrokerUnreachable as error:
        yield fail(error.message, error.hint)
        return
    yield ok(f"{show_url(url)} answers")
    for finding in _judge_broker(found, topology):
        yield finding


def _judge_broker(found: "list[InspectedPart]", topology: "Topology") -> Iterator[Finding]:
    from backstay.messaging.queues import BrokerFault

    missing = [one for one in found if one.fault is BrokerFault.MISSING]
    if len(missing) == len(found):
        says = (
            f"nothing is declared under {topology.prefix}: no worker has used this broker yet, or its data was deleted"
        )
        yield warn(says, f"start a worker, or: {next_command('broker declare')}")
        return
    for one in missing:
        yield warn(f"the {one.kind} {one.name} is missing", f"start a worker, or: {next_command('broker declare')}")
    for one in found:
        if one.fault is BrokerFault.UNUSABLE:
            says = f"{one.name} holds {one.messages:,} messages that no worker could process"
            yield warn(says, f"replay them: {next_command('broker replay')}")
        elif one.fault is BrokerFault.FULL:
            says = f"{one.name} is full: it holds {one.messages:,} messages, and the oldest are dropped"
            yield fail(says, f"replay them: {next_command('broker replay')}; or raise BACKSTAY_BROKER_DEAD_MESSAGES")
        elif one.fault is BrokerFault.UNCONSUMED:
            says = f"{one.messages:,} messages wait in {one.name}, and no worker consumes them"
            yield fail(says, "start a worker with this broker and an application that has the handler")
        elif one.fault is BrokerFault.DIFFERENT:
            says = f"the {one.kind} {one.name} was declared differently: {one.problem}"
            yield fail(says, f"delete the {one.kind}, it is declared again; or {_ELSEWHERE}")
    if not any(one.fault for one in found):
        yield ok(f"{len(found)} exchanges and queues are as they should be")


ANSWER_SECONDS: Final = 3.0


async def redis(setup: Setup) -> AsyncIterator[Finding]:
    """Whether Redis answers, if one is named."""
    from importlib.util import find_spec

    url = setup.settings.redis_url
    if url is None:
        yield ok("no Redis is set: every server process has its own cache and rate limits")
        return
    if find_spec("redis") is None:
        return  # the extras say so
    from redis.asyncio import Redis
    from redis.exceptions import RedisError

    try:
        async with Redis.from_url(url, socket_timeout=ANSWER_SECONDS, socket_connect_timeout=ANSWER_SECONDS) as asked:
            await asked.ping()
            version = (await asked.info("server"))["redis_version"]
    except ValueError:  # its own words would repeat the URL
        yield fail("BACKSTAY_REDIS_URL is not a valid Redis URL", "write redis://host:6379/0 or rediss://…")
    except (RedisError, OSError, TimeoutError) as error:
        advice = "start it, or correct BACKSTAY_REDIS_URL; until then every process has its own cache and rate limits"
        yield fail(f"Redis does not answer: {error}", advice)
    else:
        yield ok(f"version {version} answers")


ASK_SECONDS: Final = 10.0
ENDPOINTS_MAX: Final = 5
_PORTS: Final = {"http": 80, "https": 443}


async def breakers(setup: Setup) -> AsyncIterator[Finding]:
    """Which providers get no calls now, and why."""
    from backstay.core.breaker import BreakerState

    found = (await setup.store.providers.holds()).providers
    held = [one for one in found.values() if one.state in (BreakerState.OPEN, BreakerState.HELD)]
    for one in held:
        advice = f"fix the reason; then work resumes by itself, or: {next_command(f'provider release {one.provider}')}"
        yield warn(f"{one.provider} is {one.state.value}: {one.reason}", advice)
    if not held:
        yield ok("no provider is open or held")


async def providers(setup: Setup) -> AsyncIterator[Finding]:
    """Whether the services of unfinished requests, the gateway and the named provider answer, and accept the key."""
    endpoints = [setup.endpoint] if setup.endpoint is not None else []
    if setup.client is not None:
        endpoints += await _unfinished_endpoints(setup)
    asked = [_check_endpoint(setup, endpoint) for endpoint in endpoints[:ENDPOINTS_MAX]]
    knocked = [_check_gateway(setup.settings.gateway_url)] if setup.settings.gateway_url else []
    for finding in await asyncio.gather(*asked, *knocked):
        yield finding
    if not endpoints and not setup.settings.gateway_url:
        yield ok("no --provider or --base-url is given, and no LLM requests are unfinished")


async def _unfinished_endpoints(setup: Setup) -> "list[Endpoint]":
    from backstay.llm.endpoint import load_endpoint

    loaded = [one for _, spec in await setup.store.providers.endpoints() for one in load_endpoint(spec).all]
    return list({endpoint.provider: endpoint for endpoint in loaded}.values())


async def _check_endpoint(setup: Setup, endpoint: "Endpoint") -> Finding:
    """Asks for the list of models: every provider has one, and it is free."""
    from backstay.llm.credentials import credentials_for
    from backstay.llm.http.wire import Wire
    from backstay.llm.providers import provider_named

    place = urlsplit(endpoint.base_url).netloc
    settings = setup.settings
    key = credentials_for(endpoint, settings, setup.environ)
    wire = Wire(endpoint, key, 1, http=settings.http)
    try:
        await wire.open()
        if wire.credentials is not None:
            await wire.credentials.require()
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


async def _check_gateway(url: str) -> Finding:
    """Checks only whether a gateway accepts connections: nothing else is known about it."""
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
