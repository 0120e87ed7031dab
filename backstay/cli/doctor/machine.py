"""This machine: Python and its libraries, the clock, open files, the disks and the settings."""

import difflib
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from backstay.cli.doctor import Finding, Setup, fail, ok, warn

if TYPE_CHECKING:
    from backstay.settings import Settings


SHOWN: Final = ("aiohttp", "asyncpg", "aio-pika", "redis", "obstore", "uvloop")
SQLITE_MIN: Final = (3, 38)  # the first with -> and ->>
FILES_SPARE: Final = 200  # beside calls: databases, brokers, logs, modules


async def versions(setup: Setup) -> AsyncIterator[Finding]:
    """Python, Backstay, SQLite and the libraries, against what this version of Backstay needs."""
    import sqlite3

    import backstay

    found = {name: version for name in SHOWN if (version := _installed_version(name)) is not None}
    python = ".".join(map(str, sys.version_info[:3]))
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    yield ok(f"Backstay {backstay.__version__}, Python {python}, SQLite {sqlite3.sqlite_version}, {listed}")
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        yield fail(f"SQLite {sqlite3.sqlite_version} is too old", f"use a Python that is built with {needed} or newer")
    for need in _needs():
        version = _installed_version(need.name)
        if version is not None and _numbers(version) < _numbers(need.least):
            says = f"{need.name} {version} is installed, {need.least} or newer is needed"
            yield fail(says, f"pip install --upgrade 'backstay{need.extra}'")


class Need(NamedTuple):
    name: str
    least: str
    extra: str  # in brackets, or empty


def _needs() -> Iterator[Need]:
    """The requirements of the installed Backstay."""
    import re
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires("backstay") or []
    except PackageNotFoundError:
        return
    for line in lines:
        least = re.match(r"([\w.-]+)(?:\[[^]]*\])?>=([\d.]+)", line)
        extra = re.search(r"extra == ['\"](\w+)['\"]", line)
        if least is not None and (extra is None or extra[1] != "dev"):
            yield Need(least[1], least[2], f"[{extra[1]}]" if extra else "")


def _installed_version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    import re

    found = [int(number) for number in re.findall(r"\d+", version)]
    return tuple((*found, 0, 0, 0)[:3])  # 5 is not older than 5.0


async def extras(setup: Setup) -> AsyncIterator[Finding]:
    """Whether the libraries are installed that the URLs of the settings need."""
    wanted = dict(_needed_modules(setup.app.url, setup.settings))
    for module, (extra, why) in wanted.items():
        if not _is_installed(module):
            yield fail(f"{why} needs {module}, which is not installed", f"pip install 'backstay[{extra}]'")
    if all(map(_is_installed, wanted)):
        yield ok(", ".join(sorted(wanted)) or "no extra is needed")


def _is_installed(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def _needed_modules(url: str, settings: "Settings") -> Iterator[tuple[str, tuple[str, str]]]:
    """The module, the extra that brings it, and what needs it."""
    from backstay.store.databases.database import is_postgres

    if is_postgres(url):
        yield "asyncpg", ("postgres", "PostgreSQL")
    if settings.broker_url:
        yield "aio_pika", ("rabbitmq", "the broker")
    if settings.redis_url:
        yield "redis", ("service", "Redis")
    if settings.otel:
        yield "opentelemetry.exporter.otlp.proto.http", ("otel", "tracing")
    if settings.data or settings.gateway_url:
        yield "obstore", ("service", "the place for files")


async def open_files(setup: Setup) -> AsyncIterator[Finding]:
    """Whether this process may open as many files and connections as its calls at once need."""
    try:
        import resource
    except ImportError:  # not on this system
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = setup.app.limits.worker_concurrency + FILES_SPARE
    says = f"{'any number' if soft == resource.RLIM_INFINITY else soft} files may be open, up to {needed} may be needed"
    if soft == resource.RLIM_INFINITY or soft >= needed:
        yield ok(says)
    else:
        yield warn(
            says, f"raise it (ulimit -n {needed * 2}, LimitNOFILE= in a systemd unit), or lower worker_concurrency"
        )


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
    from backstay.store.databases.database import is_postgres

    settings = setup.settings
    if not is_postgres(setup.app.url):
        yield "the database", Path(setup.app.url.removeprefix("sqlite:///")).resolve().parent
    for what, place in (("files", settings.data), ("uploads", settings.uploads_dir), ("results", settings.results_dir)):
        if place is not None and "://" not in place:
            yield what, Path(place).resolve()
    yield "temporary files", Path(tempfile.gettempdir())


OTHERS: Final = frozenset({"CONFIG", "DEBUG", "CHILD_DATABASE_URL"})  # variables of ours that are not settings


async def settings(setup: Setup) -> AsyncIterator[Finding]:
    """Every setting that is not at its default, with where it came from; and variables that are not settings."""
    from backstay import settings as settings_module

    loaded = setup.settings
    loaded.bounds()
    yield ok(f"profile {loaded.profile}, owner {loaded.owner}")
    origins = settings_module.origins(setup.environ)
    for name, value in sorted(_changed_settings(loaded).items()):
        if name != "database_url":  # the check of the database shows it
            yield ok(f"{name} is {show_setting(name, value)}, from {origins.get(name, 'a flag or the application')}")
    for variable in settings_module.unknown_variables(setup.environ):
        if variable.removeprefix(settings_module.PREFIX) not in OTHERS:
            yield _unknown_variable(variable)


def _changed_settings(loaded: "Settings") -> dict[str, Any]:
    """By name, a single bound as limits.NAME."""
    plain = {name: getattr(loaded, name) for name in type(loaded).model_fields if name != "limits"}
    defaults = {name: field.default for name, field in type(loaded).model_fields.items()}
    changed = {name: value for name, value in plain.items() if value != defaults[name]}
    return {**changed, **{f"limits.{name}": value for name, value in loaded.limits.items()}}


def show_setting(name: str, value: Any) -> str:
    """A setting for people: secrets are hidden, and URLs are shown without user and password."""
    from backstay.settings import Settings
    from backstay.store.databases import database

    text = str(value)
    if "://" in text:
        return database.show_url(text)
    field = Settings.model_fields.get(name)
    return "set, and not shown" if field is not None and not field.repr else text


def _unknown_variable(variable: str) -> Finding:
    from backstay.settings import variables

    known = variables()
    close = [one for one in known if one.startswith(variable)] or difflib.get_close_matches(variable, known, 1, 0.8)
    meant = f"did you mean {close[0]}? " if close else ""
    return warn(f"{variable} is not a setting and is ignored", f"{meant}docs/settings.md lists them all")
