"""What is left of a provider's limits bounds the calls under way, so that few are refused."""

from backstay.core.pace import Allowance, Answers, Pace

PACE = Pace("p", None, None, concurrency=100, ceiling=80)


def test_no_more_calls_are_under_way_than_were_left_when_as_many_again_have_begun() -> None:
    requests = Allowance()
    for left in (49, 47, 48):
        requests.say(left)
    assert requests.calls_max(each=True) == 44
    assert requests.calls_max(each=True) is None  # what was said is forgotten


def test_what_a_call_takes_of_the_tokens_is_learnt_from_what_is_left() -> None:
    tokens = Allowance()
    tokens.say(10_000)
    assert tokens.calls_max() is None  # one answer does not tell what it took
    for left in (9_600, 9_200, 8_800, 8_400):
        tokens.say(left)
    assert tokens.calls_max() == 17
    tokens.say(10_000)
    assert tokens.calls_max() is None  # there is more than before, so what was taken cannot be told


def seen(requests: int | None = None) -> Answers:
    answers = Answers()
    answers.add(0.1, throttled=False)
    if requests is not None:
        answers.requests.say(requests)
    return answers


def test_the_ceiling_keeps_to_what_is_left_and_is_never_below_one() -> None:
    assert seen().verdict(PACE, 0).ceiling == 81
    assert seen(requests=1_000).verdict(PACE, 0).ceiling == 81
    assert seen(requests=21).verdict(PACE, 0).ceiling == 20
    assert seen(requests=0).verdict(PACE, 0).ceiling == 1


def test_the_ceiling_keeps_to_the_tokens_that_are_left() -> None:
    answers = seen()
    answers.tokens.say(1_000)
    assert answers.verdict(PACE, 0).ceiling == 81
    answers.tokens.say(900)
    assert answers.verdict(PACE, 0).ceiling == 8


def test_the_ceiling_rises_again_when_more_is_left() -> None:
    answers = seen(requests=1)
    low = answers.verdict(PACE, 0)
    for _ in range(10):
        answers.add(0.1, throttled=False)
        answers.requests.say(500)
    assert (low.ceiling, answers.verdict(low, 0).ceiling) == (1, 11)
