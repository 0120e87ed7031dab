"""The interface of a database, the only place where SQLite and PostgreSQL meet the store; database URLs; and fronts,
which keep looks along an index quick.
"""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Final, NamedTuple, ParamSpec, Protocol, TypeVar
from urllib.parse import SplitResult, parse_qsl, urlencode, urlsplit, urlunsplit

from backstay.clock import Clock
from backstay.core.errors import UsageError
from backstay.store.queries import Ask, Dialect, Script

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
    clock: Clock
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


HEAD_SECONDS: Final = 1.0  # at most between two looks from the head; if they are very slow, HEAD_TIMES as long as one
HEAD_TIMES: Final = 4
HEAD_SECONDS_MAX: Final = 4.0  # also after a look that waited for a lock, or while the machine slept
TIME_HEAD_SECONDS: Final = 10.0  # the same for rows that become due in order, but for few, and are not urgent
HEAD_SHARE: Final = 20
SLOW_SECONDS: Final = 0.005
SLOW_FACTOR: Final = 2
USUAL_GROWTH: Final = 1.05  # the machine may have become slower
LOOKS_MAX: Final = 50  # slow ones from the head; then it is tried again whether others are quicker
LOOK_ROWS: Final = 50  # a look takes at least the time of about so many rows
LATE_COMMIT_MS: Final = 10_000  # a transaction that takes longer is found by a look from the head
ALL_MS: Final = 1 << 61


class Front:
    """How far an index has been read in its order. A look along it mostly starts there.

    While any transaction is held open, PostgreSQL keeps the index entries of all rows that have changed since, and a
    look from the head of an index passes all of them. A front is only a hint: rows may come below it at any time. So
    looks start at the head again as often as this takes a twentieth of the time, and about once a second at least; and
    when nothing is left behind the front. While such looks take no longer than others, every look is one.
    """

    def __init__(self, database: "Database", head_seconds: float = HEAD_SECONDS) -> None:
        self._head_seconds = head_seconds
        self._clock = database.clock
        self._used = database.dialect.keeps_entries
        self._key = 0
        self._read_at: float | None = None  # on the steady clock: when the last look had no more rows to read
        self._head_at = float("-inf")  # on the steady clock: when the next look must start at the head
        self._usual: float | None = None  # seconds a row, of looks that did not start at the head
        self._looks = 0  # from the head, since the last one that did not start there
        self._from_head = True  # the last look
        self._is_empty = False  # no look has found a row since one from the head found none

    def look(self, make: Callable[[int], Ask], n: int, key: Callable[[Any], int], head: int = 0) -> Script[list[Any]]:
        """A look for n rows in the order of a key. `make` gets the key to start at."""
        from_head, began = self._is_head_next(), self._clock.monotonic()
        rows = yield make(head if from_head else max(head, self._key))
        if not rows and not from_head and not self._is_empty:
            from_head, began = True, self._clock.monotonic()
            rows = yield make(head)
        if rows:
            last = max(map(key, rows))
            # A full look from the head may have found many rows below the front: the next one starts behind them.
            self._key = last if len(rows) >= n else max(self._key, last)
        self._note(from_head, len(rows), began)
        return rows

    def go_back(self, key: int) -> None:
        """The next look must find this row again."""
        self._key = min(self._key, key)

    def look_back(self, make: Callable[[int], Ask], n: int) -> Script[list[Any]]:
        """A look for n rows that became due. `make` gets how far to look back, in milliseconds."""
        began = self._clock.monotonic()
        from_head = self._is_head_next() or self._read_at is None
        rows = yield make(ALL_MS if from_head else int((began - (self._read_at or 0)) * 1000) + LATE_COMMIT_MS)
        if len(rows) < n:
            self._read_at = began
        self._note(from_head, len(rows), began)
        return rows

    @property
    def again_ms(self) -> int | None:
        """After how long a look finds rows below the front; None: the last look has found them."""
        if self._from_head:
            return None
        return max(int((self._head_at - self._clock.monotonic()) * 1000), 1)

    def _is_head_next(self) -> bool:
        return not self._used or self._clock.monotonic() >= self._head_at

    def _note(self, from_head: bool, rows: int, began: float) -> None:
        self._from_head = from_head
        self._is_empty = not rows and (from_head or self._is_empty)
        now = self._clock.monotonic()
        seconds = now - began
        a_row = seconds / (rows + LOOK_ROWS)
        if not from_head:
            self._usual = a_row if self._usual is None else min(a_row, self._usual * USUAL_GROWTH)
            self._looks = 0
            return
        self._looks += 1
        known = self._usual is not None and self._looks < LOOKS_MAX
        slow = seconds > SLOW_SECONDS and (not known or a_row > SLOW_FACTOR * (self._usual or 0))
        longest = max(self._head_seconds, min(HEAD_TIMES * seconds, HEAD_SECONDS_MAX))
        pause = min((HEAD_SHARE - 1) * seconds, longest)
        self._head_at = now + pause if slow else now


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
