"""Archives: what leaves the database is in a file first, each item in one, and comes back byte for byte."""

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from backstay.core.callbacks import Callback, Kind
from backstay.core.errors import NotAllowed, NotFound
from backstay.core.failures import ErrorCode, Failure, FailureKind
from backstay.core.ids import item_id, show_item
from backstay.core.models import Failed
from backstay.llm.lines import LlmRequest, seal, unseal
from backstay.store.archives import Archive, ArchiveFile, Archives, Leaving
from backstay.store.queries import one
from backstay.upkeep import archivist
from backstay.upkeep.archivist import GONE, stub_of
from tests.store.store_rig import WRONG
from tests.upkeep.upkeep_rig import DAY_MS, Desk, ids

INBOX = "SELECT item_id, owner, fence, kind, received_at, body, is_late, digest FROM inbox ORDER BY item_id, digest"
WRITTEN_WITH_ZSTANDARD = (
    "D77#B0ANK80QM9;A~1_M2S9?XRC1nR$9-u%gxr*dIG|NjbxX2Ls4_%E8DR)F05<?S04<@eCIL%X9r>b003O;}Q^o4CHAq#<inU46<dUIkb#nP$Ca9"
    ";$M>#ZaLU5XcD%RIHoCGxztjvStD-$W}oAR-ct}9v0`WnWQjVWpo)Kvlkg)tyd)_f#~;Uwp>t5U<svbs!oTGQw{YdQh8?ZslDP$-sVNhA^o1VT}i"
    "|A=V2B|}1_gBEoe6tGTD!IAGZU4=Z9Nz~#=I8Y|ZgJ}+wBoC&H3jhEA|NsC0|NsC0BO)RqA|fIpA|fIpA|fK%wr$(CZQHi(e5f(x3M%zynFD}>q@"
    ";KfXfOyA1PQ_ae}XC?6+dh0%}Hk(Ds!wEr(#;w#-bWqm1*b<TQwdX<4}yI(y(;nP?>GTU{Z!lF<UBg(PFaFUa>OFRnAtc6jPO3N|kJ;VxvkWnW)@"
    "Us3h~0Hq|M?G{u%OB{NI0p-PF<BxP<=q@;6{Hfoehl(sCi!lIOkvOv>?LRpekK~oErUd@Kv572L>j7-0jsWADEQ&qxTRR"
)
ODD = '{"text": "ünïcödé \\u0000 \\ud83d\\ude00 𝄞", "big": 123456789012345678901234567890, "n": 1e400}'


async def test_what_is_archived_comes_back_byte_for_byte(far_desk: Desk) -> None:
    job = await far_desk.fail(3)
    await far_desk.site.rows(f"UPDATE requests SET body = '{ODD}' WHERE item_id = {item_id(job, 1)}")
    await far_desk.site.rows(
        "UPDATE attempts SET result = '{\"status_code\":400}', message = message || repeat('x', 300)"
        if far_desk.site.is_postgres
        else "UPDATE attempts SET result = '{\"status_code\":400}', message = message || printf('%.300c', 'x')"
    )
    await far_desk.store.inbox.receive(item_id(job, 2), 1, Callback(Kind.SUCCEEDED, '{"result": "ü"}'))
    before, said = await far_desk.bodies(), await far_desk.site.rows(INBOX)
    assert await far_desk.archive() == 3
    assert await far_desk.bodies() != before
    assert await far_desk.site.rows(INBOX) == []
    assert await far_desk.restore() == 3
    assert await far_desk.bodies() == before
    assert await far_desk.site.rows(INBOX) == said
    assert await far_desk.blobs() == []
    assert await far_desk.restore() == 0
    assert await far_desk.bodies() == before


@pytest.mark.parametrize("metadata", [None, '{"row_id":1}'])
def test_of_a_request_all_but_its_body_stays(metadata: str | None) -> None:
    request = LlmRequest("mine", "/v1/embeddings", '{"model":"m"}', metadata)
    assert unseal(stub_of(seal(request))) == request._replace(body=GONE)


async def test_an_archived_item_stays_as_the_evidence_that_it_failed_and_why(desk: Desk) -> None:
    job = await desk.fail(2)
    counters = await desk.scene.job(job)
    await desk.archive()
    assert await desk.scene.job(job) == counters
    row = await desk.store.item_views.row(item_id(job, 0), "ann")
    assert (row.state, row.error_code, row.archive_id) == ("failed", "GW_4XX", 1)
    assert row.message == "400 · in archive 1: backstay deadletters restore 1"
    assert await desk.here() == []
    assert (await desk.store.dead_letters.groups("ann", None)).items == 0
    assert [event.act for event in await desk.store.events.oldest(f"item:{item_id(job, 0)}")] == ["archived"]
    bodies = await desk.site.rows("SELECT body FROM requests UNION ALL SELECT result FROM attempts")
    assert {row[0] for row in bodies} == {'{"archived":true}', None}


