"""The API under /api: a file per noun."""

from fastapi import APIRouter

from backstay.server.api import (
    callbacks,
    dead_letters,
    events,
    items,
    jobs,
    providers,
    results,
    schedules,
    stats,
    submit,
    uploads,
    webhooks,
)


def routers() -> list[APIRouter]:
    return [
        stats.health_router,
        submit.router,
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
        callbacks.router,
        results.late_router,
    ]
