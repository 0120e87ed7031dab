"""`backstay job …`: shows one job, acts on it, and reads its results."""

from typing import TYPE_CHECKING, NamedTuple

import click

from backstay.cli import database_choice, output
from backstay.cli.command import (
    Command,
    Dollars,
    Duration,
    LazyGroup,
    job_argument,
    json_option,
    next_command,
    place_options,
)
from backstay.cli.jobs import show_state
from backstay.cli.output import show_moment
from backstay.core.errors import UsageError
from backstay.core.models import ANSWER_FLAWS

if TYPE_CHECKING:
    from backstay.client import Client
    from backstay.core.why_waiting import Reason
    from backstay.store.item_views import EventView
    from backstay.store.job_views import FailureGroup, JobView
    from backstay.store.results import ResultRow

MESSAGE_CHARACTERS_MAX = 200

# How the acts in a job's history read to people.
_ACTS = {
    "cancel_asked": "cancel requested",
    "timed_out": "timed out",
    "unknown_booked": "unknown money booked as spent",
    "unknown_released": "unknown money given back to the budget",
}


class FailureGroupLine(NamedTuple):
    """Failed items with one error code, and an example with its message."""

    error_code: str | None
    items: int
    example: str
    message: str | None


COMMANDS = {
    "show": ("backstay.cli.job:show", "Show a job: its progress, failures and history."),
    "watch": ("backstay.cli.job:watch", "Follow a job until it ends."),
    "pause": ("backstay.cli.job:pause", "Pause a job: start no more of its items."),
    "resume": ("backstay.cli.job:resume", "Resume a paused job."),
    "cancel": ("backstay.cli.job:cancel", "Cancel a job. Waiting items end now; running calls may finish."),
    "retry": ("backstay.cli.job:retry", "Queue every failed item of a job again."),
    "accept-late": ("backstay.cli.job:accept_late", "Accept the late results of a job's failed items."),
    "budget": ("backstay.cli.job:budget", "Change the budget of a job."),
    "settle-unknown": ("backstay.cli.job:settle_unknown", "Decide about money that may have been spent."),
    "results": ("backstay.cli.job:results", "Print the results of a job as JSON Lines, in the order of submission."),
}

job = LazyGroup(
    "job",
    lazy=COMMANDS,
    examples=("backstay job show 12", "backstay job watch 12 --timeout 1h", "backstay job results 12 > out.jsonl"),
    help="Shows, watches, pauses, resumes, cancels or retries a job, and reads its results. Accepts late results, and "
    "books or releases money that may have been spent. Changes its budget.",
    no_args_is_help=True,
)


@click.command("show", cls=Command, examples=("backstay job show 12", "backstay job show 12 --json"))
@job_argument
@place_options
@json_option
def show(job_id: int, db: str | None, as_json: bool) -> None:
    """Shows a job: its progress, why it waits, its failures by kind, and its history."""

    from backstay.store.item_views import read_job_story

    app = database_choice.open_app(db)
    lease_ms = app.limits.lease_ms

    async def read(client: "Client") -> "tuple[JobView, list[Reason], list[FailureGroupLine], list[EventView]]":
        view, reasons = await read_job_story(client.store, job_id, client.owner, lease_ms, shows_reason=True)
        groups = [await _failure_line(client, group) for group in await client.store.job_views.failures(job_id)]
        return view, reasons, groups, await client.store.events.oldest(f"job:{job_id}")

    view, reasons, failures, events = database_choice.with_client(app, read)
    if as_json:
        output.data(output.as_json(_job_object(view, reasons, failures, events)))
        return
    print_job(view)
    for reason in reasons:
        output.data(f"waits: {reason.text}")
    for group in failures:
        why = f": {group.message}" if group.message else ""
        output.data(f"failed with {group.error_code or 'no code'}: {group.items:,}, for example {group.example}{why}")
    for event in events:
        output.data(
            f"{show_moment(event.at)}  {_ACTS.get(event.act, event.act)}"
            + (f": {event.detail}" if event.detail else "")
        )


