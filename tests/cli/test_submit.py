"""`backstay submit`: every line or none."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.shell import Shell

APP = ("--app", "shop:backstay")


def jobs(shell: Shell) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = shell("jobs", "--json").rows
    return rows


def test_every_line_becomes_an_item_in_its_order(shell: Shell) -> None:
    path = shell.file('{"a": 1}\n"text"\n[1, 2]\nnull\n')
    ran = shell("submit", path, *APP, "--handler", "echo", "--label", "mine", "--priority", "3", "--json")
    assert ran.json == {"job": 1, "items": 4, "handler": "echo", "new": True}
    shell.tick()
    results = shell("job", "results", 1).rows
    assert [row["payload"] for row in results] == [{"a": 1}, "text", [1, 2], None]
    assert [row["value"] for row in results] == [{"a": 1}, "text", [1, 2], None]
    (job,) = jobs(shell)
    assert (job["label"], job["priority"], job["state"]) == ("mine", 3, "completed")


def test_blank_lines_line_ends_and_a_mark_at_the_start_are_no_matter(shell: Shell) -> None:
    path = shell.file(b"\xef\xbb\xbf1\r\n\r\n  2  \n\n\t\n3")
    assert shell("submit", path, *APP, "--handler", "echo", "--json").json["items"] == 3


def test_a_line_is_stored_as_it_stands(shell: Shell) -> None:
    text = '{"big": 123456789012345678901234567890, "small": 1.10, "e": "\\u00e9\u00e9\\u0000", "b": 1, "b": 2}'
    shell("submit", shell.file(text + "\n"), *APP, "--handler", "echo")
    (line,) = shell("job", "results", 1).lines or [""]
    assert line == ""
    shell.tick()
    (line,) = shell("job", "results", 1).lines
    assert f'"payload": {text}, ' in line


def test_stdin_is_read_to_its_end(sqlite_shell: Shell) -> None:
    ran = sqlite_shell.process("submit", "-", *APP, "--handler", "echo", "--json", stdin="1\n2\n3\n")
    assert ran.json["items"] == 3


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"{not json}", "line 3001 is not JSON: Expecting property name"),
        (b"NaN", "line 3001 is not JSON: NaN is not a JSON number"),
        (b'"\xff"', "line 3001 is not UTF-8: invalid start byte at byte 2"),
        (b"[" * 100_000, "line 3001 is nested more than 128 levels deep"),
        (b'"\x00"', "line 3001 is not JSON: Invalid control character"),
        (b"1 2", "line 3001 is not JSON: Extra data"),
    ],
)
def test_a_bad_line_is_named_and_nothing_is_submitted(shell: Shell, line: bytes, says: str) -> None:
    path = shell.file(b"1\n" * 3000 + line + b"\n" + b"2\n" * 10)
    ran = shell("submit", path, *APP, "--handler", "echo")
    assert (ran.code, ran.out, len(ran.said)) == (2, "", 1)
    assert says in ran.err
    assert jobs(shell) == []


def test_a_bad_line_on_stdin_leaves_nothing_behind(sqlite_shell: Shell) -> None:
    ran = sqlite_shell.process("submit", "-", *APP, "--handler", "echo", stdin="1\n" * 5000 + "oops\n")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "line 5001 is not JSON" in ran.err
    assert jobs(sqlite_shell) == []


def test_a_payload_that_does_not_fit_its_handler_is_named(shell: Shell) -> None:
    ran = shell("submit", shell.file('1\n2\n"three"\n'), *APP, "--handler", "picky")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "line 3: the payload does not fit the handler" in ran.err
    shell.file(
        "from backstay import Backstay\nimport datetime\nb = Backstay()\n@b.handler()\ndef on(day: datetime.date): ...",
        "broken.py",
    )
    ran = shell("submit", shell.file('"2024-05-01"\n"yesterday"\n'), "--app", "broken:b", "--handler", "on")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "line 2: the payload does not fit the handler" in ran.err
    assert jobs(shell) == []


@pytest.mark.parametrize("text", ["", "\n\n", "\ufeff"])
def test_an_empty_file_is_refused(sqlite_shell: Shell, text: str) -> None:
    ran = sqlite_shell("submit", sqlite_shell.file(text), *APP, "--handler", "echo")
    assert ran.code == 2
    assert "the input has no items to submit" in ran.err
    assert jobs(sqlite_shell) == []


def test_a_handler_that_the_application_does_not_have_is_refused(shell: Shell) -> None:
    ran = shell("submit", shell.file("1\n"), *APP, "--handler", "ecoh")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "no handler 'ecoh'. did you mean 'echo'?" in ran.err
    assert jobs(shell) == []


def test_without_an_application_the_workers_say_which_handlers_there_are(shell: Shell) -> None:
    path = shell.file("1\n")
    ran = shell("submit", path, "--handler", "echo")
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "no worker has run the handler 'echo' on this database. known: none" in ran.err
    assert jobs(shell) == []
    shell.tick()  # a worker, for a short life
    assert shell("submit", path, "--handler", "echo").code == 0
    ran = shell("submit", path, "--handler", "ecoh")
    assert "did you mean 'echo'?" in ran.err
    assert len(jobs(shell)) == 1


def test_force_goes_on_without_knowing_the_handler(shell: Shell) -> None:
    assert shell("submit", shell.file("1\n"), "--handler", "later", "--force").code == 0
    assert jobs(shell)[0]["handler"] == "later"


def test_the_same_key_and_items_make_one_job(shell: Shell) -> None:
    args = (*APP, "--handler", "echo", "--idempotency-key", "k1", "--json")
    path = shell.file("1\n" * 4500)
    made = [shell("submit", path, *args).json for _ in range(2)]
    assert [(row["job"], row["new"]) for row in made] == [(1, True), (1, False)]
    assert (
        shell("submit", path, *args[:-1]).out
        == "job 1: 4,500 items for echo, which existed already under this idempotency key\n"
    )
    ran = shell("submit", shell.file("2\n" * 4500), *args)
    assert (ran.code, len(ran.said)) == (2, 1)
    assert "belongs to job 1, which has different items" in ran.err
    (job,) = jobs(shell)
    assert job["total"] == 4500


def test_options_are_kept_with_the_job(shell: Shell) -> None:
    flags = ("--deadline", "20m", "--retry", "gateway", "--delivery", "at_most_once")
    shell("submit", shell.file("1\n"), *APP, "--handler", "echo", *flags)
    (job,) = jobs(shell)
    assert (job["retry"], job["delivery"]) == ("gateway", "at_most_once")
    assert job["deadline_at"] - job["created_at"] == 20 * 60_000  # type: ignore[operator]


PEAK = """
import sys
from backstay.cli.main import run
assert run(sys.argv[1:]) == 0
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(status["VmHWM"].split()[0], file=sys.stderr)
"""


def peak_kilobytes(shell: Shell, path: Path) -> int:
    """The most memory that a submit of this file has ever held."""
    command = [sys.executable, "-c", PEAK, "submit", str(path), *APP, "--handler", "echo"]
    ran = subprocess.run(command, cwd=shell.folder, env=shell.environment(), capture_output=True, text=True, check=True)
    return int(ran.stderr.split()[-1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads memory where Linux shows it")
def test_a_file_is_streamed_however_long_it_is(shell: Shell) -> None:
    row = json.dumps({"text": "x" * 500}) + "\n"
    short = peak_kilobytes(shell, shell.file(row * 4_000))
    long = peak_kilobytes(shell, shell.file(row * 80_000))
    # SQLite's page cache of 16 MB fills up on the way; the file has 41 MB.
    assert long - short < 20 * 1024, (short, long)


@pytest.mark.parametrize(
    ("option", "whose"),
    [
        (("--priority", "3"), "items of a --handler"),
        (("--retry", "none"), "items of a --handler"),
        (("--idempotency-key", "k"), "items of a --handler"),
        ((*APP, "--handler", "echo", "--price", "1/2"), "LLM requests"),
        ((*APP, "--handler", "echo", "--model", "gpt-4o"), "LLM requests"),
    ],
    ids=lambda words: words[-2] if isinstance(words, tuple) else "",
)
def test_an_option_that_would_have_no_say_is_refused(shell: Shell, option: tuple[str, ...], whose: str) -> None:
    ran = shell("submit", shell.file('{"prompt": "hello"}\n'), *option)
    assert (ran.code, len(ran.said)) == (2, 1)
    assert f"{option[-2]} is only for {whose}" in ran.err
    assert jobs(shell) == []


COSTLY = """
from backstay import Backstay

