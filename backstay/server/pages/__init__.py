"""The pages of the dashboard. Each is a filter, a view of the store and a template."""

from fastapi import APIRouter

from backstay.server.pages import dead_letters, home, item, jobs, keys, layout, operations


def routers() -> list[APIRouter]:
    """Home comes last: its path is the beginning of every other path."""
    pages = (layout, jobs, item, dead_letters, operations, keys, home)
    return [page.router for page in pages]
