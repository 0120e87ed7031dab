"""What the script adds: news without loading, a pause, the keyboard, the viewer's zone; and all pages in a browser."""

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Route, expect

from tests.server.pages.browser import Person, person
from tests.server.pages.sample_database import morning
from tests.server.pages.scene import paths, staged
from tests.server.rig import Rig

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.slow]

LOOKS = (("wide", "light"), ("narrow", "dark"))  # both sizes and both schemes; the second is judged by a few pages


@pytest_asyncio.fixture(loop_scope="session")
async def ada(watched_rig: Rig, browser: Browser) -> AsyncIterator[Person]:
    made = await person(watched_rig, browser, timezone_id="Asia/Tokyo", locale="en-GB")
    await made.login()
    yield made
    assert made.complaints == []


async def test_a_job_moves_on_before_ones_eyes_unless_it_is_paused(watched_rig: Rig, ada: Person) -> None:
    job = await watched_rig.submit("echo", [{"n": n} for n in range(3)])
    page = ada.page
    await ada.go(f"/jobs/{job}")
    await expect(page.locator("[data-live-word]")).to_have_text("Live")
    await page.click("[data-pause]")
    await expect(page.locator("[data-live-word]")).to_have_text("Paused")
    await watched_rig.work()
    await page.wait_for_timeout(1_500)  # nothing is to happen, and only time can show that
    await expect(page.locator("#live .state").first).to_have_text("queued")
    await page.evaluate("window.notLoadedAgain = true")
    await page.click("[data-pause]")
    await expect(page.locator("#live .state").first).to_have_text("completed")
    await expect(page.locator("#rows")).to_contain_text("succeeded")
    assert await page.evaluate("window.notLoadedAgain")


async def test_news_come_while_one_looks(watched_rig: Rig, ada: Person) -> None:
    job = await watched_rig.submit("echo", [{"n": n} for n in range(3)])
    for path, place in (("/jobs", "#live"), (f"/items/{job}-0", "#live .state"), (f"/jobs/{job}", "#live .state")):
        await ada.go(path)
        await expect(ada.page.locator("[data-live-word]")).to_have_text("Live")
        await expect(ada.page.locator(place).first).to_contain_text("queued")
        if path.startswith("/jobs/"):
            await watched_rig.work()
            await expect(ada.page.locator(place).first).to_contain_text("completed")
            await expect(ada.page.locator("#said")).to_contain_text("Progress")


async def test_what_one_has_written_is_not_taken_away_by_news(watched_rig: Rig, ada: Person) -> None:
    await staged(watched_rig)
    page, fetched = ada.page, []

    async def meanwhile(route: Route) -> None:
        fetched.append(route.request.url)
        await page.locator("summary", has_text="Hold this provider").first.click()
        await page.fill("#minutes-1", "15")
        await page.locator("h1").click()
        await route.continue_()

    await page.clock.install()
    await page.route("**/providers?part=live", meanwhile)
    await ada.go("/providers")
    await expect(page.locator("[data-live-word]")).to_have_text("Live")
    async with page.expect_request_finished(lambda request: "part=live" in request.url):
        await page.clock.fast_forward(11_000)
    await page.clock.run_for(11_000)
    await expect(page.locator("#minutes-1")).to_have_value("15")
    assert len(fetched) == 1


async def test_the_keyboard_goes_everywhere_and_can_be_switched_off(watched_rig: Rig, ada: Person) -> None:
    scene, page = await staged(watched_rig), ada.page
    await ada.go("/jobs")
    await page.keyboard.press("/")
    await expect(page.locator("#q")).to_be_focused()
    await page.keyboard.type("jk")
    assert await page.input_value("#q") == "jk"
    await ada.go("/jobs")
    await page.keyboard.press("j")
    await page.keyboard.press("j")
    await expect(page.locator(f"a[href='/jobs/{scene.failing}']")).to_be_focused()
    await page.keyboard.press("k")
    await expect(page.locator(f"a[href='/jobs/{scene.waiting}']")).to_be_focused()
    await page.keyboard.press("j")
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_contain_text(f"Job {scene.failing}")
    await page.keyboard.press("r")
    await expect(page.get_by_role("dialog")).to_contain_text("6 failed items")
    await page.keyboard.press("Escape")
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("Keyboard")
    await page.get_by_role("button", name="Turn shortcuts off").click()
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_have_count(0)


async def test_the_way_past_the_navigation_comes_first(watched_rig: Rig, ada: Person) -> None:
    await ada.go("/jobs")
    await ada.page.keyboard.press("Tab")
    await expect(ada.page.locator(".skip")).to_be_focused()
    await ada.page.keyboard.press("Enter")
    await expect(ada.page.locator("main")).to_be_focused()


async def test_dates_are_in_the_viewers_zone(watched_rig: Rig, ada: Person) -> None:
    job = await watched_rig.submit()
    await ada.go(f"/jobs/{job}")
    shown = ada.page.locator("#terms ~ dl time").first
    written = await shown.get_attribute("datetime")
    told = await ada.page.evaluate(
        "at => new Intl.DateTimeFormat('en-GB', {dateStyle: 'medium', timeStyle: 'medium', timeZone: 'Asia/Tokyo'})"
        ".format(new Date(at))",
        written,
    )
    assert await shown.inner_text() == told


async def test_the_theme_is_chosen_without_script_and_kept(watched_rig: Rig, browser: Browser) -> None:
    plain = await person(watched_rig, browser, java_script_enabled=False, color_scheme="light")
    await plain.login()
    grounds = {}
    for theme in ("Dark", "Light", "Auto"):
        await plain.page.click(f"button:has-text('{theme}')")
        await plain.go("/jobs")
        grounds[theme] = await plain.page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert grounds["Light"] == grounds["Auto"] != grounds["Dark"]


async def test_every_page_is_for_everyone_and_fits(watched_rig: Rig, browser: Browser) -> None:
    scene = await morning(watched_rig, Path(watched_rig.made.url.removeprefix("sqlite:///")))
    for size, scheme in LOOKS:
        looking = await person(watched_rig, browser, size, color_scheme=scheme, locale="en-GB")
        await looking.login()
        for path in [*paths(scene), "/nowhere"]:
            await looking.go(path)
            assert await looking.overflow() <= 0, (path, size)
            assert await looking.cut_off() == [], (path, size)
            if size == "wide" or path in ("/", "/dead-letters", f"/jobs/{scene.failing}", f"/items/{scene.failed}"):
                assert await looking.grave_findings() == [], (path, size, scheme)
            name = re.sub(r"\W+", "-", path).strip("-") or "home"
            await looking.keep(f"{name}-{size}-{scheme}")
        assert [one for one in looking.complaints if "404" not in one] == []


async def test_a_page_that_leaves_someone_out_is_found(watched_rig: Rig, browser: Browser) -> None:
    looking = await person(watched_rig, browser)
    await looking.page.set_content("<title>x</title><main><input><p style='color:#ccc;background:#fff'>pale</p></main>")
    found = " ".join(await looking.grave_findings())
    assert "label" in found
    assert "color-contrast" in found


async def test_hostile_text_runs_nothing_in_a_real_browser(watched_rig: Rig, ada: Person) -> None:
    text = "\"'><img src=x onerror=alert(1)></script><script>alert(2)</script>‮"
    job = await watched_rig.submit("echo", [{"text": text}], label=text)
    await watched_rig.work()
    for path in ("/", "/jobs", f"/jobs/{job}", f"/items/{job}-0", f"/jobs?q={text}"):
        await ada.go(path)
        assert await ada.page.locator("img").count() == 1
    assert "<script>alert(2)</script>" in await ada.text()
