"""How many requests may wait in batches at once: found out quickly, used up to the limit, and never given up."""

import random

import pytest

from backstay.llm.rate_limits import (
    GIVEN_BACK_SECONDS,
    LOOK_SECONDS,
    REFUSED_SECONDS,
    UNSEEN_SECONDS,
    WAIT_SECONDS,
    WAIT_SECONDS_MAX,
    WaitingLimits,
)
from tests.databases import Ticker


class Account:
    """A provider where so many requests may wait, and a run that has as many as it likes."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.clock = Ticker()
        self.limits = WaitingLimits(self.clock)
        self.taken: dict[str, int] = {}
        self.refusals = 0
        self._made = 0

    def send(self, most: int) -> int | None:
        """One batch with as many as may be sent now: how many were taken; None if it was refused."""
        self.limits._look_at = float("inf")  # there is no other model
        room = self.limits.room()
        count = most if room is None else min(most, room)
        if count == 0:
            return 0
        assert self.limits.seconds_to_wait("m") == 0
        self._made += 1
        name = f"batch_{self._made}"
        self.limits.see("m", name, count)
        if sum(self.taken.values()) + count > self.limit:
            self.refusals += 1
            self.limits.refuse("m", name, count)
            return None
        self.taken[name] = count
        self.limits.see("m", name, count, running=True)
        return count

    def send_when_allowed(self, most: int = 10_000) -> None:
        """Sends until one batch is taken."""
        while not self.send(most):
            self.pass_seconds(0.5)

    def end_one(self) -> None:
        name = next(iter(self.taken))
        self.limits.end("m", name, True)
        del self.taken[name]

    def pass_seconds(self, seconds: float) -> None:
        self.clock.ms += round(seconds * 1000)

    def keep_seen(self) -> None:
        for name in self.taken:
            self.limits.see("m", name, 0)


@pytest.mark.parametrize(("limit", "seconds_max"), [(1, 700), (7, 170), (90, 15), (450, 10), (6_000, 2)])
def test_the_number_that_fits_is_found_after_a_few_refusals_that_cost_little_time(
    limit: int, seconds_max: float
) -> None:
    account = Account(limit)
    began_ms = account.clock.ms
    account.send_when_allowed()
    assert limit / 2 <= sum(account.taken.values()) <= limit
    assert account.clock.ms - began_ms <= seconds_max * 1000
    refusals = account.refusals
    for _ in range(20):
        account.end_one()
        account.send_when_allowed()
    while account.send(10_000) != 0:
        account.pass_seconds(6)
        account.keep_seen()
    assert sum(account.taken.values()) >= limit * 7 / 8 - 1
    assert account.refusals <= refusals + 5


def test_what_waits_for_batches_of_our_own_goes_out_when_one_ends() -> None:
    account = Account(100)
    account.send_when_allowed()
    while account.send(10_000) != 0:  # fills what is left beside the first
        pass
    account.pass_seconds(100)
    account.keep_seen()
    assert account.limits.room() == 0
    account.pass_seconds(UNSEEN_SECONDS - 10)
    assert account.limits.room() == 0
    account.end_one()
    assert account.limits.room()
    assert account.limits.seconds_to_wait("m") == 0


def test_the_end_of_a_batch_ends_the_wait_after_a_refusal() -> None:
    account = Account(100)
    account.send_when_allowed()
    account.limits.refuse("m", None, 10)
    assert account.limits.room() == 0
    assert account.limits.seconds_to_wait("m") > 0
    account.end_one()
    assert account.limits.room()
    assert account.limits.seconds_to_wait("m") == 0


def test_a_limit_that_others_use_is_asked_for_less_and_less_often() -> None:
    account = Account(0)
    waits = []
    for _ in range(30):
        account.send(1_000)
        waits.append(0.0)
        account.limits._look_at = float("inf")
        while account.limits.room() == 0:
            account.pass_seconds(1)
            waits[-1] += 1
    assert waits[0] == 1
    assert waits[-1] == WAIT_SECONDS_MAX
    account.limit = 1_000
    account.send_when_allowed()
    account.pass_seconds(REFUSED_SECONDS)
    for _ in range(12):
        account.keep_seen()
        account.end_one()
        account.send_when_allowed()
    assert sum(account.taken.values()) >= 500


def test_what_many_requests_of_one_batch_report_counts_once_and_other_models_are_not_held() -> None:
    limits = WaitingLimits(Ticker())
    limits.see("m", "b", 1_000)
    assert [limits.refuse("m", "b", 50) for _ in range(3)] == [1, 1, 1]
    assert limits.requests_max("m", 10_000) == 500
    assert limits.seconds_to_wait("other") == 0
    assert limits.requests_max("other", 10_000) == 10_000


def test_nothing_more_is_claimed_than_may_be_sent_unless_another_model_may_have_room() -> None:
    limits = WaitingLimits(Ticker())
    assert limits.room() is None
    assert limits.seconds_to_wait("m") == 0
    limits.refuse("m", None, 4_000)
    assert limits.room() == 0
    assert limits.seconds_to_wait("m") == GIVEN_BACK_SECONDS
    assert limits.seconds_to_wait("other") == 0
    assert limits.room() is None


def test_requests_of_another_model_behind_those_without_room_are_found_after_a_while() -> None:
    clock = Ticker()
    limits = WaitingLimits(clock)
    for number in range(20):
        limits.refuse("m", None, number + 1)
    assert limits.room() == 0
    clock.ms += round(LOOK_SECONDS * 1000)
    assert (limits.room(), limits.room()) == (None, 0)
    assert limits.seconds_to_wait("m") > GIVEN_BACK_SECONDS


def test_requests_that_gather_take_room_until_their_batch_is_sent() -> None:
    account = Account(10_000)
    account.limits.refuse("m", None, 2)
    account.pass_seconds(WAIT_SECONDS + 1)
    assert account.limits.room() == 1
    with account.limits.gathering("m"):
        assert account.limits.seconds_to_wait("m") > 0
    assert account.limits.seconds_to_wait("m") == 0


def test_a_batch_whose_end_another_worker_has_seen_is_forgotten() -> None:
    account = Account(1_000)
    for _ in range(2):
        account.send(1_000)
    account.pass_seconds(WAIT_SECONDS + 1)
    assert account.limits.room() == 0
    account.pass_seconds(UNSEEN_SECONDS + 10)
    assert account.limits.room() == 1_000


def test_a_limit_that_was_raised_is_used_after_some_time() -> None:
    account = Account(100)
    account.send_when_allowed()
    account.limit = 10_000
    account.pass_seconds(REFUSED_SECONDS)
    account.keep_seen()
    for _ in range(12):
        account.end_one()
        account.send_when_allowed()
    assert sum(account.taken.values()) > 5_000


def test_requests_too_few_for_a_batch_are_not_made_fewer() -> None:
    limits = WaitingLimits(Ticker(), requests_min=100)
    for number in range(10):
        limits.refuse("m", f"b{number}", 300)
    assert limits.requests_max("m", 9_000) == 200


@pytest.mark.parametrize("seed", range(5))
def test_whatever_the_limit_does_the_work_goes_on(seed: int) -> None:
    rng, account = random.Random(seed), Account(500)
    for _ in range(400):
        if rng.random() < 0.1:
            account.limit = rng.choice([0, 3, 120, 500, 20_000])
        account.send(rng.randint(1, 10_000))
        if account.taken and rng.random() < 0.5:
            account.end_one()
        account.pass_seconds(rng.choice([1, 10, 400]))
    account.limit, account.taken = 500, {}
    account.pass_seconds(WAIT_SECONDS_MAX)
    for _ in range(20):
        account.send_when_allowed()
        most = sum(account.taken.values())
        while account.taken:
            account.end_one()
        account.pass_seconds(400)
    assert most >= 250
