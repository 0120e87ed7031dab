"""Carries events from the engine to the listeners."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from backstay.core.events import Event, Trouble

if TYPE_CHECKING:
    from backstay.observe.tracing import Tracing

Listener = Callable[[Event], None]


class TracedSubmission(Protocol):
    """A submit under way, as somebody draws it."""

    seed: str | None  # for the job, so that its workers find the trace; None: any seed will do

    def record_submit(self, job_id: int, items: int) -> None: ...

    def broke_off(self) -> None: ...


class Untraced:
    """A submit that nobody draws."""

    seed: str | None = None

    def record_submit(self, job_id: int, items: int) -> None:
        """Records nothing."""

    def broke_off(self) -> None:
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
        """One that was dropped is gone already."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def below(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Work for a request that may name the trace it belongs to."""
        return nullcontext() if self.tracing is None else self.tracing.below(headers)

    def submitting(self, handler: str) -> TracedSubmission:
        return Untraced() if self.tracing is None else self.tracing.submitting(handler)

    def emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as error:
                self._listeners.remove(listener)
                self.emit(Trouble("listener", f"an observer was dropped after {type(error).__name__}: {error}"))
