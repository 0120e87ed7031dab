"""The place for files: whether it stores them, who may read them, and the key in it."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from backstay.cli.doctor import Finding, Setup, fail, ok, warn
from backstay.core.errors import BackstayError, FilesUnreachable, NotFound
from backstay.core.failures import one_line

if TYPE_CHECKING:
    from backstay.artifacts import Artifacts

PROBE: Final = b"written by backstay doctor; it can be deleted\n"
REASON_CHARACTERS_MAX: Final = 300
ANSWER_SECONDS: Final = 10.0
DELETE_SECONDS: Final = 3.0  # short, because the place may not have answered before


def _places(setup: Setup) -> dict[str, str]:
    """Where files go, by their kind: one place for all, unless some have their own."""
    from backstay.artifacts import default_folder
    from backstay.store.databases.database import is_postgres

    settings = setup.settings
    main = settings.data or (None if is_postgres(setup.app.url) else str(default_folder(setup.app.url)))
    named = {"files": main, "uploads": settings.uploads_dir, "results": settings.results_dir}
    return {what: place for what, place in named.items() if place is not None}


async def files(setup: Setup) -> AsyncIterator[Finding]:
    """Whether a small file can be written to the place for files, read back and deleted: a folder, or S3."""
    from backstay.artifacts import artifacts_at

    places = _places(setup)
    if not places:
        yield ok("no place for files is set: only the service and the converter need one")
    for what, place in places.items():
        if not _is_there(place):
            yield ok(f"{what}: Backstay creates {place} at its first use")
            continue
        try:
            await _probe(artifacts_at(place))
        except FilesUnreachable as error:
            yield _unreachable(what, place, error)
        except TimeoutError:
            yield _unreachable(what, place, FilesUnreachable("it did not answer in time"))
        else:
            yield ok(f"{what}: {place} stores and returns files")


def _is_there(place: str) -> bool:
    """Whether there is something to test: a bucket, a folder that exists, or one that cannot be created."""
    return "://" in place or Path(place).exists() or not _can_be_made(Path(place))


def _can_be_made(folder: Path) -> bool:
    nearest = next(one for one in folder.absolute().parents if one.exists())
    return nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)


async def _probe(artifacts: "Artifacts") -> None:
    """Raises unless a test file can be written and read."""
    from backstay.clock import new_id

    async def chunks() -> AsyncIterator[bytes]:
        yield PROBE

    name = f"doctor/{new_id()}"
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            await artifacts.put(name, chunks())
            read = b"".join([piece async for piece in artifacts.get(name)])
        if read != PROBE:
            raise FilesUnreachable("a test file came back with different content")
    except NotFound as error:
        raise FilesUnreachable("a test file was written, but is not there") from error
    finally:
        async with asyncio.timeout(DELETE_SECONDS):
            await artifacts.delete(name)


def _unreachable(what: str, place: str, error: BackstayError) -> Finding:
    """In the storage library's own words: the person who runs this may see the path."""
    why = one_line(str(error.__cause__ or error), REASON_CHARACTERS_MAX)
    advice = "check that the folder exists and that this user can write to it"
    if place.startswith("s3://"):
        advice = "check the bucket name, and AWS_ENDPOINT_URL, AWS_REGION and the keys in the environment"
    return fail(f"{what}: {place} does not store files: {why}", advice)


async def folder_permissions(setup: Setup) -> AsyncIterator[Finding]:
    """Whether others on this machine can read the SQLite file, the folder for files, or the key in it."""
    for path in _database_files(setup.app.url):
        if stat.S_IMODE(path.stat().st_mode) & (stat.S_IROTH | stat.S_IWOTH):
            yield warn(
                f"every user of this machine can read {path}, which holds prompts and answers", f"chmod o-rwx {path}"
            )
    for what, place in _places(setup).items():
        for finding in _permissions(what, Path(place)) if "://" not in place else ():
            yield finding


def _database_files(url: str) -> list[Path]:
    """The SQLite file and those that SQLite keeps beside it while it is in use."""
    from backstay.store.databases.database import is_postgres

    file = url.removeprefix("sqlite:///")
    named = () if is_postgres(url) else (file, f"{file}-wal", f"{file}-shm")
    return [Path(name) for name in named if Path(name).is_file()]


def _permissions(what: str, folder: Path) -> Iterator[Finding]:
    from backstay.signing import KEY_NAME

    if not folder.is_dir():
        return
    mode = stat.S_IMODE(folder.stat().st_mode)
    if mode & stat.S_IWOTH:
        yield fail(f"{what}: every user of this machine can write to {folder}", f"chmod o-rwx {folder}")
    elif mode & (stat.S_IROTH | stat.S_IXOTH):
        yield warn(f"{what}: every user of this machine can read {folder}", f"chmod o-rwx {folder}")
    else:
        yield ok(f"{what}: only its owner can read {folder}")
    key = folder / KEY_NAME
    if key.is_file() and stat.S_IMODE(key.stat().st_mode) & 0o077:
        yield fail(f"other users can read {key}, the secret that signs webhooks and callbacks", f"chmod 600 {key}")


async def secret_key(setup: Setup) -> AsyncIterator[Finding]:
    """Whether all processes of a service have the same signing key."""
    from backstay.remote.work import local_service_key
    from backstay.signing import Signer, read_keys
    from backstay.store.databases.database import is_postgres

    settings = setup.settings
    advice = "set BACKSTAY_SECRET_KEY to the same 32 characters or more in every process"
    if settings.secret_key is not None:
        Signer(settings.secret_key)  # raises for one that is too short
        keys = len(read_keys(settings.secret_key))
        yield ok("set" if keys == 1 else f"{keys} are set: the first signs, all verify")
    elif settings.data is not None and settings.data.startswith("s3://"):
        yield fail(
            "BACKSTAY_SECRET_KEY is not set, and the key is never stored in S3: the service will not start", advice
        )
    elif is_postgres(setup.app.url) and (settings.data or settings.public_url or settings.redis_url):
        where = (
            "is stored in the folder for files"
            if local_service_key(setup.app)
            else "will be created in the folder for files"
        )
        yield warn(f"it {where}: a process on another machine would create a different key", advice)
    else:
        yield ok("stored with the files of this machine")
