"""The API under /api: a file per noun."""

from fastapi import APIRouter

from backstay.server.api import (
    dead_letters,
    events,
    items,
    jobs,
    providers,
    results,
    schedules,
    stats,
    uploads,
    webhooks,
)


def routers() -> list[APIRouter]:
    return [
        stats.health_router,
        jobs.router,
        items.router,
        uploads.router,
        results.router,
        dead_letters.archives_router,  # before dead letters, whose ids may be anything
        dead_letters.router,
        events.router,
        providers.router,
        schedules.router,
        stats.alarms_router,
        stats.router,
        webhooks.router,
        results.callbacks_router,
        results.late_router,
    ]
