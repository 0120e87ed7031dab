"""What can go wrong: by share and seed, or because a request asked for it."""

import asyncio
import gzip
import json
import zlib
from collections import Counter
from email.utils import parsedate_to_datetime
from random import Random
from typing import Any

import aiohttp
import pytest

from backstay.core.errors import UsageError
from backstay.practice import Faults, Practice, answer_to
from backstay.practice.faults import CUT, FAIL, HANG, NONSENSE, SLOW, THROTTLE, AnyFault, draw_fault
from backstay.practice.replies import gzip_bomb
from tests.practice.visitor import (
    CHAT,
    Answer,
    HeldClock,
    MovedClock,
    Visitor,
    chat_body,
    eventually,
    visiting,
)


async def outcomes(faults: dict[str, Any], backwards: bool = False) -> dict[str, int]:
    """The status that each of 100 different questions gets."""
    async with visiting(**faults) as visitor:
        questions = [f"question {number}" for number in range(100)]
        answers = {said: await visitor.chat(said) for said in (questions[::-1] if backwards else questions)}
    return {said: answer.status for said, answer in answers.items()}


async def test_the_same_seed_gives_the_same_faults_in_any_order() -> None:
    faults = {"seed": 7, "fail": 0.2, "throttle": 0.2}
    assert await outcomes(faults) == await outcomes(faults, backwards=True)
    assert await outcomes(faults) != await outcomes({**faults, "seed": 8})


async def test_faults_come_in_their_shares() -> None:
    counted = Counter((await outcomes({"fail": 0.3, "throttle": 0.2})).values())
    assert {500, 502, 503, 429, 200} == counted.keys()
    assert 15 <= counted[500] + counted[502] + counted[503] <= 45
    assert 10 <= counted[429] <= 30


async def test_a_request_that_failed_can_succeed_when_it_comes_again() -> None:
    async with visiting(fail=0.5) as visitor:
        for number in range(10):
            async with asyncio.timeout(10):
                while (await visitor.chat(f"question {number}")).status != 200:
                    pass
        bill = await visitor.bill()
    assert (bill["charged"], bill["paid_twice"]) == (10, [])
    assert bill["calls"] > 10


async def test_some_throttled_answers_name_a_time_to_wait_and_some_do_not() -> None:
    async with visiting(throttle=1.0, retry_after=2.5) as visitor:
        answers = [await visitor.chat(str(number)) for number in range(40)]
    forms = Counter((each.headers.get("Retry-After"), each.headers.get("retry-after-ms")) for each in answers)
    assert forms.keys() == {("2.5", None), (None, "2500"), (None, None)}
    assert {each.error["code"] for each in answers} == {"rate_limit_exceeded"}


async def by_header(visitor: Visitor, name: str) -> Answer:
    return await visitor.chat(headers={"X-Practice-Fault": name})


async def by_metadata(visitor: Visitor, name: str) -> Answer:
    return await visitor.chat(metadata={"practice_fault": name})


async def by_model(visitor: Visitor, name: str) -> Answer:
    return await visitor.chat(model=f"practice-{name}")


@pytest.mark.parametrize("way", [by_header, by_metadata, by_model])
async def test_a_request_can_ask_for_any_status(way: Any) -> None:
    async with visiting() as visitor:
        for status in (400, 401, 403, 404, 408, 413, 422, 429, 500, 503, 529):
            answer = await way(visitor, str(status))
            assert (answer.status, bool(answer.error["message"])) == (status, True)
        assert (await visitor.bill())["charged"] == 0


async def test_a_fault_can_be_asked_for_the_first_times_only() -> None:
    async with visiting() as visitor:
        statuses = [(await visitor.chat(model="practice-503x2")).status for _ in range(4)]
        other = await visitor.chat("other", model="practice-503x2")
    assert statuses == [503, 503, 200, 200]
    assert other.status == 503


async def test_a_fault_that_is_unknown_is_named() -> None:
    async with visiting() as visitor:
        by_header = await visitor.chat(headers={"X-Practice-Fault": "floods"})
        by_model = await visitor.chat(model="practice-floods")
    assert by_header.status == 400
    assert "floods" in by_header.error["message"]
    assert by_model.status == 200  # a model may have any name


