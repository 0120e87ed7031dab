"""The same service with its files in S3."""

import pytest

from backstay.clock import new_id
from tests.server.converting import convert, converting, upload
from tests.server.pdfs import pdf
from tests.server.test_logs import talked
from tests.servers.s3 import BUCKET, PrivateS3

KEY = "0123456789" * 4


@pytest.fixture
def prefix(s3: PrivateS3, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    return new_id()


async def test_logs_are_kept_there(s3: PrivateS3, prefix: str, sqlite_file_url: str) -> None:
    place = f"s3://{BUCKET}/{prefix}"
    async with talked(sqlite_file_url, place, [{"say": "far away"}], secret_key=KEY) as (rig, job):
        assert "said far away" in (await rig.ada.get(f"/api/items/{job}-0/log")).body.decode()
        assert [name.startswith(f"{prefix}/logs/{job}/0/") for name in s3.objects(prefix)] == [True]


async def test_sources_and_results_are_kept_there_and_go_with_their_files(
    s3: PrivateS3, prefix: str, sqlite_file_url: str
) -> None:
    content = pdf("a long one", bytes_min=20 << 20)
    async with converting(sqlite_file_url, f"s3://{BUCKET}/{prefix}", secret_key=KEY) as (rig, _):
        job = await convert(rig, content)
        result = await rig.ada.get(f"/api/items/{job}-0/result")
        assert (result.status, b"a long one" in result.body) == (200, True)
        assert list(s3.objects(f"{prefix}/files").values()) == [len(content)]
        assert list(s3.objects(f"{prefix}/results").values()) == [len(result.body)]
        for file in (await rig.ada.get("/api/uploads")).json["data"]:
            assert (await rig.ada.delete(f"/api/uploads/{file['id']}")).status == 204
        assert s3.objects(f"{prefix}/files") == s3.objects(f"{prefix}/results") == {}


async def test_a_refused_upload_leaves_nothing_there(s3: PrivateS3, prefix: str, sqlite_file_url: str) -> None:
    place = f"s3://{BUCKET}/{prefix}"
    async with converting(sqlite_file_url, place, secret_key=KEY, upload_max_bytes=18 << 20) as (rig, _):
        assert (await upload(rig.ada, pdf(bytes_min=19 << 20))).status == 413
        assert (s3.objects(prefix), s3.unfinished()) == ({}, [])
