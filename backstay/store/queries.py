"""Loads the named statements of `sql/` and renders each for a database.

A statement may contain, in braces:
    {columns JobView}          the fields of a record; the rows of the statement become such records
    {columns JobView of jobs}  the same, each with its table's name; `of few.attempt_` puts that before each
    {columns JobView, 1 AS n}  the same, with an expression for a field that is not a column
    {fields Pace}              the same list, for a statement with more columns; its rows are read by name
    {each Measure: sum($)}     an expression for each of a record's fields
    {batch JobCounts}          the rows that come with the statement, as a table whose columns are a record's fields
    {batch(id bigint)}         the same with columns of its own
    {now}, {skip_locked}, {for_update}, {in picked}   texts that differ between the two databases
    {JOB_OPEN}                 a closed set of words, as a list in parentheses
    {follows :was :state}      whether the table of transitions allows this change of a held item
    {job_end}                  a piece that several statements share; they stand in `sql/shared.sql`
"""

import json
import re
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, make_dataclass
from enum import Enum, StrEnum
from functools import cache
from importlib.resources import files
from types import NoneType
from typing import Any, Final, NamedTuple, TypeVar, get_args

from backstay.core.breaker import Call, load_calls
from backstay.core.errors import MAYBE_DONE
from backstay.core.states import BATCH_OPEN, JOB_ENDED, JOB_OPEN, LEASED, TERMINAL, TRANSITIONS, UNFINISHED, ItemState

R = TypeVar("R", bound=type)
T = TypeVar("T")
Make = Callable[[Any], Any]

_RECORDS: Final[dict[str, type]] = {}
_SQL_TYPES: Final = {int: "bigint", bool: "bigint", str: "text", float: "double precision"}


def record(cls: R) -> R:
    """Registers a record (a named tuple or a dataclass) for the statements."""
    if _RECORDS.setdefault(cls.__name__, cls) is not cls:
        raise ValueError(f"there are two records {cls.__name__}")
    return cls


def record_named(name: str) -> type:
    if name not in _RECORDS:
        raise LookupError(f"no record {name}: the module that defines it is not imported, or lacks @record")
    return _RECORDS[name]


def fields_of(cls: type) -> tuple[str, ...]:
    return tuple(cls.__annotations__)


def combine_records(name: str, *parts: tuple[str, type]) -> type:
    """Registers a record that has the fields of several records, each with its prefix."""
    fields = [(prefix + field, kind) for prefix, part in parts for field, kind in part.__annotations__.items()]
    return record(make_dataclass(name, fields))


def types_of(cls: type) -> list[tuple[str, str]]:
    """The name of each field, and the type of its column."""
    return [(name, _SQL_TYPES.get(_plain(kind), "text")) for name, kind in cls.__annotations__.items()]


@cache
def maker_of(cls: Any) -> Make:
    """Builds a record from a row that has its fields in the same order."""
    changed = [(at, change) for at, kind in enumerate(cls.__annotations__.values()) if (change := _change(kind))]
    if changed:

        def make(row: Any) -> Any:
            values = list(row)
            for at, change in changed:  # by position, because both lists are made of the same fields
                if values[at] is not None:
                    values[at] = change(values[at])
            return cls(*values)

        return make
    known: Make | None = getattr(cls, "_make", None)
    return known or (lambda row: cls(*row))


def read_row(cls: type[T], row: Mapping[str, Any]) -> T:
    """Builds a record by name from a row that has more columns than the record has fields."""
    known: Any = cls
    made: T = maker_of(known)([row[name] for name in fields_of(cls)])
    return made


def _plain(kind: Any) -> Any:
    """A type without its None."""
    some = [part for part in get_args(kind) if part is not NoneType]
    return some[0] if NoneType in get_args(kind) else kind


def _change(kind: Any) -> Callable[[Any], Any] | None:
    plain = _plain(kind)
    if plain is bool or (isinstance(plain, type) and issubclass(plain, Enum)):
        found: Callable[[Any], Any] = plain
        return found
    return _CHANGES.get(plain)


def _names(text: str) -> tuple[str, ...]:
    return tuple(json.loads(text))


def _names_with(text: str) -> dict[str, str]:
    """Names with their values; a bare list of names has none."""
    found = json.loads(text)
    return found if isinstance(found, dict) else {}


_CHANGES: Final[Mapping[Any, Callable[[Any], Any]]] = {
    tuple[str, ...]: _names,
    Mapping[str, str]: _names_with,
    tuple[Call, ...]: load_calls,
}


Row = Sequence[Any]

