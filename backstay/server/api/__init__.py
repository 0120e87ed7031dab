"""The API under /api: a file per noun."""

from fastapi import APIRouter

from backstay.server.api import (
    alarms,
    archives,
    callbacks,
    dead_letters,
    events,
    health,
    item_results,
    items,
    jobs,
    late,
    logs,
    providers,
    results,
    stats,
    submit,
    uploads,
    webhooks,
)


def routers() -> list[APIRouter]:
    return [
        health.router,
        submit.router,
        jobs.router,
        items.router,
        item_results.router,
        logs.router,
        uploads.router,
        results.router,
        archives.router,  # before dead letters, whose ids may be anything
        dead_letters.router,
        events.router,
        providers.router,
        alarms.router,
        stats.router,
        webhooks.router,
        callbacks.router,
        late.router,
    ]
