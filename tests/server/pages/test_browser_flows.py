"""Each flow clicked through in a real Chromium."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from backstay.core.breaker import BreakerState
from backstay.server.pages import dead_letters
from backstay.store.keys import Role
from tests.server.pages.browser import Person, person
from tests.server.pages.scene import staged
from tests.server.remote_rig import remote_work
from tests.server.rig import Rig

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]


@pytest_asyncio.fixture(loop_scope="session")
async def ada(watched_rig: Rig, browser: Browser) -> AsyncIterator[Person]:
    """Logged in as an admin; nothing that she does may make a page complain."""
    made = await person(watched_rig, browser)
    await made.login()
    yield made
    assert made.complaints == []


async def test_a_job_is_found_paused_resumed_and_cancelled(watched_rig: Rig, ada: Person) -> None:
    scene, page = await staged(watched_rig), ada.page
    await page.click("nav >> text=Jobs")
    await page.fill("#q", "tickets")
    await page.press("#q", "Enter")
    await page.click(f"tbody >> text='{scene.waiting}'")
    await expect(page.locator("h1")).to_contain_text(f"Job {scene.waiting}")
    await page.click("#live button:has-text('Pause')")
    await expect(page.get_by_role("status").first).to_contain_text("is paused")
    await page.click("button:has-text('Resume')")
    await expect(page.get_by_role("status").first).to_contain_text("is resumed")
    await page.click("text=Cancel…")
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("60 items of 60 have not ended")
    await dialog.get_by_role("link", name="Not now").click()
    await expect(dialog).to_have_count(0)
    await page.click("text=Cancel…")
    await page.get_by_role("dialog").get_by_role("button", name="Cancel 60 items").click()
    await expect(page.get_by_role("status").first).to_contain_text("is being cancelled")
    assert (await watched_rig.ada.get(f"/api/jobs/{scene.waiting}")).json["state"] == "cancelled"


async def test_a_group_of_failures_is_retried_and_an_item_too(watched_rig: Rig, ada: Person) -> None:
    scene, page = await staged(watched_rig), ada.page
    await ada.go(f"/jobs/{scene.failing}")
    await page.get_by_role("link", name="Retry… items with GW_5XX").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("2 failed items will be queued again")
    await dialog.get_by_role("button", name="Retry 2 items").click()
    await expect(page.get_by_role("status").first).to_contain_text("2 items queued again")
    await page.select_option("#state", "failed")
    await page.click("#items ~ form button:has-text('Filter')")
    assert "state=failed" in page.url
    await page.click(f"#rows >> text='{scene.failed}'")
    await expect(page.locator(".story")).to_contain_text("Call 1: failed")
    await page.click("button:has-text('Retry')")
    await expect(page.get_by_role("status").first).to_contain_text("is queued again")
    async with page.expect_download() as loading:
        await ada.go(f"/jobs/{scene.failing}")
        await page.click("text=All results")
    assert (await loading.value).suggested_filename == f"job-{scene.failing}-results.jsonl"


async def test_dead_letters_are_replayed(watched_rig: Rig, ada: Person) -> None:
    await staged(watched_rig)
    page = ada.page
    await page.click("nav >> text=Dead letters")
    await page.get_by_role("link", name="Replay… items with UNKNOWN").click()
    dialog = page.get_by_role("dialog")
    await expect(dialog).to_contain_text("2 failed items will be queued again")
    await dialog.get_by_role("button", name="Replay 2 items").click()
    await expect(page.get_by_role("status").first).to_contain_text("2 items queued again")
    await expect(page.locator("#groups ~ .scroll")).not_to_contain_text("UNKNOWN")
    await expect(page.locator("#replays ~ .scroll")).to_contain_text("2 items back in the queue")
    await page.get_by_role("link", name="Replay… items with GW_5XX").click()
    await page.get_by_label("Items per second").fill("0.1")
    await page.get_by_role("button", name="Replay 2 items").click()
    await expect(page.get_by_label("Progress of replay 2")).to_be_visible()


async def test_dead_letters_are_archived_and_restored(watched_rig: Rig, ada: Person) -> None:
    await staged(watched_rig)
    page = ada.page
    await ada.go("/dead-letters?code=GW_4XX")
    await page.get_by_role("link", name="Archive these…").click()
    await expect(page.get_by_role("dialog")).to_contain_text("2 dead letters found")
    await page.get_by_role("button", name="Archive").click()
    await expect(page.get_by_role("status").first).to_contain_text("2 dead letters archived")
    await page.get_by_role("button", name="Restore archive 1").click()
    await expect(page.get_by_role("status").first).to_contain_text("2 dead letters of archive 1 restored")
    await expect(page.locator("#groups ~ .scroll")).to_contain_text("GW_4XX")


async def test_what_takes_long_is_counted_after_the_first_paint(
    watched_rig: Rig, ada: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    await staged(watched_rig)
    monkeypatch.setattr(dead_letters, "GROUPED_FIRST", 3)
    await ada.go("/dead-letters")
    await expect(ada.page.locator("#groups ~ .scroll")).to_contain_text("UNKNOWN")
    await expect(ada.page.locator("#live")).not_to_contain_text("Counted among")


async def test_a_provider_is_held_and_released(watched_rig: Rig, ada: Person) -> None:
    await staged(watched_rig)
    page = ada.page
    await page.click("nav >> text=Providers")
    box = page.locator("section", has=page.locator("h2", has_text="echo"))
    await box.get_by_text("Hold this provider").click()
    await box.get_by_label("Reason").fill("quota")
    await box.get_by_label("Minutes").fill("15")
    await box.get_by_role("button", name="Hold").click()
    await expect(box.locator(".state")).to_have_text("held")
    await page.click("nav >> text=Jobs")
    banner = page.locator(".notice.busy")
    await expect(banner).to_contain_text("busy, jobs resume by themselves")
    assert (await watched_rig.service.store.providers.holds()).providers["echo"].state is BreakerState.HELD
    await banner.get_by_role("link", name="Providers").click()
    await page.get_by_role("button", name="Release echo").click()
    await page.click("nav >> text=Jobs")
    await expect(banner).to_have_count(0)


async def test_a_key_is_made_used_and_revoked(watched_rig: Rig, ada: Person, browser: Browser) -> None:
    page = ada.page
    await page.click("nav >> text=Keys")
    await page.get_by_label("Name").fill("for the night")
    await page.get_by_label("Role").select_option("write")
    await page.get_by_role("button", name="Create a key").click()
    secret = (await page.inner_text(".secret")).strip()
    other = await person(watched_rig, browser)
    watched_rig.keys["night", Role.WRITE] = secret
    await other.login("night", Role.WRITE)
    assert "ada · write" in await other.text("header")
    assert "Keys" not in await other.text("header")
    await page.get_by_role("link", name=f"Revoke… {secret.split('_')[1]}").click()
    await page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    await expect(page.get_by_role("status").first).to_contain_text("is revoked")
    await other.page.click("nav >> text=Jobs")
    await expect(other.page.locator("h1")).to_have_text("Log in")
    await page.click("text=Log out")
    await expect(page.locator("h1")).to_have_text("Log in")


async def test_a_late_result_is_accepted(sqlite_file_url: str, tmp_path: Path, browser: Browser) -> None:
    async with remote_work(sqlite_file_url, tmp_path / "data") as remote:
        await remote.say(await remote.miss_deadline(), status="succeeded", result={"grade": 9})
        admin = await person(remote.rig, browser)
        # The service is told that it is reached by https, so its cookies are too: here they are given by hand.
        await _enter_by_hand(admin)
        await admin.go(f"/items/{remote.job}-0")
        await expect(admin.page.locator(".notice.warn")).to_contain_text("A result came late")
        await admin.page.get_by_role("button", name="Accept the late result").click()
        await expect(admin.page.locator("main")).to_contain_text("Its late result was accepted")
        assert (await remote.item())["state"] == "succeeded"


async def _enter_by_hand(who: Person) -> None:
    from tests.server.pages.reader import reader

    found = await reader(who.rig)
    cookies = [{"name": name, "value": value, "url": who.rig.url} for name, value in found.cookies.items()]
    await who.page.context.add_cookies(cookies)  # type: ignore[arg-type]


async def test_everything_is_read_and_done_without_script(watched_rig: Rig, browser: Browser) -> None:
    scene = await staged(watched_rig)
    plain = await person(watched_rig, browser, java_script_enabled=False)
    await plain.login()
    await plain.go(f"/jobs/{scene.failing}")
    await plain.page.get_by_role("link", name="Retry 6 failed items…").click()
    await plain.page.get_by_role("button", name="Retry 6 items").click()
    await expect(plain.page.get_by_role("status").first).to_contain_text("6 items queued again")
    assert "UTC" in await plain.text()
