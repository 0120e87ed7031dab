"""The pages of the dashboard. Each is a filter, a view of the store and a template."""

from fastapi import APIRouter

from backstay.server.pages import (
    dead_letters,
    home,
    item,
    jobs,
    keys,
    layout,
    live,
    login,
    providers,
    safety,
    schedules,
    workers,
)


def routers() -> list[APIRouter]:
    """Home comes last: its path is the beginning of every other path."""
    return [
        layout.router,
        login.router,
        live.router,
        jobs.router,
        item.router,
        dead_letters.router,
        providers.router,
        schedules.router,
        safety.router,
        workers.router,
        keys.router,
        home.router,
    ]
