"""Statements list the fields of records, and their rows become those records: no list of columns is written twice."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import pytest

import backstay.store
import backstay.store.store
from backstay.core.states import JobState
from backstay.store.item_views import ItemView
from backstay.store.job_views import JobView
from backstay.store.queries import (
    POSTGRES,
    SQLITE,
    fields_of,
    maker_of,
    queries_for,
    read_row,
    record,
    render,
    statements,
)
from tests.databases import Site

STORE = Path(backstay.store.__file__).parent
POSITIONAL = re.compile(r"\brow\[-?\d|\]\[-?\d|[A-Za-z]\(\*row\b|\b_make\(")
DEFENDED = {"queries.py": 1}  # the one place that makes a record of a row whose columns were listed from its fields


@record
class Sample(NamedTuple):
    id: int
    state: JobState
    label: str | None
    short: bool


@record
@dataclass(frozen=True, slots=True)
class Listed:
    names: tuple[str, ...]
    behind: Mapping[str, str]
    ended: JobState | None


def test_a_statement_lists_a_records_fields_and_makes_its_rows_that_record() -> None:
    query = render("SELECT {columns Sample of jobs, {now} AS id, (SELECT a, b) AS label} FROM jobs", SQLITE)
    assert query.sql == "SELECT :now AS id, jobs.state, (SELECT a, b) AS label, jobs.short FROM jobs"
    assert query.make is not None
    assert query.make((1, "paused", None, 0)) == Sample(1, JobState.PAUSED, None, False)


def test_an_expression_for_a_field_that_the_record_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="Sample has no field sort"):
        render("SELECT {columns Sample, 1 AS sort} FROM jobs", POSTGRES)


def test_a_record_that_nobody_defines_is_refused() -> None:
    with pytest.raises(LookupError, match="no record Nowhere"):
        render("SELECT {columns Nowhere} FROM jobs", POSTGRES)


def test_two_records_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two records Sample"):
        record(type("Sample", (), {}))


def test_what_a_database_keeps_as_text_becomes_what_the_annotation_says() -> None:
    make = maker_of(Listed)
    assert make(('{"a": "b"}', '{"a": "b"}', None)) == Listed(("a",), {"a": "b"}, None)
    assert make(('["a"]', '["a"]', "failed")) == Listed(("a",), {}, JobState.FAILED)


def test_a_row_with_more_columns_is_read_by_their_names() -> None:
    found = {"now": 5, "short": 1, "label": "x", "state": "queued", "id": 7}
    assert read_row(Sample, found) == Sample(7, JobState.QUEUED, "x", True)


def test_a_batch_has_the_fields_and_types_of_its_record() -> None:
    text = "SELECT {fields Sample of batch.a_} FROM {batch Sample}"
    assert render(text, POSTGRES).sql == (
        "SELECT batch.a_id, batch.a_state, batch.a_label, batch.a_short FROM unnest(CAST($1 AS bigint[]),"
        " CAST($2 AS text[]), CAST($3 AS text[]), CAST($4 AS bigint[])) AS batch(id, state, label, short)"
    )
    assert render(text, SQLITE).columns == ("id", "state", "label", "short")


@pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=lambda dialect: dialect.name)
def test_nothing_in_braces_is_left_in_a_statement(dialect) -> None:
    left = {name: query.sql for name, query in queries_for(dialect).items() if re.search(r"\{(?!\})", query.sql)}
    assert not left


def test_no_column_of_a_row_is_read_by_its_place() -> None:
    found = {
        file.name: places
        for file in STORE.glob("**/*.py")
        if "migrations" not in file.parts and (places := POSITIONAL.findall(file.read_text(encoding="utf-8")))
    }
    assert {name: len(places) for name, places in found.items()} == DEFENDED, found


# Columns of jobs that are for the engine alone. Any other stands in JobView, from where types and tests lead on.
FOR_THE_ENGINE = {
    "archived",
    "counted_at",
    "counted_id",
    "digest",
    "first_key",
    "handler_then",
    "held",
    "last_key",
    "level_key",
    "move_at",
    "old_tags",
    "paused_at",
    "ref_seed",
    "short_of",
    "short_renewals",
    "stopped_at",
    "timeout_ms",
}


async def test_a_view_of_a_job_has_every_column_that_is_not_for_the_engine_alone(sqlite_site: Site) -> None:
    columns = {name for (name,) in await sqlite_site.rows("SELECT name FROM pragma_table_info('jobs')")}
    assert columns - set(fields_of(JobView)) == FOR_THE_ENGINE


ITEM_FIELDS_FOR_THE_ENGINE = {
    "account",
    "ask_first",
    "cost_micros",
    "job_id",
    "kept_until",
    "lease_expires_at",
    "leased_by",
    "order_key",
    "reconcile_after",
    "refused_at",
    "rescues",
    "reserved_micros",
    "round",
    "tokens",
    "output_tokens",
}


async def test_a_view_of_an_item_has_every_column_that_is_not_for_the_engine_alone(sqlite_site: Site) -> None:
    columns = {name for (name,) in await sqlite_site.rows("SELECT name FROM pragma_table_info('items')")}
    assert columns - set(fields_of(ItemView)) == ITEM_FIELDS_FOR_THE_ENGINE


def test_no_two_statements_have_one_name() -> None:
    names = Counter(name for name, _ in statements())
    assert [name for name, times in names.items() if times > 1] == []
