"""`backstay bounds` and `backstay profiles`: what the configuration allows, before it is found on a bill."""

from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.budget import read_budgets
from backstay.cli.command import Command, json_option, place_options
from backstay.core.errors import BackstayError

if TYPE_CHECKING:
    from backstay.core.limits import Limits
    from backstay.core.money import Budget

PROFILES = click.Choice(["conservative", "balanced", "aggressive"])


@click.command(
    "bounds",
    cls=Command,
    examples=("backstay bounds", "backstay bounds --profile aggressive", "BACKSTAY_TICK_ITEMS_MAX=200 backstay bounds"),
)
@click.option("--profile", type=PROFILES, help="Use this profile instead of the one in the settings.")
@place_options
@json_option
def bounds(profile: str | None, db: str | None, as_json: bool) -> None:
    """Shows the most that the settings allow in one hour of ticks: invocations, items, calls, cost; and the budgets of
    the database, if there is one."""
    from dataclasses import asdict

    from backstay import settings
    from backstay.core import bounds as core
    from backstay.core.display import show_ceiling, show_hours, show_money
    from backstay.core.money import describe_budget

    loaded = settings.load({"profile": profile})
    limits = loaded.bounds()
    worst = core.bounds(limits)
    budgets = _budgets(db)
    if as_json:
        shown = [asdict(budget) for budget in budgets]
        output.data(output.as_json({"profile": loaded.profile, **asdict(worst), "budgets": shown}))
        return
    cost = "unknown" if worst.cost_micros is None else f"{worst.cost_micros / 1_000_000:,.2f}"
    output.record(
        (
            ("profile", loaded.profile),
            ("triggers per hour", f"{worst.triggers:,}"),
            ("invocations per hour", f"{worst.invocations:,} (a chain of depth {limits.chain_depth_max})"),
            ("items per hour", f"{worst.items:,}"),
            ("calls per hour", f"{worst.calls:,}, of which {worst.retries:,} are retries"),
            ("compute minutes per hour", f"{worst.compute_minutes:,}"),
            ("cost per hour", cost),
            ("an item ends within", show_hours(worst.item_life_seconds)),
            ("a job ends within", show_hours(worst.job_life_seconds)),
            ("an LLM item ends within", show_hours(worst.llm_item_life_seconds)),
            ("an LLM job ends within", show_hours(worst.llm_job_life_seconds)),
        )
    )
    for budget in budgets:
        left, limit = show_money(max(budget.left_micros, 0)), show_ceiling(budget.limit_micros)
        output.data(f"{describe_budget(budget)}: {limit}, of which {left} are left")
    output.note("an item that never starts (others go first, or its provider is held) ends when its job ends")
    if worst.cost_micros is None:
        output.note("to see the cost, set the price of a call: BACKSTAY_COST_PER_CALL_MICROS=1500")


def _budgets(db: str | None) -> "list[Budget]":
    """The budgets of the database, unless there is no database yet."""
    target = database_choice.choose(db)
    if database_choice.missing_file(target.url) is not None:
        return []
    try:
        return database_choice.with_client(database_choice.open_target(target), read_budgets)
    except BackstayError as error:  # the limits are worth showing without a database
        output.note(f"the budgets could not be read: {error.message}")
        return []


@click.command("profiles", cls=Command, examples=("backstay profiles", "BACKSTAY_PROFILE=conservative backstay bounds"))
@json_option
def profiles(as_json: bool) -> None:
    """Shows the three predefined sets of limits; BACKSTAY_PROFILE or backstay.toml chooses one."""
    from dataclasses import asdict

    from backstay.core.bounds import PROFILES as named

    if as_json:
        for name, limits in named.items():
            output.data(output.as_json({"profile": name, **asdict(limits)}))
        return
    columns: list[Limits] = list(named.values())
    rows = ((field, *(f"{getattr(limits, field):g}" for limits in columns)) for field in _differing(columns))
    output.table(("LIMIT", *named), rows)
    output.note("all other limits are the same in all three profiles; --json shows every limit")


def _differing(columns: "list[Limits]") -> list[str]:
    names = type(columns[0]).__slots__
    return [name for name in names if len({getattr(limits, name) for limits in columns}) > 1]
