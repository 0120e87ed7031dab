"""The practice gateway: a PDF in, XML out, and what it is asked to do wrong."""

import asyncio
import xml.etree.ElementTree as ET
from collections.abc import AsyncIterator

import aiohttp
import pytest

from backstay.practice import Faults, Practice
from tests.server.pdfs import pdf


@pytest.fixture
def provider() -> Practice:
    return Practice(Faults())


@pytest.fixture
async def gateway(provider: Practice) -> AsyncIterator[str]:
    async with provider.serving() as base_url:
        yield base_url.removesuffix("/v1") + "/convert"


async def post(url: str, body: bytes, **headers: str) -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.post(url, data=body, headers=headers) as answer:
        return answer.status, await answer.read()


async def test_it_makes_xml_of_the_texts(gateway: str) -> None:
    status, body = await post(gateway, pdf('less < more & "quoted"'))
    document = ET.fromstring(body)
    assert (status, document.tag, document.get("pages")) == (200, "document", "1")
    assert [text.get("value") for text in document] == ['less < more & "quoted"']


async def test_what_is_no_pdf_is_refused(gateway: str, provider: Practice) -> None:
    assert (await post(gateway, b"GIF89a"))[0] == 415
    assert provider.bill.charged == 0


async def test_a_pdf_says_what_it_wants_to_meet(gateway: str, provider: Practice) -> None:
    statuses = [(await post(gateway, pdf(meets="502x2")))[0] for _ in range(3)]
    assert statuses == [502, 502, 200]
    assert provider.bill.charged == 1


async def test_conversions_are_on_the_bill_by_their_key(gateway: str, provider: Practice) -> None:
    for key in ("a", "b", "b"):
        await post(gateway, pdf(), **{"Idempotency-Key": key})
    assert (provider.bill.charged, provider.bill.paid_twice) == (3, ["b"])


async def test_its_faults_are_those_of_the_provider(gateway: str, provider: Practice) -> None:
    provider.change(fail=1.0)
    assert (await post(gateway, pdf()))[0] in (500, 502, 503)
    provider.change(fail=0.0, outage_seconds=60)
    ends = await asyncio.gather(*[post(gateway, pdf()) for _ in range(2)], return_exceptions=True)
    assert {type(end) is tuple for end in ends} == {True, False}, "every other one is cut off"