async def test_an_archived_item_is_not_retried_before_it_is_restored(desk: Desk) -> None:
    job = await desk.fail(2)
    await desk.archive()
    before = await desk.scene.everything()
    with pytest.raises(NotAllowed, match=f"item {show_item(item_id(job, 1))} is in archive 1") as refused:
        await desk.store.jobs.retry(job, "ann", item_id(job, 1))
    assert refused.value.hint == "restore it first: `backstay deadletters restore 1`"
    with pytest.raises(NotAllowed, match="are archived"):
        await desk.store.jobs.retry(job, "ann")
    assert await desk.scene.everything() == before
    await desk.restore()
    assert await desk.store.jobs.retry(job, "ann") == 2


async def test_a_retry_that_had_chosen_an_item_misses_it_once_it_is_archived(desk: Desk) -> None:
    job = await desk.fail()
    fence = (await desk.scene.item(job)).fence
    await desk.archive()
    assert await desk.store._db.write(one("retry_items", batch=[(item_id(job, 0), fence, 0, 0, 0)])) == []
    assert await desk.scene.states(job) == ["failed"]


async def test_a_file_is_lines_of_json_that_any_program_can_read(desk: Desk) -> None:
    job = await desk.fail(2)
    await desk.archive()
    packed = b"".join([piece async for piece in desk.artifacts.get((await desk.blobs())[0])])
    head, *lines = archivist.zstd().decompress(packed).splitlines()
    assert json.loads(head) == {"format": "backstay dead letters", "version": 1, "owner": "ann"}
    said = [json.loads(line) for line in lines]
    assert [(one["item"], one["request"]) for one in said] == [(f"{job}-0", '"body-0"'), (f"{job}-1", '"body-1"')]
    assert [attempt["message"] for attempt in said[0]["attempts"]] == ["502", "400"]


async def test_a_file_that_an_older_version_wrote_can_be_read(desk: Desk) -> None:
    """Another library compressed it, piece by piece, so that it does not say how long it is."""
    packed = base64.b85decode(WRITTEN_WITH_ZSTANDARD)

    async def pieces() -> AsyncIterator[bytes]:
        yield packed

    await desk.artifacts.put("archives/old.jsonl.zst", pieces())
    digest = hashlib.sha256(packed).hexdigest()
    old = Archive(1, "ann", "archives/old.jsonl.zst", 40, len(packed), digest, 0, 0, 0, None)
    letters = [letter async for page in archivist.read(desk.artifacts, old) for letter in page]
    assert [letter.id for letter in letters] == [item_id(7, n) for n in range(40)]
    assert letters[39].head.body == '{"text": "ünïcödé 39"}' + "x" * 50


async def test_two_who_archive_at_once_archive_each_item_once(far_desk: Desk) -> None:
    await far_desk.fail(40)
    stores = [await far_desk.site.open_store() for _ in range(3)]
    tight = far_desk.retention()._bounds._replace(items=0)
    gone = await asyncio.gather(*(far_desk.retention(tight, store).run_once() for store in stores))
    archives = await far_desk.archives()
    assert sum(gone) == 40 == sum(archive.items for archive in archives)
    assert await far_desk.blobs() == sorted(archive.blob for archive in archives)
    kept = await far_desk.site.rows("SELECT count(*), count(DISTINCT id) FROM items WHERE archive_id IS NOT NULL")
    assert kept == [(40, 40)]
    assert [await far_desk.restore(archive.id) for archive in archives] == [archive.items for archive in archives]
    await far_desk.scene.auditor.check()


