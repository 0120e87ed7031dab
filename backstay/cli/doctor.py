"""`backstay doctor`: looks at everything that work depends on, and says what to do about what is wrong."""

from collections.abc import AsyncIterator, Container, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import click

from backstay.cli import access, output
from backstay.cli.command import Command, again, json_option, place_options, repeated
from backstay.core.errors import BackstayError

if TYPE_CHECKING:
    from backstay.app import Backstay
    from backstay.store.outbox import Lag
    from backstay.store.views import Backlog, WorkerView

SKEW_MS_MAX = 5_000
HINT_LATE_MS = 60_000


class Finding(NamedTuple):
    """One thing looked at; `advice` says what to do when it is not ok."""

    check: str
    ok: bool
    says: str
    advice: str = ""


@click.command("doctor", cls=Command, examples=("backstay doctor", "backstay doctor --db sqlite:///jobs.db --json"))
@place_options
@json_option
@click.pass_context
def doctor(ctx: click.Context, db: str | None, as_json: bool) -> None:
    """Checks the settings, the database and how durable it is, the clocks, the workers, and whether hints leave.

    The exit code is 1 when something is wrong; every such line says what to do.
    """

    async def look() -> list[Finding]:
        return [finding async for finding in findings(db)]

    found = access.run(look())
    for finding in found:
        if as_json:
            output.data(output.as_json(finding._asdict()))
        else:
            advice = f"; {finding.advice}" if finding.advice and not finding.ok else ""
            output.data(f"{'ok   ' if finding.ok else 'WRONG'}  {finding.check}: {finding.says}{advice}")
    ctx.exit(0 if all(finding.ok for finding in found) else 1)


async def findings(db: str | None) -> AsyncIterator[Finding]:
    """One finding after the other; each check presumes that those before it were fine."""
    try:
        for finding in _settings():
            yield finding
        target = access.choose(db)
    except BackstayError as error:
        yield _wrong("settings", error)
        return
    yield Finding("database", True, f"{target.shown}, from {target.source}")
    try:
        version = await _version(target.url)
        yield version
        if not version.ok or version.says.startswith("none"):
            return
        async for finding in _durability(target.url):
            yield finding
        async for finding in _inside(access.open_target(target)):
            yield finding
    except BackstayError as error:
        yield _wrong("database", error)


def _wrong(check: str, error: BackstayError) -> Finding:
    return Finding(check, False, error.message, repeated(error.hint))


def _settings() -> Iterator[Finding]:
    from pathlib import Path

    from backstay import settings

    loaded = settings.load()
    loaded.bounds()
    named = settings.FILE_NAME if Path(settings.FILE_NAME).is_file() else "no backstay.toml here"
    yield Finding("settings", True, f"{named}, profile {loaded.profile}, owner {loaded.owner}")


async def _version(url: str) -> Finding:
    from backstay import wiring
    from backstay.store import schema
    from backstay.store.urls import is_postgres

    if access.missing_file(url):
        return Finding("schema", True, "none yet: the file is made at its first use")
    version = await wiring.schema_version(url)
    if version is None and not is_postgres(url):
        return Finding("schema", True, "none yet: the file gets it at its first use")
    try:
        schema.check(version)
    except BackstayError as error:
        return _wrong("schema", error)
    return Finding("schema", True, str(version))


async def _durability(url: str) -> AsyncIterator[Finding]:
    from backstay import wiring

    for promise in await wiring.durability(url):
        yield Finding(promise.name, promise.durable, promise.value, promise.advice)


async def _inside(app: "Backstay") -> AsyncIterator[Finding]:
    from backstay.clock import Clock

    async with access.client_of(app) as client:
        yield skew((await client.store.holds()).now, Clock().now_ms())
        lease_ms = int(app.limits.lease_seconds * 1000)
        workers = await client.store.views.workers()
        requests = dict(await client.store.endpoints())
        for finding in crewed(await client.store.views.backlog(), [w for w in workers if w.alive(lease_ms)], requests):
            yield finding
        yield stuck(await client.store.views.stuck(), [w for w in workers if w.alive(lease_ms)], requests)
        if await client.store.outbox.is_open():
            yield leaving(await client.store.outbox.lag("work"))
        for job_id in await client.store.views.short_jobs():
            says = "reached; to go on: the same `backstay run` or `submit` with a higher --budget"
            yield Finding(f"budget of job {job_id}", True, says)


def stuck(items: Mapping[str, int], alive: "list[WorkerView]", requests: Container[str] = ()) -> Finding:
    """Whether what lost its worker is taken up. Requests are, when their run is gone on with: till then it is fine."""
    served = {handler for worker in alive for handler in worker.handlers}
    waiting = sum(count for handler, count in items.items() if handler in requests and handler not in served)
    wrong = sum(items.values()) - waiting
    says = f"{wrong:,}" + (f"; {output.count(waiting, 'request')} cut off before wait for their run" if waiting else "")
    advice = "they are taken up by the sweep of a worker that runs their handler; start one"
    return Finding("stuck items", wrong == 0, says, advice)


def leaving(lag: "Lag") -> Finding:
    """Whether hints get to the broker, RabbitMQ or Celery's; work goes on without them, more slowly."""
    says = f"{output.count(lag.rows, 'hint')} not published" + (
        f", the oldest for {lag.age_ms // 1000} s" if lag.rows else ""
    )
    advice = "see the logs of the workers, or run `backstay broker off` if there is no broker any more"
    return Finding("hints", lag.age_ms <= HINT_LATE_MS, says, advice)


def skew(database_ms: int, here_ms: int) -> Finding:
    apart = abs(database_ms - here_ms)
    advice = "set this machine's clock by NTP; the database's clock decides leases, retries and deadlines"
    return Finding("clock", apart <= SKEW_MS_MAX, f"{apart / 1000:.1f} s from the database's", advice)


def crewed(backlog: "list[Backlog]", alive: "list[WorkerView]", requests: Container[str] = ()) -> Iterator[Finding]:
    """Whether somebody runs what there is to run. Requests may wait for their run to be gone on with: that is fine."""
    yield Finding("workers", True, f"{len(alive)} alive")
    for waiting in backlog:
        runs = sum(waiting.handler in worker.handlers for worker in alive)
        says = f"{output.count(waiting.items, 'item')} unfinished, {output.count(runs, 'live worker')}"
        check = f"handler {waiting.handler}"
        if waiting.handler in requests:
            go_on = "" if runs else f"; to go on: the same `backstay run`, or {again('worker')}"
            yield Finding(check, True, says + go_on)
        else:
            advice = f"start a worker whose application has the handler {waiting.handler!r}"
            yield Finding(check, runs > 0, says, advice)
