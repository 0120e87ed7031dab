"""`backstay deadletters …`: groups, replays that name who gave them, archives and back."""

from getpass import getuser
from pathlib import Path

import pytest

from tests.cli.shell import Shell


@pytest.fixture(autouse=True)
def place(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BACKSTAY_DATA", str(folder / "data"))
    return folder / "data"


def failed(shell: Shell) -> int:
    job = shell.submit("picky", 3, 4, 6, 9)
    shell.tick()
    return job


def letters(shell: Shell, *args: str) -> list[str]:
    return [row["item"] for row in shell("deadletters", "list", "--items", "--json", *args).rows]


def test_failed_items_are_listed_by_error_with_when_they_were_seen(shell: Shell) -> None:
    job = failed(shell)
    [group] = shell("deadletters", "list", "--json").rows
    assert (group["items"], group["oldest"], group["newest"]) == (3, f"{job}-0", f"{job}-3")
    assert group["first_at"] <= group["last_at"]
    head, row = shell("deadletters", "list").lines
    assert head.split()[:4] == ["ERROR", "ITEMS", "FIRST", "LAST"]
    assert row.split()[:2] == [group["error_code"], "3"]
    assert letters(shell) == [f"{job}-3", f"{job}-2", f"{job}-0"]
    assert letters(shell, "--limit", "1") == [f"{job}-3"]
    assert letters(shell, "--code", "NOT_PDF") == letters(shell, "--older-than", "1h") == []


def test_a_replay_says_first_how_many_it_would_be_and_then_who_gave_it(shell: Shell) -> None:
    job = failed(shell)
    dry = shell("deadletters", "replay", "--job", job, "--dry-run")
    assert (dry.code, dry.out) == (0, "3 items would be queued again\n")
    assert len(letters(shell)) == 3
    done = shell("deadletters", "replay", f"{job}-0", f"{job}-2", "--rate", "0.1", "--json").json
    assert done == {"dry_run": False, "items": 2, "replay": 1, "more": False}
    again = shell("deadletters", "replay", f"{job}-0", f"{job}-3")
    assert (again.out, again.err.split(":")[0]) == ("1 item is queued again (replay 2)\n", "1 named item skipped")
    _, row = shell("deadletters", "replays", "--json").rows
    assert (row["by"], row["items"], row["rate"]) == (getuser(), 2, 0.1)
    assert row["filter"]["ids"] == [f"{job}-0", f"{job}-2"]
    story = shell("item", "show", f"{job}-2", "--json").json
    assert story["timeline"][-1]["what"] == "replayed"
    assert story["timeline"][-1]["detail"].startswith(f"replay 1 by {getuser()}")
    assert 5_000 < story["due_at"] - row["at"] < 15_000


def test_what_nothing_narrows_down_is_not_replayed_by_mistake(shell: Shell) -> None:
    failed(shell)
    refused = shell("deadletters", "replay")
    assert (refused.code, len(refused.said), len(letters(shell))) == (2, 1, 3)
    assert shell("deadletters", "replay", "--all", "--json").json["items"] == 3


def test_letters_go_into_an_archive_and_come_back(shell: Shell, place: Path) -> None:
    job = failed(shell)
    before = shell("item", "show", f"{job}-2", "--body", "--json").json
    assert shell("deadletters", "archive").out == "0 items are archived\n"
    assert shell("deadletters", "archive", "--job", job).out == "3 items are archived\n"
    assert shell("deadletters", "archive", "--job", job, "--json").json == {"items": 0}
    assert letters(shell) == []
    [archive] = shell("deadletters", "archives", "--json").rows
    assert (archive["items"], (place / archive["blob"]).stat().st_size) == (3, archive["bytes"])
    shown = shell("deadletters", "show", f"{job}-2")
    assert "backstay deadletters restore 1" in shown.out
    assert shell("deadletters", "show", f"{job}-2", "--json").json["archive_id"] == 1
    refused = shell("item", "retry", f"{job}-2")
    assert (refused.code, len(refused.said)) == (2, 1)
    assert "restore it first" in refused.err
    assert shell("deadletters", "restore", 1, "--json").json == {"archive": 1, "items": 3}
    assert "was restored before" in shell("deadletters", "restore", 1).out
    after = shell("item", "show", f"{job}-2", "--body", "--json").json
    assert (after["payload"], after["attempts"]) == (before["payload"], before["attempts"])


def test_what_is_not_there_is_exit_code_5(shell: Shell) -> None:
    job = failed(shell)
    for args in (("restore", 9), ("show", f"{job}-1"), ("show", "99-0")):
        ran = shell("deadletters", *args)
        assert (ran.code, len(ran.said)) == (5, 1)


def test_archives_need_a_place(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKSTAY_DATA")
    job = failed(shell)
    ran = shell("deadletters", "archive", "--job", job)
    if shell.url.startswith("postgresql"):
        assert (ran.code, "--data or BACKSTAY_DATA" in ran.err) == (2, True)
        ran = shell("deadletters", "archive", "--job", job, "--data", "elsewhere")
    assert (ran.code, ran.out) == (0, "3 items are archived\n")
