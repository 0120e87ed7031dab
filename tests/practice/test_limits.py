"""Rate limits are held at the provider's own count, and every answer tells how much is left."""

import asyncio
from collections.abc import Callable

import pytest

from backstay.core.errors import UsageError
from backstay.practice import Faults, Practice
from backstay.practice.bill import SlidingWindow
from backstay.practice.faults import parse_outage, parse_rate
from backstay.practice.openai_shapes import go_duration
from backstay.practice.pipeline import LimitKind, RateLimits
from tests.practice.visitor import HeldClock, MovedClock, eventually, visiting


def test_a_window_slides() -> None:
    window = SlidingWindow(60)
    for at in (0, 10, 20, 70):
        window.add(at, 5)
    assert (window.requests, window.tokens) == (2, 10)
    assert (window.requests_peak, window.tokens_peak) == (3, 15)


def exceeded(limits: RateLimits, now: float, tokens: int, faults: Faults) -> tuple[LimitKind | None, float]:
    use = limits.admit(now, tokens, faults)
    assert use is not None
    return use.exceeded, use.wait_seconds


def test_the_limit_opens_again_when_the_oldest_has_left() -> None:
    limits, faults = RateLimits(), Faults(rpm=2)
    assert exceeded(limits, 0.0, 1, faults) == (None, 0.0)
    assert exceeded(limits, 30.0, 1, faults) == (None, 0.0)
    assert exceeded(limits, 45.5, 1, faults) == (LimitKind.REQUESTS, 14.5)
    assert exceeded(limits, 60.0, 1, faults) == (None, 0.0)


def test_tokens_wait_for_as_many_to_leave_as_they_need() -> None:
    limits, faults = RateLimits(), Faults(tpm=100)
    for at in (0.0, 10.0, 20.0):
        assert exceeded(limits, at, 30, faults) == (None, 0.0)
    assert exceeded(limits, 30.0, 50, faults) == (LimitKind.TOKENS, 40.0)  # the second of them leaves at 70
    assert exceeded(limits, 1_000.0, 101, faults) == (LimitKind.TOKENS, 60.0)


async def test_over_the_limit_is_429_and_the_headers_tell_why() -> None:
    async with visiting(rpm=3, tpm=100_000) as visitor:
        answers = [await visitor.chat(str(number)) for number in range(5)]
        counts, bill = await visitor.counts(), await visitor.bill()
    assert [answer.status for answer in answers] == [200, 200, 200, 429, 429]
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers] == ["2", "1", "0", "0", "0"]
    assert {answer.headers["x-ratelimit-limit-requests"] for answer in answers} == {"3"}
    assert int(answers[0].headers["x-ratelimit-remaining-tokens"]) < 100_000
    assert answers[3].headers["x-ratelimit-reset-requests"].endswith("s")
    assert 0 < int(answers[3].headers["Retry-After"]) <= 60
    assert answers[3].error["type"] == "requests"
    assert (counts["requests_per_window_peak"], counts["limited"], counts["throttled"]) == (5, 2, 2)
    assert bill["charged"] == 3


async def test_the_bound_of_the_answer_counts_as_tokens() -> None:
    async with visiting(tpm=1_000) as visitor:
        first, second = await visitor.chat("a", max_tokens=600), await visitor.chat("b", max_tokens=600)
        small = await visitor.chat("c", max_tokens=100)
    assert (first.status, second.status, small.status) == (200, 429, 200)
    assert second.error["type"] == "tokens"


async def test_a_shorter_window_opens_sooner() -> None:
    clock = MovedClock()
    async with visiting(Practice(Faults(rpm=1, window_seconds=7), clock=clock)) as visitor:
        assert (await visitor.chat()).status == 200
        clock.ahead = 3.5
        refused = await visitor.chat()
        waits = refused.headers["Retry-After"], refused.headers["retry-after-ms"]
        assert (refused.status, waits) == (429, ("4", "3500"))
        clock.ahead = 6.9
        assert (await visitor.chat()).status == 429
        clock.ahead = 14
        assert (await visitor.chat()).status == 200


async def test_headers_are_on_every_answer_while_there_is_a_limit() -> None:
    async with visiting(rpm=100) as visitor:
        failed = await visitor.chat(model="practice-500")
        visitor.practice.change(rpm=None)
        free = await visitor.chat()
    assert failed.headers["x-ratelimit-remaining-requests"] == "99"
    assert "x-ratelimit-limit-requests" not in free.headers


async def test_the_peak_of_concurrency_is_counted() -> None:
    clock = HeldClock()
    async with visiting(Practice(Faults(latency=1), clock=clock)) as visitor:
        calls = [asyncio.ensure_future(visitor.chat(str(number))) for number in range(17)]
        await eventually(lambda: clock.sleeping == 17)
        clock.wake(17)
        await asyncio.gather(*calls)
        counts = await visitor.counts()
    assert (counts["concurrency_peak"], counts["running"]) == (17, 0)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0ms"), (0.012, "12ms"), (1.5, "1.5s"), (60, "1m0s"), (372.25, "6m12.25s")]
)
def test_durations_are_written_as_the_provider_writes_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


def test_rates_and_outages_are_read() -> None:
    assert parse_rate("500rpm") == ("rpm", 500)
    assert parse_rate("100000TPM") == ("tpm", 100_000)
    assert parse_outage("30:60.5") == (30, 60.5)


@pytest.mark.parametrize(
    ("parse", "text"),
    [
        *((parse_rate, text) for text in ("500", "rpm", "0rpm", "5rps", "-5rpm")),
        *((parse_outage, text) for text in ("30", "a:b", ":", "")),
    ],
)
def test_a_rate_or_outage_that_is_not_valid_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)
