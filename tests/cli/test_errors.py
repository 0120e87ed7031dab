"""Whatever is wrong, it is one clear line on stderr, the right exit code, and nothing half-written."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from backstay.cli import main
from tests.cli.shell import Shell, eventually
from tests.servers.postgres import RunningPostgres

SUBMIT = ("submit", "items.jsonl", "--app", "shop:backstay", "--handler", "echo")
HUGE = str(1 << 63)
JOB_VERBS = ("show", "watch", "pause", "resume", "cancel", "retry", "results")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["jbos"], "No such command 'jbos'. Did you mean 'jobs'?"),
        (["job", "shwo", "1"], "Did you mean 'show'?"),
        (["jobs", "--lmit", "3"], "No such option"),
        (["jobs", "--limit", "0"], "Invalid value for '--limit'"),
        (["job", "show", "abc"], "Invalid value for 'JOB'"),
        (["job", "watch", "1", "--timeout", "soon"], "'soon' is not a duration; write 90, 90s, 20m, 2h or 1d"),
        (["job", "watch", "1", "--timeout", "400d"], "'400d' is out of range: more than 0, at most 366 days"),
        (["job", "watch", "1", "--timeout", "0s"], "'0s' is out of range: more than 0"),
        (["item", "show", "12"], "'12' is not an item id. an item id is JOB-POSITION"),
        (["jobs", "--before", HUGE], "Invalid value for '--before'"),
        (["item", "show", f"1-{HUGE}"], "is not an item id. the numbers are too large"),
        (["item", "retry", f"{HUGE}-1"], "is not an item id. the numbers are too large"),
        (["item", "show", f"1-{'9' * 5_000}"], "is not an item id. the numbers are too large"),
        *((["job", verb, HUGE], "Invalid value for 'JOB'") for verb in JOB_VERBS),
        (["bounds", "--profile", "wild"], "'wild' is not one of 'conservative', 'balanced', 'aggressive'"),
        ([*SUBMIT, "--priority", "10"], "Invalid value for '--priority'"),
        ([*SUBMIT, "--retry", "often"], "Invalid value for '--retry'"),
        (
            ["submit", "nowhere.jsonl", "--app", "shop:backstay", "--handler", "echo"],
            "cannot read nowhere.jsonl: No such",
        ),
        (["submit", ".", "--app", "shop:backstay", "--handler", "echo"], "cannot read .: Is a directory"),
        (["tick", "--app", "shop"], "'shop' is not the name of an application. write MODULE:NAME"),
        (["tick", "--app", "nowhere:app"], "there is no module 'nowhere'"),
        (["tick", "--app", "shop.deep:app"], "there is no module 'shop.deep'"),
        (["tick", "--app", "shop:shop"], "shop has no 'shop'. the module has backstay, empty"),
        (["tick", "--app", "shop:number"], "shop:number is a int, not a Backstay application"),
        (["tick", "--app", "shop:empty"], "the application registers no handlers"),
        (
            ["tick", "--app", "shop:backstay", "--chain-depth", "3"],
            "chain depth 3 is beyond the limit of 2. nothing was run",
        ),
        (["worker", "--app", "shop:backstay", "--processes", "0"], "Invalid value for '--processes'"),
        (["jobs", "--db", "mysql://root:hunter2@host/x"], "mysql://… is not a database that Backstay supports"),
        (["jobs", "--db", "sqlite:///"], "the database URL has no file name"),
        (["jobs", "--db", "sqlite:///nowhere/x.db"], "the folder 'nowhere' for the database does not exist"),
        (
            ["jobs", "--db", "sqlite:////nonexistent/dir/x.db"],
            "the folder '/nonexistent/dir' for the database does not exist",
        ),
        (["jobs", "--db", "sqlite:///typo.db"], "no database file typo.db. `backstay migrate --db sqlite:///typo.db`"),
        (["jobs", "--db", "typo.db"], "has no scheme. write sqlite:///typo.db or postgresql://…"),
        (["migrate", "--db", "u:hunter2@host/x"], "has no scheme. write sqlite:///jobs.db or postgresql://…"),
        (["jobs", "--db", "postgresql:/u:hunter2@h/x"], "// is missing after postgresql:"),
        (["jobs", "--db", "postgresql://u:hunter2@host:port/x"], "the database URL is not valid"),
        (
            ["jobs", "--db", "postgresql://u:hunter2@host/x?listen=maybe"],
            "listen in the database URL must be on or off",
        ),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_and_exit_code_2(sqlite_shell: Shell, args: list[str], says: str) -> None:
    sqlite_shell.file("1\n")
    ran = sqlite_shell(*args)
    assert (ran.code, ran.out, len(ran.said)) == (2, "", 1), ran.err
    assert ran.err.startswith("backstay: error: ")
    assert says in ran.err
    assert "hunter2" not in ran.err
    assert not (sqlite_shell.folder / "typo.db").exists()
    assert sqlite_shell("jobs", "--json").rows == []


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import nowhere_at_all", "broken needs the module 'nowhere_at_all', which is missing"),
        ("1 / 0", "broken cannot be imported: ZeroDivisionError: division by zero"),
        ("def f(:", "broken cannot be imported: SyntaxError"),
        ("raise SystemExit(3)", "broken cannot be imported: SystemExit: 3"),
        (
            "from backstay import Backstay\nb = Backstay()\n@b.handler(retry='often')\ndef f(x): ...",
            "no retry policy 'often'",
        ),
    ],
)
def test_an_application_that_cannot_be_imported_is_one_line(sqlite_shell: Shell, source: str, says: str) -> None:
    sqlite_shell.file(source, "broken.py")
    ran = sqlite_shell("worker", "--app", "broken:b")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert says in ran.err


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("BACKSTAY_PROFILE", "wild", "no profile 'wild'"),
        ("BACKSTAY_LOG_LEVEL", "loud", "setting log_level"),
        ("BACKSTAY_LEASE_SECONDS", "long", "BACKSTAY_LEASE_SECONDS must be a number"),
        ("BACKSTAY_CONFIG", "nowhere.toml", "no settings file nowhere.toml"),
        ("BACKSTAY_DATABASE_URL", "oracle://x", "oracle://… is not a database that Backstay supports"),
    ],
)
def test_a_bad_setting_is_one_line(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, key: str, value: str, says: str
) -> None:
    monkeypatch.setenv(key, value)
    ran = sqlite_shell("jobs")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert says in ran.err


@pytest.mark.parametrize("command", ["tick", "worker", "bounds"])
@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("remote_rate", "5/fortnight", "setting remote_rate: '5/fortnight' is not a rate"),
        ("gateway_rate", "fast", "setting gateway_rate: 'fast' is not a rate"),
        ("remote_cost", "1e30", "setting remote_cost: Input should be less than or equal to 1000000"),
        ("gateway_cost", "inf", "setting gateway_cost: Input should be less than or equal to 1000000"),
        ("gateway_cost", "nan", "setting gateway_cost: Input should be"),
    ],
)
def test_a_rate_or_a_cost_that_means_nothing_is_refused_though_nothing_uses_it(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch, command: str, name: str, value: str, says: str
) -> None:
    sqlite_shell("migrate")
    monkeypatch.setenv(f"BACKSTAY_{name.upper()}", value)
    ran = sqlite_shell(command)
    assert (ran.code, len(ran.said), says in ran.err) == (2, 1, True), ran.err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("gateway_rte = '5/s'", "backstay.toml: there is no setting 'gateway_rte'. did you mean gateway_rate?"),
        ("lease_seconds = 9", "there is no setting 'lease_seconds'. did you mean lease_seconds under [limits]?"),
        ("xyzzy = 1", "there is no setting 'xyzzy'. remove it"),
    ],
)
def test_a_mistyped_setting_is_named_with_the_nearest_one(sqlite_shell: Shell, line: str, says: str) -> None:
    sqlite_shell.file(f"{line}\n", "backstay.toml")
    ran = sqlite_shell("jobs")
    assert (ran.code, len(ran.said), says in ran.err) == (2, 1, True), ran.err
    assert "BACKSTAY_GATEWAY_RTE" not in ran.err


def test_a_database_that_cannot_be_reached_is_exit_code_8(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BACKSTAY_START_WAIT_SECONDS", "0")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        for args in (("jobs",), ("migrate",), ("worker", "--app", "shop:backstay"), ("tick", "--app", "shop:backstay")):
            ran = sqlite_shell(*args, "--db", f"postgresql://me:hunter2@127.0.0.1:{port}/x")
            assert (ran.code, len(ran.said)) == (8, 1), ran.err
            assert "cannot reach PostgreSQL" in ran.err
            assert "hunter2" not in ran.err


def test_a_file_that_is_no_database_is_exit_code_2_and_is_left_alone(sqlite_shell: Shell) -> None:
    path = sqlite_shell.file("this is not a database, it is a letter\n" * 100, "letter.db")
    before = path.read_bytes()
    for args in (("jobs",), ("migrate",), ("job", "show", "1")):
        ran = sqlite_shell(*args, "--db", f"sqlite:///{path}")
        assert (ran.code, len(ran.said)) == (2, 1), ran.err
        assert "letter.db is a file but not an SQLite database. choose another file" in ran.err
    assert path.read_bytes() == before


def test_a_database_without_tables_says_migrate(sqlite_shell: Shell, empty_postgres_url: str) -> None:
    ran = sqlite_shell("jobs", "--db", empty_postgres_url)
    assert (ran.code, len(ran.said)) == (2, 1)
    assert f"`backstay migrate --db {empty_postgres_url}`" in ran.err
    assert sqlite_shell("migrate", "--db", empty_postgres_url, "--json").json["changed"] is True
    assert sqlite_shell("migrate", "--db", empty_postgres_url, "--json").json["changed"] is False
    assert sqlite_shell("jobs", "--db", empty_postgres_url, "--json").code == 0


def test_a_newer_schema_is_refused(sqlite_shell: Shell, postgres: RunningPostgres, postgres_url: str) -> None:
    postgres.execute("UPDATE alembic_version SET version_num = '9999'", postgres_url.rpartition("/")[2])
    for args in (("jobs",), ("migrate",)):
        ran = sqlite_shell(*args, "--db", postgres_url)
        assert (ran.code, len(ran.said)) == (2, 1)
        assert "9999" in ran.err
        assert "upgrade backstay" in ran.err


@pytest.mark.parametrize(
    "args",
    [["job", verb, "99"] for verb in JOB_VERBS]
    + [["item", "show", "99-1"], ["item", "retry", "99-1"], ["provider", "release", "acme"]],
    ids=" ".join,
)
def test_what_does_not_exist_is_exit_code_5(shell: Shell, args: list[str]) -> None:
    ran = shell(*args)
    assert (ran.code, ran.out, len(ran.said)) == (5, "", 1)
    assert "no " in ran.err
    assert "looked in " in ran.err


def test_an_unexpected_error_is_one_line_that_says_how_to_see_more(
    sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stumble(*_: object) -> None:
        raise LookupError("line one\nline two")

    monkeypatch.setattr(main.cli, "resolve_command", stumble)
    ran = sqlite_shell("jobs")
    assert (ran.code, len(ran.said)) == (1, 1)
    assert (
        "unexpected LookupError: line one line two. to see the traceback, run it again with BACKSTAY_DEBUG=1."
        in ran.err
    )
    assert "Traceback" in sqlite_shell("--debug", "jobs").err
    monkeypatch.setenv("BACKSTAY_DEBUG", "1")
    assert "Traceback" in sqlite_shell("jobs").err


def test_with_a_trace_the_hint_is_said_once(sqlite_shell: Shell) -> None:
    ran = sqlite_shell("--debug", "jobs", "--db", "oracle://x")
    assert "Traceback" in ran.err
    assert ran.err.count("sqlite:///file.db") == 1


def test_ctrl_c_is_exit_code_130_and_the_job_goes_on(sqlite_shell: Shell) -> None:
    job_id = sqlite_shell.submit("slow", 1)
    with sqlite_shell.start("job", "watch", job_id) as watching:
        eventually(lambda: f"job {job_id}: 0 %" in watching.said)
        watching.send(signal.SIGINT)
        assert watching.wait() == 130
        assert f"job {job_id} continues" in watching.said
        assert "Traceback" not in watching.said
    assert sqlite_shell("job", "show", job_id, "--json").json["state"] == "queued"


def test_a_reader_that_has_had_enough_is_no_error(sqlite_shell: Shell) -> None:
    job_id = sqlite_shell.submit("echo", *["x" * 1000] * 500)
    sqlite_shell.tick()
    backstay = f"{sys.executable} -m backstay job results {job_id}"
    script = f"set -o pipefail; {backstay} | head -n 1 >/dev/null"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=sqlite_shell.folder,
        env=sqlite_shell.environment(),
        capture_output=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_postgres_without_its_driver_says_what_to_install(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backstay.wiring.find_spec", lambda name: None)
    for args in (("jobs",), ("migrate",)):
        ran = sqlite_shell(*args, "--db", "postgresql://me@127.0.0.1:1/x")
        assert (ran.code, len(ran.said)) == (2, 1)
        assert "pip install 'backstay[postgres]'" in ran.err


def test_a_folder_of_the_user_that_cannot_be_made_is_said(sqlite_shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BACKSTAY_DATABASE_URL")
    blocked = sqlite_shell.file("in the way", "data")
    monkeypatch.setenv("XDG_DATA_HOME", str(blocked))
    ran = sqlite_shell("migrate")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "cannot create the folder" in ran.err
    assert os.path.isfile(blocked)
