"""The JSON Schemas say what the code does: both judge alike of good and bad messages, and what is sent fits them."""

import json
import re
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from backstay.core.callbacks import read_tagged_callback
from backstay.core.errors import UsageError
from backstay.core.ids import item_id
from backstay.messaging.messages import Incoming, Poison, Topology, hint, read_work
from tests.house.sources import ROOT
from tests.messaging.remote_rig import message_work
from tests.servers.rabbitmq import PrivateRabbitMQ

SCHEMAS = ROOT / "docs" / "schemas"
PAGE = ROOT / "docs" / "remote.md"
TOLD = {"v": 1, "task": "12-345/3", "tag": "dGFn"}
WORK = {"v": 1, "id": "9", "handler": "ocr", "items": ["12-345", "12-346"]}

GOOD_TOLD: list[dict[str, Any]] = [
    {"status": "progress", "progress": 0},
    {"status": "progress", "progress": 99.5, "more": "is passed over"},
    {"status": "succeeded", "result": None},
    {"status": "succeeded", "result": {"a": [1, "ü"]}, "progress": 100},
    {"status": "succeeded", "result": 1, "progress": None, "error": "is passed over"},
    {"status": "failed", "error": {}},
    {"status": "failed", "error": {"code": "GW_5XX", "message": "busy", "retryable": True, "more": 1}},
    {"status": "failed", "error": {"code": "OF_OUR_OWN"}, "result": 1},
    {"status": "succeeded", "result": 1, "v": 1.0},
]
BAD_TOLD: list[dict[str, Any]] = [
    {},
    {"status": "done"},
    {"status": None},
    {"status": ["failed"]},
    {"status": "progress"},
    {"status": "progress", "progress": None},
    {"status": "progress", "progress": True},
    {"status": "progress", "progress": "5"},
    {"status": "progress", "progress": 101},
    {"status": "progress", "progress": -1},
    {"status": "succeeded"},
    {"status": "succeeded", "result": 1, "progress": "much"},
    {"status": "failed"},
    {"status": "failed", "error": None},
    {"status": "failed", "error": "x"},
    {"status": "failed", "error": {"code": 1}},
    {"status": "failed", "error": {"code": None}},
    {"status": "failed", "error": {"message": []}},
    {"status": "failed", "error": {"retryable": "yes"}},
    *({"status": "succeeded", "result": 1, "v": wrong} for wrong in (2, "1", None, True)),
    *(
        {"status": "succeeded", "result": 1, "task": wrong}
        for wrong in ("", "12-345", "12/3", "a-b/c", 1, None, " 1-0/1")
    ),
    *({"status": "succeeded", "result": 1, "tag": wrong} for wrong in ("", 1, None, "x" * 101)),
]
GOOD_WORK: list[dict[str, Any]] = [{}, {"items": ["1-0"] * 1_000}, {"rest_ms": 5}, {"more": 1}]
BAD_WORK: list[dict[str, Any]] = [
    *({"v": wrong} for wrong in (0, "1", None, True)),
    *({"handler": wrong} for wrong in ("", None, 1)),
    *({"items": wrong} for wrong in ([], None, "1-0", [1], ["1"], ["x-y"], ["1-0", None], ["1-0"] * 1_001)),
    *({"rest_ms": wrong} for wrong in (-1, "5", None, 10**12, 1.5)),
    *({"id": wrong} for wrong in (1, None, "x" * 256, "\xfc")),
]


def schema(name: str) -> jsonschema.Draft202012Validator:
    found = json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return jsonschema.Draft202012Validator(found)


def reads_told(message: Any) -> bool:
    try:
        read_tagged_callback(json.dumps(message).encode())
    except UsageError:
        return False
    return True


def reads_work(message: Any) -> bool:
    return not isinstance(read_work(Incoming(json.dumps(message).encode(), "9", "work")), Poison)


@pytest.mark.parametrize(
    ("said", "good"), [*((said, True) for said in GOOD_TOLD), *((said, False) for said in BAD_TOLD)], ids=str
)
def test_of_a_callback_the_reader_and_the_schema_say_the_same(said: dict[str, Any], good: bool) -> None:
    message = {**TOLD, **said}
    assert reads_told(message) is good
    assert schema("callback").is_valid(message) is good


@pytest.mark.parametrize("message", [[], 1, None, "x", {}, *({n: TOLD[n] for n in TOLD if n != left} for left in TOLD)])
def test_what_is_no_callback_at_all_is_none_to_both(message: Any) -> None:
    assert not reads_told(message)
    assert not schema("callback").is_valid(message)


@pytest.mark.parametrize(
    ("said", "good"), [*((said, True) for said in GOOD_WORK), *((said, False) for said in BAD_WORK)]
)
def test_of_a_hint_the_reader_and_the_schema_say_the_same(said: dict[str, Any], good: bool) -> None:
    message = {**WORK, **said}
    assert reads_work(message) is good
    assert schema("work").is_valid(message) is good


@pytest.mark.parametrize(
    "payload", [{"items": [item_id(12, 3)]}, {"first": item_id(12, 0), "count": 50, "wait_ms": 10**7}]
)
def test_a_hint_as_it_is_published_fits_its_schema(payload: dict[str, Any]) -> None:
    made = hint(Topology(), 9, {"handler": "ocr", "priority": 3, **payload})
    schema("work").validate(json.loads(made.body))


async def test_a_request_and_its_callbacks_fit_their_schemas(
    sqlite_file_url: str, tmp_path: Path, rabbitmq: PrivateRabbitMQ
) -> None:
    async with message_work(sqlite_file_url, tmp_path, rabbitmq) as remote:
        asked = await remote.ask()
        schema("request").validate(asked.body)
        await remote.told(asked, status="succeeded", result=1)
        schema("callback").validate(asked.told(status="succeeded", result=1))
    for left in asked.body:
        assert not schema("request").is_valid({name: asked.body[name] for name in asked.body if name != left})


def test_the_messages_that_the_page_shows_fit_their_schemas() -> None:
    page = PAGE.read_text(encoding="utf-8").partition("## Over RabbitMQ\n")[2]
    shown = [json.loads(block) for block in re.findall(r"^```json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)]
    assert [[name for name in ("request", "callback") if schema(name).is_valid(one)] for one in shown] == [
        ["request"],
        *[["callback"]] * 3,
    ]
    for name in ("work", "request", "callback"):
        assert f"schemas/{name}.json" in page
