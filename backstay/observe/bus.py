"""Carries events from the engine to the listeners."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from backstay.core.events import Event, Trouble

if TYPE_CHECKING:
    from backstay.observe.tracing import Tracing

Listener = Callable[[Event], None]


class TracedSubmission(Protocol):
    """A submit under way, as tracing records it."""

    seed: str | None  # for the job, so that its workers find the trace; None: any seed will do

    def record_submit(self, job_id: int, items: int) -> None: ...

    def record_failure(self) -> None: ...


class UntracedSubmission:
    """A submit without tracing."""

    seed: str | None = None

    def record_submit(self, job_id: int, items: int) -> None:
        """Records nothing."""

    def record_failure(self) -> None:
        """Records nothing."""


class Bus:
    """A listener that raises is dropped and the others are told: paid work must continue without it."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        # Tracing must be called before things happen, not only afterwards. None: no tracing.
        self.tracing: Tracing | None = None

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """A listener that was dropped is not there any more."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def within_trace_of(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Work for a request that may name the trace it belongs to."""
        return nullcontext() if self.tracing is None else self.tracing.within_trace_of(headers)

    def trace_submit(self, handler: str) -> TracedSubmission:
        return UntracedSubmission() if self.tracing is None else self.tracing.trace_submit(handler)

    def emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as error:
                self._listeners.remove(listener)
                self.emit(Trouble("listener", f"an observer was dropped after {type(error).__name__}: {error}"))