FEW_ROWS_MAX = 20  # up to this number, rows are faster inside one statement than by a bulk load


class Ask(NamedTuple):
    """One named statement with its values; `batch` fills the statement's `{batch ...}`, a row each.

    The answer is a list of the records whose `{columns ...}` the statement has, or of rows that are read by name.
    """

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
    make: Make | None = None  # turns its rows into records


@dataclass(frozen=True, slots=True)
class Dialect:
    """The differences between the two databases."""

    name: str
    now: str
    skip_locked: str
    for_update: str
    in_cte: str  # rows named by a CTE; as an array, PostgreSQL cannot choose to join by a scan of the whole table
    numbered: bool
    chained: bool  # one statement can change several tables, so a small verb is one round trip
    keeps_entries: bool  # an index keeps the entries of changed rows while a transaction is held open


SQLITE = Dialect(
    "sqlite",
    now=":now",
    skip_locked="",
    for_update="",
    in_cte="IN (SELECT id FROM {})",
    numbered=False,
    chained=False,
    keeps_entries=False,
)
POSTGRES = Dialect(
    "postgres",
    now="CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint)",
    skip_locked="FOR UPDATE SKIP LOCKED",
    for_update="FOR UPDATE",
    in_cte="= ANY(ARRAY(SELECT id FROM {}))",
    numbered=True,
    chained=True,
    keeps_entries=True,
)

# In the order of their enums: a partial index is used only if its condition stands in a statement word for word.
_SETS: Mapping[str, Collection[StrEnum]] = {
    "ITEM_ENDED": TERMINAL,
    "ITEM_OPEN": UNFINISHED,
    "JOB_ENDED": JOB_ENDED,
    "JOB_OPEN": JOB_OPEN,
    "BATCH_OPEN": BATCH_OPEN,
    "MAYBE_DONE": MAYBE_DONE,
}

_SET = re.compile(r"\{([A-Z_]+)\}")
_FOLLOWS = re.compile(r"\{follows (:\w+) (:\w+)\}")
_SHARED = re.compile(r"\{([a-z_]+)\}")
_BATCH = re.compile(r"\{batch(?:\(([^)]*)\)| (\w+))\}")
_COLUMNS = re.compile(r"\{(columns|fields) (\w+)(?: of ([\w.]+))?(?:,([^{}]*))?\}")
_EACH = re.compile(r"\{each (\w+): ([^{}]*)\}")
_IN_CTE = re.compile(r"\{in (\w+)\}")
_VALUE = re.compile(r"(?<![:\w]):([a-z_]+)")
_NUMBER = re.compile(r"\$(\d+)")


def statements() -> Iterator[tuple[str, str]]:
    """Every statement as (name, text); `claim.postgres` is an override for that database."""
    return _parts("-- name: ")


@cache
def shared_pieces(dialect: Dialect) -> Mapping[str, str]:
    """The texts that several statements share, by name; `counted_apart.postgres` is an override as for statements."""
    found = {name: _without_comments(text) for name, text in _parts("-- shared: ")}
    plain = {name: text for name, text in found.items() if "." not in name}
    return plain | {name: found[f"{name}.{dialect.name}"] for name in plain if f"{name}.{dialect.name}" in found}


@cache
def _files() -> list[str]:
    folder = files("backstay.store").joinpath("sql")
    return [file.read_text(encoding="utf-8") for file in sorted(folder.iterdir(), key=lambda file: file.name)]


def _parts(mark: str) -> Iterator[tuple[str, str]]:
    for written in _files():
        for part in written.split(mark)[1:]:
            name, _, text = part.partition("\n")
            yield name.strip(), text.strip().rstrip(";")


@cache
def queries_for(dialect: Dialect) -> Mapping[str, Query]:
    """All statements for one database; an override replaces the plain statement."""
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
    text = _with_shared(_without_comments(text), dialect).replace("{now}", dialect.now)
    text = _SET.sub(lambda match: _word_list(_SETS[match.group(1)]), text)
    text = _FOLLOWS.sub(lambda match: _follows(*match.groups()), text)
    text = text.replace("{skip_locked}", dialect.skip_locked).replace("{for_update}", dialect.for_update)
    text = _IN_CTE.sub(lambda match: dialect.in_cte.format(match.group(1)), text)
    text = _EACH.sub(lambda match: _each_field(*match.groups()), text)
    makes = {maker_of(record_named(name)) for kind, name, *_ in _COLUMNS.findall(text) if kind == "columns"}
    text = _COLUMNS.sub(lambda match: _column_list(*match.group(2, 3, 4)), text)
    found = _BATCH.search(text)
    typed = _batch_columns(*found.groups()) if found else []
    text = _BATCH.sub(lambda _: _batch_source(typed, dialect), text)
    names = tuple(dict.fromkeys(_VALUE.findall(text)))
    if dialect.numbered:
        text = _VALUE.sub(lambda match: f"${names.index(match.group(1)) + 1}", text)
    [make] = makes or [None]
    return Query(text, names, tuple(name for name, _ in typed), make)