def _job_object(
    view: "JobView", reasons: "list[Reason]", failures: "list[FailureGroupLine]", events: "list[EventView]"
) -> dict[str, object]:
    named = {name: getattr(view, name) for name in view.__slots__}
    said = {"reasons": [reason._asdict() for reason in reasons], "failures": [group._asdict() for group in failures]}
    return {**named, "done": view.done, **said, "events": [event._asdict() for event in events]}


async def _failure_line(client: "Client", group: "FailureGroup") -> FailureGroupLine:
    """With the message of the last attempt of the example."""
    from backstay.core.ids import show_item

    attempts = await client.store.item_views.attempts(group.example)
    message = attempts[-1].message if attempts else None
    if message and len(message) > MESSAGE_CHARACTERS_MAX:
        message = f"{message[: MESSAGE_CHARACTERS_MAX - 1]}…"
    return FailureGroupLine(group.error_code, group.items, show_item(group.example), message)


def _state(view: "JobView") -> str:
    if view.ended or not view.stop_reason:
        return show_state(view)
    return "being cancelled" if view.stop_reason == "cancel" else f"{view.state}, being stopped ({view.stop_reason})"


def _cost(view: "JobView") -> str | None:
    """Of a job that costs money; nothing spent may also mean that no price is known."""
    from backstay.core.display import show_money

    if view.budget_micros is None and not view.used_micros:
        return None
    ceiling = "" if view.budget_micros is None else f" of a budget of {show_money(view.budget_micros)}"
    aside = f", {show_money(view.reserved_micros)} more is reserved" if view.reserved_micros else ""
    unknown = f", {show_money(view.unknown_micros)} more may have been spent" if view.unknown_micros else ""
    return f"{show_money(view.spent_micros)}{ceiling}{aside}{unknown}"


def print_job(view: "JobView") -> None:
    done = view.done - view.cancelled  # which have a line of their own
    counts = ("succeeded", "failed", "skipped", "cancelled", "repeats", *ANSWER_FLAWS)
    output.record(
        (
            ("job", str(view.id)),
            ("state", _state(view) + ("" if view.sealed or view.waits_for else ", still being submitted")),
            ("handler", view.handler),
            ("fallback", view.fallback),
            ("waits for", f"job {', '.join(view.waits_for)}" if view.waits_for else None),
            ("label", view.label),
            ("items", f"{done:,} of {view.total:,} done, {view.processing:,} at the provider"),
            ("known before", f"{view.known:,}, left out of this job" if view.known else None),
            ("reused", f"{view.reused:,} answers of earlier runs" if view.reused else None),
            *((name, f"{getattr(view, name):,}" if getattr(view, name) else None) for name in counts),
            ("cost", _cost(view)),
            ("priority", str(view.priority) if view.priority else None),
            *((name, getattr(view, name)) for name in ("retry", "delivery", "idempotency_key")),
            ("created", show_moment(view.created_at)),
            ("started", show_moment(view.started_at) if view.started_at else None),
            ("ended", show_moment(view.finished_at) if view.finished_at else None),
            ("deadline", show_moment(view.deadline_at) if view.deadline_at else None),
            ("time limit", None if view.ended else show_moment(view.timeout_at)),
        )
    )


@click.command(
    "watch",
    cls=Command,
    examples=("backstay job watch 12", "backstay job watch 12 --timeout 30m", "backstay job watch 12 --json"),
)
@job_argument
@click.option("--timeout", type=Duration(), help="Give up waiting after this time, with exit code 6.")
@place_options
@json_option
@click.pass_context
def watch(ctx: click.Context, job_id: int, timeout: float | None, db: str | None, as_json: bool) -> None:
    """Follows a job until it ends.

    The exit code is 0 when every item succeeded, 3 when items failed, 7 when its budget is reached and 1 when the job
    was cancelled. Ctrl-C stops watching; the job continues.
    """
    from backstay.cli.jobs import watching

    app = database_choice.open_app(db)
    try:
        with watching(as_json) as seen:
            view = database_choice.with_client(app, lambda client: client.job(job_id).wait(seen.show, timeout))
    except KeyboardInterrupt:
        output.note(f"job {job_id} continues; to watch it again: {next_command(f'job watch {job_id}')}")
        ctx.exit(130)
    if not as_json:
        print_job(view)
    if view.held_by_budget:
        output.note("its budget is reached; to resume: the same `backstay run` or `submit` with a higher --budget")
        ctx.exit(7)
    if view.failed or view.state == "failed":
        output.note(f"{output.count(view.failed, 'item')} failed; to see why: {next_command(f'job show {job_id}')}")
        ctx.exit(3)
    ctx.exit(1 if view.state == "cancelled" else 0)


