"""Files of requests for the tests, and what a run would make of them."""

import json
from collections.abc import Callable

from backstay.llm.formats import InputOptions
from backstay.llm.intake import FileSurvey, open_source, requests, survey
from backstay.llm.lines import LlmRequest

CHAT = "/v1/chat/completions"
BODY = '{"model":"m","messages":[]}'

Write = Callable[..., str]


def batch_line(custom_id: object = "a", body: str = BODY, url: str = CHAT, method: str = "POST") -> str:
    return f'{{"custom_id": {json.dumps(custom_id)}, "method": "{method}", "url": "{url}", "body": {body}}}'


def look(file: str, reading: InputOptions = InputOptions()) -> FileSurvey:  # noqa: B008 - it is frozen
    with open_source(file, reading) as source:
        return survey(source)


def sent(file: str, reading: InputOptions = InputOptions()) -> list[LlmRequest]:  # noqa: B008
    """What a run of this file would send; every line of it is good."""
    with open_source(file, reading) as source:
        surveyed = survey(source)
        assert surveyed.bad == []
        return [one.request for one in requests(source, surveyed)]


def reason(file: str, reading: InputOptions = InputOptions()) -> str:  # noqa: B008
    """Why the only line of a file is bad."""
    (bad,) = look(file, reading).bad
    assert bad.line == 1
    return bad.reason
