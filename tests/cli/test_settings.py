"""Which database and which limits a command uses, and what `doctor`, `bounds` and `profiles` say of them."""

import json
import signal
import sqlite3
from pathlib import Path

import pytest

from backstay.cli.doctor import Level
from backstay.cli.doctor.database import find_missing_workers, judge_skew, judge_stuck_items
from backstay.settings import load
from backstay.store.job_views import Backlog
from backstay.store.workers import WorkerView
from tests.cli.shell import Shell, eventually
from tests.servers.postgres import RunningPostgres


def test_without_any_name_the_user_has_a_database_of_their_own(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("BACKSTAY_DATABASE_URL")
    file = tmp_path / "data" / "backstay" / "backstay.db"
    ran = sqlite_shell("jobs")
    assert (ran.code, ran.said) == (0, [f"no jobs in SQLite file {file} (from the default)"])
    for args in (("job", "show", "1"), ("item", "show", "1-0"), ("provider", "list"), ("job", "cancel", "1")):
        ran = sqlite_shell(*args)
        assert (ran.code, len(ran.said)) == (5, 1)
        assert str(file) in ran.err
    assert f"{file}, from the default" in sqlite_shell("doctor").out
    assert not file.parent.exists()
    assert sqlite_shell("migrate").code == 0
    assert file.exists()


OWN = """
from backstay import Backstay
b = Backstay("sqlite:///own.db", owner="somebody")
@b.handler()
def f(x): ...
"""


@pytest.mark.parametrize("how", ["flag", "environment", "file"])
def test_every_command_uses_the_database_of_the_application_that_is_named(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    # BACKSTAY_DATABASE_URL names another database all the while.
    sqlite_shell.file(OWN, "broken.py")
    if how == "environment":
        monkeypatch.setenv("BACKSTAY_APP", "broken:b")
    if how == "file":
        sqlite_shell.file('app = "broken:b"\n', "backstay.toml")
    flags = ("--app", "broken:b") if how == "flag" else ()
    assert "own.db, from the application" in sqlite_shell("doctor", *flags).out
    assert sqlite_shell("jobs", *flags).said == ["no jobs in SQLite file own.db (from the application)"]
    assert not (sqlite_shell.folder / "own.db").exists()
    assert sqlite_shell("migrate", "--json", *flags).json["changed"] is True
    assert (sqlite_shell.folder / "own.db").exists()
    ran = sqlite_shell("submit", sqlite_shell.file("1\n"), "--handler", "f", *flags)
    assert ran.said == [" ".join(("to watch it: backstay job watch 1", *flags))]
    assert len(sqlite_shell("jobs", "--json", *flags).rows) == 1
    assert sqlite_shell("tick", "--json", "--log-level", "error", *flags).json["claimed"] == 1
    assert sqlite_shell("job", "show", "1", "--json", *flags).json["state"] == "completed"
    assert sqlite_shell("item", "show", "1-0", "--json", *flags).json["state"] == "succeeded"
    assert sqlite_shell("jobs", "--json", "--db", sqlite_shell.url).rows == []


@pytest.mark.slow
def test_a_worker_uses_the_database_of_its_application(sqlite_shell: Shell) -> None:
    sqlite_shell.file(OWN, "broken.py")
    named = ("--app", "broken:b")
    sqlite_shell("submit", sqlite_shell.file("1\n"), "--handler", "f", *named)
    with sqlite_shell.start("worker", *named) as worker:
        eventually(lambda: sqlite_shell("job", "show", "1", "--json", *named).json["state"] == "completed")
        worker.send(signal.SIGTERM)
        assert worker.wait() == 0


def test_hints_repeat_the_database_that_was_given(sqlite_shell: Shell) -> None:
    db = ("--db", "sqlite:///third.db")
    ran = sqlite_shell("submit", sqlite_shell.file("3\n"), "--app", "shop:backstay", "--handler", "picky", *db)
    assert ran.out == "job 1: 1 item for picky\n"
    assert ran.said == ["to watch it: backstay job watch 1 --db sqlite:///third.db"]
    sqlite_shell("tick", "--app", "shop:backstay", *db)
    ran = sqlite_shell("job", "watch", "1", *db)
    assert ran.said[-1] == "1 item failed; to see why: backstay job show 1 --db sqlite:///third.db"
    for verb in ("show", "pause"):
        assert "looked in SQLite file third.db" in sqlite_shell("job", verb, "9", *db).err
    assert "`backstay jobs --db sqlite:///third.db` lists" in sqlite_shell("job", "show", "9", *db).err


def test_a_hint_does_not_repeat_a_password(sqlite_shell: Shell, empty_postgres_url: str) -> None:
    ran = sqlite_shell("jobs", "--db", empty_postgres_url.replace("postgres@", "postgres:hunter2@"))
    assert "run `backstay migrate --db …`" in ran.err
    assert "hunter2" not in ran.err


def test_the_flag_wins_over_the_environment_which_wins_over_the_file(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    sqlite_shell.file('database_url = "sqlite:///file.db"\n', "backstay.toml")
    assert "from --db" in sqlite_shell("doctor", "--db", "sqlite:///flag.db").out
    assert "from BACKSTAY_DATABASE_URL" in sqlite_shell("doctor").out
    monkeypatch.delenv("BACKSTAY_DATABASE_URL")
    assert "file.db, from backstay.toml" in sqlite_shell("doctor").out


def test_the_flag_wins_over_the_application(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_shell.file(OWN, "broken.py")
    monkeypatch.setenv("BACKSTAY_APP", "broken:b")
    sqlite_shell("submit", sqlite_shell.file("1\n"), "--handler", "f", "--db", "sqlite:///other.db")
    assert "other.db, from --db" in sqlite_shell("doctor", "--db", "sqlite:///other.db").out
    assert sqlite_shell("job", "show", "1", "--db", "sqlite:///other.db").code == 0
    assert not (sqlite_shell.folder / "own.db").exists()


def test_doctor_is_content_with_a_fresh_database(shell: Shell) -> None:
    ran = shell("doctor", "--json")
    assert ran.code == 0
    assert {row["level"] for row in ran.rows} == {"ok"}
    assert set(ran.rows[0]) == {"check", "level", "says", "advice"}
    said = {f"{row['check']}: {row['says']}" for row in ran.rows}
    durable = ("journal_mode is wal", "synchronous is full") if "sqlite" in shell.url else ("fsync is on",)
    assert {*(f"durability: {says}" for says in durable), "workers: 0 alive", "stuck items: 0"} <= said


def test_doctor_makes_no_file(sqlite_shell: Shell) -> None:
    ran = sqlite_shell("doctor", "--db", "sqlite:///new.db")
    assert ran.code == 0
    assert "creates the file at its first use" in ran.out
    assert not (sqlite_shell.folder / "new.db").exists()


def test_doctor_finds_work_that_nobody_runs(shell: Shell) -> None:
    shell.submit("echo", 1, 2)
    ran = shell("doctor")
    assert ran.code == 1
    (wrong,) = [line for line in ran.lines if line.startswith("FAIL")]
    assert "2 items unfinished, 0 live workers; start a worker whose application has the handler 'echo'" in wrong


def test_what_was_cut_off_is_wrong_unless_its_run_is_yet_to_be_gone_on_with() -> None:
    worker = WorkerView("w", "host", 1, ("llm-1",), 0, 0, None, 0, {})
    lost = {"llm-1": 2, "echo": 3}
    finding = judge_stuck_items(lost, [], requests={"llm-1"})
    assert (finding.level, finding.says) == (
        Level.FAIL,
        "3; 2 requests from an interrupted run wait until you run it again",
    )
    assert judge_stuck_items({"llm-1": 2}, [], requests={"llm-1"}).level is Level.OK
    assert judge_stuck_items({"llm-1": 2}, [worker], requests={"llm-1"}).level is Level.FAIL, (
        "a live worker should have taken it up"
    )


def test_requests_that_wait_for_their_run_are_in_order(sqlite_shell: Shell) -> None:
    body = {"model": "gpt-4o-mini", "messages": []}
    line = {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": body}
    place = ("--db", "sqlite:///runs.db")
    sqlite_shell("submit", sqlite_shell.file(json.dumps(line)), "--base-url", "http://127.0.0.1:9/v1", *place)
    ran = sqlite_shell("doctor", *place)
    (wrong,) = [line for line in ran.lines if not line.startswith("ok")]
    assert "providers: 127.0.0.1:9 cannot be reached" in wrong
    go_on = "to resume: the same `backstay run`, or backstay worker --db sqlite:///runs.db"
    assert f"1 item unfinished, 0 live workers; {go_on}" in ran.out
    shown = sqlite_shell("item", "show", "1-0", *place).out
    assert "start one: backstay worker --db sqlite:///runs.db, or run the same `backstay run` again" in shown


def test_doctor_finds_a_database_that_forgets(
    sqlite_shell: Shell, postgres: RunningPostgres, postgres_url: str
) -> None:
    name = postgres_url.rpartition("/")[2]
    postgres.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = off')
    ran = sqlite_shell("doctor", "--db", postgres_url)
    assert ran.code == 1
    assert "FAIL  durability: synchronous_commit is off; set synchronous_commit = on" in ran.out


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:hunter2@127.0.0.1:1/x", ": cannot reach PostgreSQL"),
        ("oracle://u:hunter2@x", "FAIL  settings: oracle://… is not a database"),
    ],
)
def test_doctor_says_what_is_wrong_with_a_database(sqlite_shell: Shell, url: str, says: str) -> None:
    ran = sqlite_shell("doctor", "--db", url)
    assert ran.code == 1
    assert says in ran.out
    assert "hunter2" not in ran.out + ran.err


def test_doctor_finds_an_old_schema_and_a_new_one(sqlite_shell: Shell, empty_postgres_url: str) -> None:
    ran = sqlite_shell("doctor", "--db", empty_postgres_url)
    assert ran.code == 1
    assert "FAIL  schema" in ran.out
    assert "backstay migrate" in ran.out
    with sqlite3.connect(sqlite_shell.url.removeprefix("sqlite:///")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    ran = sqlite_shell("doctor")
    assert ran.code == 1
    assert "upgrade backstay" in ran.out


def test_doctor_finds_a_bad_settings_file(sqlite_shell: Shell) -> None:
    sqlite_shell.file("profile = \n", "backstay.toml")
    ran = sqlite_shell("doctor")
    assert ran.code == 1
    assert "backstay.toml is not valid TOML" in ran.out


@pytest.mark.parametrize(("apart", "ok"), [(0, True), (5_000, True), (-5_001, False), (60_000, False)])
def test_clocks_far_apart_are_found(apart: int, ok: bool) -> None:
    assert (judge_skew(1_000_000 + apart, 1_000_000).level is Level.OK) is ok


def test_a_live_worker_of_another_handler_does_not_count() -> None:
    alive = [WorkerView("w", "host", 1, ("echo",), 0, 0, None, 0, {})]
    found = {
        finding.says.partition(":")[0]: finding.level
        for finding in find_missing_workers([Backlog("echo", 1, 5, 0, 0), Backlog("odd", 1, 5, 0, 0)], alive)
    }
    assert found == {"echo": Level.OK, "odd": Level.FAIL}


def test_bounds_tell_the_true_worst_case(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    worst = sqlite_shell("bounds", "--json").json
    assert (worst["invocations"], worst["calls"], worst["cost_micros"]) == (36, 252_000, None)
    assert "cost per hour             unknown" in sqlite_shell("bounds").out
    monkeypatch.setenv("BACKSTAY_COST_PER_CALL_MICROS", "1500")
    assert "cost per hour             378.00" in sqlite_shell("bounds").out
    assert sqlite_shell("bounds", "--profile", "aggressive", "--json").json["invocations"] == 72


def test_limits_of_the_file_and_of_the_environment_add_up(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    sqlite_shell.file("[limits]\ntick_items_max = 100\nchain_depth_max = 0\n", "backstay.toml")
    monkeypatch.setenv("BACKSTAY_CHAIN_DEPTH_MAX", "1")
    worst = sqlite_shell("bounds", "--json").json
    assert (worst["invocations"], worst["items"]) == (24, 2_400)


def test_profiles_show_where_they_differ(sqlite_shell: Shell) -> None:
    assert [row["profile"] for row in sqlite_shell("profiles", "--json").rows] == [
        "conservative",
        "balanced",
        "aggressive",
    ]
    lines = {line.split()[0]: line.split()[1:] for line in sqlite_shell("profiles").lines}
    assert lines["chain_depth_max"] == ["1", "2", "5"]
    assert "lease_seconds" not in lines


def test_a_variable_that_is_set_to_nothing_is_not_set() -> None:
    given = {
        "BACKSTAY_PUBLIC_URL": "",
        "BACKSTAY_CHAIN_DEPTH_MAX": "",
        "BACKSTAY_OWNER": "",
        "BACKSTAY_PROFILE": "aggressive",
    }
    loaded = load(environ=given)
    assert (loaded.public_url, loaded.owner, loaded.bounds().chain_depth_max) == (None, "local", 5)
