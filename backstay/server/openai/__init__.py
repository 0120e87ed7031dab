"""OpenAI's Files and Batches, as its official client speaks them."""

from fastapi import APIRouter

from backstay.server.openai import batches, files, upstream, webhook_endpoints


def routers() -> list[APIRouter]:
    return [files.router, batches.router, upstream.router, webhook_endpoints.router]
