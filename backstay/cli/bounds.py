"""`backstay budget …`: ceilings that several jobs share. `bounds` and `profiles`: what the configuration allows."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Dollars, LazyGroup, Name, json_option, place_options
from backstay.core.errors import BackstayError

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.core.limits import Limits
    from backstay.core.money import Budget


COMMANDS = {
    "set": ("backstay.cli.bounds:set_", "Set or change a budget."),
    "list": ("backstay.cli.bounds:list_", "List the budgets and how much of each is used."),
    "remove": ("backstay.cli.bounds:remove", "Remove a budget."),
}
F = TypeVar("F", bound=Callable[..., Any])
PERIODS = click.Choice(["month", "day", "total"])

budget = LazyGroup(
    "budget",
    lazy=COMMANDS,
    examples=(
        "backstay budget set 50 --owner ada",
        "backstay budget set 5 --handler convert --period day",
        "backstay budget list",
    ),
    help="Sets, lists or removes budgets: the most that jobs of an owner or a handler may spend together.",
    no_args_is_help=True,
)


def _scope(command: F) -> F:
    """The options that say which jobs a budget covers."""
    for option in (
        click.option("--period", type=PERIODS, default="month", show_default=True, help="Months and days are in UTC."),
        click.option("--handler", type=Name(), metavar="NAME", help="Only jobs of this handler. Default: all."),
        click.option("--owner", type=Name(), metavar="NAME", help="Only jobs of this owner. Default: all."),
    ):
        command = option(command)
    return command


@click.command(
    "set",
    cls=Command,
    examples=("backstay budget set 50 --owner ada", "backstay budget set 0.5 --handler convert --period day"),
)
@click.argument("limit", type=Dollars(), metavar="DOLLARS")
@_scope
@place_options
@json_option
def set_(limit: int, owner: str | None, handler: str | None, period: str, db: str | None, as_json: bool) -> None:
    """Sets a budget. A call is made only if the most that it can cost fits under every budget that covers it."""
    from backstay.core.money import Period

    async def act(client: "Client") -> "Budget":
        made = await client.store.budgets.set(owner or "", handler or "", Period(period), limit)
        await client.store.notify()
        await _note_unknown(client, made.handler)
        return made

    _show(database_choice.with_client(database_choice.open_app(db, must_exist=False), act), as_json)


async def _note_unknown(client: "Client", handler: str) -> None:
    """A misspelt name covers nothing. It is no error: the first worker with this handler may start later."""
    from backstay.handlers.function import unknown_handler

    known = {name for worker in await client.store.workers.page() for name in worker.handlers}
    if handler and not handler.startswith("@") and known and handler not in known:
        hint = unknown_handler(handler, sorted(name for name in known if "#" not in name)).hint
        output.note(f"no worker has run the handler {handler!r} on this database; {hint}")


@click.command("list", cls=Command, examples=("backstay budget list", "backstay budget list --json"))
@place_options
@json_option
def list_(db: str | None, as_json: bool) -> None:
    """Lists the budgets: the amounts used, reserved for running calls, and left."""
    found = database_choice.with_client(database_choice.open_app(db), read_budgets)
    if as_json:
        for one in found:
            output.data(output.as_json(_object(one)))
    elif found:
        output.table(("OWNER", "HANDLER", "PERIOD", "LIMIT", "USED", "UNDER WAY", "LEFT"), map(_row, found))
    else:
        output.note("there are no budgets; `backstay budget set 50 --owner NAME` sets one")


@click.command("remove", cls=Command, examples=("backstay budget remove --owner ada",))
@_scope
@place_options
@json_option
def remove(owner: str | None, handler: str | None, period: str, db: str | None, as_json: bool) -> None:
    """Removes a budget. Items that it stopped run again."""
    from backstay.core.money import Period

    async def act(client: "Client") -> None:
        await client.store.budgets.remove(owner or "", handler or "", Period(period))
        await client.store.notify()

    database_choice.with_client(database_choice.open_app(db), act)
    output.data(output.as_json({"removed": True}) if as_json else "the budget is removed")


async def read_budgets(client: "Client") -> "list[Budget]":
    """All budgets as they stand now: in a new period nothing is used."""
    now = (await client.store.providers.holds()).now
    return [one.at(now) for one in await client.store.budgets.all()]


def _show(made: "Budget", as_json: bool) -> None:
    from backstay.core.display import show_ceiling
    from backstay.core.money import describe_budget

    if as_json:
        output.data(output.as_json(_object(made)))
    else:
        output.data(f"{describe_budget(made)}: {show_ceiling(made.limit_micros)}")


def _object(one: "Budget") -> dict[str, object]:
    names = ("owner", "handler", "period", "limit_micros", "used_micros", "reserved_micros", "left_micros", "ends_at")
    return {name: getattr(one, name) for name in names}


def _row(one: "Budget") -> tuple[object, ...]:
    from backstay.core.display import show_ceiling, show_money

    sums = (show_money(one.used_micros), show_money(one.reserved_micros), show_money(max(one.left_micros, 0)))
    return one.owner or "all", one.handler or "all", one.period, show_ceiling(one.limit_micros), *sums


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
    from backstay.core import limits as core
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
        output.data(f"{describe_budget(budget)}: {limit}, {left} left")
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

    from backstay.core.limits import PROFILES as named

    if as_json:
        for name, limits in named.items():
            output.data(output.as_json({"profile": name, **asdict(limits)}))
        return
    columns: list[Limits] = list(named.values())
    rows = ((field, *(f"{getattr(limits, field):g}" for limits in columns)) for field in _limits_that_differ(columns))
    output.table(("LIMIT", *named), rows)
    output.note("all other limits are the same in all three profiles; --json shows every limit")


def _limits_that_differ(columns: "list[Limits]") -> list[str]:
    names = type(columns[0]).__slots__
    return [name for name in names if len({getattr(limits, name) for limits in columns}) > 1]
