"""What a consumer has in hand: every message is over when all of its items are, or when it was held for too long."""

from collections.abc import Collection

from backstay.engine.hints import HELD_SECONDS_MAX, HeldMessages


def in_hand(*messages: tuple[str, str, list[int]], now: float = 0.0) -> HeldMessages[str]:
    hand: HeldMessages[str] = HeldMessages()
    for message, handler, items in messages:
        hand.put(message, handler, items, now)
    return hand


def over(hand: HeldMessages[str], items: list[int], missed: Collection[int] = ()) -> list[str]:
    """Messages that are over, those that have not served marked."""
    ended = hand.mark_done(items, missed)
    return [*ended.served, *(f"{message} missed" for message in ended.missed)]


def test_items_are_given_in_the_order_of_their_messages_and_again_until_they_are_done() -> None:
    hand = in_hand(("a", "echo", [5, 4]), ("b", "other", [9]), ("c", "echo", [3]))
    assert (hand.take("echo", 2), hand.take("echo", 2), hand.take("echo", 9)) == ([5, 4], [5, 4], [5, 4, 3])
    assert (hand.take("other", 9), hand.take("nobody", 9), hand.take("echo", 0)) == ([9], [], [])


def test_a_message_is_over_with_the_last_of_its_items() -> None:
    hand = in_hand(("a", "echo", [1, 2]), ("b", "echo", [3]))
    assert (over(hand, [1, 3]), len(hand)) == (["b"], 1)
    assert hand.take("echo", 9) == [2]
    assert (over(hand, [2]), over(hand, [2]), len(hand)) == (["a"], [], 0)
    assert hand.take("echo", 9) == []


def test_copies_of_a_message_are_over_together_and_name_an_item_once() -> None:
    hand = in_hand(("a", "echo", [1, 1]), ("b", "echo", [1]), ("c", "echo", [1, 2]))
    assert hand.take("echo", 9) == [1, 2]
    assert over(hand, [1]) == ["a", "b"]
    assert over(hand, [2]) == ["c"]


def test_a_message_has_served_if_a_claim_has_won_any_of_its_items() -> None:
    hand = in_hand(("a", "echo", [1, 2]), ("b", "echo", [3, 4]), ("copy of b", "echo", [3, 4]))
    assert over(hand, [1, 3], missed={1, 3}) == []
    assert over(hand, [2, 4], missed=[4]) == ["a", "b missed", "copy of b missed"]


def test_what_is_held_for_too_long_is_let_go_of() -> None:
    hand = in_hand(("a", "echo", [1, 2]), ("b", "other", [1]))
    hand.put("c", "echo", [2], 1.0)
    hand.mark_done([2])
    assert hand.overdue(HELD_SECONDS_MAX - 0.1) == []
    assert hand.overdue(HELD_SECONDS_MAX) == ["a", "b"]
    assert (hand.take("echo", 9), hand.take("other", 9), over(hand, [1, 2]), len(hand)) == ([], [], [], 0)


def test_after_a_lost_channel_nothing_is_in_hand() -> None:
    hand = in_hand(("a", "echo", [1]))
    hand.clear()
    assert (len(hand), hand.take("echo", 1), over(hand, [1]), hand.overdue(99)) == (0, [], [], [])
    hand.put("b", "echo", [1], 0.0)
    assert over(hand, [1]) == ["b"]
