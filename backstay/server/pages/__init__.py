"""The pages: what an operator opens in a browser. Each is a filter, a view of the store and a template."""

from fastapi import APIRouter

from backstay.server.pages import (
    archives,
    assets,
    dead_letters,
    home,
    item,
    job,
    job_acts,
    jobs,
    keys,
    live,
    login,
    providers,
    safety,
    workers,
)


def routers() -> list[APIRouter]:
    """Home is the last: its path is the beginning of all others."""
    return [
        assets.router,
        login.router,
        live.router,
        jobs.router,
        job.router,
        job_acts.router,
        item.router,
        dead_letters.router,
        archives.router,
        providers.router,
        safety.router,
        workers.router,
        keys.router,
        home.router,
    ]