async def test_a_file_without_its_transaction_changes_nothing_and_is_swept_after_a_day(
    far_desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    await far_desk.fail(2)
    before = await far_desk.scene.everything(), await far_desk.bodies()

    async def die(self: Archives, file: ArchiveFile, leaving: Sequence[Leaving]) -> int:
        raise ConnectionResetError

    with monkeypatch.context() as patched:
        patched.setattr(Archives, "add", die)
        with pytest.raises(ConnectionResetError):
            await far_desk.archive()
    assert (await far_desk.scene.everything(), await far_desk.bodies()) == before
    [orphan] = await far_desk.blobs()
    assert await far_desk.archive() == 2
    await far_desk.site.advance(DAY_MS / 1000 - 1)
    assert await far_desk.archivist.sweep() == 0
    await far_desk.site.advance(DAY_MS / 1000 + 1)
    assert await far_desk.archivist.sweep() == 1
    assert orphan not in await far_desk.blobs()
    assert await far_desk.restore() == 2


async def test_a_file_that_could_not_be_written_changes_nothing(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.fail(2)
    before = await desk.scene.everything(), await desk.bodies()

    async def full(name: str, chunks: Any) -> int:
        async for _ in chunks:
            pass
        raise OSError("no room")

    monkeypatch.setattr(desk.artifacts, "put", full)
    with pytest.raises(OSError, match="no room"):
        await desk.archive()
    assert (await desk.scene.everything(), await desk.bodies(), await desk.archives()) == (*before, [])


async def test_an_item_that_is_retried_while_its_file_is_written_is_not_archived(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await desk.fail(3)
    plain = Archives.add

    async def late(self: Archives, file: ArchiveFile, leaving: Sequence[Leaving]) -> int:
        await desk.store.jobs.retry(job, "ann", item_id(job, 1))
        return await plain(self, file, leaving)

    with monkeypatch.context() as patched:
        patched.setattr(Archives, "add", late)
        assert await desk.archive() == 0
    assert (await desk.blobs(), await desk.archives()) == ([], [])
    assert await desk.here() == ids(job, 2, 0)
    body = await desk.site.one(f"SELECT body FROM requests WHERE item_id = {item_id(job, 1)}")
    assert body == '"body-1"'


async def test_a_message_that_comes_while_the_file_is_written_is_not_lost(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = await desk.fail()
    plain = Archives.add

    async def late(self: Archives, file: ArchiveFile, leaving: Sequence[Leaving]) -> int:
        await desk.store.inbox.receive(item_id(job, 0), 1, Callback(Kind.SUCCEEDED, '{"result": 7}'))
        return await plain(self, file, leaving)

    monkeypatch.setattr(Archives, "add", late)
    assert await desk.archive() == 1
    [late_result] = await desk.store.inbox.late("ann", None, 10)
    with pytest.raises(NotAllowed, match="in archive 1"):
        await desk.store.inbox.accept(late_result.number, "ann", "eve")
    await desk.restore()
    await desk.store.inbox.accept(late_result.number, "ann", "eve")
    assert await desk.scene.states(job) == ["succeeded"]


@pytest.mark.parametrize("harm", ["damaged", "gone"])
async def test_a_file_that_is_not_as_it_was_written_is_refused(desk: Desk, harm: str) -> None:
    job = await desk.fail(2)
    await desk.archive()
    before, [blob] = await desk.bodies(), await desk.blobs()
    packed = b"".join([piece async for piece in desk.artifacts.get(blob)])

    async def other() -> Any:
        yield packed[:-9] + bytes([packed[-9] ^ 1]) + packed[-8:]

    await (desk.artifacts.put(blob, other()) if harm == "damaged" else desk.artifacts.delete(blob))
    with pytest.raises(NotAllowed, match=harm):
        await desk.restore()
    assert await desk.bodies() == before
    assert (await desk.archives())[0].restored_at is None
    await desk.archivist.forget(job)  # nor is it in the way of the job's deletion
    assert await desk.blobs() == ([blob] if harm == "damaged" else [])


async def test_a_restore_that_was_cut_short_is_gone_on_with(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    await desk.fail(5)
    before = await desk.bodies()
    await desk.archive()
    monkeypatch.setattr("backstay.upkeep.archivist.PAGE_LINES", 2)
    plain, calls = Archives.restore, 0

    async def dies_at_the_second(self: Archives, *given: Any) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise ConnectionResetError
        return await plain(self, *given)

    monkeypatch.setattr(Archives, "restore", dies_at_the_second)
    with pytest.raises(ConnectionResetError):
        await desk.restore()
    assert await desk.restore() == 3
    assert await desk.bodies() == before


async def test_another_owners_archive_is_not_there(desk: Desk) -> None:
    await desk.fail(owner="bob")
    await desk.fail(owner="ann")
    assert await desk.archive(owner="bob") == 1
    assert (await desk.archives("ann"), len(await desk.archives("bob"))) == ([], 1)
    with pytest.raises(NotFound, match="no archive 1"):
        await desk.restore(1, "ann")
    assert len(await desk.here("ann")) == 1


async def test_a_deleted_job_takes_its_items_out_of_archives(far_desk: Desk) -> None:
    first, second = await far_desk.fail(2), await far_desk.fail(3)
    await far_desk.archive()
    [whole] = await far_desk.archives()
    await far_desk.archivist.forget(first)
    [left] = await far_desk.archives()
    assert (left.id, left.items, await far_desk.blobs()) == (whole.id, 3, [left.blob])
    assert left.blob != whole.blob
    assert await far_desk.restore() == 3
    assert await far_desk.here() == ids(second, 2, 1, 0)
    await far_desk.archive()
    await far_desk.archivist.forget(second)
    assert [archive.id for archive in await far_desk.archives() if archive.restored_at is None] == []
    assert await far_desk.blobs() == []


async def test_a_long_message_of_an_archived_item_is_kept_in_part(desk: Desk) -> None:
    job = await desk.scene.ended(Failed(Failure(ErrorCode.GW_4XX, FailureKind.BUSINESS, "m" * 250)))
    await desk.archive()
    said = (await desk.store.item_views.row(item_id(job, 0), "ann")).message or ""
    assert said == f"{'m' * 200} · in archive 1: backstay deadletters restore 1"
    await desk.restore()
    assert (await desk.store.item_views.row(item_id(job, 0), "ann")).message == "m" * 250


async def test_an_archived_item_that_failed_again_after_a_restore_is_archived_again(desk: Desk) -> None:
    job = await desk.fail()
    await desk.archive()
    await desk.restore()
    await desk.store.jobs.retry(job, "ann")
    for item in await desk.scene.claim():
        await desk.scene.settle(item, WRONG)
    assert await desk.archive() == 1
    assert await desk.restore(2) == 1
