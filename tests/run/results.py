"""Ended items to write, and the files that were written as a reader sees them."""

import json
from pathlib import Path
from typing import Any

from backstay.run.output import errors_path
from backstay.run.result_line import Ended

JOB = 12


def answer(position: int, words: str = "hello") -> str:
    """What the store keeps of a success: the text of a Batch response object."""
    body = json.dumps({"choices": [{"message": {"content": f"{words} {position}"}}]})
    return f'{{"status_code":200,"request_id":"req_{position}","body":{body}}}'


def good(position: int, *copies: str, words: str = "hello") -> Ended:
    return Ended(position, f"request-{position}", True, answer(position, words), copies=copies)


def bad(position: int, *copies: str, message: str = "it was down") -> Ended:
    return Ended(position, f"request-{position}", False, None, "GW_5XX", message, copies)


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
