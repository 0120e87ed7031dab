"""Fronts that are used as long as they ever are, on any database, as in one whose looks from the head are very slow."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from backstay.store.databases.database import Database, Front

_begin, _look_starts = Front.__init__, Front._is_head_next


def _note(self: Front, from_head: bool, rows: int, began: float) -> None:
    self._from_head = from_head
    self._is_empty = not rows and (from_head or self._is_empty)
    if from_head:
        self._head_at = began + self._head_seconds


def _used(self: Front, database: Database, *seconds: Any) -> None:
    _begin(self, database, *seconds)
    self._used = True


@contextmanager
def used() -> Iterator[None]:
    with patch.object(Front, "__init__", _used), patch.object(Front, "_note", _note):
        yield
