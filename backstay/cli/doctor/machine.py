"""This machine and what is installed on it: versions, extras, and how many files may be open."""

import sys
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from backstay.cli.doctor.finding import Finding, Setup, fail, ok, warn

if TYPE_CHECKING:
    from backstay.settings import Settings

SHOWN: Final = ("aiohttp", "asyncpg", "aio-pika", "redis", "obstore", "uvloop")
SQLITE_MIN: Final = (3, 38)  # the first with -> and ->>
FILES_SPARE: Final = 200  # beside calls: databases, brokers, logs, modules


async def versions(setup: Setup) -> AsyncIterator[Finding]:
    """Python, Backstay, SQLite and the libraries, against what this version of Backstay needs."""
    import sqlite3

    import backstay

    found = {name: version for name in SHOWN if (version := _installed(name)) is not None}
    python = ".".join(map(str, sys.version_info[:3]))
    listed = ", ".join(f"{name} {version}" for name, version in found.items())
    yield ok(f"Backstay {backstay.__version__}, Python {python}, SQLite {sqlite3.sqlite_version}, {listed}")
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        needed = ".".join(map(str, SQLITE_MIN))
        yield fail(f"SQLite {sqlite3.sqlite_version} is too old", f"use a Python that is built with {needed} or newer")
    for need in _needs():
        version = _installed(need.name)
        if version is not None and _numbers(version) < _numbers(need.least):
            says = f"{need.name} {version} is installed, {need.least} or newer is needed"
            yield fail(says, f"pip install --upgrade 'backstay{need.extra}'")


class Need(NamedTuple):
    name: str
    least: str
    extra: str  # in brackets, or empty


def _needs() -> Iterator[Need]:
    """What the installed Backstay says it needs."""
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


def _installed(name: str) -> str | None:
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
    wanted = dict(_wanted(setup.app.url, setup.settings))
    for module, (extra, why) in wanted.items():
        if not _is_there(module):
            yield fail(f"{why} needs {module}, which is not installed", f"pip install 'backstay[{extra}]'")
    if all(map(_is_there, wanted)):
        yield ok(", ".join(sorted(wanted)) or "no extra is needed")


def _is_there(module: str) -> bool:
    from importlib.util import find_spec

    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # what it is a part of is not there
        return False


def _wanted(url: str, settings: "Settings") -> Iterator[tuple[str, tuple[str, str]]]:
    """The module, the extra that brings it, and what needs it."""
    from backstay.store.urls import is_postgres

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
