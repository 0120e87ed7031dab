"""Home: what needs attention, how much is done and at what price, and the jobs that run."""

from typing import Any, Final, NamedTuple

from fastapi import APIRouter, Request, Response

from backstay.core.measures import MINUTE_MS, Measure, together
from backstay.core.states import JobState
from backstay.server.pages import charts, layout
from backstay.server.pages.attention import attention
from backstay.server.pages.forecasts import outlook
from backstay.server.pages.page_request import Visit, seen
from backstay.store.views import Backlog

router = APIRouter(include_in_schema=False)

JOBS_SHOWN: Final = 10
JOBS_LOOKED: Final = 200
QUEUES_SHOWN: Final = 20  # for each of them one more is asked
HOUR: Final = charts.SPANS[0]
DAY_MINUTES: Final = 1_440


class QueueView(NamedTuple):
    backlog: Backlog
    oldest_at: int | None  # of the items that could be started now


@router.get("/")
async def show_home(request: Request) -> Response:
    visit = await seen(request)
    store, now = visit.service.store, visit.service.main.clock.now_ms()
    found = await store.overview.open_jobs(visit.owner, JOBS_LOOKED)
    jobs = sorted(found, key=lambda job: job.state is not JobState.RUNNING)  # else as they came, the newest first
    backlog = await store.listing.backlog(visit.owner)
    largest = sorted(backlog, key=lambda one: -one.items)[:QUEUES_SHOWN]
    queues = [QueueView(one, await store.overview.oldest_waiting(visit.owner, one.handler)) for one in largest]
    return await layout.shown(
        visit,
        "home.html",
        notices=await attention(visit, jobs, backlog),
        jobs=[(job, outlook(job, now)) for job in jobs[:JOBS_SHOWN]],
        more=len(jobs) > JOBS_SHOWN,
        queues=queues,
        smaller_queues=len(backlog) - len(queues),
        unfinished=sum(one.items for one in backlog),
        **await _measured(visit, now),
    )


async def _measured(visit: Visit, now: int) -> dict[str, Any]:
    measures, span = visit.service.store.measures, charts.span_named(visit.asked.get("span"))
    steps = await measures.steps(visit.owner, charts.first_minute(span, now), span.step)
    hour = steps if span is HOUR else await measures.steps(visit.owner, charts.first_minute(HOUR, now), HOUR.step)
    day = (await measures.by_provider(visit.owner, now // MINUTE_MS - DAY_MINUTES)).values()
    return {
        "span": span,
        "spans": charts.SPANS,
        "charts": [make(steps, span, now) for make in (charts.throughput, charts.latency, charts.spend)],
        "hour": together([step.measure for step in hour]) if hour else Measure(),
        "day": together(list(day)) if day else Measure(),
    }
