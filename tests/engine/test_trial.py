"""The first replies of a run: all the same refusal, and nothing fails by them."""

from backstay.core.failures import Failure, FailureKind, failure_of_status
from backstay.core.models import Claimed, Failed, Succeeded
from backstay.engine.gate import REFUSALS_ENOUGH, WAIT_MS, FirstReplies


def item(number: int) -> Claimed:
    return Claimed(number, 1, "h", "submitting", 1, 0, 0, 0, 0, 0, 0, None, 0, 0, None, None, None, "{}")


def refused(status: int, message: str = "no") -> Failed:
    return Failed(failure_of_status(status, message))


def kinds(trial: FirstReplies, statuses: list[int]) -> list[FailureKind]:
    judged = [trial.judge(item(n), refused(status)) for n, status in enumerate(statuses)]
    return [outcome.failure.kind for outcome in judged if isinstance(outcome, Failed)]


def test_the_same_refusal_from_the_first_reply_on_fails_nothing_and_soon_stops():
    trial = FirstReplies(300)
    assert kinds(trial, [404] * (REFUSALS_ENOUGH - 1)) == [FailureKind.THROTTLED] * (REFUSALS_ENOUGH - 1)
    few = trial.enough
    trial.judge(item(99), refused(404))
    assert (few, trial.enough) == (False, True)
    assert trial.refusal is not None
    assert trial.refusal.provider_status == 404


def test_two_refusals_of_the_account_are_enough():
    trial = FirstReplies(300)
    kinds(trial, [401])
    one = trial.enough
    trial.judge(item(0), refused(401))
    assert (one, trial.enough) == (False, True)


def test_a_success_ends_the_trial_even_after_it_had_seen_enough():
    trial = FirstReplies(300)
    kinds(trial, [404] * 10)
    trial.judge(item(50), Succeeded("1"))
    assert not trial.enough
    assert kinds(trial, [404]) == [FailureKind.BUSINESS]


def test_refusals_that_differ_are_the_requests_own():
    trial = FirstReplies(300)
    assert kinds(trial, [404, 403, 404])[1:] == [FailureKind.REFUSED, FailureKind.BUSINESS]
    assert not trial.enough


def test_bad_requests_are_the_same_only_in_the_same_words():
    trial = FirstReplies(300)
    judged = [trial.judge(item(n), refused(400, f"line {n} is wrong")) for n in range(8)]
    assert [outcome.failure.kind for outcome in judged if isinstance(outcome, Failed)][1:] == [FailureKind.BUSINESS] * 7
    same = FirstReplies(300)
    for n in range(REFUSALS_ENOUGH):
        same.judge(item(n), refused(400, "no such parameter"))
    assert same.enough


def test_in_a_small_run_it_is_enough_that_all_are_refused_unless_the_words_are_about_them():
    address, words = FirstReplies(2), FirstReplies(2)
    kinds(address, [404])
    one = address.enough
    address.judge(item(1), refused(404))
    kinds(words, [400])
    words.judge(item(1), refused(400))
    assert (one, address.enough, words.enough) == (False, True, False)


def test_an_item_that_is_refused_twice_before_the_others_were_tried_does_not_stop_them():
    """As at a slow pace, at which its turn comes again first."""
    trial = FirstReplies(300)
    kinds(trial, [404])
    again = trial.judge(item(0), refused(404))
    assert isinstance(again, Failed)
    assert (again.failure.kind, trial.over, trial.enough) == (FailureKind.BUSINESS, True, False)


def test_a_refused_item_waits_so_that_the_others_are_tried_first():
    judged = FirstReplies(300).judge(item(0), refused(404))
    assert isinstance(judged, Failed)
    assert judged.failure.retry_after_ms == WAIT_MS


def test_an_outage_and_throttling_are_no_refusals():
    trial = FirstReplies(300)
    before = kinds(trial, [503, 429, 500] * 5)
    assert before == [failure_of_status(status).kind for status in [503, 429, 500] * 5]
    assert not trial.enough
    unknown = Failed(Failure(failure_of_status(500).code, FailureKind.BUSINESS, "a bug, and no reply at all"))
    assert trial.judge(item(1), unknown) is unknown
