"""A tick as an AWS Lambda function, `backstay.aws_lambda.handler`: it calls itself again while there is work to do."""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any, Final

from backstay import wiring
from backstay.app import Backstay
from backstay.cli import database_choice, output
from backstay.cli.worker import check_depth, equipped_app
from backstay.clock import Clock
from backstay.core.errors import BackstayError, UsageError
from backstay.core.limits import RANGES, Limits
from backstay.engine.tick import Tick, TickReport
from backstay.observe.logs import Logs
from backstay.observe.metrics import Metrics

# What a tick may need after its time: final writes to the database, the call for a follow-up, and closing.
STOP_SECONDS: Final = 20.0
INVOKE_SECONDS: Final = 5.0
DEPTH: Final = "chain_depth"
NAMESPACE: Final = "Backstay"
SAID_MAX: Final = 100  # characters that an error repeats of a value


Context = Any  # Lambda's context of one invocation; its class is in no package


class FollowUpFailed(BackstayError):
    """The follow-up could not be started; the next scheduled invocation continues the work."""


def handler(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """One invocation. An exception counts as an error of the function and in its alarm; no item is lost."""
    app = database_choice.load_served_app(None)
    depth = depth_of(event)
    check_depth(app, depth)
    metrics = Metrics()
    try:
        with _listening(app, metrics):
            report = database_choice.run(_invoke(app, depth, context))
        return asdict(report)
    finally:
        output.data(output.as_json(_metrics_line(figures_for_alarms(metrics), context.function_name)))
        sys.stdout.flush()


def depth_of(event: object) -> int:
    """An event of a schedule has no depth and starts a chain. An event with a depth that is not valid starts nothing:
    if it counted as 0, a chain could run forever."""
    if not isinstance(event, Mapping):
        raise UsageError(f"the event must be an object, not {repr(event)[:SAID_MAX]}", hint="nothing was run")
    depth = event.get(DEPTH, 0)
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 0:
        raise UsageError(f"{DEPTH} must be a whole number from 0, not {repr(depth)[:SAID_MAX]}", hint="nothing was run")
    return depth


async def _invoke(app: Backstay, depth: int, context: Context) -> TickReport:
    async with equipped_app(app) as slots:
        client = await app.open()
        limits = in_time(app.limits, context.get_remaining_time_in_millis() / 1000)
        made = wiring.parts(client.store, app.handlers, limits, app.bus, app.settings)
        report = await Tick(wiring.engine(app.url, made, slots)).run(depth)
        if report.follow_up:
            try:
                await asyncio.to_thread(_follow_up, context.invoked_function_arn, depth + 1)
            except FollowUpFailed as error:
                await client.store.invocations.fail(report.invocation, error.message)
                raise
        return report


def in_time(limits: Limits, left_seconds: float) -> Limits:
    """The limits, with the invocation's time cut to what Lambda leaves it."""
    seconds = left_seconds - STOP_SECONDS
    if seconds < RANGES["invocation_seconds"][0]:
        hint = f"give the function more than {STOP_SECONDS:g} seconds"
        raise UsageError(f"{left_seconds:.0f} seconds are too few to run anything", hint=hint)
    return replace(limits, invocation_seconds=min(limits.invocation_seconds, seconds))


def _follow_up(function: str, depth: int) -> None:
    """Asks once: a second request after a lost answer could start a second chain, and the schedule continues anyway."""
    # Both are in Lambda's runtime.
    import boto3  # type: ignore[import-untyped]
    from botocore.config import Config  # type: ignore[import-untyped]
    from botocore.exceptions import BotoCoreError, ClientError  # type: ignore[import-untyped]

    patience = Config(connect_timeout=INVOKE_SECONDS, read_timeout=INVOKE_SECONDS, retries={"total_max_attempts": 1})
    try:
        boto3.client("lambda", config=patience).invoke(
            FunctionName=function, InvocationType="Event", Payload=output.as_json({DEPTH: depth}).encode()
        )
    except (BotoCoreError, ClientError) as error:
        raise FollowUpFailed(f"no follow-up of depth {depth}: {error}") from error


@contextmanager
def _listening(app: Backstay, metrics: Metrics) -> Iterator[None]:
    """The application outlives an invocation, and also gets the events of the next one."""
    listeners = (Logs(sys.stderr, app.settings.log_level, as_json=True), metrics)
    for listener in listeners:
        app.bus.subscribe(listener)
    try:
        yield
    finally:
        for listener in listeners:
            app.bus.unsubscribe(listener)


def figures_for_alarms(metrics: Metrics) -> dict[str, float]:
    """The figures that the alarms of the function use."""
    return {
        "Ticks": metrics.value("ticks_total"),
        "ChainsFull": metrics.value("chains_full_total"),
        "ItemsTimedOut": metrics.value("items_timed_out_total"),
        "JobsEnded": sum(metrics.value("jobs_ended_total", state=state) for state in ("completed", "failed")),
        "JobsFailed": metrics.value("jobs_ended_total", state="failed"),
    }


def _metrics_line(values: Mapping[str, float], function: str) -> dict[str, Any]:
    """A log line that CloudWatch turns into metrics."""
    named = [{"Name": name, "Unit": "Count"} for name in values]
    directive = {"Namespace": NAMESPACE, "Dimensions": [["FunctionName"]], "Metrics": named}
    about = {"Timestamp": Clock().now_ms(), "CloudWatchMetrics": [directive]}
    return {"_aws": about, "FunctionName": function, **values}
