"""The command: its lines, its exit codes, and that every check is on the page about it."""

import os
import re
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from backstay import settings
from backstay.cli.doctor import Finding, Level, Setup, command, database, name_of, ok, purpose_of
from backstay.cli.doctor.command import CHECKS, DoctorOptions, examine, setup_of, veil_of
from backstay.clock import Clock
from backstay.core.errors import UsageError
from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "doctor.md"


def test_every_check_is_on_the_page_with_its_own_words() -> None:
    rows = re.findall(r"^\| `([a-z ]+)` \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    assert rows == [(name_of(check), purpose_of(check)) for check in CHECKS]


async def test_a_check_that_breaks_is_a_finding_and_the_others_go_on(
    sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(setup: Setup) -> AsyncIterator[Finding]:
        yield ok("so far")
        raise ZeroDivisionError("by a bug")

    monkeypatch.setattr(command, "INSIDE", (broken, database.budgets))
    found = [f"{check}: {one.level}: {one.says}" async for check, one in examine(DoctorOptions(sqlite_file_url))]
    assert found[-3:] == [
        "broken: ok: so far",
        "broken: fail: the check failed: ZeroDivisionError: by a bug",
        "budgets: ok: no job has reached its budget",
    ]


async def test_an_sqlite_file_that_others_can_read_is_told(sqlite_file_url: str) -> None:
    file = Path(sqlite_file_url.removeprefix("sqlite:///"))

    async def found() -> list[tuple[Level, str, str]]:
        told = [one async for check, one in examine(DoctorOptions(sqlite_file_url)) if check == "folder permissions"]
        return [(one.level, one.says, one.advice) for one in told if "prompts" in one.says]

    with sqlite3.connect(file) as using:  # so that SQLite's own files are there, too
        using.execute("SELECT count(*) FROM jobs")
        os.chmod(file, 0o640)
        assert await found() == [], "a group that one has chosen is not everyone"
        for name in (file, Path(f"{file}-wal")):
            os.chmod(name, 0o644)
            said = f"every user of this machine can read {name}, which holds prompts and answers"
            assert await found() == [(Level.WARN, said, f"chmod o-rwx {name}")]
            os.chmod(name, 0o600)


async def test_several_secret_keys_are_told_and_none_is_shown(
    sqlite_file_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def found() -> list[str]:
        told = [one async for check, one in examine(DoctorOptions(sqlite_file_url)) if check == "secret key"]
        return [f"{one.level}: {one.says}" for one in told]

    keys = ["first-" + "a" * 32, "second-" + "b" * 32]
    monkeypatch.setenv("BACKSTAY_SECRET_KEY", ",".join(keys))
    assert await found() == ["ok: 2 are set: the first signs, all verify"]
    veil = veil_of(setup_of(DoctorOptions(sqlite_file_url), Clock()))
    assert [veil.over(f"a library says {key}") for key in keys] == ["a library says <secret>"] * 2
    monkeypatch.setenv("BACKSTAY_SECRET_KEY", keys[0] + ",short")
    assert await found() == ["fail: the secret key has fewer than 32 characters"]


def test_settings_tell_where_each_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("backstay.toml").write_text('owner = "ada"\nfile_days = 3\n[limits]\nchain_depth_max = 2\n')
    environ = {"BACKSTAY_FILE_DAYS": "4", "BACKSTAY_TICK_ITEMS_MAX": "9", "BACKSTAY_PROFILES": "x", "OTHER": "y"}
    assert settings.origins(environ) == {
        "owner": "backstay.toml",
        "file_days": "BACKSTAY_FILE_DAYS",
        "limits.chain_depth_max": "backstay.toml",
        "limits.tick_items_max": "BACKSTAY_TICK_ITEMS_MAX",
    }
    assert settings.unknown_variables(environ) == ["BACKSTAY_PROFILES"]


def test_a_settings_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    named = {"BACKSTAY_CONFIG": str(tmp_path / ("x" * 300))}  # longer than any file's name may be
    with pytest.raises(UsageError, match="cannot read xxx"):
        settings.load(environ=named)
