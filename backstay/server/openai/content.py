"""The bytes of files: from the artifacts, or line by line from the job that a file stands for."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Final

from backstay.core.outcomes import Flaw
from backstay.llm.requests import unseal
from backstay.run.result_line import CANCELLED, Ended, ended_of, lines_of
from backstay.server.service import Service
from backstay.store.files import INPUT, OUTPUT, StoredFile
from backstay.store.result_views import Copy, ResultRow
from backstay.store.store import Store

BATCH_EXPIRED: Final = "batch_expired"
BUDGET_EXCEEDED: Final = "budget_exceeded"
EXPIRED_WORDS: Final = "This request could not be executed before the completion window expired."
BUDGET_WORDS: Final = "The budget of the batch was too small for this request."


async def content(service: Service, file: StoredFile, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
    """All of a file, or of one among the artifacts the bytes from `start` up to `end`."""
    if file.blob is not None:
        async for chunk in service.artifacts.get(file.blob, start, end):
            yield chunk
    elif file.job_id is not None and file.part == INPUT:
        async for chunk in request_lines(service.store, file.job_id):
            yield chunk
    elif file.job_id is not None:
        async for chunk in result_lines(service.store, file.job_id, ok=file.part == OUTPUT, copies=True):
            yield chunk


async def result_lines(
    store: Store, job_id: int, *, ok: bool, copies: bool, out_of_money: bool = False
) -> AsyncIterator[bytes]:
    """What has ended so far, in the Batch output format: what succeeded, or what did not. A run's items may answer for
    `copies` under other names as well; what was cancelled may have been so because it was `out_of_money`."""
    async for rows in store.batches.results(job_id, ok):
        names = await store.views.copies_of([row.id for row in rows]) if copies else {}
        lines = (_ended(row, names.get(row.id, ()), out_of_money) for row in rows)
        yield b"".join(lines_of(job_id, line) for line in lines)


def _ended(row: ResultRow, copies: Sequence[Copy], out_of_money: bool) -> Ended:
    line = ended_of(row, copies)
    if out_of_money and line.code == CANCELLED:
        return line._replace(code=BUDGET_EXCEEDED, message=BUDGET_WORDS)
    if row.expired and row.flaw not in (Flaw.UNKNOWN, Flaw.LATE):  # those may be paid, or are
        return line._replace(response=None, code=BATCH_EXPIRED, message=EXPIRED_WORDS)
    return line


async def request_lines(store: Store, job_id: int) -> AsyncIterator[bytes]:
    """What a job asks, in the Batch format; the bodies are as they were given."""
    async for bodies in store.batches.requests(job_id):
        yield "".join(_request_line(body) for body in bodies).encode("utf-8", "backslashreplace")


def _request_line(stored: str) -> str:
    custom_id, url, body, _ = unseal(stored)
    return f'{{"custom_id":{json.dumps(custom_id)},"method":"POST","url":{json.dumps(url)},"body":{body}}}\n'
