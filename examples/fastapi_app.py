"""A FastAPI application that submits jobs, with Backstay's API and dashboard below /backstay.

    uvicorn fastapi_app:app          # in this folder; then open http://127.0.0.1:8000/backstay/

SHOP_DATABASE says where the database is. It needs `pip install 'backstay[service]'`.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, HTTPException

from backstay import Backstay, NotFound
from backstay.server.app import create_app
from backstay.server.service import ServiceOptions

backstay = Backstay(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))


@backstay.handler(retry="gateway", timeout=60)
async def summarise(text: str) -> str:
    return text[:20]  # call your slow, flaky, paid service here


# With a worker inside. `open_here`: programs on this machine need no key. Leave it out behind a proxy.
service = create_app(backstay, ServiceOptions(open_here=True))


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """A mounted application is not started by the one around it. The service opens and closes the database, too."""
    async with service.router.lifespan_context(service):
        yield


app = FastAPI(lifespan=lifespan)
app.mount("/backstay", service)


async def opened() -> Backstay:
    return backstay


Opened = Annotated[Backstay, Depends(opened)]


@app.post("/summaries", status_code=202)
async def submit_texts(texts: list[str], backstay: Opened) -> dict[str, int]:
    job = await backstay.submit(summarise, texts)
    return {"job": job.id}


@app.get("/summaries/{job_id}")
async def show_summaries(job_id: int, backstay: Opened) -> dict[str, Any]:
    job = await backstay.job(job_id)
    try:
        view = await job.show()
    except NotFound:
        raise HTTPException(404, f"no job {job_id}") from None
    return {
        "state": view.state,
        "done": view.done,
        "of": view.total,
        "texts": [one.value async for one in job.results()],
    }
