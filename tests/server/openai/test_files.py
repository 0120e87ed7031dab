"""Files over OpenAI's own client: every way to upload, pages, bytes, and who may see them."""

from pathlib import Path

import aiohttp
import openai
import pytest

from backstay.store.keys import Role
from tests.server.openai.openai_rig import Desk, requests


async def test_bytes_a_handle_and_a_path_are_uploaded_alike(sqlite_desk: Desk, tmp_path: Path) -> None:
    client, content = sqlite_desk.client(), requests(3)
    path = tmp_path / "input.jsonl"
    path.write_bytes(content)
    with path.open("rb") as handle:
        files = [
            await client.files.create(file=content, purpose="batch"),
            await client.files.create(file=handle, purpose="batch"),
            await client.files.create(file=path, purpose="batch"),
        ]
    assert [file.filename for file in files][1:] == ["input.jsonl", "input.jsonl"]
    for file in files:
        assert (file.object, file.purpose, file.status, file.bytes) == ("file", "batch", "processed", len(content))
        assert (await client.files.content(file.id)).content == content


async def test_a_file_lives_as_long_as_was_asked_for(desk: Desk) -> None:
    client = desk.client()
    file = await desk.upload(requests(1), expires_after={"anchor": "created_at", "seconds": 3600})
    usual = await desk.upload(requests(1))
    kept = await client.files.create(file=b"anything", purpose="user_data")
    assert file.expires_at == file.created_at + 3600
    assert usual.expires_at == usual.created_at + 30 * 86_400
    assert kept.expires_at is None


@pytest.mark.parametrize("seconds", [3599, 2_592_001])
async def test_a_lifetime_out_of_bounds_is_refused(sqlite_desk: Desk, seconds: int) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await sqlite_desk.upload(requests(1), expires_after={"anchor": "created_at", "seconds": seconds})
    assert refused.value.param == "expires_after.seconds"


async def test_the_purpose_may_come_behind_the_file(sqlite_desk: Desk) -> None:
    form = aiohttp.FormData()
    form.add_field("file", requests(2), filename="in.jsonl")
    form.add_field("purpose", "batch")
    made = await sqlite_desk.rig.ada.post("/v1/files", data=form)
    assert made.status == 200, made
    batch = await sqlite_desk.client().batches.create(
        input_file_id=made.json["id"], endpoint="/v1/chat/completions", completion_window="24h"
    )
    assert (await sqlite_desk.until(batch)).status == "completed"


@pytest.mark.parametrize("content", [b"", b"\n \n", b"name,age\nada,36\n", b"%PDF-1.7 ...", b"[1, 2]\n"])
async def test_what_does_not_begin_like_requests_is_refused_at_once_and_leaves_nothing(
    sqlite_desk: Desk, content: bytes
) -> None:
    with pytest.raises(openai.BadRequestError, match=r"Invalid file format.*jsonl"):
        await sqlite_desk.upload(content)
    assert [file async for file in sqlite_desk.client().files.list()] == []
    assert [name async for name in sqlite_desk.rig.service.artifacts.names("files")] == []


async def test_an_unknown_purpose_is_refused(sqlite_desk: Desk) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        await sqlite_desk.client().files.create(file=b"x", purpose="holidays")  # type: ignore[arg-type]
    assert (refused.value.param, refused.value.code) == ("purpose", "invalid_value")
    assert refused.value.request_id is not None


async def test_a_list_is_paged_in_both_orders_and_by_purpose(desk: Desk) -> None:
    client = desk.client()
    made = [(await desk.upload(requests(1))).id for _ in range(5)]
    other = await client.files.create(file=b"x", purpose="user_data")
    oldest = [file.id async for file in client.files.list(limit=2, purpose="batch", order="asc")]
    assert sorted(oldest) == sorted(made)
    assert oldest[::-1] == [file.id async for file in client.files.list(limit=2, purpose="batch", order="desc")]
    newest = [file.id async for file in client.files.list(limit=2)]
    assert set(newest) == {*made, other.id}
    assert len(newest) == 6
    assert newest == [file.id async for file in client.files.list(limit=100)]
    first = await client.files.list(limit=2)
    assert first.has_more is True
    assert [file.id async for file in client.files.list(purpose="user_data")] == [other.id]
    with pytest.raises(openai.BadRequestError):
        await client.files.list(limit=10_001)
    with pytest.raises(openai.NotFoundError):
        await client.files.list(after="file-of-nobody")


async def test_a_deleted_file_is_gone_with_its_bytes(desk: Desk) -> None:
    client = desk.client()
    file = await desk.upload(requests(1))
    gone = await client.files.delete(file.id)
    assert (gone.id, gone.deleted) == (file.id, True)
    for ask in (client.files.retrieve, client.files.content, client.files.delete):
        with pytest.raises(openai.NotFoundError):
            await ask(file.id)
    assert [name async for name in desk.rig.service.artifacts.names("files")] == []


async def test_bytes_that_are_gone_are_said_to_be_instead_of_an_answer_that_breaks_off(sqlite_desk: Desk) -> None:
    file = await sqlite_desk.upload(requests(1))
    artifacts = sqlite_desk.rig.service.artifacts
    for name in [name async for name in artifacts.names("files")]:
        await artifacts.delete(name)
    with pytest.raises(openai.APIStatusError) as refused:
        await sqlite_desk.client().files.content(file.id)
    assert refused.value.status_code == 410


async def test_nobody_sees_the_files_of_another(desk: Desk) -> None:
    file = await desk.upload(requests(1))
    bob = desk.client("bob")
    said = []
    for file_id in (file.id, "file-" + "0" * 24):
        for ask in (bob.files.retrieve, bob.files.content, bob.files.delete):
            with pytest.raises(openai.NotFoundError) as refused:
                await ask(file_id)
            said.append(str(refused.value).replace(file_id, "…"))
    assert said[:3] == said[3:]
    assert [one async for one in bob.files.list()] == []


async def test_a_range_of_the_bytes_can_be_asked_for(sqlite_desk: Desk) -> None:
    content = requests(3)
    file = await sqlite_desk.upload(content)
    path = f"/v1/files/{file.id}/content"

    async def ask(said: str) -> tuple[int, bytes, str | None]:
        reply = await sqlite_desk.rig.ada.get(path, headers={"range": said})
        return reply.status, reply.body, reply.headers.get("content-range")

    size = len(content)
    assert await ask("bytes=5-9") == (206, content[5:10], f"bytes 5-9/{size}")
    assert await ask("bytes=5-") == (206, content[5:], f"bytes 5-{size - 1}/{size}")
    assert await ask("bytes=-4") == (206, content[-4:], f"bytes {size - 4}-{size - 1}/{size}")
    assert (await ask(f"bytes={size}-"))[0] == 416
    assert (await ask("lines=1-2"))[0] == 200


async def test_a_reader_may_not_upload(sqlite_desk: Desk) -> None:
    reader = sqlite_desk.rig.visitor("ada", Role.READ)
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", requests(1), filename="in.jsonl")
    assert (await reader.post("/v1/files", data=form)).status == 403
    assert (await reader.get("/v1/files")).status == 200
