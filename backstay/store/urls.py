"""Database URLs: our own options in them, and what of them may be shown."""

from typing import NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from backstay.core.errors import UsageError

APPLICATION_NAME_MAX = 50  # PostgreSQL keeps 63 characters, and each connection adds a number of its own
_ON = {"on": True, "off": False}


class PostgresUrl(NamedTuple):
    """A URL for the driver, and our own options from its query.

    Behind PgBouncer in transaction mode both are off: ?listen=off&prepared_statements=off
    """

    dsn: str
    listen: bool = True
    prepared_statements: bool = True
    application_name: str = "backstay"  # as it is to be seen in pg_stat_activity

    @property
    def statement_cache_size(self) -> int:
        """How many prepared statements the driver may keep; on a shared connection their names would disturb other
        clients."""
        return 100 if self.prepared_statements else 0


def postgres_url(url: str) -> PostgresUrl:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # the original message would quote the password
        hint = "percent-encode / ? # [ ] @ and : in the user name and password"
        raise UsageError("the database URL is not valid", hint=hint) from None
    own: dict[str, bool] = {}
    seen = "backstay"
    others: list[tuple[str, str]] = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name == "application_name":
            seen = value.encode("ascii", "ignore").decode()[:APPLICATION_NAME_MAX]
        if name not in ("listen", "prepared_statements"):
            others.append((name, value))
        elif value not in _ON:
            raise UsageError(f"{name} in the database URL must be on or off, not {value!r}")
        else:
            own[name] = _ON[value]
    return PostgresUrl(urlunsplit(parts._replace(query=urlencode(others))), **own, application_name=seen)


def is_postgres(url: str) -> bool:
    return url.partition(":")[0] in ("postgres", "postgresql")


def shown(url: str) -> str:
    """A URL without user, password and query, for people and logs, however badly it is written."""
    scheme, _, rest = url.partition("://")
    place = rest.rpartition("@")[2].partition("?")[0]
    return f"{scheme}://{place}" if rest else url
