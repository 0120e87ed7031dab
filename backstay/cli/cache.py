"""`backstay cache …`: the answers of earlier runs that later runs may use."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from backstay.cli import database_choice, output
from backstay.cli.command import Command, Duration, LazyGroup, Name, json_option, place_options
from backstay.cli.output import show_moment
from backstay.core.display import show_money
from backstay.core.errors import BackstayError, UsageError

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.llm.forecast import Forecast
    from backstay.llm.repeated_requests import UnknownRequests
    from backstay.run.destination import Destination
    from backstay.run.options import Reuse

COMMANDS = {
    "show": ("backstay.cli.cache:show", "Show how many answers are kept, of which models, how old, at what cost."),
    "clear": ("backstay.cli.cache:clear", "Forget answers, so that the same requests are sent again."),
}

cache = LazyGroup(
    "cache",
    lazy=COMMANDS,
    examples=("backstay cache show", "backstay cache clear --older-than 30d"),
    help="Shows or clears the answers of earlier runs that `run --reuse` uses again.",
    no_args_is_help=True,
)


@click.command("show", cls=Command, examples=("backstay cache show", "backstay cache show --json"))
@place_options
@json_option
def show(db: str | None, as_json: bool) -> None:
    """Shows the answers that a run may use again, by model. COST is what all calls for them have cost."""
    app = database_choice.open_app(db)
    sums = database_choice.with_client(app, lambda client: client.store.answers.sums(client.owner))
    if as_json:
        output.data(output.as_json({"models": [each._asdict() for each in sums]}))
        return
    if not sums:
        output.note("no answers are kept")
        return
    rows = []
    for each in sums:
        ages = (show_moment(each.oldest_at), show_moment(each.newest_at))
        rows.append((each.model or "unknown", f"{each.answers:,}", *ages, show_money(each.cost_micros)))
    output.table(("MODEL", "ANSWERS", "OLDEST", "NEWEST", "COST"), rows)
    answers, cost = sum(each.answers for each in sums), sum(each.cost_micros for each in sums)
    output.note(f"{output.count(answers, 'answer')}; the calls for them have cost {show_money(cost)}")


@click.command(
    "clear",
    cls=Command,
    examples=(
        "backstay cache clear --older-than 30d",
        "backstay cache clear --model gpt-4o-mini",
        "backstay cache clear --all",
    ),
)
@click.option("--older-than", type=Duration(needs_unit=True), help="Forget answers that are at least this old: 30d.")
@click.option("--model", type=Name(), metavar="NAME", help="Forget the answers of this model.")
@click.option("--all", "everything", is_flag=True, help="Forget all answers.")
@place_options
@json_option
def clear(older_than: float | None, model: str | None, everything: bool, db: str | None, as_json: bool) -> None:
    """Forgets answers: the same requests are sent and paid again. Jobs and their results stay.

    --older-than and --model can be used together.
    """
    chosen = older_than is not None or model is not None
    if everything == chosen:
        hint = "give --older-than, --model or both, or --all"
        said = "--all cannot be used with --older-than or --model" if chosen else "no answers are chosen"
        raise UsageError(said, hint=hint)

    async def act(client: "Client") -> int:
        age_ms = None if older_than is None else int(older_than * 1000)
        return await client.store.answers.clear(client.owner, age_ms, model)

    cleared = database_choice.with_client(database_choice.open_app(db), act)
    said = f"{output.count(cleared, 'request')} forgotten: sent again next time; results stay"
    output.data(output.as_json({"cleared": cleared}) if as_json else said)


@contextmanager
def unknown_requests(
    destination: "Destination", forecast: "Forecast", reuse: "Reuse", db: str | None
) -> "Iterator[UnknownRequests | None]":
    """None if there is no database, or answers are not used again. No database is created."""
    from backstay.llm.repeated_requests import RequestKeys, UnknownRequests
    from backstay.store.answers import Search
    from backstay.sync import SyncBackstay

    target = database_choice.choose(db) if reuse.wanted else None
    if target is None or database_choice.missing_file(target.url):
        yield None
        return
    age = reuse.age_seconds
    search = Search(None if age is None else int(age * 1000))
    backstay = SyncBackstay(database_choice.app_on(target))
    try:
        try:
            client = backstay.run(backstay.app.open())
        except BackstayError as error:
            output.note(f"earlier answers are not counted: {error.message}")
            yield None
            return
        yield UnknownRequests(
            forecast,
            lambda api: RequestKeys(client.owner, api, destination.url(api), destination.headers(api)),
            lambda keys: backstay.run(client.store.answers.find(client.owner, keys, search)),
        )
    finally:
        backstay.close()
