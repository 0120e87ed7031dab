"""The services besides the database: the broker, Redis, the providers, and the place for files with its secret key."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from backstay.cli.command import next_command
from backstay.cli.doctor import Finding, Setup, fail, ok, warn
from backstay.core.errors import BackstayError, BrokerUnreachable, FilesUnreachable, NotFound
from backstay.core.failures import one_line

if TYPE_CHECKING:
    from backstay.artifacts import Artifacts
    from backstay.llm.endpoint import Endpoint
    from backstay.messaging.messages import Topology
    from backstay.messaging.queues import InspectedPart


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
    from backstay.messaging.connection import connect_once, node_urls, show_url
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
    if topology.kind == "classic" and len(node_urls(url)) > 1:
        says = "the broker has several nodes, and queues are classic: each is on one node, and away while that is down"
        yield warn(says, "set BACKSTAY_BROKER_QUEUES=quorum; see docs/rabbitmq.md")
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


PROBE: Final = b"written by backstay doctor; it can be deleted\n"
REASON_CHARACTERS_MAX: Final = 300
STORE_SECONDS_MAX: Final = 10.0
DELETE_SECONDS: Final = 3.0  # short, because the place may not have answered before


def _places(setup: Setup) -> dict[str, str]:
    """Where files go, by their kind: one place for all, unless some have their own."""
    from backstay.artifacts import default_folder
    from backstay.store.databases.database import is_postgres

    settings = setup.settings
    main = settings.data or (None if is_postgres(setup.app.url) else str(default_folder(setup.app.url)))
    named = {"files": main, "uploads": settings.uploads_dir, "results": settings.results_dir}
    return {what: place for what, place in named.items() if place is not None}


async def files(setup: Setup) -> AsyncIterator[Finding]:
    """Whether a small file can be written to the place for files, read back and deleted: a folder, or S3."""
    from backstay.artifacts import artifacts_at

    places = _places(setup)
    if not places:
        yield ok("no place for files is set: only the service and the converter need one")
    for what, place in places.items():
        if not _is_there(place):
            yield ok(f"{what}: Backstay creates {place} at its first use")
            continue
        try:
            await _probe(artifacts_at(place))
        except FilesUnreachable as error:
            yield _unreachable(what, place, error)
        except TimeoutError:
            yield _unreachable(what, place, FilesUnreachable("it did not answer in time"))
        else:
            yield ok(f"{what}: {place} stores and returns files")


def _is_there(place: str) -> bool:
    """Whether there is something to test: a bucket, a folder that exists, or one that cannot be created."""
    return "://" in place or Path(place).exists() or not _can_be_made(Path(place))


def _can_be_made(folder: Path) -> bool:
    nearest = next(one for one in folder.absolute().parents if one.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


async def _probe(artifacts: "Artifacts") -> None:
    """Raises unless a test file can be written and read."""
    from backstay.clock import new_id

    async def chunks() -> AsyncIterator[bytes]:
        yield PROBE

    name = f"doctor/{new_id()}"
    try:
        async with asyncio.timeout(STORE_SECONDS_MAX):
            await artifacts.put(name, chunks())
            read = b"".join([piece async for piece in artifacts.get(name)])
        if read != PROBE:
            raise FilesUnreachable("a test file came back with different content")
    except NotFound as error:
        raise FilesUnreachable("a test file was written, but is not there") from error
    finally:
        async with asyncio.timeout(DELETE_SECONDS):
            await artifacts.delete(name)


def _unreachable(what: str, place: str, error: BackstayError) -> Finding:
    """In the storage library's own words: the person who runs this may see the path."""
    why = one_line(str(error.__cause__ or error), REASON_CHARACTERS_MAX)
    advice = "check that the folder exists and that this user can write to it"
    if place.startswith("s3://"):
        advice = "check the bucket name, and AWS_ENDPOINT_URL, AWS_REGION and the keys in the environment"
    return fail(f"{what}: {place} does not store files: {why}", advice)


async def folder_permissions(setup: Setup) -> AsyncIterator[Finding]:
    """Whether others on this machine can read the SQLite file, the folder for files, or the key in it."""
    for path in _database_files(setup.app.url):
        if stat.S_IMODE(path.stat().st_mode) & (stat.S_IROTH | stat.S_IWOTH):
            yield warn(
                f"every user of this machine can read {path}, which holds prompts and answers", f"chmod o-rwx {path}"
            )
    for what, place in _places(setup).items():
        for finding in _permissions(what, Path(place)) if "://" not in place else ():
            yield finding


def _database_files(url: str) -> list[Path]:
    """The SQLite file and those that SQLite keeps beside it while it is in use."""
    from backstay.store.databases.database import is_postgres

    file = url.removeprefix("sqlite:///")
    named = () if is_postgres(url) else (file, f"{file}-wal", f"{file}-shm")
    return [Path(name) for name in named if Path(name).is_file()]


def _permissions(what: str, folder: Path) -> Iterator[Finding]:
    from backstay.settings import KEY_FILE

    if not folder.is_dir():
        return
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IWOTH:
        yield fail(f"{what}: every user of this machine can write to {folder}", f"chmod o-rwx {folder}")
    elif mode & (stat.S_IROTH | stat.S_IXOTH):
        yield warn(f"{what}: every user of this machine can read {folder}", f"chmod o-rwx {folder}")
    else:
        yield ok(f"{what}: only its owner can read {folder}")
    key = folder / KEY_FILE
    if key.is_file() and stat.S_IMODE(key.stat().st_mode) & 0o077:
        yield fail(f"other users can read {key}, the secret that signs webhooks and callbacks", f"chmod 600 {key}")


async def secret_key(setup: Setup) -> AsyncIterator[Finding]:
    """Whether all processes of a service have the same signing key."""
    from backstay.core.signing import Signer, read_keys
    from backstay.remote.work import local_service_key
    from backstay.store.databases.database import is_postgres

    settings = setup.settings
    advice = "set BACKSTAY_SECRET_KEY to the same 32 characters or more in every process"
    if settings.secret_key is not None:
        Signer(settings.secret_key)  # raises for one that is too short
        keys = len(read_keys(settings.secret_key))
        yield ok("set" if keys == 1 else f"{keys} are set: the first signs, all verify")
    elif settings.data is not None and settings.data.startswith("s3://"):
        yield fail(
            "BACKSTAY_SECRET_KEY is not set, and the key is never stored in S3: the service will not start", advice
        )
    elif is_postgres(setup.app.url) and (settings.data or settings.public_url or settings.redis_url):
        where = (
            "is stored in the folder for files"
            if local_service_key(setup.app)
            else "will be created in the folder for files"
        )
        yield warn(f"it {where}: a process on another machine would create a different key", advice)
    else:
        yield ok("stored with the files of this machine")
