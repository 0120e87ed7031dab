"""Names, ways and messages, as values: what every broker is told, and every way in which a message can be wrong."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstay.core.errors import UsageError
from backstay.core.ids import item_id
from backstay.messaging.messages import (
    DELIVERY_LIMIT,
    ITEMS_MAX,
    WAIT_STEPS_MS,
    Incoming,
    Poison,
    Topology,
    Work,
    hint,
    read_work,
    send_work,
    set_aside,
)

TOPOLOGY = Topology("p")


def arrived(body: bytes, kind: str = "work", **more: object) -> Incoming:
    return Incoming(body, "1", kind, **more)  # type: ignore[arg-type]


def test_a_work_queue_has_priorities_and_a_dead_letter_exchange():
    queue = TOPOLOGY.work_queue("ocr")
    assert (queue.name, queue.exchange, queue.routing_key) == ("p.work.ocr", "p.work", "ocr")
    assert queue.arguments["x-max-priority"] == 10
    assert queue.arguments["x-dead-letter-exchange"] == "p.dead"


def test_each_wait_has_a_queue_of_its_own_that_leads_back_to_the_work():
    for step in WAIT_STEPS_MS:
        queue = TOPOLOGY.wait_queue(step)
        assert queue.arguments["x-message-ttl"] == step
        assert queue.arguments["x-dead-letter-exchange"] == "p.work"


def test_quorum_queues_have_no_priorities_and_a_delivery_limit_of_ours():
    for queue in Topology("p", "quorum").queues(["ocr"]):
        assert queue.arguments["x-queue-type"] == "quorum"
        assert queue.arguments["x-delivery-limit"] == DELIVERY_LIMIT
        assert "x-max-priority" not in queue.arguments


def test_classic_queues_say_that_they_are_for_a_vhost_may_have_another_default():
    assert {queue.arguments["x-queue-type"] for queue in TOPOLOGY.queues(["ocr"])} == {"classic"}


@pytest.mark.parametrize("prefix", ["", "x" * 101, "amq.mine", "ü"])
def test_a_prefix_that_a_broker_would_refuse_is_refused(prefix: str):
    with pytest.raises(UsageError):
        Topology(prefix)


@given(st.integers(1, 40_000_000))
def test_the_steps_of_a_wait_add_up_to_it_and_never_end_early(wait_ms: int):
    waited, rest, hops = 0, wait_ms, 0
    while rest:
        exchange, key, left = TOPOLOGY.route("ocr", rest)
        step = int(exchange.removeprefix("p.wait."))
        waited, rest, hops = waited + step, left, hops + 1
        assert key == "ocr"
    assert wait_ms <= waited < wait_ms + 1_000
    assert hops <= 16 + wait_ms // WAIT_STEPS_MS[-1]


@given(st.text(min_size=1, max_size=400), st.text(min_size=1, max_size=400))
def test_names_are_short_enough_for_a_broker_and_differ_as_their_handlers_do(one: str, other: str):
    names = [TOPOLOGY.work_queue(handler).name for handler in (one, other)]
    assert all(len(name.encode()) <= 255 for name in names)
    assert (names[0] == names[1]) == (one == other)


@given(st.lists(st.integers(0, (1 << 62) - 1), min_size=1, max_size=60), st.integers(0, 9))
def test_what_is_sent_is_read_again(items: list[int], priority: int):
    sent = send_work(TOPOLOGY, Work("5", "ocr", tuple(items), priority))
    came = Incoming(sent.body, sent.message_id, sent.type, sent.routing_key, sent.priority)
    assert read_work(came) == Work("5", "ocr", tuple(items), priority)


def test_a_row_of_the_outbox_names_items_one_by_one_or_as_a_range():
    listed = hint(TOPOLOGY, 7, {"handler": "ocr", "priority": 3, "items": [item_id(1, 2)]})
    ranged = hint(TOPOLOGY, 7, {"handler": "ocr", "priority": 3, "first": item_id(1, 2), "count": 3})
    assert (listed.exchange, listed.routing_key, listed.message_id, listed.priority) == ("p.work", "ocr", "7", 3)
    assert json.loads(listed.body) == {"v": 1, "id": "7", "handler": "ocr", "items": ["1-2"]}
    assert json.loads(ranged.body)["items"] == ["1-2", "1-3", "1-4"]


def test_what_is_over_of_a_wait_is_not_waited_again():
    waiting = {"handler": "ocr", "items": [1], "wait_ms": 10_000}
    assert hint(TOPOLOGY, 7, waiting, age_ms=4_500).exchange == "p.wait.5000"
    assert json.loads(hint(TOPOLOGY, 7, waiting, age_ms=4_500).body)["rest_ms"] == 1_000
    assert hint(TOPOLOGY, 7, waiting, age_ms=10_000).exchange == "p.work"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"NaN", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b"7", "is not a JSON object"),
        (b"{}", "its version is not 1"),
        (b'{"v": true}', "its version is not 1"),
        (b'{"v": "1"}', "its version is not 1"),
        (b'{"v": 1}', "does not name a handler"),
        (b'{"v": 1, "handler": "ocr"}', "does not name items"),
        (b'{"v": 1, "handler": "ocr", "items": "1-2"}', "does not name items"),
        (b'{"v": 1, "handler": "ocr", "items": [12]}', "an item is not named as JOB-POSITION"),
        (b'{"v": 1, "handler": "ocr", "items": ["x"]}', "'x' is not an item id"),
        (b'{"v": 1, "handler": "ocr", "items": ["1-2"], "rest_ms": -1}', "rest_ms is not a number of milliseconds"),
        (
            json.dumps({"v": 1, "handler": "o", "items": ["1-1"] * (ITEMS_MAX + 1)}).encode(),
            f"names more than {ITEMS_MAX} items",
        ),
    ],
)
def test_poison_says_what_is_wrong_with_it(body: bytes, reason: str):
    assert read_work(arrived(body)) == Poison(reason)


def test_a_message_of_another_type_is_poison():
    assert read_work(arrived(b"{}", "")) == Poison("has no type 'work'")
    assert read_work(arrived(b"{}", "request")) == Poison("its type is 'request', not 'work'")


def test_a_message_that_is_set_aside_keeps_what_it_was_but_for_who_gets_copies():
    message = arrived(b"x", "work", routing_key="ocr", priority=4, headers={"cc": ["elsewhere"], "trace": "t"})
    aside = set_aside(TOPOLOGY, message, "is not JSON")
    assert (aside.exchange, aside.body, aside.message_id, aside.priority) == ("p.dead", b"x", "1", 4)
    assert aside.headers == {"trace": "t", "x-backstay-reason": "is not JSON"}
