"""The pages: what an operator opens in a browser. Each is a filter, a view of the store and a template."""

from fastapi import APIRouter

from backstay.server.pages import (
    dead_letters,
    home,
    item,
    job_acts,
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
    """Home is the last: its path is the beginning of all others."""
    return [
        layout.router,
        login.router,
        live.router,
        jobs.router,
        job_acts.router,
        item.router,
        dead_letters.router,
        providers.router,
        schedules.router,
        safety.router,
        workers.router,
        keys.router,
        home.router,
    ]
