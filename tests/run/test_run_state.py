"""Rate, time left and forecast, from states and a clock that the test moves."""

import pytest

from backstay.run.run_state import Meter, MeterReading, RunState, forecast


class Watched:
    """A run whose meter is read every half second."""

    def __init__(self, total: int, done: int = 0, now: float = 1_000.0) -> None:
        self.state = RunState(total, succeeded=done)
        self.now = now
        self.meter = Meter()
        self.reading = self.meter.read(self.state, now)
        self._owed = 0.0

    def runs(self, seconds: float, per_second: float, step: float = 0.5, **changes: object) -> MeterReading:
        self.state = self.state._replace(**changes)  # type: ignore[arg-type]
        for _ in range(round(seconds / step)):
            self.now += step
            self._owed += per_second * step
            self.state = self.state._replace(succeeded=self.state.succeeded + int(self._owed))
            self._owed -= int(self._owed)
            self.reading = self.meter.read(self.state, self.now)
        return self.reading


def test_at_the_start_nothing_is_known() -> None:
    run = Watched(1_000)
    assert run.reading == MeterReading()
    assert run.runs(1, 100).per_second is None


def test_a_steady_run_has_its_rate_and_the_time_that_is_left() -> None:
    run = Watched(10_000)
    reading = run.runs(20, 100)
    assert reading.per_second == pytest.approx(100)
    assert reading.eta_seconds == pytest.approx(80)


def test_what_an_earlier_process_did_is_no_speed_of_this_one() -> None:
    run = Watched(100_000, done=50_000)
    assert run.runs(10, 10).per_second == pytest.approx(10)


def test_a_change_of_speed_is_seen_within_the_window() -> None:
    run = Watched(1_000_000)
    run.runs(300, 100)
    assert run.runs(31, 400).per_second == pytest.approx(400, rel=0.02)


def test_a_slow_run_looks_further_back() -> None:
    run = Watched(1_000)
    run.runs(600, 0.05)
    assert run.reading.per_second == pytest.approx(0.05, rel=0.2)
    run.runs(13, 0)  # between two items
    assert run.reading.per_second == pytest.approx(0.05, rel=0.2)


def test_while_it_is_held_nothing_moves_and_no_time_is_promised() -> None:
    run = Watched(10_000)
    run.runs(60, 100)
    held = run.runs(5, 0, held="the provider refuses")
    assert (held.per_second, held.eta_seconds) == (0.0, None)


def test_the_time_of_a_hold_does_not_slow_the_run_down_afterwards() -> None:
    run = Watched(100_000)
    run.runs(60, 100)
    run.runs(300, 0, held="the breaker is open")
    assert run.runs(1, 100, held=None).per_second is None
    assert run.runs(4, 100).per_second == pytest.approx(100)


def test_a_process_that_stood_still_starts_to_measure_anew() -> None:
    run = Watched(100_000)
    run.runs(60, 100)
    run.now += 3_600
    run.runs(5, 100)
    assert run.reading.per_second == pytest.approx(100)


def test_a_run_that_loses_done_items_because_they_are_retried_has_no_negative_rate() -> None:
    run = Watched(1_000, done=500)
    run.runs(10, 10)
    run.runs(0.5, 0, succeeded=100)
    assert run.runs(5, 10).per_second == pytest.approx(10)


def test_a_run_that_does_not_move_says_so_after_a_while() -> None:
    run = Watched(1_000)
    assert run.runs(20, 0).per_second is None
    assert run.runs(20, 0) == MeterReading(0.0, None, None)


def test_no_end_is_promised_while_the_run_stops() -> None:
    run = Watched(10_000)
    assert run.runs(20, 100).eta_seconds is not None
    assert run.runs(1, 100, stopping=True).eta_seconds is None


def test_when_all_is_done_no_time_is_left() -> None:
    assert Watched(10, done=10).reading.eta_seconds == 0.0


def test_the_window_does_not_grow_with_the_run() -> None:
    run = Watched(10_000_000)
    run.runs(3_000, 100)
    assert len(run.meter._samples) <= 70


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (RunState(100, succeeded=50, spent_micros=None), None),
        (RunState(100, succeeded=50, spent_micros=500), 1_000),
        (RunState(100, succeeded=25, failed=25, spent_micros=500), 1_000),
        (RunState(100, succeeded=30, spent_micros=100), 334),
        (RunState(100, succeeded=3, spent_micros=500), None),
        (RunState(100, succeeded=100, spent_micros=700), 700),
        (RunState(100, succeeded=50, spent_micros=0), 0),
        (RunState(100, succeeded=20, cancelled=80, spent_micros=10), 10),
    ],
)
def test_the_forecast_is_what_items_really_cost_once_there_are_some(state: RunState, expected: int | None) -> None:
    assert forecast(state) == expected


@pytest.mark.parametrize(
    ("state", "percent"),
    [(RunState(0), 0), (RunState(3, succeeded=2), 66), (RunState(3, 3), 100), (RunState(2, 3), 100)],
)
def test_the_percentage_is_whole_and_never_early(state: RunState, percent: int) -> None:
    assert state.percent == percent
