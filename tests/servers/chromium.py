"""Find Chromium, or install Debian's where that is ours to do. A browser is never downloaded from elsewhere."""

import shutil

from tests.servers import apt

NAMES = ("chromium", "chromium-browser", "google-chrome")


class ChromiumMissing(Exception):
    """Chromium is not on this machine. Install it and run again. Debian, Ubuntu: apt-get install chromium."""


def find_or_install() -> str:
    """The path of the program; installs it when root on Debian."""
    return apt.found_or_installed(find, "chromium", ChromiumMissing)


def find() -> str | None:
    return next((path for path in map(shutil.which, NAMES) if path is not None), None)
