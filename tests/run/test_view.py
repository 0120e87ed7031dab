"""What a person sees of a run on a terminal, in a log and as JSON."""

import io
import json
import os
import pty
import re
import subprocess
import sys
from typing import Any

import pytest
from rich.console import Console

from backstay.run.run_state import MeterReading, RunState
from backstay.run.summary import Ending, Summary
from backstay.run.terminal import Block, Terminal
from backstay.run.view import Events, Holds, PlainLines
from tests.house.sources import ROOT

STATE = RunState(
    20_000,
    succeeded=11_204,
    failed=30,
    retrying=12,
    running=100,
    input_tokens=1_204_000,
    output_tokens=310_400,
    spent_micros=842_000,
    reserved_micros=12_000,
    budget_micros=5_000_000,
)
READING = MeterReading(342.1, 26.0, 1_500_000)
SUMMARY = Summary(12, Ending.DONE, 10, 10, seconds=3.0, out="results.jsonl")


def drawn(state: RunState = STATE, reading: MeterReading = READING, width: int = 80) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None, record=True)
    console.print(Block("job 12: requests.jsonl → results.jsonl", state, reading))
    return [line.rstrip() for line in console.export_text().splitlines()]


# On a terminal


def test_the_block_says_all_there_is_to_know_in_five_lines() -> None:
    title, bar, counts, pace, money = drawn()
    assert title == "job 12: requests.jsonl → results.jsonl"
    assert re.fullmatch(r"━+[╸╺]?\s+56 %  11,234 of 20,000", bar)
    assert counts == "11,204 succeeded · 30 failed · 12 retrying · 100 running"
    assert pace == "342/s · 26 s left · 1.2 M tokens in · 310 k out"
    assert money == "$0.842 of $5.00 spent · $0.012 reserved · $1.50 forecast"


def test_what_is_not_known_is_said_to_be_unknown() -> None:
    *_, pace, money = drawn(STATE._replace(spent_micros=None, reserved_micros=0, budget_micros=None), MeterReading())
    assert pace.startswith("time left unknown")
    assert money == "cost unknown"


def test_a_hold_and_a_stop_are_told_below() -> None:
    held = drawn(STATE._replace(held="api.example.com refuses: 401 wrong key"))
    assert held[-1] == "held: api.example.com refuses: 401 wrong key"
    assert drawn(STATE._replace(held="it fails", held_seconds=27.4))[-1] == "held: it fails; next attempt in 28 s"
    stopping = [drawn(STATE._replace(stopping=True, running=number))[-1] for number in (100, 1, 0)]
    assert stopping == [
        "stopping: 100 calls finish first; Ctrl-C again cuts them off (may be paid twice)",
        "stopping: 1 call finishes first; Ctrl-C again cuts it off (may be paid twice)",
        "stopping",
    ]


def test_rare_things_are_told_when_there_are_any() -> None:
    counts = drawn(STATE._replace(repeats=2, cancelled=5, submitted=12_000), width=120)
    assert counts[1].endswith("11,239 of 20,000")
    assert counts[2].endswith("12 retrying · 100 running · 12,000 stored · 2 lost answers, maybe paid")
    counts = drawn(STATE._replace(truncated=66, filtered=3), width=120)
    assert counts[2].endswith("100 running · 66 truncated · 3 filtered")


@pytest.mark.parametrize("width", [20, 24, 39, 40, 60, 200])
def test_a_narrow_terminal_loses_no_figure_and_no_line_is_too_wide(width: int) -> None:
    lines = drawn(STATE._replace(held="the provider refuses every call that is made to it", stopping=True), width=width)
    assert max(map(len, lines)) <= width
    text = " ".join(lines)
    for words in ("56 %", "11,234 of 20,000", "30 failed", "100 running", "26 s left", "$1.50 forecast", "to it"):
        assert words in text, words


def test_names_with_brackets_are_not_taken_for_markup() -> None:
    console = Console(file=io.StringIO(), width=80, color_system=None)
    console.print(Block("job 1: [bold]a[/].jsonl", STATE._replace(held="[red]no[/red]"), READING))
    assert "[bold]a[/].jsonl" in console.file.getvalue()  # type: ignore[attr-defined]
    assert "held: [red]no[/red]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_the_block_is_drawn_a_few_times_a_second_at_most() -> None:
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    with Terminal("job 12", console) as terminal:
        for number in range(100):
            terminal.show(STATE._replace(succeeded=number), number / 100)
    assert console.file.getvalue().count("job 12") == pytest.approx(6, abs=2)  # type: ignore[attr-defined]


PROGRAM = """
from tests.run.test_view import STATE, SUMMARY
from backstay.run.view import open_view
with open_view(12, "requests.jsonl") as view:
    view.show(STATE, 0.0)
    view.say("a word between")
    view.show(STATE._replace(succeeded=12_000), 5.0)
    view.end(SUMMARY)
"""


def on_a_terminal(**environment: str) -> str:
    ours, theirs = pty.openpty()
    environ = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "TERM", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        stderr=theirs,
        stdout=subprocess.DEVNULL,
        env={**environ, "TERM": "xterm-256color", **environment},
    )
    os.close(theirs)
    seen = b""
    try:
        while data := os.read(ours, 65_536):
            seen += data
    except OSError:  # how the end of a terminal is told
        assert process.wait(60) == 0
    os.close(ours)
    return seen.decode()


