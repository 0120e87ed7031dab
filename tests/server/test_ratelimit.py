"""A key's requests are counted in all processes together, and the answer says how many are left."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from backstay.clock import Clock
from backstay.server import request_limits
from backstay.server.cache import PAUSE_SECONDS, SharedState
from backstay.server.request_limits import RateLimit
from tests.server.pages.reader import Reader
from tests.server.rig import Rig, Visitor, rigged
from tests.servers.redis import PrivateRedis

PATH = "/api/openapi.json"
WRONG_KEY = f"bks_{'0' * 12}_{'x' * 43}"


class Still(Clock):
    ms = 1_700_000_040_000
    moved = 0.0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return super().monotonic() + self.moved


@pytest.fixture
def redis() -> Iterator[PrivateRedis]:
    with PrivateRedis() as server:
        yield server


@pytest.fixture
async def rig(sqlite_file_url: str, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rigged(sqlite_file_url, tmp_path / "data", rate_limit_per_minute=5) as made:
        made.service.rate_limit._clock = Still()  # no minute ends while the test counts
        yield made


async def test_the_answer_says_what_is_left_and_one_too_many_says_when_to_come_back(rig: Rig) -> None:
    for left in (4, 3, 2, 1, 0):
        reply = await rig.ada.get(PATH)
        assert reply.status == 200
        assert reply.headers["ratelimit-policy"] == '"requests";q=5;w=60'
        assert reply.headers["ratelimit"] == f'"requests";r={left};t=60'
    reply = await rig.ada.get(PATH)
    assert (reply.status, reply.headers["retry-after"]) == (429, "60")
    assert reply.json["code"] == "GW_4XX"
    assert reply.headers["content-type"] == "application/problem+json"
    assert "x-request-id" in reply.headers


async def test_openai_clients_are_refused_in_their_own_words(rig: Rig) -> None:
    for _ in range(6):
        reply = await rig.ada.get("/v1/nothing")
    assert reply.status == 429
    assert (reply.json["error"]["type"], reply.json["error"]["code"]) == ("rate_limit_error", "rate_limit_exceeded")


async def test_another_key_has_its_own_count_and_a_new_minute_a_new_one(rig: Rig) -> None:
    for _ in range(6):
        await rig.ada.get(PATH)
    assert (await rig.ada.get(PATH)).status == 429
    assert (await rig.bob.get(PATH)).status == 200
    rig.service.rate_limit._clock.ms += 60_000  # type: ignore[attr-defined]
    assert (await rig.ada.get(PATH)).status == 200


async def test_whoever_guesses_keys_is_stopped_by_his_address(rig: Rig) -> None:
    guesses = [rig.holder(f"bks_{n:012x}_{'x' * 43}") for n in range(6)]
    statuses = [(await guess.get("/api/none")).status for guess in guesses]
    assert statuses[-1] == 429
    assert (await rig.ada.get(PATH)).status == 200


async def test_a_header_that_names_another_address_does_not_leave_the_count(rig: Rig) -> None:
    for number in range(6):
        guess = rig.holder(f"bks_{number:012x}_{'x' * 43}")
        reply = await guess.get("/api/jobs", headers={"x-forwarded-for": f"203.0.113.{number}"})
    assert reply.status == 429


async def test_behind_a_proxy_that_is_trusted_each_address_has_its_own_count(
    sqlite_file_url: str, tmp_path: Path
) -> None:
    given: dict[str, Any] = {"rate_limit_per_minute": 5, "trusted_proxies": "10.0.0.0/8, 127.0.0.1"}
    async with rigged(sqlite_file_url, tmp_path / "data", **given) as rig:
        rig.service.rate_limit._clock = Still()
        one, other = ({"x-forwarded-for": f"203.0.113.{number}, 10.1.2.3"} for number in (1, 2))
        statuses = [(await rig.holder(WRONG_KEY).get("/api/jobs", headers=one)).status for _ in range(6)]
        assert statuses == [401] * 5 + [429]
        assert (await rig.holder(WRONG_KEY).get("/api/jobs", headers=other)).status == 401


async def test_bad_keys_logins_and_callbacks_are_counted_apart(rig: Rig) -> None:
    """Who shares an address with someone who guesses keys can still log in, and the other way round."""
    visitor = Reader(rig)
    asked = [(await rig.holder(WRONG_KEY).get("/api/jobs")).status for _ in range(6)]
    assert asked == [401] * 5 + [429]
    assert (await visitor.post("/login", key=rig.ada.key or "")).status == 303
    assert (await rig.holder(None).post("/callbacks/1-0/1/tag", json={})).status == 404
    tries = [(await Reader(rig).post("/login", key="wrong")).status for _ in range(5)]
    assert tries == [403] * 4 + [429]
    rig.service.rate_limit._clock.ms += 60_000  # type: ignore[attr-defined]
    assert [(await Reader(rig).post("/login", key="wrong")).status for _ in range(6)] == [403] * 5 + [429]
    assert (await rig.holder(WRONG_KEY).get("/api/jobs")).status == 401


async def test_health_is_never_refused(rig: Rig) -> None:
    assert {(await rig.holder(None).get("/livez")).status for _ in range(10)} == {200}


async def test_two_servers_count_together_while_redis_answers_and_each_for_itself_when_it_does_not(
    sqlite_file_url: str, tmp_path: Path, redis: PrivateRedis
) -> None:
    given: dict[str, Any] = {"rate_limit_per_minute": 5, "redis_url": redis.url, "secret_key": "k" * 32}
    async with (
        rigged(sqlite_file_url, tmp_path / "a", **given) as one,
        rigged(sqlite_file_url, tmp_path / "b", **given) as two,
    ):
        for rig in (one, two):
            rig.service.rate_limit._clock = Still()
        ada_there = Visitor(two.url, two.session, one.ada.key)
        seen = [(await visitor.get(PATH)).status for visitor in [one.ada, ada_there] * 3]
        assert seen == [200] * 5 + [429]
        redis.kill()
        assert (await two.bob.get(PATH)).status == 200, "never closed"
        assert (await one.ada.get(PATH)).headers["ratelimit"] == '"requests";r=1;t=60', "what was counted here"
        assert [(await one.ada.get(PATH)).status for _ in range(2)] == [200, 429], "never unlimited"


async def test_a_redis_that_lost_its_counts_does_not_give_more_than_was_left(redis: PrivateRedis) -> None:
    clock = Still()
    shared = SharedState(redis.url, clock)
    limit = RateLimit(clock, 3, shared)
    assert [(await limit.hit("a"))[0] for _ in range(2)] == [2, 1]
    redis.kill()
    await limit.hit("b")
    redis.restart()
    clock.moved = PAUSE_SECONDS
    assert [(await limit.hit("a"))[0] for _ in range(2)] == [0, -1]
    await shared.close()


async def test_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_limits, "COUNTED_HERE_MAX", 3)
    limit = RateLimit(Still(), 2)
    left = [(await limit.hit(f"n{n}"))[0] for n in range(6)]
    assert left == [1, 1, 1, 1, 0, -1]
    assert len(limit._here) == 4