def _act_on_job(db: str | None, job_id: int, verb: str, as_json: bool) -> None:
    """Calls a method of the job, and shows its state afterwards."""

    async def act(client: "Client") -> "tuple[int | None, JobView]":
        changed = await getattr(client.job(job_id), verb)()
        return changed, await client.job(job_id).show()

    changed, view = database_choice.with_client(database_choice.open_app(db), act)
    if as_json:
        more: dict[str, object] = {} if changed is None else {"items": changed}
        if verb == "cancel":
            more["stop_reason"] = view.stop_reason
        output.data(output.as_json({"job": job_id, "act": verb, "state": view.state, **more}))
    elif changed is not None:
        queued = output.count(changed, "item")
        output.data(f"job {job_id} is {_state(view)}, {queued} {'is' if changed == 1 else 'are'} queued again")
    else:
        still = "; running calls may finish" if verb == "cancel" and not view.ended else ""
        output.data(f"job {job_id} is {_state(view)}{still}")


@click.command("pause", cls=Command, examples=("backstay job pause 12",))
@job_argument
@place_options
@json_option
def pause(job_id: int, db: str | None, as_json: bool) -> None:
    """Pauses a job: no more of its items start; running items finish."""
    _act_on_job(db, job_id, "pause", as_json)


@click.command("resume", cls=Command, examples=("backstay job resume 12",))
@job_argument
@place_options
@json_option
def resume(job_id: int, db: str | None, as_json: bool) -> None:
    """Resumes a paused job. The time it was paused does not count against its time limit."""
    _act_on_job(db, job_id, "resume", as_json)


@click.command("cancel", cls=Command, examples=("backstay job cancel 12",))
@job_argument
@place_options
@json_option
def cancel(job_id: int, db: str | None, as_json: bool) -> None:
    """Cancels a job. Waiting items end now; running calls get up to 10 minutes to finish. Results are kept.

    Cancelled items cannot be retried; to resume a job later, use `backstay job pause` instead.
    """
    _act_on_job(db, job_id, "cancel", as_json)


@click.command("retry", cls=Command, examples=("backstay job retry 12", "backstay job retry 12 --json"))
@job_argument
@place_options
@json_option
def retry(job_id: int, db: str | None, as_json: bool) -> None:
    """Queues every failed item of a job again and resets its attempts."""
    _act_on_job(db, job_id, "retry", as_json)


@click.command("accept-late", cls=Command, examples=("backstay job accept-late 12",))
@job_argument
@place_options
@json_option
def accept_late(job_id: int, db: str | None, as_json: bool) -> None:
    """Accepts the late results of failed items: those items succeed.

    A late result came after the time limit or the deadline of its item. `backstay job results JOB --failed` shows such
    items with the flaw `late`. Once they are accepted, the same `backstay run` command writes them to its results.
    """

    async def act(client: "Client") -> "tuple[int, JobView]":
        accepted = await client.job(job_id).accept_late()
        return accepted, await client.job(job_id).show()

    accepted, view = database_choice.with_client(database_choice.open_app(db), act)
    if as_json:
        output.data(output.as_json({"job": job_id, "act": "accept_late", "items": accepted, "state": view.state}))
    else:
        output.data(f"job {job_id} is {_state(view)}, {output.count(accepted, 'late result')} accepted")


