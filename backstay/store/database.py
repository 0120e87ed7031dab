"""What the store needs of a database: the one seam between SQLite and PostgreSQL."""

from collections.abc import Callable
from typing import Protocol, TypeVar

from backstay.store.queries import Dialect, Script

T = TypeVar("T")


class Database(Protocol):
    """Scripts run whole, each in one transaction."""

    dialect: Dialect

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def write(self, make: Callable[[], Script[T]]) -> T: ...
    async def single(self, make: Callable[[], Script[T]]) -> T:
        """Runs a script of which every statement may stand alone: it needs no transaction around it."""
        ...

    async def read(self, make: Callable[[], Script[T]]) -> T: ...
    async def notify(self) -> None: ...
    async def listen(self, wake: Callable[[], None]) -> None: ...
