"""The API under /api: a file per noun; what operators look at is in one."""

from fastapi import APIRouter

from backstay.server.api import dead_letters, events, items, jobs, operations, results, uploads, webhooks


def routers() -> list[APIRouter]:
    return [
        operations.health_router,
        jobs.router,
        items.router,
        uploads.router,
        results.router,
        dead_letters.archives_router,  # before dead letters, whose ids may be anything
        dead_letters.router,
        events.router,
        operations.providers_router,
        operations.schedules_router,
        operations.alarms_router,
        operations.router,
        webhooks.router,
        results.callbacks_router,
        results.late_router,
    ]
