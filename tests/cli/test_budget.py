"""`backstay budget`: set, list, remove; and what `bounds` and `job show` tell of budgets."""

from pathlib import Path

import pytest

from tests.cli.shell import Shell


def test_a_budget_is_set_listed_changed_and_removed(sqlite_shell: Shell) -> None:
    assert sqlite_shell("migrate").code == 0
    assert "there are no budgets" in sqlite_shell("budget", "list").err
    ran = sqlite_shell("budget", "set", "50", "--owner", "ada")
    assert (ran.code, ran.out.strip()) == (0, "the budget of ada, per month: $50.00")
    sqlite_shell("budget", "set", "0.5", "--handler", "convert", "--period", "day")
    made = sqlite_shell("budget", "set", "60", "--owner", "ada", "--json").json
    assert (made["limit_micros"], made["left_micros"], made["period"]) == (60_000_000, 60_000_000, "month")
    listed = sqlite_shell("budget", "list").out.splitlines()
    assert [line.split()[:4] for line in listed[1:]] == [
        ["all", "convert", "day", "$0.50"],
        ["ada", "all", "month", "$60.00"],
    ]
    assert sqlite_shell("budget", "remove", "--owner", "ada").code == 0
    ran = sqlite_shell("budget", "remove", "--owner", "ada")
    assert (ran.code, "there is no such budget" in ran.err) == (5, True)


def test_a_budget_for_a_handler_that_no_worker_has_run_is_set_and_the_name_is_doubted(sqlite_shell: Shell) -> None:
    assert sqlite_shell("budget", "set", "5", "--handler", "eccho").err == "", "nobody knows a handler yet"
    sqlite_shell.tick()
    ran = sqlite_shell("budget", "set", "5", "--handler", "eccho")
    assert (ran.code, ran.out.strip()) == (0, "the budget of all owners for handler eccho, per month: $5.00")
    assert "no worker has run the handler 'eccho' on this database; did you mean 'echo'?" in ran.err
    assert sqlite_shell("budget", "set", "5", "--handler", "echo").err == ""
    assert sqlite_shell("budget", "set", "5", "--handler", "@api.openai.com").err == ""


def test_bounds_show_the_budgets_of_the_database_if_there_is_one(sqlite_shell: Shell, tmp_path: Path) -> None:
    assert sqlite_shell("bounds", "--db", f"sqlite:///{tmp_path}/none.db", "--json").json["budgets"] == []
    assert not (tmp_path / "none.db").exists()
    sqlite_shell("budget", "set", "5", "--period", "total")
    assert "the budget of all owners, in total: $5.00, $5.00 left" in sqlite_shell("bounds").out
    assert sqlite_shell("bounds", "--json").json["budgets"][0]["limit_micros"] == 5_000_000


@pytest.mark.parametrize("amount", ["-1", "much", "nan"])
def test_an_amount_that_is_none_is_refused_and_nothing_is_written(sqlite_shell: Shell, amount: str) -> None:
    sqlite_shell("migrate")
    assert sqlite_shell("budget", "set", "--owner", "ada", "--", amount).code == 2
    assert sqlite_shell("budget", "list", "--json").out == ""


def test_a_job_says_which_budget_it_waits_for(sqlite_shell: Shell) -> None:
    sqlite_shell.file(
        """
from backstay import Backstay
backstay = Backstay()
@backstay.handler(cost=0.5)
def convert(item): return item
""",
        "paid.py",
    )
    sqlite_shell("budget", "set", "1.2", "--owner", "local")
    items = sqlite_shell.file("1\n2\n3\n")
    assert sqlite_shell("submit", items, "--app", "paid:backstay", "--handler", "convert").code == 0
    for _ in range(2):
        sqlite_shell("tick", "--app", "paid:backstay")
    shown = sqlite_shell("job", "show", "1").out
    assert "could exceed the budget of local, per month" in shown
    assert sqlite_shell("job", "show", "1", "--json").json["succeeded"] == 2


def test_bounds_are_shown_although_the_database_cannot_be_reached(sqlite_shell: Shell) -> None:
    ran = sqlite_shell("bounds", "--db", "postgresql://nobody@127.0.0.1:9/none")
    assert (ran.code, "calls per hour" in ran.out) == (0, True)
    assert "the budgets could not be read" in ran.err


@pytest.mark.parametrize("empty", ["", " "])
@pytest.mark.parametrize(
    "args",
    [
        ("budget", "set", "5", "--owner"),
        ("budget", "set", "5", "--handler"),
        ("budget", "remove", "--owner"),
        ("budget", "remove", "--handler"),
        ("prune", "--keep", "0", "--owner"),
        ("key", "create", "--owner"),
        ("key", "list", "--owner"),
        ("submit", "--handler"),
        ("submit", "--handler", "picky", "--fallback"),
        ("schedule", "add", "nightly", "* * * * *", "--handler"),
        ("broker", "declare", "--handler"),
    ],
)
def test_an_empty_name_as_of_an_unset_variable_does_not_widen_a_command(
    sqlite_shell: Shell, args: tuple[str, ...], empty: str
) -> None:
    sqlite_shell("budget", "set", "7")
    ran = sqlite_shell(*args, empty)
    assert (ran.code, f"{args[-1]}': the name is empty" in " ".join(ran.err.split())) == (2, True), ran.err
    assert [row["limit_micros"] for row in sqlite_shell("budget", "list", "--json").rows] == [7_000_000]
    assert sqlite_shell("key", "list", "--json").json == []