@click.command("budget", cls=Command, examples=("backstay job budget 12 25.00",))
@job_argument
@click.argument("dollars", type=Dollars(), metavar="DOLLARS")
@place_options
@json_option
def budget(job_id: int, dollars: int, db: str | None, as_json: bool) -> None:
    """Raises or lowers the budget of a job that has one. A job that it stopped resumes if the next item fits."""
    from backstay.core.display import show_ceiling

    async def act(client: "Client") -> "JobView":
        await client.job(job_id).set_budget(dollars)
        return await client.job(job_id).show()

    view = database_choice.with_client(database_choice.open_app(db), act)
    if as_json:
        output.data(output.as_json({"job": job_id, "budget_micros": dollars, "spent_micros": view.spent_micros}))
    else:
        output.data(f"job {job_id} has a budget of {show_ceiling(dollars)}")


@click.command(
    "settle-unknown",
    cls=Command,
    examples=("backstay job settle-unknown 12 --book", "backstay job settle-unknown 12 --release --amount 1.92"),
)
@job_argument
@click.option("--book/--release", "paid", default=None, help="Book: the money was paid. Release: it was not.")
@click.option("--amount", type=Dollars(), metavar="DOLLARS", help="Only this amount. Default: all of it.")
@click.option(
    "--expected", type=Dollars(), metavar="DOLLARS", help="Change nothing unless the unknown amount is this one."
)
@place_options
@json_option
def settle_unknown(
    job_id: int, paid: bool | None, amount: int | None, expected: int | None, db: str | None, as_json: bool
) -> None:
    """Settles money that a job may have spent: the answers to some calls were lost, so nobody knows if they were paid.

    `backstay job show` shows the sum; check it against the provider's bill. --book counts it as spent, --release gives
    it back to the budget. The job's history records the decision.
    """
    from backstay.core.display import show_ceiling

    if paid is None:
        raise UsageError("give --book or --release", hint="--book: the money was paid; --release: it was not")

    async def act(client: "Client") -> "tuple[int, JobView]":
        settled = await client.job(job_id).settle_unknown(paid, amount, expected)
        return settled, await client.job(job_id).show()

    settled, view = database_choice.with_client(database_choice.open_app(db), act)
    if as_json:
        said = {"job": job_id, "act": "book" if paid else "release", "micros": settled}
        output.data(output.as_json({**said, "spent_micros": view.spent_micros, "unknown_micros": view.unknown_micros}))
        return
    done = "is booked as spent" if paid else "is given back to the budget"
    left = f"; {show_ceiling(view.unknown_micros)} is still unknown" if view.unknown_micros else ""
    output.data(f"job {job_id}: {show_ceiling(settled)} {done}{left}")


@click.command(
    "results",
    cls=Command,
    examples=("backstay job results 12 > results.jsonl", "backstay job results 12 --failed | head"),
)
@job_argument
@click.option("--failed", is_flag=True, help="Only the items that failed.")
@place_options
@json_option
def results(job_id: int, failed: bool, db: str | None, as_json: bool) -> None:
    """Prints the items that have ended as JSON Lines, in the order of submission, with or without --json."""

    async def stream(client: "Client") -> None:
        async for row in client.store.results.all(job_id, client.owner):
            if not failed or row.state == "failed":
                output.data(_result_line(row))

    database_choice.with_client(database_choice.open_app(db), stream)


def _result_line(row: "ResultRow") -> str:
    """Payload and result are inserted as they are stored, so that no number loses a digit."""
    from backstay.core.ids import position_of, show_item

    head = {"item": show_item(row.id), "position": position_of(row.id), "state": row.state}
    tail = {
        "error_code": row.error_code,
        "message": row.message,
        "attempts": row.attempt_count,
        "repeats": row.repeats,
        "flaw": row.flaw,
    }
    bodies = f'"payload": {row.body}, "value": {row.result or "null"}'
    return f"{output.as_json(head)[:-1]}, {bodies}, {output.as_json(tail)[1:]}"
