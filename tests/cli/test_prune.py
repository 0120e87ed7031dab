"""`backstay prune`: what it would delete, what it deletes, and what it refuses."""

from pathlib import Path

import pytest

from tests.cli.shell import Shell


def ended(shell: Shell, *payloads: int) -> int:
    job = shell.submit("picky", *payloads)
    shell.tick()
    return job


def jobs(shell: Shell) -> list[int]:
    return [row["id"] for row in shell("jobs", "--json").rows]


def test_old_jobs_are_listed_archived_and_deleted(shell: Shell, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_DATA", str(folder / "data"))
    first, second, third = ended(shell, 3), ended(shell, 4, 6), ended(shell, 5)
    shown = shell("prune", "--keep", "1", "--archive", "--dry-run")
    assert [line.split(",")[0] for line in shown.lines] == [f"job {first} of local", f"job {second} of local"]
    assert "2 jobs with 3 items would be deleted" in shown.err
    assert jobs(shell) == [third, second, first]
    assert not list(folder.glob("data/job-archives/*"))
    gone = shell("prune", "--keep", "1", "--archive", "--json").rows
    assert [(row["job"], row["items"], row["deleted"]) for row in gone] == [(first, 1, True), (second, 2, True)]
    assert all((folder / "data" / row["archive"]).is_file() for row in gone)
    assert jobs(shell) == [third]
    assert shell("prune", "--keep", "0", "--owner", "ben").lines == []
    assert shell("prune", "--older-than", "1h").lines == []
    assert shell("prune", "--keep", "0", "--all-owners").lines == [f"job {third}, 1 item, was deleted"]


def test_it_must_be_told_which_jobs_are_old_and_where_archives_go(shell: Shell) -> None:
    for args, why in (
        ((), "use --older-than or --keep"),
        (("--keep", "1", "--owner", "ben", "--all-owners"), "--owner and --all-owners cannot be used together"),
    ):
        refused = shell("prune", *args)
        assert (refused.code, why in refused.err.lower()) == (2, True), refused.err
    job = ended(shell, 4)
    ran = shell("prune", "--keep", "0", "--archive")
    if shell.url.startswith("postgresql://"):
        assert (ran.code, jobs(shell)) == (2, [job])
        assert "there is no place for files" in ran.err
    else:  # beside the database's file
        assert (ran.code, jobs(shell)) == (0, [])


@pytest.mark.parametrize(
    "args",
    [
        ("prune", "--older-than", "{}"),
        ("deadletters", "replay", "--older-than", "{}"),
        ("submit", "items.jsonl", "--handler", "picky", "--unique", "k", "--unique-for", "{}"),
    ],
)
def test_a_time_without_a_unit_is_refused_where_a_wrong_unit_deletes_or_pays(
    sqlite_shell: Shell, args: tuple[str, ...]
) -> None:
    job = ended(sqlite_shell, 3)
    for text in ("30", "0.5", " 30 "):
        ran = sqlite_shell(*(arg.format(text) for arg in args))
        assert (ran.code, "write 30d, 12h, 45m or 90s" in " ".join(ran.err.split())) == (2, True), ran.err
    assert jobs(sqlite_shell) == [job]
