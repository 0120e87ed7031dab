"""OpenAI's Files and Batches, as its official client speaks them."""

from fastapi import APIRouter


def routers() -> list[APIRouter]:
    return []