@cache
def as_pyformat(query: Query) -> str:
    """The same statement with %(name)s for its values."""
    text = _NUMBER.sub(lambda match: f"%({query.names[int(match.group(1)) - 1]})s", query.sql.replace("%", "%%"))
    return _VALUE.sub(r"%(\1)s", text)


def insert_rows(load: Load, dialect: Dialect) -> Query:
    """A load as a statement with a batch, for connections that have no faster way."""
    return _insert(load.table, load.columns, tuple(map(_type_of, zip(*load.rows, strict=True))), dialect)


@cache
def _insert(table: str, columns: tuple[str, ...], types: tuple[str, ...], dialect: Dialect) -> Query:
    batch = ", ".join(f"{name} {kind}" for name, kind in zip(columns, types, strict=True))
    names = ", ".join(columns)
    return render(f"INSERT INTO {table} ({names}) SELECT {names} FROM {{batch({batch})}}", dialect)


def _type_of(column: Sequence[Any]) -> str:
    return _SQL_TYPES[type(next((value for value in column if value is not None), 0))]


def array_values(query: Query, batch: Sequence[Row]) -> dict[str, list[Any]]:
    """The rows of a batch as PostgreSQL takes them: a list for each column."""
    columns = zip(*batch, strict=True) if batch else ([] for _ in query.columns)
    return {f"batch_{name}": list(column) for name, column in zip(query.columns, columns, strict=True)}


def json_rows(batch: Sequence[Row]) -> str:
    """The rows of a batch as SQLite takes them."""
    return json.dumps(batch)


def _without_comments(text: str) -> str:
    return "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("--"))


def _with_shared(text: str, dialect: Dialect) -> str:
    """Inserts the shared pieces; a piece may contain others."""
    pieces = shared_pieces(dialect)
    while any(name in pieces for name in _SHARED.findall(text)):
        text = _SHARED.sub(lambda match: pieces.get(match.group(1), match.group()), text)
    return text


def _word_list(words: Collection[StrEnum]) -> str:
    [kind] = {type(word) for word in words}
    quoted = [f"'{word.value}'" for word in kind if word in words]
    return f"({', '.join(quoted)})"


def _follows(old: str, new: str) -> str:
    """The guard of a settlement: what `core.states` allows, and nothing else."""
    held = [state for state in ItemState if state in LEASED]
    return " OR ".join(f"({old} = '{state}' AND {new} IN {_word_list(TRANSITIONS[state])})" for state in held)


def _column_list(record: str, table: str | None, computed: str | None) -> str:
    """A record's fields in their order, each as a column or as the expression that is given for it."""
    given = {part.rpartition(" AS ")[-1].strip('"'): part for part in _split(computed or "")}
    fields = fields_of(record_named(record))
    if strangers := sorted(given.keys() - set(fields)):
        raise ValueError(f"{record} has no field {', '.join(strangers)}")
    before = table if not table or table.endswith("_") else f"{table}."
    return ", ".join(given.get(field, f"{before or ''}{field}") for field in fields)


def _each_field(record: str, expression: str) -> str:
    return ", ".join(expression.replace("$", field) for field in fields_of(record_named(record)))


def _split(text: str) -> list[str]:
    """Splits at commas outside of parentheses."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _batch_columns(listed: str | None, record: str | None) -> list[tuple[str, str]]:
    """The name and the type of each column."""
    if record is not None:
        return types_of(record_named(record))
    return [(name, kind) for name, kind in (column.split() for column in _split(listed or ""))]


def _batch_source(typed: list[tuple[str, str]], dialect: Dialect) -> str:
    """A batch as a table: arrays, one per column, on PostgreSQL; one JSON text on SQLite."""
    if dialect.numbered:
        arrays = ", ".join(f"CAST(:batch_{name} AS {kind}[])" for name, kind in typed)
        return f"unnest({arrays}) AS batch({', '.join(name for name, _ in typed)})"
    fields = ", ".join(f"value ->> {index} AS {name}" for index, (name, _) in enumerate(typed))
    return f"(SELECT {fields} FROM json_each(:batch)) AS batch"
