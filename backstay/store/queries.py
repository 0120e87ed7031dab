"""Loads the named statements of `sql/` and renders each for a database."""

import re
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")

Row = Sequence[Any]

FEW_ROWS_MAX = 20  # so few are quicker inside one statement than on a way of their own


class Ask(NamedTuple):
    """One named statement with its values; `batch` fills the statement's `{batch(...)}`, a row each."""

    name: str
    values: Mapping[str, Any] = {}
    batch: Sequence[Row] | None = None


class Load(NamedTuple):
    """Many new rows for one table, by the fastest way the database has."""

    table: str
    columns: tuple[str, ...]
    rows: Sequence[Row]


Script = Generator[Ask | Load, list[Any], T]


def one(
    name: str, values: Mapping[str, Any] = {}, batch: Sequence[Row] | None = None
) -> Callable[[], Script[list[Any]]]:
    """A script of one statement, which returns its rows."""

    def script() -> Script[list[Any]]:
        return (yield Ask(name, values, batch))

    return script


@dataclass(frozen=True, slots=True)
class Query:
    """A statement in one database's dialect."""

    sql: str
    names: tuple[str, ...]  # the values it takes, in the order of a numbered dialect
    columns: tuple[str, ...]  # the columns of its batch


@dataclass(frozen=True, slots=True)
class Dialect:
    """What the two databases spell differently."""

    name: str
    now: str
    skip_locked: str
    for_update: str
    in_cte: str  # rows named by a CTE; as an array, PostgreSQL cannot choose to join by a scan of the whole table
    numbered: bool
    chained: bool  # one statement can change several tables, so a small verb is one round trip


SQLITE = Dialect(
    "sqlite", now=":now", skip_locked="", for_update="", in_cte="IN (SELECT id FROM {})", numbered=False, chained=False
)
POSTGRES = Dialect(
    "postgres",
    now="CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)",
    skip_locked="FOR UPDATE SKIP LOCKED",
    for_update="FOR UPDATE",
    in_cte="= ANY(ARRAY(SELECT id FROM {}))",
    numbered=True,
    chained=True,
)

_BATCH = re.compile(r"\{batch\(([^)]*)\)\}")
_IN_CTE = re.compile(r"\{in (\w+)\}")
_VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")


def statements() -> Iterator[tuple[str, str]]:
    """Every statement as (name, text); `claim.postgres` is an override for that database."""
    for file in sorted(files("backstay.store").joinpath("sql").iterdir(), key=lambda file: file.name):
        for part in file.read_text(encoding="utf-8").split("-- name: ")[1:]:
            name, _, text = part.partition("\n")
            yield name.strip(), text.strip().rstrip(";")


@cache
def queries_for(dialect: Dialect) -> Mapping[str, Query]:
    """All statements for one database; an override takes its plain twin's place."""
    rendered: dict[str, Query] = {}
    overrides: dict[str, Query] = {}
    for name, text in statements():
        plain, dot, only_for = name.partition(".")
        if not dot:
            rendered[plain] = render(text, dialect)
        elif only_for == dialect.name:
            overrides[plain] = render(text, dialect)
    return rendered | overrides


def render(text: str, dialect: Dialect) -> Query:
    columns: tuple[str, ...] = ()
    found = _BATCH.search(text)
    if found:
        typed = [column.split() for column in found.group(1).split(",")]
        columns = tuple(name for name, _ in typed)
        text = _BATCH.sub(lambda _: _batch_source(typed, dialect), text)
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("--"))
    text = "\n".join(lines).replace("{now}", dialect.now)
    text = text.replace("{skip_locked}", dialect.skip_locked).replace("{for_update}", dialect.for_update)
    text = _IN_CTE.sub(lambda match: dialect.in_cte.format(match.group(1)), text)
    names = tuple(dict.fromkeys(_VALUE.findall(text)))
    if dialect.numbered:
        text = _VALUE.sub(lambda match: f"${names.index(match.group(1)) + 1}", text)
    return Query(text, names, columns)


def _batch_source(typed: list[list[str]], dialect: Dialect) -> str:
    """A batch as a table: arrays, one per column, on PostgreSQL; one JSON text on SQLite."""
    if dialect.numbered:
        arrays = ", ".join(f"CAST(:batch_{name} AS {kind}[])" for name, kind in typed)
        return f"unnest({arrays}) AS batch({', '.join(name for name, _ in typed)})"
    fields = ", ".join(f"value ->> {index} AS {name}" for index, (name, _) in enumerate(typed))
    return f"(SELECT {fields} FROM json_each(:batch)) AS batch"
