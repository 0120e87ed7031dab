"""A job's progress while it is watched: a bar on a terminal, a line now and then elsewhere, or JSON."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from backstay.cli import output
from backstay.cli.jobs import show_state
from backstay.clock import Clock
from backstay.core.outcomes import ANSWER_FLAWS

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from backstay.store.job_views import JobView

LINE_SECONDS = 10.0
LINE_PERCENT = 10


class Watch(Protocol):
    def show(self, view: "JobView") -> None: ...


@contextmanager
def watching(as_json: bool) -> Iterator[Watch]:
    """The watch that fits where the output goes."""
    if as_json or not output.fancy(sys.stderr):
        yield WatchLines(Clock(), as_json)
    else:
        with _bar() as bar:
            yield bar


class WatchLines:
    """Speaks at the start, at the end, and in between after ten seconds or ten percent."""

    def __init__(self, clock: Clock, as_json: bool) -> None:
        self._clock = clock
        self._as_json = as_json
        self._said_at: float | None = None
        self._said_percent = 0

    def show(self, view: "JobView") -> None:
        now, percent = self._clock.monotonic(), percent_of(view)
        waited = self._said_at is None or now - self._said_at >= LINE_SECONDS
        if not (waited or percent >= self._said_percent + LINE_PERCENT or view.ended):
            return
        self._said_at, self._said_percent = now, percent
        if self._as_json:
            output.data(output.as_json({"job": view.id, "percent": percent, **counts_of(view)}))
            sys.stdout.flush()
        else:
            said = "" if view.state == "cancelled" else f"{percent} %, "  # there is no way to go any more
            output.note(f"job {view.id}: {said}{describe(view)}")


def percent_of(view: "JobView") -> int:
    return (view.done - view.cancelled) * 100 // view.total if view.total else 0


def counts_of(view: "JobView") -> dict[str, object]:
    counted = ("state", "total", "done", "processing", "succeeded", "failed", "skipped", "cancelled", "repeats")
    return {name: getattr(view, name) for name in (*counted, *ANSWER_FLAWS)}


def describe(view: "JobView") -> str:
    parts = [f"{view.done - view.cancelled:,} of {output.count(view.total, 'item')} done"]
    counted = ("failed", "skipped", "cancelled", *ANSWER_FLAWS)
    parts += [f"{getattr(view, name):,} {name}" for name in counted if getattr(view, name)]
    if view.state == "cancelled":
        return f"cancelled, {', '.join(parts)}"
    return ", ".join([*parts, show_state(view)])


class ProgressBar:
    """A bar that moves."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress = progress
        self._task = task

    def show(self, view: "JobView") -> None:
        text = f"job {view.id}: {describe(view)}"
        self._progress.update(self._task, completed=view.done, total=view.total, description=text)


@contextmanager
def _bar() -> Iterator[ProgressBar]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    left = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(
        *left, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True), transient=True
    ) as progress:
        yield ProgressBar(progress, progress.add_task("waiting", total=None))
