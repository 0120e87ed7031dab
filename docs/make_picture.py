"""Makes docs/home.png, the picture of the page in the README: a real service and a real browser before made-up work."""

import asyncio
import sys
import tempfile
from pathlib import Path

from backstay.wiring import migrate
from tests.server.pages.browser import opened, person
from tests.server.pages.sample_database import morning
from tests.server.rig import rigged

PICTURE = Path(__file__).parent / "home.png"


async def make(to: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "backstay.db"
        url = f"sqlite:///{file}"
        await migrate(url)
        async with rigged(url, Path(folder) / "data") as rig, opened() as browser:
            await morning(rig, file)
            ada = await person(rig, browser, color_scheme="light", locale="en-GB", timezone_id="Europe/Zurich")
            await ada.page.set_viewport_size({"width": 1200, "height": 1090})
            await ada.login()
            await ada.page.wait_for_load_state()
            await ada.page.screenshot(path=to)


if __name__ == "__main__":
    asyncio.run(make(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE))
