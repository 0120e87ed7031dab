"""Paths that are none: an answer never leads to where the client's own Host header says."""

import pytest

from tests.server.operations import ROLES
from tests.server.pages.reader import Reader
from tests.server.rig import Rig

EVIL = {"host": "evil.example"}


def with_a_slash() -> list[str]:
    """Every path there is, with a slash at its end that does not belong there."""
    known = {operation.partition(" ")[2] for operation in ROLES} | {"/jobs", "/login", "/providers", "/livez", "/keys"}
    return sorted(f"{path.replace('{', '').replace('}', '')}/" for path in known)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE", "HEAD"])
async def test_a_slash_too_many_is_no_redirect_to_the_host_that_was_sent(sqlite_rig: Rig, method: str) -> None:
    for path in with_a_slash():
        for asked in (sqlite_rig.ada, Reader(sqlite_rig)):
            reply = await asked(method, path, headers=EVIL)
            assert "evil.example" not in reply.headers.get("location", ""), (method, path, reply)
            assert reply.status in (401, 403, 404, 405), (method, path, reply)


async def test_a_slash_too_many_is_a_path_that_is_not_there(sqlite_rig: Rig) -> None:
    for path in ("/api/jobs/", "/v1/batches/", "/openai/files/", "/jobs/"):
        assert (await sqlite_rig.ada.get(path, headers=EVIL)).status == 404, path
