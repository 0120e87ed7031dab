"""Files that a provider keeps elsewhere: they are fetched from there, and nothing secret goes along."""

import io

import pytest

from backstay.core.errors import Permanent
from tests.llm.odd_servers import OddServer, answer
from tests.llm.wire_rig import KEY, wire_to, wired

CONTENT = "/v1/files/f/content"


def elsewhere(where: str, status: int = 302) -> bytes:
    return answer("", status, location=where)


async def test_a_file_that_is_kept_elsewhere_is_fetched_from_there_without_the_key() -> None:
    into = io.BytesIO()
    async with OddServer(answer("lines")).serving() as store:
        async with wired(elsewhere(f"{store.url}/blob?signed=1")) as (wire, server):
            assert await wire.download(CONTENT, into, bytes_max=100) == 5
            assert server.header("authorization") == f"Bearer {KEY}"
        assert (into.getvalue(), store.targets) == (b"lines", ["/blob?signed=1"])
        assert KEY not in store.heads[0]
        assert store.header("authorization") is None


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_file_at_another_path_of_the_provider_is_fetched_with_the_key(status: int) -> None:
    async with wired(elsewhere("/v1/blob", status), answer("lines")) as (wire, server):
        assert await wire.download(CONTENT, io.BytesIO(), bytes_max=100) == 5
        assert server.targets == [CONTENT, "/v1/blob"]
        assert server.header("authorization", 1) == f"Bearer {KEY}"


@pytest.mark.parametrize("where", ["file:///etc/passwd", "ftp://127.0.0.1/x", "http://["])
async def test_a_redirect_to_what_is_no_place_for_files_is_not_followed(where: str) -> None:
    async with wired(elsewhere(where)) as (wire, server):
        with pytest.raises(Permanent, match="which is not safe"):
            await wire.download(CONTENT, io.BytesIO(), bytes_max=100)
        assert len(server.requests) == 1


async def test_a_redirect_in_a_circle_is_given_up() -> None:
    async with wired(elsewhere(CONTENT)) as (wire, server):
        with pytest.raises(Permanent, match="too many times"):
            await wire.download(CONTENT, io.BytesIO(), bytes_max=100)
        assert len(server.requests) == 6


async def test_a_call_is_redirected_nowhere() -> None:
    async with OddServer(answer("{}")).serving() as other, wired(elsewhere(other.url)) as (wire, _):
        assert (await wire.get("/v1/models")).status == 302
        assert other.requests == []


async def test_a_redirect_without_a_place_is_an_error() -> None:
    async with OddServer(answer("", 302)).serving() as server, wire_to(server.url) as wire:
        with pytest.raises(Permanent, match="302"):
            await wire.download(CONTENT, io.BytesIO(), bytes_max=100)


async def test_a_url_that_the_provider_names_on_another_host_gets_no_key() -> None:
    async with OddServer(answer("{}")).serving() as other, wired(answer("{}")) as (wire, server):
        await wire.exchange("PUT", f"{other.url}/up?signed=1", b"lines", {"x-offset": "0"})
        await wire.download(f"{other.url}/down", io.BytesIO(), bytes_max=100)
        assert (other.targets, other.bodies[0]) == (["/up?signed=1", "/down"], b"lines")
        assert other.header("x-offset") == "0"
        assert not any(KEY in head for head in other.heads)
        assert server.requests == []


async def test_a_url_that_the_provider_names_on_its_own_host_gets_the_key() -> None:
    async with wired(answer("{}")) as (wire, server):
        await wire.exchange("POST", f"{server.url}/v1/up", b"lines", {"x-offset": "0"})
        await wire.download(f"{server.url}/v1/down", io.BytesIO(), bytes_max=100)
        assert (server.targets, server.bodies[0]) == (["/v1/up", "/v1/down"], b"lines")
        assert [server.header("authorization", number) for number in (0, 1)] == [f"Bearer {KEY}"] * 2
