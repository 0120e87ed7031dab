"""The command: runs all checks and prints their findings. A check that breaks is a finding, too."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, broker_option, data_option, json_option, place_options
from backstay.cli.doctor import Check, Finding, Level, Setup, database, fail, fail_with, machine, name_of, ok, services
from backstay.cli.request_options import api_key_env_option
from backstay.core.display import visible
from backstay.core.errors import BackstayError
from backstay.llm.endpoint import Veil
from backstay.run.options import Destination

if TYPE_CHECKING:
    from backstay.clock import Clock
    from backstay.llm.endpoint import Endpoint


SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


def veil_of(setup: "Setup") -> Veil:
    return Veil(_secrets(setup))


def _secrets(setup: "Setup") -> Iterator[str | None]:
    from backstay.core.signing import read_keys
    from backstay.llm.providers import provider_named, provider_names

    settings = setup.settings
    yield from (settings.secret_key, *read_keys(settings.secret_key or ""))
    for url in (setup.app.url, settings.broker_url, settings.redis_url, settings.gateway_url):
        yield from _passwords(url)
    keys = {provider_named(name).access_in(setup.environ).key_env for name in provider_names()}
    for name in (*SECRET_VARIABLES, *keys, *((setup.endpoint.key_env,) if setup.endpoint else ())):
        yield setup.environ.get(name)


def _passwords(url: str | None) -> Iterator[str]:
    try:
        password = urlsplit(url or "").password
    except ValueError:
        return
    if password:
        yield password
        yield unquote(password)


CHECK_SECONDS: Final = 30.0

# Checks that need no database, checks of the database, and checks that need it open.
AROUND: Final[tuple[Check, ...]] = (
    machine.settings,
    machine.versions,
    machine.extras,
    machine.open_files,
    machine.disk_space,
    services.files,
    services.folder_permissions,
    services.secret_key,
    services.redis,
)
DATABASE: Final[tuple[Check, ...]] = (database.schema, database.durability, database.connections)
INSIDE: Final[tuple[Check, ...]] = (
    database.clock,
    database.old_transactions,
    database.workers,
    database.backlog,
    database.stuck_items,
    database.dead_leases,
    database.unsealed_jobs,
    database.budgets,
    database.outbox,
    services.breakers,
    services.providers,
    services.broker,
)
CHECKS: Final = (*AROUND, database.database, *DATABASE, *INSIDE)


class DoctorOptions(NamedTuple):
    """The options of one call."""

    db: str | None = None
    base_url: str | None = None
    api_key_env: str | None = None
    data: str | None = None
    broker: str | None = None
    provider: str | None = None


async def examine(asked: DoctorOptions, clock: "Clock | None" = None) -> AsyncIterator[tuple[str, Finding]]:
    """One finding after the other, each with the name of its check."""
    from backstay.clock import Clock

    try:
        setup = setup_of(asked, clock or Clock())
    except BackstayError as error:
        yield "settings", fail_with(error)
        return
    veil = veil_of(setup)
    async with AsyncExitStack() as stack:
        async for check, finding in _run_all(setup, stack):
            says, advice = (visible(" ".join(veil.over(text).split())) for text in (finding.says, finding.advice))
            yield check, finding._replace(says=says, advice=advice)


def setup_of(asked: DoctorOptions, clock: "Clock") -> Setup:
    target = database_choice.choose(asked.db)
    app = database_choice.app_on(target)
    flags = {"data": asked.data, "broker_url": asked.broker}
    app.settings = app.settings.model_copy(update={name: value for name, value in flags.items() if value is not None})
    return Setup(app, target, os.environ, clock, _endpoint(asked))


def _endpoint(asked: DoctorOptions) -> "Endpoint | None":
    from backstay.llm.endpoint import Endpoint
    from backstay.llm.providers import check_base_url

    chosen = Destination(asked.provider, asked.base_url, api_key_env=asked.api_key_env)
    if (api := chosen.only_provider) is None:
        return None
    check_base_url(chosen.url(api), api)
    return Endpoint(chosen.url(api), key_env=chosen.key_env(api), api=api)


async def _run_all(setup: Setup, stack: AsyncExitStack) -> AsyncIterator[tuple[str, Finding]]:
    for one in await _run_together(AROUND, setup):
        yield one
    found = await _findings_of(database.database, setup)
    there = all(finding.level is not Level.FAIL for finding in found)
    for finding in found:
        yield name_of(database.database), finding
    if there and database_choice.missing_file(setup.app.url) is None:
        for check in DATABASE:
            found = await _findings_of(check, setup)
            there = there and not (check is database.schema and found[-1].level is Level.FAIL)
            for finding in found:
                yield name_of(check), finding
        try:
            setup.client = await stack.enter_async_context(database_choice.client_of(setup.app)) if there else None
        except BackstayError as error:
            yield name_of(database.database), fail_with(error)
    without = (services.providers, services.broker)
    for one in await _run_together([check for check in INSIDE if setup.client is not None or check in without], setup):
        yield one


async def _run_together(checks: Sequence[Check], setup: Setup) -> list[tuple[str, Finding]]:
    """Runs checks at the same time, because each may wait for a time-out. The findings are in their order."""
    found = await asyncio.gather(*(_findings_of(check, setup) for check in checks))
    return [(name_of(check), finding) for check, said in zip(checks, found, strict=True) for finding in said]


async def _findings_of(check: Check, setup: Setup) -> list[Finding]:
    """The findings of a check; an error of the check itself is a finding as well."""
    found: list[Finding] = []
    try:
        async with asyncio.timeout(CHECK_SECONDS):
            async for finding in check(setup):
                found.append(finding)
    except BackstayError as error:
        found.append(fail_with(error))
    except TimeoutError:
        found.append(fail(f"no answer within {CHECK_SECONDS:.0f} s", "see whether the checked service is overloaded"))
    except Exception as error:
        said = f"the check failed: {type(error).__name__}: {error}"
        found.append(fail(said, "to see the traceback, run it again with --debug; please report it"))
    return found or [ok("nothing to check")]


MARKS = {Level.OK: "ok  ", Level.WARN: "WARN", Level.FAIL: "FAIL"}


@click.command(
    "doctor",
    cls=Command,
    examples=(
        "backstay doctor",
        "backstay doctor --provider openai",
        "backstay doctor --db sqlite:///jobs.db --json | jq 'select(.level != \"ok\")'",
    ),
)
@click.option("--base-url", help="Also check this LLM service. The check lists its models, which costs nothing.")
@click.option("--provider", metavar="NAME", help="Also check this provider: see `backstay providers`.")
@api_key_env_option
@data_option
@broker_option
@place_options
@json_option
@click.pass_context
def doctor(ctx: click.Context, /, db: str | None, as_json: bool, **given: Any) -> None:
    """Checks everything that work depends on: database, broker, Redis, files, providers, clocks, workers, settings.

    It changes nothing, except for a small test file that it writes to the place for files and deletes again. Every line
    that is not ok says what to do. The exit code is 1 if a line says FAIL, otherwise 0: a WARN does not stop work.
    """
    asked = DoctorOptions(db, **given)

    async def look() -> list[tuple[str, Finding]]:
        return [found async for found in examine(asked)]

    found = database_choice.run(look())
    for check, finding in found:
        if as_json:
            output.data(output.as_json({"check": check, **finding._asdict()}))
        else:
            advice = f"; {finding.advice}" if finding.advice else ""
            output.data(f"{MARKS[finding.level]}  {check}: {finding.says}{advice}")
    ctx.exit(1 if any(finding.level is Level.FAIL for _, finding in found) else 0)
