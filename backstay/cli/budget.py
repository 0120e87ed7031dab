"""`backstay budget …`: ceilings that several jobs share, of an owner, a handler, a month or a day."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, LazyGroup, json_option, place_options
from backstay.cli.run_options import Dollars

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.core.money import Budget

COMMANDS = {
    "set": ("backstay.cli.budget:set_", "Set or change a budget."),
    "list": ("backstay.cli.budget:list_", "List the budgets and what is used of them."),
    "remove": ("backstay.cli.budget:remove", "Remove a budget."),
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
        click.option("--period", type=PERIODS, default="month", show_default=True, help="Months and days of UTC."),
        click.option("--handler", default="", metavar="NAME", help="Only jobs of this handler. Default: of all."),
        click.option("--owner", default="", metavar="NAME", help="Only jobs of this owner. Default: of all."),
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
def set_(limit: int, owner: str, handler: str, period: str, db: str | None, as_json: bool) -> None:
    """Sets a budget. A call is made only if the most that it can cost fits under every budget that covers it."""
    from backstay.core.money import Period

    async def act(client: "Client") -> "Budget":
        made = await client.store.budgets.set(owner, handler, Period(period), limit)
        await client.store.notify()
        return made

    _show(database_choice.with_client(database_choice.open_app(db, must_exist=False), act), as_json)


@click.command("list", cls=Command, examples=("backstay budget list", "backstay budget list --json"))
@place_options
@json_option
def list_(db: str | None, as_json: bool) -> None:
    """Lists the budgets, with what is used, what is set aside for calls under way, and what is left."""
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
def remove(owner: str, handler: str, period: str, db: str | None, as_json: bool) -> None:
    """Removes a budget: what it kept from being sent is sent."""
    from backstay.core.money import Period

    async def act(client: "Client") -> None:
        await client.store.budgets.remove(owner, handler, Period(period))
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
