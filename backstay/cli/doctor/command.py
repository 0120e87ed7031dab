"""The command itself: who is asked for, how it is printed, and the exit code."""

from typing import Any

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, broker_option, json_option, place_options
from backstay.cli.doctor.examination import DoctorOptions, examine
from backstay.cli.doctor.finding import Finding, Level
from backstay.cli.run_options import api_option

MARKS = {Level.OK: "ok  ", Level.WARN: "WARN", Level.FAIL: "FAIL"}


@click.command(
    "doctor",
    cls=Command,
    examples=(
        "backstay doctor",
        "backstay doctor --base-url https://api.openai.com/v1",
        "backstay doctor --db sqlite:///jobs.db --json | jq 'select(.level != \"ok\")'",
    ),
)
@click.option("--base-url", help="Also check this LLM service. The check lists its models, which costs nothing.")
@api_option
@click.option(
    "--api-key-env",
    help="The environment variable that holds the API key. Default: OPENAI_API_KEY; with another --api, its own.",
)
@click.option("--data", help="Where Backstay keeps files: a folder, or s3://bucket/prefix.")
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