async def test_the_time_to_wait_can_be_a_date() -> None:
    async with visiting(retry_after=100) as visitor:
        answer = await visitor.chat(model="practice-429-date")
    assert parsedate_to_datetime(answer.headers["Retry-After"]) > parsedate_to_datetime(answer.headers["Date"])


async def test_a_cut_in_the_middle_gives_half_a_body() -> None:
    async with visiting() as visitor:
        with pytest.raises(aiohttp.ClientPayloadError):
            await visitor.chat(model="practice-cut-half")
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await visitor.chat(model="practice-cut")


async def test_who_hangs_up_on_a_call_that_hangs_leaves_nothing_behind() -> None:
    clock = HeldClock()
    async with visiting(Practice(clock=clock)) as visitor:
        call = asyncio.ensure_future(visitor.chat(model="practice-hang"))
        await eventually(lambda: clock.sleeping == 1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

        def is_over() -> bool:
            clock.wake()  # the provider looks now and then whether the client has gone
            return visitor.practice.counts.running == 0

        await eventually(is_over)


async def test_a_slow_body_comes_whole_in_the_end() -> None:
    clock = HeldClock()
    async with visiting(Practice(clock=clock)) as visitor:
        call = asyncio.ensure_future(visitor.chat(model="practice-slow"))
        for _ in range(10):
            await eventually(lambda: clock.sleeping == 1)
            assert not call.done()
            clock.wake()
        answer = await call
    assert answer.text == answer_to(CHAT, chat_body())


@pytest.mark.parametrize("kind", ["html", "truncated", "empty", "charset"])
async def test_nonsense_is_no_json_but_is_charged(kind: str) -> None:
    async with visiting() as visitor:
        answer = await visitor.chat(model=f"practice-nonsense-{kind}")
        assert (await visitor.bill())["charged"] == 1
    assert answer.status == 200
    with pytest.raises((json.JSONDecodeError, UnicodeDecodeError)):
        json.loads(answer.body)


async def test_nonsense_can_be_json_of_the_wrong_type_or_of_any_length() -> None:
    async with visiting(huge_bytes=3_000_000) as visitor:
        wrong = await visitor.chat(model="practice-nonsense-type")
        huge = await visitor.chat(model="practice-nonsense-huge")
    assert isinstance(wrong.json, list)
    assert len(huge.body) > 3_000_000


def test_a_bomb_is_small_and_opens_to_a_gigabyte() -> None:
    assert len(gzip_bomb()) < 2 << 20
    unpacker = zlib.decompressobj(31)
    first = unpacker.decompress(gzip_bomb(), 20 << 20)
    assert len(first) == 20 << 20
    assert unpacker.unconsumed_tail


async def test_a_bomb_is_announced_as_gzip() -> None:
    async with visiting() as visitor, aiohttp.ClientSession(auto_decompress=False) as session:
        body = chat_body(model="practice-nonsense-bomb")
        async with session.post(visitor.root + CHAT, json=body) as response:
            raw = await response.read()
    assert response.headers["Content-Encoding"] == "gzip"
    with pytest.raises((gzip.BadGzipFile, zlib.error, EOFError)):
        zlib.decompress(raw[:1000], 31)


@pytest.mark.parametrize(
    ("share", "names"),
    [("fail", FAIL), ("throttle", THROTTLE), ("hang", HANG), ("cut", CUT), ("slow_body", SLOW), ("nonsense", NONSENSE)],
)
def test_every_mishap_of_a_share_is_drawn_at_times(share: str, names: tuple[AnyFault, ...]) -> None:
    rng, values = Random(1), {share: 0.5}
    assert {draw_fault(Faults(**values), rng) for _ in range(300)} == {None, *names}  # type: ignore[arg-type]


async def test_an_outage_begins_when_it_is_told_and_ends_by_itself() -> None:
    clock = MovedClock()
    async with visiting(Practice(clock=clock)) as visitor:
        assert (await visitor.post("/faults", {"outage_seconds": 60})).status == 200
        answers = []
        for number in range(6):
            try:
                answers.append((await visitor.chat(str(number))).status)
            except aiohttp.ServerDisconnectedError:
                answers.append(0)
        assert set(answers) == {0, 503}
        assert (await visitor.bill())["charged"] == 0
        clock.ahead = 61
        assert await is_up(visitor)


async def is_up(visitor: Visitor) -> bool:
    try:
        return (await visitor.chat()).status == 200
    except aiohttp.ServerDisconnectedError:
        return False


async def test_an_outage_can_be_planned() -> None:
    async with visiting(outage=((0.0, 3600.0),)) as visitor:
        assert not await is_up(visitor)
        visitor.practice.change(outage=())
        assert await is_up(visitor)


async def test_faults_can_be_looked_at_and_changed_while_it_runs() -> None:
    async with visiting(fail=1.0) as visitor:
        assert (await visitor.get("/faults")).json["fail"] == 1.0
        assert (await visitor.chat()).status >= 500
        changed = await visitor.post("/faults", {"fail": 0, "rpm": 5})
        assert (changed.json["fail"], changed.json["rpm"]) == (0, 5)
        assert (await visitor.chat()).status == 200


@pytest.mark.parametrize(
    "raw",
    [
        b'{"floods": 1}',
        b'{"fail": 2}',
        b'{"fail": "x"}',
        b'{"rpm": -1}',
        b'{"outage": [[1]]}',
        b"[]",
        b"3",
        pytest.param(b"[" * 100_000, id="an endless list"),
        pytest.param(b'{"fail": ' + b"[" * 900 + b"]" * 900 + b"}", id="a deep list"),
    ],
)
async def test_faults_that_are_not_valid_are_refused(raw: bytes) -> None:
    async with visiting() as visitor:
        answer = await visitor.ask("POST", "/faults", data=raw)
        assert (await visitor.chat()).status == 200
    assert answer.status == 400
    if b"floods" in raw:
        assert {"fail", "outage", "outage_seconds"} <= set(
            answer.error["message"].partition("there are ")[2].split(", ")
        )


async def test_only_the_key_is_let_in_and_it_is_never_shown() -> None:
    async with visiting(key="sk-right") as visitor:
        without = await visitor.chat()
        wrong = await visitor.chat(headers={"Authorization": "Bearer sk-wrong"})
        right = await visitor.chat(headers={"Authorization": "Bearer sk-right"})
        azure = await visitor.chat(headers={"api-key": "sk-right"})
        shown = await visitor.get("/faults")
    assert [each.status for each in (without, wrong, right, azure)] == [401, 401, 200, 200]
    assert wrong.error["code"] == "invalid_api_key"
    assert b"sk-right" not in shown.body


async def test_a_quota_ends_after_that_many_charged_calls_even_when_they_come_at_once() -> None:
    async with visiting(quota=5, latency=0.05) as visitor:
        answers = await asyncio.gather(*(visitor.chat(str(number)) for number in range(20)))
        bill = await visitor.bill()
    refused = [answer for answer in answers if answer.status == 429]
    assert (len(refused), bill["charged"]) == (15, 5)
    assert {answer.error["code"] for answer in refused} == {"insufficient_quota"}
    assert not any("Retry-After" in answer.headers for answer in refused)


async def test_calls_beyond_the_concurrency_wait_in_line() -> None:
    clock = HeldClock()
    async with visiting(Practice(Faults(concurrency=2, latency=0.1), clock=clock)) as visitor:
        calls = [asyncio.ensure_future(visitor.chat(str(number))) for number in range(8)]
        await eventually(lambda: visitor.practice.counts.running == 8)
        for left in (8, 6, 4, 2):
            await eventually(lambda left=left: (visitor.practice.counts.running, clock.sleeping) == (left, 2))  # type: ignore[misc]
            clock.wake(2)
        answers = await asyncio.gather(*calls)
        counts = await visitor.counts()
    assert {answer.status for answer in answers} == {200}
    assert counts["concurrency_peak"] == 8


async def test_faults_befall_look_ups_too_but_never_the_bill() -> None:
    async with visiting(fail=1.0) as visitor:
        assert (await visitor.get("/v1/models")).status >= 500
        assert (await visitor.get("/bill")).status == 200
        assert (await visitor.get("/counts")).json["server_errors"] == 1


@pytest.mark.parametrize(
    "values", [{"fail": 0.6, "throttle": 0.6}, {"fail": -0.1}, {"fail": True}, {"latency": float("inf")}, {"rpm": 1.5}]
)
def test_faults_are_checked_when_they_are_made(values: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Faults(**values)


def test_a_provider_has_no_faults_unless_it_is_told() -> None:
    assert not Practice().faults.is_random
