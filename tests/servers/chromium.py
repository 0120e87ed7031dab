"""Find Chromium, or install Debian's where that is ours to do. A browser is never downloaded from elsewhere."""

import shutil

from tests.servers import apt

NAMES = ("chromium", "chromium-browser", "google-chrome")


class ChromiumMissing(Exception):
    """Chromium is not on this machine. Install it and run again. Debian, Ubuntu: apt-get install chromium."""


def find_or_install() -> str:
    """The path of the program; installs it when root on Debian."""
    found = find()
    if found is None and apt.possible():
        wrong = apt.install("chromium")
        if wrong is not None:
            raise ChromiumMissing(f"{wrong}\n{ChromiumMissing.__doc__}")
        found = find()
    if found is None:
        raise ChromiumMissing(ChromiumMissing.__doc__)
    return found


def find() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)
