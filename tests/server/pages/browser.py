"""A person before a real Chromium: logged in, with what the page complained of kept."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from backstay.store.keys import Role
from tests.house.sources import ROOT
from tests.server.rig import Rig
from tests.servers import chromium

SCREENSHOTS = ROOT / "build" / "screenshots"
WAIT_MS = 15_000
TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
GRAVE = ("serious", "critical")
CUT_OFF = """[...document.querySelectorAll("main button, main .button")].filter(one => {
    const place = one.getBoundingClientRect();
    return place.width && (place.right > innerWidth || place.left < 0);
}).map(one => one.textContent)"""
SIZES = {"wide": (1280, 900), "narrow": (360, 740)}


@dataclass(slots=True)
class Person:
    rig: Rig
    page: Page
    complaints: list[str] = field(default_factory=list)  # of the page: errors, and what its policy forbade

    async def go(self, path: str) -> None:
        await self.page.goto(self.rig.url + path)

    async def text(self, selector: str = "main") -> str:
        return " ".join((await self.page.inner_text(selector)).split())

    async def login(self, owner: str = "ada", role: Role = Role.ADMIN) -> None:
        await self.go("/login")
        await self.page.fill("#key", self.rig.keys[owner, role])
        await self.page.click("button:has-text('Log in')")
        await self.page.wait_for_url(self.rig.url + "/")

    async def overflow(self) -> int:
        """How many pixels one would have to scroll sideways."""
        found: int = await self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
        return found

    async def cut_off(self) -> list[str]:
        """Acts that begin or end beyond the edge of the window, so that one would have to scroll a table for them."""
        found: list[str] = await self.page.evaluate(CUT_OFF)
        return found

    async def grave_findings(self) -> list[str]:
        """What axe-core finds serious, in words."""
        await self.page.evaluate(_axe())
        options = {"runOnly": {"type": "tag", "values": TAGS}, "resultTypes": ["violations"]}
        found = await self.page.evaluate("options => axe.run(document, options)", options)
        grave = [one for one in found["violations"] if one["impact"] in GRAVE]
        return [f"{one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes']][:5]}" for one in grave]

    async def keep(self, name: str) -> None:
        await self.page.screenshot(path=_place(name), full_page=True)


@cache
def _axe() -> str:
    """axe-core, as the package that is named after it and Playwright carries it."""
    return files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")


def _place(name: str) -> Path:
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    return SCREENSHOTS / f"{name}.png"


@asynccontextmanager
async def opened() -> AsyncIterator[Browser]:
    # As root a browser has no sandbox of its own; what it loads is ours.
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(executable_path=chromium.find_or_install(), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


async def person(rig: Rig, browser: Browser, size: str = "wide", **given: Any) -> Person:
    width, height = SIZES[size]
    context: BrowserContext = await browser.new_context(viewport={"width": width, "height": height}, **given)
    context.set_default_timeout(WAIT_MS)
    page = await context.new_page()
    made = Person(rig, page)
    page.on("pageerror", lambda error: made.complaints.append(str(error)))
    page.on("console", lambda said: made.complaints.append(said.text) if said.type == "error" else None)
    page.on("dialog", lambda dialog: made.complaints.append(f"dialog: {dialog.message}"))
    return made
