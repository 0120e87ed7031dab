"""`backstay schedule`: added, listed, paused, resumed, run and removed; bad input is one line and writes nothing."""

import pytest

from tests.cli.shell import Shell

APP = ("--app", "shop:backstay")


def add(shell: Shell, *more: str, name: str = "often", line: str = "*/5 * * * *") -> None:
    ran = shell("schedule", "add", name, line, "--handler", "echo", *APP, *more)
    assert ran.code == 0, ran.err


def test_a_schedule_is_added_and_listed_with_its_next_firing(shell: Shell) -> None:
    added = shell("schedule", "add", "often", "*/5 * * * *", "--handler", "echo", "--timezone", "Europe/Berlin", *APP)
    assert added.code == 0
    assert added.out.startswith("schedule often is added; its next firing is ")
    assert " CE" in added.out, "in its own zone: CET or CEST"
    listed = shell("schedule", "list")
    assert listed.lines[0].startswith("SCHEDULE  WHEN         TIME ZONE      HANDLER  MISSED  NEXT")
    assert listed.lines[1].startswith("often     */5 * * * *  Europe/Berlin  echo     once")
    shown = shell("schedule", "list", "--json").json
    assert (shown["name"], shown["payload"], shown["missed"], shown["last_job"]) == ("often", {}, "once", None)
    assert "now" not in shown


def test_a_schedule_is_paused_resumed_run_and_removed(shell: Shell) -> None:
    add(shell, "--payload", '{"page": 7}')
    assert shell("schedule", "pause", "often", "--json").json["next_at"] is None
    assert "paused" in shell("schedule", "list").lines[1]
    ran = shell("schedule", "run", "often", *APP)
    assert ran.out == "schedule often runs now as job 1\n"
    shell.tick()
    assert shell("job", "results", "1").json["value"] == {"page": 7}
    assert shell("schedule", "resume", "often", "--json").json["next_at"] > 0
    assert shell("schedule", "run", "often", "--json", *APP).json == {"schedule": "often", "job": 2}
    removed = shell("schedule", "remove", "often")
    assert (removed.out, removed.err) == ("schedule often is removed\n", "")
    assert shell("schedule", "list").said[0].startswith("no schedules in ")


@pytest.mark.parametrize("verb", ["pause", "resume", "run", "remove"])
def test_an_unknown_schedule_is_not_found(sqlite_shell: Shell, verb: str) -> None:
    ran = sqlite_shell("schedule", verb, "nobody")
    assert ran.code == 5
    assert ran.said[0].startswith("backstay: error: no schedule nobody. ")


@pytest.mark.parametrize(
    ("line", "more", "said"),
    [
        ("61 * * * *", (), "the cron line '61 * * * *' is not valid: bad minute"),
        ("* * * * * *", (), "seconds are not supported"),
        ("* * * * *", ("--timezone", "Berlin"), "there is no time zone 'Berlin'"),
        ("* * * * *", ("--missed", "never"), "'never' is not one of 'skip', 'once', 'all'"),
        ("* * * * *", ("--payload", "{page: 1}"), "--payload is not JSON"),
        ("* * * * *", ("--handler", "ecko"), "there is no handler 'ecko'. did you mean 'echo'?"),
        ("* * * * *", ("--handler", "picky"), "the payload does not fit the handler: it must be int, not dict"),
    ],
)
def test_bad_input_is_one_clear_line_and_nothing_is_written(
    sqlite_shell: Shell, line: str, more: tuple[str, ...], said: str
) -> None:
    ran = sqlite_shell("schedule", "add", "x", line, "--handler", "echo", *APP, *more)
    assert ran.code == 2
    assert len(ran.said) == 1
    assert said in ran.said[0]
    assert sqlite_shell("schedule", "list", "--json").lines == []


def test_a_name_is_taken_once(sqlite_shell: Shell) -> None:
    add(sqlite_shell)
    ran = sqlite_shell("schedule", "add", "often", "0 0 * * *", "--handler", "echo", *APP)
    assert ran.code == 2
    assert "a schedule named often exists already. `backstay schedule remove often" in ran.said[0]


def test_without_code_some_worker_must_have_run_the_handler(sqlite_shell: Shell) -> None:
    new = ("schedule", "add", "often", "* * * * *", "--handler", "echo")
    ran = sqlite_shell(*new)
    assert ran.code == 2
    assert "no program or worker has the handler 'echo'" in ran.said[0]
    assert "--force adds it anyway" in ran.said[0]
    sqlite_shell.tick()
    assert sqlite_shell(*new).code == 0
    assert sqlite_shell("schedule", "add", "other", "* * * * *", "--handler", "nobody", "--force").code == 0
    refused = sqlite_shell("schedule", "run", "other")
    assert (refused.code, "no program or worker has the handler 'nobody'" in refused.said[0]) == (2, True)


def test_a_schedule_in_the_code_is_written_by_a_tick_and_told_of_when_it_is_removed(sqlite_shell: Shell) -> None:
    code = (sqlite_shell.folder / "shop.py").read_text()
    code += '\n\n@backstay.schedule("0 7 * * *")\n@backstay.handler()\nasync def morning(item):\n    return item\n'
    (sqlite_shell.folder / "shop.py").write_text(code)
    assert sqlite_shell.process("tick", *APP).code == 0
    assert sqlite_shell("schedule", "list", "--json").json["name"] == "morning"
    assert "it is also in your code" in sqlite_shell("schedule", "remove", "morning").err
