"""Files: uploaded in any order of parts, listed in pages, read back byte for byte."""

from typing import Any

import aiohttp
import pytest

from backstay.practice import Faults, Practice
from tests.practice.visitor import MovedClock, batch_lines, chat_body, create_batch, visiting

LINES = batch_lines(chat_body("a"), chat_body("b"))


async def test_a_file_is_read_back_byte_for_byte() -> None:
    async with visiting() as visitor:
        made = (await visitor.upload(LINES, "mine.jsonl")).json
        content = await visitor.get(f"/v1/files/{made['id']}/content")
        shown = await visitor.get(f"/v1/files/{made['id']}")
    assert content.body == LINES
    assert shown.json == made
    assert (made["object"], made["filename"], made["bytes"]) == ("file", "mine.jsonl", len(LINES))
    assert (made["purpose"], made["status"]) == ("batch", "processed")


@pytest.mark.parametrize("names", [("purpose", "file"), ("file", "purpose")])
async def test_the_parts_may_come_in_any_order(names: tuple[str, ...]) -> None:
    parts = {
        "purpose": b'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch',
        "file": b'Content-Disposition: form-data; name="file"; filename="x.jsonl"\r\n\r\n' + LINES,
    }
    body = b"".join(b"--cut\r\n" + parts[name] + b"\r\n" for name in names) + b"--cut--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=cut"}
    async with visiting() as visitor:
        answer = await visitor.ask("POST", "/v1/files", headers, data=body)
    assert answer.status == 200
    assert answer.json["bytes"] == len(LINES)


async def test_a_large_file_comes_through() -> None:
    large = batch_lines(*(chat_body("x" * 1_000 + str(number)) for number in range(5_000)))
    async with visiting() as visitor:
        made = (await visitor.upload(large)).json
        content = await visitor.get(f"/v1/files/{made['id']}/content")
    assert content.body == large


@pytest.mark.parametrize(
    ("content", "fields", "param"),
    [
        (b"", {}, "file"),
        (b"not json\n", {}, "file"),
        (b"[1]\n", {}, "file"),
        (LINES, {"purpose": "fun"}, "purpose"),
        (LINES, {"expires_after[anchor]": "created_at", "expires_after[seconds]": "5"}, "expires_after.seconds"),
    ],
)
async def test_a_wrong_upload_is_refused(content: bytes, fields: dict[str, str], param: str) -> None:
    async with visiting() as visitor:
        answer = await visitor.upload(content, **fields)
        listed = await visitor.get("/v1/files")
    assert answer.status == 400
    assert answer.error["param"] == param
    assert listed.json["data"] == []


async def test_a_form_that_is_none_is_refused() -> None:
    async with visiting() as visitor:
        plain = await visitor.ask("POST", "/v1/files", data=b"x")
        torn = await visitor.ask("POST", "/v1/files", {"Content-Type": "multipart/form-data; boundary=b"}, data=b"x")
    assert (plain.status, torn.status) == (400, 400)


async def test_a_file_can_expire() -> None:
    async with visiting() as visitor:
        made = (await visitor.upload(LINES, **{"expires_after[seconds]": "3600"})).json
    assert made["expires_at"] == made["created_at"] + 3600


async def test_files_are_listed_newest_first_in_pages_and_by_purpose() -> None:
    async with visiting() as visitor:
        names = [(await visitor.upload(LINES)).json["id"] for _ in range(3)]
        await visitor.upload(b"notes", purpose="user_data")
        first = (await visitor.get("/v1/files", purpose="batch", limit=2)).json
        second = (await visitor.get("/v1/files", purpose="batch", limit=2, after=first["last_id"])).json
        oldest = (await visitor.get("/v1/files", order="asc", limit=1)).json
        every = (await visitor.get("/v1/files")).json
    assert [each["id"] for each in first["data"] + second["data"]] == names[::-1]
    assert (first["has_more"], second["has_more"]) == (True, False)
    assert oldest["first_id"] == names[0]
    assert len(every["data"]) == 4


@pytest.mark.parametrize("query", [{"limit": "0"}, {"limit": "x"}, {"order": "up"}])
async def test_a_wrong_page_is_refused(query: dict[str, Any]) -> None:
    async with visiting() as visitor:
        assert (await visitor.get("/v1/files", **query)).status == 400


async def test_a_deleted_file_is_gone() -> None:
    async with visiting() as visitor:
        name = (await visitor.upload(LINES)).json["id"]
        deleted = await visitor.ask("DELETE", f"/v1/files/{name}")
        after = [await visitor.get(f"/v1/files/{name}{tail}") for tail in ("", "/content")]
    assert deleted.json == {"id": name, "object": "file", "deleted": True}
    assert [each.status for each in after] == [404, 404]


async def test_an_upload_whose_answer_was_lost_is_found_by_its_name() -> None:
    async with visiting(cut=1.0) as visitor:
        for number in range(12):
            with pytest.raises(aiohttp.ClientError):
                await visitor.upload(LINES, f"{number}.jsonl")
        visitor.practice.change(cut=0)
        names = {file["filename"] for file in (await visitor.get("/v1/files")).json["data"]}
    assert 0 < len(names) < 12
    assert names <= {f"{number}.jsonl" for number in range(12)}


async def test_a_file_is_pending_for_a_while_and_no_batch_is_made_of_it_until_then() -> None:
    clock = MovedClock()
    async with visiting(Practice(Faults(file_seconds=3_600), clock=clock)) as visitor:
        made = (await visitor.upload(LINES)).json
        other = (await visitor.upload(LINES, purpose="user_data")).json
        refused = await create_batch(visitor, made["id"])
        listed = await visitor.get("/v1/batches")
        clock.ahead = 3_601
        later = (await visitor.get(f"/v1/files/{made['id']}")).json
        taken = await create_batch(visitor, made["id"])
    assert [file["status"] for file in (made, other, later)] == ["pending", "processed", "processed"]
    assert (refused.status, refused.error["param"], listed.json["data"]) == (400, "input_file_id", [])
    assert f"'{made['id']}' is in 'pending' state" in refused.error["message"]
    assert taken.status == 200


async def test_a_file_that_cannot_be_processed_says_why() -> None:
    async with visiting() as visitor:
        made = (await visitor.upload(batch_lines(chat_body(model="practice-file-error")))).json
        refused = await create_batch(visitor, made["id"])
    assert (made["status"], refused.status) == ("error", 400)
    assert "asked not to process" in made["status_details"]
