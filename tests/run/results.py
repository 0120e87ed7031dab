"""Ended items to write, and the files that were written as a reader sees them."""

import json
from collections.abc import AsyncIterator, Iterable, Sequence
from pathlib import Path
from typing import Any

from backstay.run.output import ResultFiles, errors_path
from backstay.run.result_file import EndedRequest
from backstay.store.results import Copy

JOB = 12


def answer(position: int, words: str = "hello") -> str:
    """What the store keeps of a success: the text of a Batch response object."""
    body = json.dumps({"choices": [{"message": {"content": f"{words} {position}"}}]})
    return f'{{"status_code":200,"request_id":"req_{position}","body":{body}}}'


def good(position: int, *copies: str, words: str = "hello") -> EndedRequest:
    return EndedRequest(
        position, f"request-{position}", True, answer(position, words), copies=numbered(copies, position)
    )


def bad(position: int, *copies: str, message: str = "it was down") -> EndedRequest:
    return EndedRequest(position, f"request-{position}", False, None, "GW_5XX", message, numbered(copies, position))


def numbered(names: Sequence[str], position: int = 0) -> tuple[Copy, ...]:
    """Each with a place of its own among all requests."""
    return tuple(Copy(position, number, name) for number, name in enumerate(names, 10 * position + 2))


def apart(ended: EndedRequest) -> list[EndedRequest]:
    """An item and its copies, as they are given when each has a place of its own."""
    copies = [ended._replace(custom_id=copy.custom_id, number=copy.number, copies=()) for copy in ended.copies]
    return [ended._replace(copies=()), *copies]


def lines_in(path: Path) -> list[dict[str, Any]]:
    """Every line whole and valid; a file that is not there has none."""
    if not path.exists():
        return []
    data = path.read_bytes()
    assert data == b"" or data.endswith(b"\n")
    return [json.loads(line) for line in data.splitlines()]


def ids_in(path: Path) -> list[str]:
    return [line["custom_id"] for line in lines_in(path)]


def standing(out: Path) -> tuple[list[str], list[str]]:
    """The custom_ids in the results and in the errors."""
    return ids_in(out), ids_in(errors_path(out))


def written(out: Path, *rows: EndedRequest) -> None:
    with ResultFiles(out, JOB) as files:
        files.write(rows)


async def stream(rows: Iterable[EndedRequest]) -> AsyncIterator[EndedRequest]:
    for row in rows:
        yield row
