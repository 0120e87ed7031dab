"""The API under /api: a file per noun."""

from fastapi import APIRouter

from backstay.server.api import health


def routers() -> list[APIRouter]:
    return [health.router]
