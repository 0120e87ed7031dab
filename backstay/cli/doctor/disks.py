"""Room on the disks that something is written to."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Final

from backstay.cli.doctor.finding import Finding, Setup, fail, ok, warn

FAIL_BYTES: Final = 256 << 20
WARN_BYTES: Final = 2 << 30
WARN_SHARE: Final = 0.05


async def disk_space(setup: Setup) -> AsyncIterator[Finding]:
    """Free space where the SQLite file, the folder for files and temporary files are."""
    import shutil

    seen: set[int] = set()
    for what, folder in _folders(setup):
        nearest = next(path for path in (folder, *folder.parents) if path.is_dir())
        device = nearest.stat().st_dev
        if device in seen:
            continue
        seen.add(device)
        usage = shutil.disk_usage(nearest)
        says = f"{usage.free / (1 << 30):,.1f} GiB free of {usage.total / (1 << 30):,.1f} for {what}"
        advice = "free some space: a full disk stops all work"
        if usage.free < FAIL_BYTES:
            yield fail(says, advice)
        elif usage.free < WARN_BYTES or usage.free < usage.total * WARN_SHARE:
            yield warn(says, advice)
        else:
            yield ok(says)


def _folders(setup: Setup) -> Iterator[tuple[str, Path]]:
    from backstay.store.urls import is_postgres

    settings = setup.settings
    if not is_postgres(setup.app.url):
        yield "the database", Path(setup.app.url.removeprefix("sqlite:///")).resolve().parent
    for what, place in (("files", settings.data), ("uploads", settings.uploads_dir), ("results", settings.results_dir)):
        if place is not None and "://" not in place:
            yield what, Path(place).resolve()
    yield "temporary files", Path(tempfile.gettempdir())
