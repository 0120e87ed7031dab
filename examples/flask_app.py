"""A Flask application that submits jobs and shows them.

    flask --app flask_app run                          # in this folder: curl -H 'content-type: application/json' \
    backstay worker --app flask_app:backstay           #   -d '["a long text"]' http://127.0.0.1:5000/summaries

SHOP_DATABASE says where the database is. A server that forks opens Backstay in each of its processes, at the first use.
"""

import os
from functools import cache

from flask import Flask, abort, request
from flask.typing import ResponseReturnValue

from backstay import Backstay, NotFound, SyncBackstay

backstay = Backstay(os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"))
app = Flask(__name__)


@backstay.handler(retry="gateway", timeout=60)
async def summarise(text: str) -> str:
    return text[:20]  # call your slow, flaky, paid service here


@cache
def sync_backstay() -> SyncBackstay:
    """One for all threads of this process."""
    return SyncBackstay(backstay)


@app.post("/summaries")
def submit_texts() -> ResponseReturnValue:
    job = sync_backstay().submit(summarise, request.get_json())
    return {"job": job.id}, 202


@app.get("/summaries/<int:job_id>")
def show_summaries(job_id: int) -> ResponseReturnValue:
    job = sync_backstay().job(job_id)
    try:
        view = job.show()
    except NotFound:
        abort(404)
    return {"state": view.state, "texts": [result.value for result in job.results()]}