def test_a_real_terminal_sees_the_block_move_and_then_the_summary() -> None:
    seen = on_a_terminal()
    assert "11,204 succeeded" in seen
    assert "\x1b[" in seen
    assert seen.rindex("12,000 succeeded") < seen.rindex("Job 12 is done")
    assert "a word between" in seen
    assert seen.rindex("\x1b[?25l") < seen.index("\x1b[?25h") < seen.index("succeeded"), (
        "a kill leaves no cursor hidden"
    )


def test_no_color_takes_the_colours_away() -> None:
    coloured = r"\x1b\[[0-9;]*3[0-9](;[0-9]+)*m"
    assert re.search(coloured, on_a_terminal())
    plain = on_a_terminal(NO_COLOR="1")
    assert not re.search(coloured, plain)
    assert "12,000 succeeded" in plain


def test_a_dumb_terminal_sees_plain_lines() -> None:
    seen = on_a_terminal(TERM="dumb")
    assert "\x1b" not in seen
    assert seen.startswith("job 12: 11,234 of 20,000 done (56 %), 30 failed, 12 retrying, $0.842 of $5.00 spent")


# Elsewhere


def lines_of(states: list[tuple[float, RunState]]) -> list[str]:
    stream = io.StringIO()
    lines = PlainLines(12, stream)
    for now, state in states:
        lines.show(state, now)
    return stream.getvalue().splitlines()


def test_a_quick_run_says_little() -> None:
    assert len(lines_of([(n / 10, RunState(100, n)) for n in range(100)])) == 1


def test_a_run_speaks_every_ten_percent_but_not_more_often_than_every_ten_seconds() -> None:
    assert len(lines_of([(n / 10, RunState(2_000, n)) for n in range(2_000)])) == 10
    assert len(lines_of([(n / 10, RunState(500, n)) for n in range(500)])) == 5


def test_a_long_run_is_never_silent_for_more_than_a_minute() -> None:
    assert len(lines_of([(n / 2, RunState(10**6, n)) for n in range(3_600)])) == 30


def test_a_line_tells_counts_pace_and_money() -> None:
    states = [(float(n), RunState(1_000, n * 10, spent_micros=n * 1_000, budget_micros=10**6)) for n in range(12)]
    assert lines_of(states)[-1] == (
        "job 12: 100 of 1,000 done (10 %), 10/s, 1 min 30 s left, $0.01 of $1.00 spent, forecast $0.10"
    )


def test_a_hold_is_told_when_it_lasts_and_when_it_ends() -> None:
    states = [(n / 4, RunState(10**6, 5, held="it is down" if 40 <= n < 80 else None)) for n in range(120)]
    assert [line for line in lines_of(states) if "of 1,000,000" not in line] == [
        "job 12: held: it is down",
        "job 12: resumed",
    ]


def test_a_line_while_held_says_why() -> None:
    said = lines_of([(float(n), RunState(10**6, 5, held="it is down")) for n in range(70)])
    assert said[-1] == "job 12: 5 of 1,000,000 done (0 %), cost unknown; held: it is down"


def changes(moments: list[tuple[float, str | None]]) -> list[tuple[float, str]]:
    holds = Holds()
    return [(now, told) for now, held in moments if (told := holds.change(held, now))]


def test_a_hold_that_flickers_is_not_told() -> None:
    assert changes([(n / 2, "rate limit" if n % 2 else None) for n in range(100)]) == []


def test_a_hold_that_is_let_go_for_a_moment_is_told_once() -> None:
    assert changes([(n / 2, None if n % 20 == 19 else "down") for n in range(100)]) == [(2.0, "held")]


def test_another_reason_is_told_but_not_at_every_change_of_its_words() -> None:
    told = changes([(n / 2, f"down for {n} s") for n in range(60)])
    assert told == [(2.0, "held"), (12.0, "held"), (22.0, "held")]


def test_the_summary_is_the_last_thing_in_a_log() -> None:
    stream = io.StringIO()
    PlainLines(12, stream).end(SUMMARY)
    assert stream.getvalue().splitlines() == SUMMARY.lines()


def events_of(states: list[tuple[float, RunState]]) -> list[dict[str, Any]]:
    stream = io.StringIO()
    events = Events(12, stream)
    for now, state in states:
        events.show(state, now)
    events.say("a word")
    events.end(SUMMARY)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_program_gets_events_an_object_a_line() -> None:
    states = [(n / 4, STATE._replace(succeeded=n, held="down" if 20 <= n < 40 else None)) for n in range(60)]
    events = events_of(states)
    names = [event["event"] for event in events]
    assert [name for name in names if name != "progress"] == ["held", "released", "note", "summary"]
    assert names.count("progress") == 15
    assert all(event["job"] == 12 for event in events)
    assert next(event for event in events if event["event"] == "held")["reason"] == "down"


def test_progress_holds_every_figure() -> None:
    (first, *_) = events_of([(0.0, STATE)])
    assert first["done"] == 11_234
    assert {*RunState._fields, *MeterReading._fields} <= first.keys()


def test_a_run_in_which_nothing_changes_still_gives_a_sign_of_life() -> None:
    assert sum(event["event"] == "progress" for event in events_of([(n / 2, STATE) for n in range(61)])) == 4
