"""The bill tells what a real provider would charge for, by the client's own reference."""

import asyncio
from pathlib import Path

import aiohttp
import pytest

from backstay.core.errors import UsageError
from backstay.practice import Practice
from backstay.practice.bill import Bill, BillPrice, parse_price
from backstay.practice.openai_shapes import digest_of
from tests.practice.visitor import CHAT, chat_body, eventually, visiting


async def test_a_call_is_charged_under_the_reference_that_its_client_gave() -> None:
    async with visiting() as visitor:
        await visitor.chat("a", metadata={"backstay_ref": "mine"}, headers={"Idempotency-Key": "other"})
        await visitor.chat("b", headers={"Idempotency-Key": "key", "X-Client-Request-Id": "id"})
        await visitor.chat("c", headers={"X-Client-Request-Id": "id"})
        bill = await visitor.bill()
    assert set(bill["by_ref"]) == {"mine", "key", "id"}
    assert bill["paid_twice"] == []


async def test_a_call_without_a_reference_is_known_by_what_it_asks() -> None:
    async with visiting() as visitor:
        await visitor.ask("POST", CHAT, data=b'{"model":"m","messages":[{"role":"user","content":"x"}]}')
        await visitor.ask("POST", CHAT, data=b'{ "messages": [{"content":"x","role":"user"}], "model":"m" }')
        bill = await visitor.bill()
    (ref,) = bill["by_ref"]
    assert bill["paid_twice"] == [ref]
    assert bill["by_ref"][ref]["times"] == 2


async def test_the_same_question_under_two_references_is_noticed() -> None:
    async with visiting() as visitor:
        await visitor.chat("x", metadata={"backstay_ref": "a"}, store=True)
        await visitor.chat("x", headers={"Idempotency-Key": "b"})
        await visitor.chat("y", headers={"Idempotency-Key": "c"})
        bill = await visitor.bill()
    assert bill["paid_twice"] == []
    assert bill["bodies_paid_twice"] == [bill["by_ref"]["a"]["body"]]


async def test_tokens_and_money_add_up() -> None:
    async with visiting(Practice(price="2/10")) as visitor:
        used = [(await visitor.chat(f"question {number}")).json["usage"] for number in range(5)]
        bill = await visitor.bill(summary=1)
    asked, made = (sum(each[name] for each in used) for name in ("prompt_tokens", "completion_tokens"))
    assert (bill["input_tokens"], bill["output_tokens"]) == (asked, made)
    assert bill["cost_micros"] == 2 * asked + 10 * made
    assert not {"by_ref", "paid_twice", "bodies_paid_twice"} & bill.keys(), "a summary does not grow with the calls"


@pytest.mark.parametrize(
    ("fault", "charged"), [("cut-billed", 1), ("cut-half", 1), ("hang-billed", 1), ("cut", 0), ("hang", 0)]
)
async def test_a_call_is_charged_if_it_was_done_though_nobody_hears_of_it(fault: str, charged: int) -> None:
    async with visiting() as visitor:
        call = asyncio.ensure_future(visitor.chat(model=f"practice-{fault}"))
        await eventually(lambda: visitor.practice.counts.faults[fault] == 1)
        if fault.startswith("hang"):
            call.cancel()
        with pytest.raises((aiohttp.ClientError, asyncio.CancelledError)):
            await call
        bill = await visitor.bill()
    assert (bill["calls"], bill["charged"]) == (1, charged)


async def test_a_client_that_hangs_up_pays_all_the_same() -> None:
    async with visiting(latency=0.2) as visitor:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await visitor.chat()
        await eventually(lambda: visitor.practice.bill.charged == 1)
        assert (await visitor.counts())["calls"] == 1


async def test_a_reset_begins_a_new_bill_and_new_counts() -> None:
    async with visiting() as visitor:
        await visitor.chat()
        await visitor.post("/bill/reset")
        bill, counts = await visitor.bill(), await visitor.counts()
    assert (bill["calls"], bill["charged"], bill["by_ref"], bill["cost_micros"]) == (0, 0, {}, 0)
    assert (counts["requests"], counts["running"]) == (0, 0)


async def test_a_bill_in_a_file_outlives_its_provider(tmp_path: Path) -> None:
    file = tmp_path / "bill.jsonl"
    bills = []
    for _ in range(2):
        async with visiting(Practice(bill_file=file)) as visitor:
            await visitor.chat("x")
            bills.append(await visitor.bill())
    assert [bill["charged"] for bill in bills] == [1, 2]
    assert len(bills[1]["paid_twice"]) == 1
    assert len(file.read_text().splitlines()) == 2


async def test_a_reset_empties_the_file_too(tmp_path: Path) -> None:
    file = tmp_path / "bill.jsonl"
    async with visiting(Practice(bill_file=file)) as visitor:
        await visitor.chat("x")
        await visitor.post("/bill/reset")
        await visitor.chat("y")
    assert len(file.read_text().splitlines()) == 1


def test_a_line_that_a_kill_tore_is_dropped(tmp_path: Path) -> None:
    file = tmp_path / "bill.jsonl"
    file.write_text('["a", "d", 1, 2, 3]\n["b", "e", 1')
    bill = Bill(BillPrice(1, 1), file)
    bill.open()
    bill.charge("c", "f", 1, 1)
    bill.close()
    assert set(Bill(BillPrice(1, 1), file).by_ref) == {"a", "c"}


def test_a_file_that_is_no_bill_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("dear diary\n")
    with pytest.raises(UsageError, match="is not a bill"):
        Bill(BillPrice(1, 1), file)
    assert file.read_text() == "dear diary\n"


def test_money_is_rounded_up_and_halved_in_a_batch() -> None:
    price = parse_price("0.15/0.60")
    assert price == BillPrice(150_000, 600_000)
    assert price.cost_micros(1, 0) == 1
    assert price.cost_micros(1_000_000, 1_000_000) == 750_000
    assert price.cost_micros(1_000_000, 1_000_000, halved=True) == 375_000


@pytest.mark.parametrize("text", ["", "1", "1/2/3", "a/b", "-1/2", "nan/1", "inf/1"])
def test_a_price_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_price(text)


def test_a_body_has_one_digest_whatever_a_client_adds_to_find_it_again() -> None:
    plain = digest_of(CHAT, chat_body())
    assert digest_of(CHAT, chat_body(store=True, metadata={"backstay_ref": "1"})) == plain
    assert digest_of("/v1/responses", chat_body()) != plain
    assert digest_of(CHAT, chat_body(max_tokens=5)) != plain
