"""Requests that schemathesis makes from the OpenAPI document: whatever comes in, the service does not fail."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from backstay.llm.endpoint import Endpoint
from backstay.server.service import ServiceOptions
from tests.server.operations import ROLES, Things, made_by_ada
from tests.server.receiver import Receiver
from tests.server.rig import Rig, rigged

EXAMPLES = 5
ANSWER_SECONDS = 20
ENDLESS = ("/events",)
AWKWARD = ("0", "-1", "9" * 30, f"1-{'9' * 30}", "%00", "a%00b", "%F0%9F%A6%86", "%ff", "a%2Fb", "'--", "a" * 4_000)
PASSED_ON = "GET /v1/models"  # what it says is the word of another service


@asynccontextmanager
async def serving(database_url: str, tmp_path: Path, receiver: Receiver) -> AsyncIterator[Rig]:
    options = ServiceOptions(works=False, upstream=Endpoint(f"http://{receiver.place}/v1"))
    place, many = receiver.place, 1_000_000
    async with rigged(
        database_url, tmp_path / "data", options=options, inside_hosts=place, rate_limit_per_minute=many
    ) as made:
        yield made


class Storm:
    """Asks every operation many things, most of them nonsense, half of them about things that are there."""

    def __init__(self, rig: Rig, things: Things) -> None:
        self.failures: list[str] = []
        self.asked: dict[str, int] = {}
        self._session = requests.Session()
        self._session.headers["authorization"] = f"Bearer {rig.ada.key}"
        self._url = rig.url
        self._things = things
        self._schema = schemathesis.openapi.from_dict(rig.app.openapi())
        self._schema.config.update(base_url=rig.url)

    def run(self) -> None:
        for found in self._schema.get_all_operations():
            assert isinstance(found, Ok), found
            operation = found.ok()
            self._ask_all(operation, GenerationMode.POSITIVE)
            # Wrong ids alone take schemathesis a second each to think of; they are asked for by hand.
            if operation.body or operation.query:
                self._ask_all(operation, GenerationMode.NEGATIVE)
            if "{" in operation.path:
                self._ask_awkwardly(f"{operation.method.upper()} {operation.path}")

    def _ask_awkwardly(self, name: str) -> None:
        method, _, path = name.partition(" ")
        for value in AWKWARD:
            url = self._url + re.sub(r"{\w+}", value, path)
            self._judge(name, lambda url=url: {"method": method, "url": url})  # type: ignore[misc]

    def _ask_all(self, operation: Any, mode: GenerationMode) -> None:
        name = f"{operation.method.upper()} {operation.path}"

        @settings(
            max_examples=EXAMPLES,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy(generation_mode=mode))
        def ask(case: Any) -> None:
            self.asked[name] = self.asked.get(name, 0) + 1
            if self.asked[name] % 2:
                known = {
                    key: self._things.named[key] for key in case.path_parameters or {} if key in self._things.named
                }
                case.path_parameters = {**(case.path_parameters or {}), **known}
            self._judge(name, case.as_transport_kwargs)

        try:
            ask()
        except Unsatisfiable:
            assert mode is GenerationMode.NEGATIVE, name  # it takes nothing that could be wrong

    def _judge(self, name: str, given: Callable[[], dict[str, Any]]) -> None:
        try:
            sent = {**given(), "stream": True, "timeout": ANSWER_SECONDS}
            answer = self._session.request(**sent)
        except (requests.exceptions.InvalidURL, requests.exceptions.InvalidHeader, UnicodeEncodeError):
            return  # nothing was sent
        if answer.status_code >= 500 and not (answer.status_code == 502 and name == PASSED_ON):
            self.failures.append(f"{name} -> {answer.status_code}: {sent}"[:1_000])
        elif answer.status_code >= 400:
            said = json.loads(answer.content)
            words = said["error"]["message"] if "error" in said else said["detail"]
            if not words or "\n" in words:
                self.failures.append(f"{name} -> {answer.status_code} says {words!r}")
        elif not name.endswith(ENDLESS):
            assert answer.content is not None  # it comes to its end
        answer.close()


async def ask_everything(rig: Rig, receiver: Receiver) -> None:
    storm = Storm(rig, await made_by_ada(rig, receiver))
    await asyncio.to_thread(storm.run)
    assert storm.failures == []
    assert set(storm.asked) == set(ROLES)
    print(f"{sum(storm.asked.values())} requests")
    assert sum(storm.asked.values()) >= EXAMPLES * len(ROLES)


@pytest.mark.slow
async def test_no_request_makes_the_service_fail(database_url: str, tmp_path: Path, receiver: Receiver) -> None:
    async with serving(database_url, tmp_path, receiver) as rig:
        await ask_everything(rig, receiver)
