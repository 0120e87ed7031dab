"""The interface of a database, the only place where SQLite and PostgreSQL meet the store; and database URLs."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, NamedTuple, ParamSpec, Protocol, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from backstay.core.errors import UsageError
from backstay.store.queries import Dialect, Script

APPLICATION_NAME_MAX = 50  # PostgreSQL keeps 63 characters, and each connection adds a number of its own
POOL_LEAST, POOL_MOST = 1, 100
SERVER_KIND = "target_session_attrs"  # PostgreSQL's name: which of several servers to use
_ON = {"on": True, "off": False}


class PostgresUrl(NamedTuple):
    """URLs for the driver, and our own options from the query.

    Behind PgBouncer in transaction mode two are off: ?listen=off&prepared_statements=off
    A primary and its standbys are one URL: postgresql://a:5432,b:5432/jobs
    """

    dsns: tuple[str, ...]  # of each server that may have the database; one of them takes writes
    listen: bool = True
    prepared_statements: bool = True
    application_name: str = "backstay"  # as pg_stat_activity shows it
    pool_max: int = 5  # connections for the statements of a process

    @property
    def statement_cache_size(self) -> int:
        """How many prepared statements the driver may keep; on a shared connection their names would disturb other
        clients."""
        return 100 if self.prepared_statements else 0


def postgres_url(url: str) -> PostgresUrl:
    try:
        parts = urlsplit(url)
        servers = _servers(parts)
    except ValueError:  # the original message would quote the password
        hint = "percent-encode / ? # [ ] @ and : in the user name and password"
        raise UsageError("the database URL is not valid", hint=hint) from None
    own: dict[str, bool] = {}
    pool_max = PostgresUrl(()).pool_max
    seen = "backstay"
    others: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "application_name":
            seen = value.encode("ascii", "ignore").decode()[:APPLICATION_NAME_MAX]
        if name == "pool_max":
            pool_max = _pool_size(value)
        elif name not in ("listen", "prepared_statements"):
            others.append((name, value))
        elif value not in _ON:
            raise UsageError(f"{name} in the database URL must be on or off, not {value!r}")
        else:
            own[name] = _ON[value]
    if len(servers) > 1 and not any(name == SERVER_KIND for name, _ in others):
        others.append((SERVER_KIND, "read-write"))
    dsns = tuple(urlunsplit(parts._replace(netloc=server, query=urlencode(others))) for server in servers)
    return PostgresUrl(dsns, **own, application_name=seen, pool_max=pool_max)


def _servers(parts: SplitResult) -> list[str]:
    """The servers of a URL, each with its user and password."""
    account, at, places = parts.netloc.rpartition("@")
    servers = [f"{account}{at}{place}" for place in places.split(",")]
    for server in servers:
        if parts._replace(netloc=server).port == 0:
            raise UsageError("the database URL is not valid: the port must not be 0", hint="for example :5432")
    if len(servers) > 1 and not all(places.split(",")):
        raise UsageError("the database URL is not valid: a server between the commas is missing")
    return servers


def _pool_size(value: str) -> int:
    if not (value.isascii() and value.isdigit() and POOL_LEAST <= int(value) <= POOL_MOST):
        known = f"a whole number from {POOL_LEAST} to {POOL_MOST}"
        raise UsageError(f"pool_max in the database URL must be {known}, not {value!r}")
    return int(value)


def is_postgres(url: str) -> bool:
    return url.partition(":")[0] in ("postgres", "postgresql")


def show_url(url: str) -> str:
    """A URL without user, password and query, for people and logs, even if the URL is not valid."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0]
    return f"{scheme}://{place}" if rest else url


T = TypeVar("T")
P = ParamSpec("P")
_Verb = Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]


class Database(Protocol):
    """Scripts run whole, each in one transaction."""

    dialect: Dialect
    listens: bool  # workers are woken by a notification
    wakes: bool  # which a small submit sends itself, without a further statement

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
