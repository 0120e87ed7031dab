"""The interface of a database: the only place where SQLite and PostgreSQL meet the store."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from backstay.store.queries import Dialect, Script

T = TypeVar("T")
P = ParamSpec("P")
_Verb = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


class Database(Protocol):
    """Scripts run whole, each in one transaction."""

    dialect: Dialect

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def write(self, make: Callable[[], Script[T]]) -> T: ...
    async def single(self, make: Callable[[], Script[T]]) -> T:
        """Runs a script whose statements are independent: it needs no transaction around it."""
        ...

    async def read(self, make: Callable[[], Script[T]]) -> T: ...
    async def notify(self) -> None: ...
    async def listen(self, wake: Callable[[], None]) -> None: ...


def writes(script: Callable[Concatenate[Any, P], Script[T]]) -> _Verb[P, T]:
    """Turns a script method into a coroutine method: the script runs in one transaction of the object's database."""

    @wraps(script)
    async def verb(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        database: Database = self._db
        return await database.write(lambda: script(self, *args, **kwargs))

    return verb


def reads(script: Callable[Concatenate[Any, P], Script[T]]) -> _Verb[P, T]:
    """The same for a script that only reads."""

    @wraps(script)
    async def verb(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        database: Database = self._db
        return await database.read(lambda: script(self, *args, **kwargs))

    return verb