backstay = Backstay()


@backstay.handler(cost=lambda item: item["dollars"])
def costly(item: dict) -> float:
    return item["dollars"]


@backstay.handler()
def free(item: dict) -> None: ...
"""


def test_items_of_a_handler_have_a_budget_if_it_declares_a_cost(shell: Shell) -> None:
    (shell.folder / "shop.py").write_text(COSTLY)
    path = shell.file('{"dollars": 2}\n{"dollars": 2.5}\n{"dollars": 1}\n')
    assert shell("submit", path, *APP, "--handler", "costly", "--budget", "4.60").code == 0
    shell.tick()
    view = shell("job", "show", 1, "--json").json
    assert (view["succeeded"], view["spent_micros"], view["budget_micros"]) == (2, 4_500_000, 4_600_000)


@pytest.mark.parametrize(
    ("lines", "options", "says"),
    [
        ("1", ("--handler", "free", "--budget", "5"), "a budget cannot be enforced for 'free'"),
        ('{"dollars": 1}', ("--handler", "costly", "--fallback", "free", "--budget", "5"), "enforced for 'free'"),
        ("1", ("--handler", "unknown", "--budget", "5", "--force"), "--budget needs your code"),
        ('{"dollars": 1}\n{"dollars": -1}', ("--handler", "costly"), "line 2: the cost of an item must be a number"),
        (
            '{"dollars": 1}\n{}',
            ("--handler", "costly"),
            "line 2: the function that computes the cost of an item failed",
        ),
        ("1", ("--handler", "free", "--unique", "k"), "--unique and --unique-for need each other"),
    ],
)
def test_a_budget_or_a_cost_that_cannot_be_is_refused(
    sqlite_shell: Shell, lines: str, options: tuple[str, ...], says: str
) -> None:
    (sqlite_shell.folder / "shop.py").write_text(COSTLY)
    ran = sqlite_shell("submit", sqlite_shell.file(lines), *APP, *options)
    assert (ran.code, len(ran.said)) == (2, 1)
    assert says in ran.err
    assert jobs(sqlite_shell) == []


def test_a_job_after_another_needs_no_file_and_says_what_it_waits_for(shell: Shell) -> None:
    shell("submit", shell.file("1\n2\n"), *APP, "--handler", "echo")
    ran = shell("submit", *APP, "--handler", "echo", "--after", 1, "--json")
    assert ran.json == {"job": 2, "items": 0, "handler": "echo", "new": True}
    shown = shell("job", "show", 2).out
    assert "job 2 waits for job 1: it starts when all of them have ended" in shown
    assert "still being submitted" not in shown
    for _ in range(2):
        shell.tick()
    assert [row["payload"] for row in shell("job", "results", 2).rows] == [1, 2]


def test_a_submit_again_makes_no_doubles(shell: Shell) -> None:
    path = shell.file('{"id": 1}\n{"id": 2}\n')
    unique = ("--unique", "payload", "--unique-for", "1h")
    first = [shell("submit", path, *APP, "--handler", "echo", *unique, "--json").json for _ in range(2)]
    assert [(one["job"], one["new"]) for one in first] == [(1, True), (1, False)]
    shell("submit", path, *APP, "--handler", "echo", "--item-key", "id")
    again = shell(
        "submit", shell.file('{"id": 2}\n{"id": 3}\n'), *APP, "--handler", "echo", "--item-key", "id", "--json"
    )
    assert (again.json["items"], shell("job", "show", again.json["job"], "--json").json["known"]) == (1, 1)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("--handler", "echo"), "FILE is missing"),
        (("--handler", "echo", "--after", "9"), "no job 9"),
        (("--handler", "echo", "--after", "9", "--fallback", "nobody"), "there is no handler 'nobody'"),
        (("--handler", "echo", "--after", "9", "--fallback", "echo"), "cannot be its own fallback"),
        (("--handler", "echo", "--after", "9", "--unique-for", "1h"), "--unique and --unique-for need each other"),
    ],
)
def test_options_that_cannot_be_are_refused_by_one_line(sqlite_shell: Shell, given: tuple[str, ...], says: str) -> None:
    ran = sqlite_shell("submit", *APP, *given)
    assert ran.code != 0
    assert says in ran.err
    assert jobs(sqlite_shell) == []
