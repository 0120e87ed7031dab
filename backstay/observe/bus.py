"""Carries events from the engine to whoever listens."""

from collections.abc import Callable

from backstay.core.events import Event

Listener = Callable[[Event], None]


class Bus:
    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def emit(self, event: Event) -> None:
        for listener in self._listeners:
            listener(event)
