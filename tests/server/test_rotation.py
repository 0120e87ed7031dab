"""The secret key is changed while the service goes on: the first of several signs, and all verify."""

import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook, WebhookVerificationError

from backstay.server.pages.page_request import COOKIE
from backstay.settings import KEY_FILE
from backstay.store.keys import Role
from tests.house.sources import ROOT
from tests.server.pages.reader import Reader, reader
from tests.server.receiver import Receiver, Visit
from tests.server.remote_rig import PUBLIC, Remote
from tests.server.rig import Rig, practice_app, rigged

PYTHON = Path(sys.executable).parent
OLD, NEW = "old-" + "o" * 32, "new-" + "n" * 32


@pytest.fixture
def serve(database_url: str, tmp_path: Path, receiver: Receiver) -> Callable[[str], Any]:
    """The service on one database, each time with the keys that it is given."""
    receiver.says(202)

    @asynccontextmanager
    async def started(keys: str) -> AsyncIterator[Rig]:
        given: dict[str, Any] = {"public_url": PUBLIC, "inside_hosts": receiver.place, "secret_key": keys}
        async with rigged(database_url, tmp_path / "data", practice_app(database_url), **given) as rig:
            yield rig

    return started


Ask = Callable[[Rig], Awaitable[bool]]


async def given_out(rig: Rig, receiver: Receiver) -> dict[str, Ask]:
    """What a service hands out and takes back later: of each, whether a service takes it."""
    remote = Remote(rig, receiver)
    address, key, job = await remote.send(), rig.ada.key, remote.job
    await rig.submit()
    await rig.submit()
    cursor = (await rig.ada.get("/api/jobs?limit=1")).json["next_cursor"]
    browser = await reader(rig, "ada", Role.ADMIN)
    cookies, token = dict(browser.cookies), await browser.token()

    async def answer(other: Rig) -> bool:
        return (await other.holder(None).post(address, json={"status": "progress", "progress": 1})).status == 202

    async def turn_the_page(other: Rig) -> bool:
        return (await other.holder(key).get("/api/jobs", params={"limit": 1, "cursor": cursor})).status == 200

    async def look(other: Rig) -> bool:
        return (await Reader(other, {COOKIE: cookies[COOKIE]}).get(f"/jobs/{job}")).status == 200

    async def send_a_form(other: Rig) -> bool:
        held = Reader(other, {COOKIE: cookies[COOKIE]})
        return (await held("POST", "/theme", data={"token": token, "theme": "dark"})).status == 303

    return {"a callback": answer, "a cursor": turn_the_page, "a session": look, "a form": send_a_form}


async def taken(rig: Rig, things: dict[str, Ask]) -> set[str]:
    return {name for name, ask in things.items() if await ask(rig)}


@pytest.mark.slow
async def test_what_was_given_out_is_taken_as_long_as_its_key_is_listed(
    serve: Callable[[str], Any], receiver: Receiver
) -> None:
    async with serve(OLD) as rig:
        before = await given_out(rig, receiver)
        assert await taken(rig, before) == set(before)
    async with serve(f"{OLD},{NEW}") as rig:  # one that is yet to hear of the change
        early = await given_out(rig, receiver)
    async with serve(f"{NEW}, {OLD}") as rig:
        assert await taken(rig, before) == await taken(rig, early) == set(before)
        after = await given_out(rig, receiver)
    async with serve(f"{OLD},{NEW}") as rig:
        assert await taken(rig, after) == set(after), "those that start one by one understand each other"
    async with serve(NEW) as rig:
        assert await taken(rig, after) == set(after), "the first signs"
        assert await taken(rig, before) == await taken(rig, early) == set(), "what is not listed counts no more"


def opens(secret: str, visit: Visit) -> bool:
    try:
        Webhook(secret).verify(visit.body, visit.headers)
    except WebhookVerificationError:
        return False
    return True


async def told(rig: Rig, receiver: Receiver, webhook: str) -> Visit:
    visits = len(receiver.visits)
    assert (await rig.ada.post(f"/api/webhooks/{webhook}/test")).status == 202
    return await receiver.wait(visits + 1)


@pytest.mark.slow
async def test_webhooks_are_signed_by_all_keys_so_that_receivers_change_their_secrets_in_their_own_time(
    serve: Callable[[str], Any], receiver: Receiver
) -> None:
    async with serve(OLD) as rig:
        made = (await rig.ada.post("/api/webhooks", json={"url": receiver.url})).json
        assert opens(made["secret"], await told(rig, receiver, made["id"]))
    async with serve(f"{NEW},{OLD}") as rig:
        assert opens(made["secret"], await told(rig, receiver, made["id"]))
        changed = (await rig.ada.post(f"/api/webhooks/{made['id']}/rotate")).json
        visit = await told(rig, receiver, made["id"])
        assert opens(changed["secret"], visit)
        assert opens(made["secret"], visit), "for 24 hours, as after any change of the secret"
    async with serve(NEW) as rig:
        visit = await told(rig, receiver, made["id"])
        assert opens(changed["secret"], visit)
        assert not opens(made["secret"], visit)


async def test_requests_to_remote_workers_are_signed_by_all_keys(
    serve: Callable[[str], Any], receiver: Receiver
) -> None:
    secrets = []
    for keys in (OLD, f"{NEW},{OLD}", NEW):
        async with serve(keys) as rig:
            secrets.append((await rig.ada.get("/api/remote/secret")).json["secret"])
            await Remote(rig, receiver).send()
            opened = [opens(secret, receiver.visits[-1]) for secret in secrets]
        assert opened == {OLD: [True], f"{NEW},{OLD}": [True, True], NEW: [False, True, True]}[keys]
    assert secrets[1] == secrets[2] != secrets[0], "the first key's is shown"


@pytest.mark.slow
async def test_the_file_beside_the_data_may_hold_several_keys_and_the_page_says_how_to_put_one_first(
    sqlite_file_url: str, tmp_path: Path, receiver: Receiver
) -> None:
    given: dict[str, Any] = {"inside_hosts": receiver.place, "public_url": PUBLIC}
    data = tmp_path / "team.data"
    receiver.says(202)
    async with rigged(sqlite_file_url, data, **given) as rig:
        before = await given_out(rig, receiver)
    old = keys_in(data)
    assert len(old) == 1
    put_another_first(tmp_path)
    assert keys_in(data)[1:] == old
    assert oct(os.stat(data / KEY_FILE).st_mode & 0o777) == "0o600"
    async with rigged(sqlite_file_url, data, **given) as rig:
        assert await taken(rig, before) == set(before)
        after = await given_out(rig, receiver)
    for key, known in zip(keys_in(data), (after, before), strict=True):
        async with rigged(sqlite_file_url, data, secret_key=key, **given) as rig:
            assert [await taken(rig, things) == set(things) for things in (before, after)] == [
                known is before,
                known is after,
            ]


def keys_in(folder: Path) -> list[str]:
    return (folder / KEY_FILE).read_text().split()


def put_another_first(folder: Path) -> None:
    """As the page says."""
    page = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
    [block] = [one for one in re.findall(r"^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) if "secret.key" in one]
    subprocess.run(["bash", "-ec", block], cwd=folder, check=True, env={"PATH": f"{PYTHON}:{os.environ['PATH']}"})
