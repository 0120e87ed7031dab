"""Home: notices that need attention, throughput, latency and cost, and the running jobs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Literal, NamedTuple, assert_never

from fastapi import APIRouter, Request, Response

from backstay.core.alarms import WORDING, Alarm
from backstay.core.breaker import Breaker, BreakerState
from backstay.core.ids import show_item
from backstay.core.models import Flaw
from backstay.core.states import JobState
from backstay.server.api.operations import visible_breakers
from backstay.server.pages import figures, layout
from backstay.server.pages.figures import count_of, is_near_budget, outlook, share
from backstay.server.pages.layout import query
from backstay.server.pages.page_request import Visit, visit_to_read
from backstay.store.alarms import AlarmStanding
from backstay.store.dead_letters import UNKNOWN_COUNTED_MAX
from backstay.store.job_views import Backlog, JobView
from backstay.store.measures import MINUTE_MS, Measure, sum_measures
from backstay.store.workers import WorkerView

LATE_LOOKED: Final = 50
LINES_OF_A_KIND: Final = 5
COUNTED_BEYOND: Final = 1_000  # dead letters above the alarm, before it says "or more"

Kind = Literal["bad", "warn", "busy"]


class Notice(NamedTuple):
    kind: Kind
    icon: str
    text: str
    href: str
    place: str  # the words of the link
    until_at: int | None = None


async def attention(visit: Visit, jobs: Sequence[JobView], backlog: Sequence[Backlog]) -> list[Notice]:
    """The notices of Home, the worst first."""
    store, owner = visit.service.store, visit.owner
    alarm = visit.service.backstay.settings.dead_letter_alarm
    lease_ms = visit.service.backstay.limits.lease_ms
    workers = await store.workers.page()
    breakers, _ = await visible_breakers(visit.service, visit.principal)
    found = [
        *_stuck_notices(await store.item_views.stuck_of(owner)),
        *_idle_notices(backlog, [worker for worker in workers if worker.alive(lease_ms)]),
        *_dead_letter_notices(await store.dead_letters.count_since(owner, alarm + COUNTED_BEYOND), alarm),
        *_alarm_notices(await store.alarms.all_raised() if owner == visit.service.main.owner else ()),
        *_unknown_notices(await store.dead_letters.count_unknown(owner)),
        *_budget_notices(jobs),
        *await _late_notices(visit),
        *_provider_notices(breakers.values()),
    ]
    order = ("bad", "warn", "busy")
    return sorted(found, key=lambda notice: order.index(notice.kind))


def _provider_notices(breakers: Iterable[Breaker]) -> Iterator[Notice]:
    busy = [one for one in breakers if one.state is not BreakerState.CLOSED]
    for one in busy[:LINES_OF_A_KIND]:
        words = {BreakerState.OPEN: "its circuit breaker is open", BreakerState.HELD: "it is on hold"}
        state = words.get(one.state, "the next few items test it")
        because = f": {one.reason}" if one.reason else ""
        text = f"Provider {one.provider} busy, jobs resume by themselves; {state}{because}."
        yield Notice("busy", "wait", text, "/providers", "Providers", one.until_at)
    if len(busy) > LINES_OF_A_KIND:
        text = f"{count_of(len(busy) - LINES_OF_A_KIND, 'more provider')} busy, jobs resume by themselves."
        yield Notice("busy", "wait", text, "/providers", "Providers")


def _stuck_notices(items: int) -> Iterator[Notice]:
    if items:
        text = f"{count_of(items, 'item')} of a dead worker wait: no live worker runs their handler."
        yield Notice("bad", "warn", text, "/jobs?state=running", "Running jobs")


def _idle_notices(backlog: Sequence[Backlog], alive: Sequence[WorkerView]) -> Iterator[Notice]:
    served = {handler for worker in alive for handler in worker.handlers}
    idle = [queue for queue in backlog if queue.handler not in served and queue.items]
    for queue in idle[:LINES_OF_A_KIND]:
        text = f"No live worker runs {queue.handler}: {count_of(queue.items, 'item')} wait. Start one: backstay worker"
        yield Notice("bad", "warn", text, query("/jobs", {"handler": queue.handler}), "Its jobs")
    if len(idle) > LINES_OF_A_KIND:
        text = f"No live worker runs {count_of(len(idle) - LINES_OF_A_KIND, 'more handler')} with items that wait."
        yield Notice("bad", "warn", text, "/jobs", "Jobs")


def _dead_letter_notices(items: int, alarm: int) -> Iterator[Notice]:
    if items > alarm:
        many = _count_up_to(items, alarm + COUNTED_BEYOND)
        text = f"{many} failed permanently in the last 24 hours; the alarm threshold is {alarm:,}."
        yield Notice("bad", "warn", text, "/dead-letters", "Dead letters")


def _count_up_to(items: int, counted_max: int) -> str:
    return f"{items:,} or more items" if items >= counted_max else count_of(items, "item")


def _alarm_notices(raised: Iterable[AlarmStanding]) -> Iterator[Notice]:
    """Alarms of the whole database. Dead letters are left out: each owner sees their own at once."""
    for reading in (standing.reading for standing in raised if standing.reading.alarm is not Alarm.DEAD_LETTERS):
        text = f"{reading.words}: {WORDING[reading.alarm].advice}."
        yield Notice("bad", "warn", text, *_alarm_page(reading.alarm))


def _alarm_page(alarm: Alarm) -> tuple[str, str]:
    """The page that shows more, and its name."""
    match alarm:
        case Alarm.DEAD_LETTERS:
            return "/dead-letters", "Dead letters"
        case Alarm.ITEM_TIMEOUTS:
            return "/dead-letters?code=GW_TIMEOUT", "Dead letters"
        case Alarm.FAILED_JOBS:
            return "/jobs?state=failed", "Failed jobs"
        case Alarm.CHAIN_DEPTH:
            return "/safety", "Bounds"
        case Alarm.INVOCATION_ERRORS | Alarm.OUTBOX_LAG | Alarm.OLD_TRANSACTION:
            return "/workers", "Workers"
        case _:
            assert_never(alarm)


def _unknown_notices(items: int) -> Iterator[Notice]:
    if items:
        many = _count_up_to(items, UNKNOWN_COUNTED_MAX)
        text = f"The outcome of {many} is unknown: the calls may have been processed and paid. Please decide."
        yield Notice("warn", "warn", text, f"/dead-letters?flaw={Flaw.UNKNOWN.value}", "Decide")


def _budget_notices(jobs: Sequence[JobView]) -> Iterator[Notice]:
    near = [job for job in jobs if job.held_by_budget or is_near_budget(job)]
    for job in near[:LINES_OF_A_KIND]:
        if job.held_by_budget:
            text = f"Job {job.id} is stopped: its next item could exceed its budget."
        else:
            text = f"Job {job.id} has used {share(job.used_micros, job.budget_micros or 0)} of its budget."
        yield Notice("warn", "warn", text, f"/jobs/{job.id}", f"Job {job.id}")


async def _late_notices(visit: Visit) -> list[Notice]:
    late = await visit.service.store.inbox.late(visit.owner, None, LATE_LOOKED)
    open_ones = [one for one in late if one.accepted_at is None and one.item_state == "failed"]
    return [
        Notice(
            "warn",
            "late",
            f"A late result arrived for item {show_item(one.item_id)}. Accept it or ignore it.",
            f"/items/{show_item(one.item_id)}",
            f"Item {show_item(one.item_id)}",
        )
        for one in open_ones[:LINES_OF_A_KIND]
    ]


router = APIRouter(include_in_schema=False)

JOBS_SHOWN: Final = 10
JOBS_LOOKED: Final = 200
QUEUES_SHOWN: Final = 20  # each of them costs one more query
HOUR: Final = figures.SPANS[0]
CHARTS: Final = (figures.throughput_chart, figures.latency_chart, figures.spend_chart)
DAY_MINUTES: Final = 1_440


class QueueView(NamedTuple):
    backlog: Backlog
    oldest_at: int | None  # of the items that could be started now


@router.get("/")
async def show_home(request: Request) -> Response:
    visit = await visit_to_read(request)
    store, now = visit.service.store, visit.service.main.clock.now_ms()
    found = await store.job_views.open_jobs(visit.owner, JOBS_LOOKED)
    jobs = sorted(found, key=lambda job: job.state is not JobState.RUNNING)  # then the newest first
    backlog = await store.job_views.backlog(visit.owner)
    largest = sorted(backlog, key=lambda one: -one.items)[:QUEUES_SHOWN]
    queues = [QueueView(one, await store.item_views.waiting_since(one.handler, visit.owner)) for one in largest]
    return await layout.show_page(
        visit,
        "home.html",
        notices=await attention(visit, jobs, backlog),
        jobs=[(job, outlook(job, now)) for job in jobs[:JOBS_SHOWN]],
        more=len(jobs) > JOBS_SHOWN,
        queues=queues,
        smaller_queues=len(backlog) - len(queues),
        unfinished=sum(one.items for one in backlog),
        **await _figures(visit, now),
    )


async def _figures(visit: Visit, now: int) -> dict[str, Any]:
    measures, span = visit.service.store.measures, figures.span_named(visit.query.get("span"))
    steps = await measures.steps(visit.owner, figures.first_minute(span, now), span.step)
    hour = steps if span is HOUR else await measures.steps(visit.owner, figures.first_minute(HOUR, now), HOUR.step)
    day = (await measures.by_provider(visit.owner, now // MINUTE_MS - DAY_MINUTES)).values()
    return {
        "span": span,
        "spans": figures.SPANS,
        "charts": [make(steps, span, now) for make in CHARTS],
        "hour": sum_measures([step.measure for step in hour]) if hour else Measure(),
        "day": sum_measures(list(day)) if day else Measure(),
    }
