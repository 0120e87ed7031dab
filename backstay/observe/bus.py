"""Carries events from the engine to whoever listens."""

from collections.abc import Callable

from backstay.core.events import Event, Trouble

Listener = Callable[[Event], None]


class Bus:
    """A listener that raises is dropped and the others are told: work that is paid for goes on without it."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def unsubscribe(self, listener: Listener) -> None:
        """One that was dropped is gone already."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def emit(self, event: Event) -> None:
        for listener in tuple(self._listeners):
            try:
                listener(event)
            except Exception as error:
                self._listeners.remove(listener)
                self.emit(Trouble("listener", f"dropped after {type(error).__name__}: {error}"))
