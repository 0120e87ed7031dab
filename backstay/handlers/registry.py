"""The handlers of one application, by name."""

import difflib
from collections.abc import Iterator

from backstay.core.errors import UsageError
from backstay.handlers.handler import Handler
from backstay.handlers.task import TaskHandler


class Registry:
    def __init__(self) -> None:
        self._handlers: dict[str, Handler] = {}

    def add(self, handler: Handler) -> None:
        if handler.name in self._handlers:
            raise UsageError(f"two handlers are named {handler.name!r}", hint="give one of them another name=")
        self._handlers[handler.name] = handler

    def remove(self, name: str) -> None:
        """Removes a handler. Code that adds a handler must remove it when it closes it, so that it can be opened
        again."""
        del self._handlers[name]

    def __getitem__(self, name: str) -> Handler:
        try:
            return self._handlers[name]
        except KeyError:
            raise unknown_handler(name, list(self._handlers)) from None

    def __contains__(self, name: str) -> bool:
        return name in self._handlers

    def __iter__(self) -> Iterator[Handler]:
        """A copy of the current handlers: a lane may open while a caller iterates over them and awaits."""
        return iter(list(self._handlers.values()))

    def __len__(self) -> int:
        return len(self._handlers)

    def task_handlers(self) -> Iterator[TaskHandler]:
        return (handler for handler in self if isinstance(handler, TaskHandler))


def unknown_handler(name: str, known: list[str]) -> UsageError:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known)) or 'none'}"
    return UsageError(f"there is no handler {name!r}", hint=hint)
