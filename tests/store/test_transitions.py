"""The statements change states as the one table of transitions allows."""

import re
from collections.abc import Iterator

import pytest

import backstay.store.store  # noqa: F401  (defines the records that statements name)
from backstay.core.states import LEASED, TRANSITIONS, ItemState, may_follow
from backstay.store.queries import POSTGRES, SQLITE, Dialect, queries_for, render

UPDATE = re.compile(r"UPDATE items SET(.*?)\b(?:FROM|WHERE) (.*?)(?:RETURNING|$)", re.DOTALL)
NEW = re.compile(r"\bstate = (CASE .*? END|'\w+'|:state|\$\d+)", re.DOTALL)
WORD = re.compile(r"'(\w+)'")
OLD = re.compile(r"\bstate (?:= '(\w+)'|IN \(([^)]*)\))")
DIALECTS = pytest.mark.parametrize("dialect", [SQLITE, POSTGRES], ids=lambda dialect: dialect.name)


def moves(dialect: Dialect) -> Iterator[tuple[str, ItemState, ItemState]]:
    """Every change of state that a statement writes out: its name, from which state and to which."""
    for name, query in queries_for(dialect).items():
        sql = query.sql.replace(dialect.now, ":now")
        found = UPDATE.search(sql)
        written = NEW.search(found.group(1)) if found else None
        if found is None or written is None:
            continue
        ends = re.sub(r"WHEN .*? THEN", "", written.group(1), flags=re.DOTALL)
        olds = {
            word
            for one, some in OLD.findall(sql.replace(found.group(1), ""))
            for word in (one, *WORD.findall(some))
            if word
        }
        for old in olds & set(ItemState):
            for new in WORD.findall(ends):
                yield name, ItemState(old), ItemState(new)


@DIALECTS
def test_every_statement_that_writes_a_state_obeys_the_table(dialect: Dialect) -> None:
    found = list(moves(dialect))
    assert {"claim", "return_lost_claim", "expire_waiting", "end_queued", "retry_items", "accept_item"} <= {
        name for name, *_ in found
    }
    assert not [(name, old, new) for name, old, new in found if not may_follow(old, new)]


@DIALECTS
def test_a_settlement_is_guarded_by_the_table(dialect: Dialect) -> None:
    for name in ("settle_items", "settle_ended", *(["settle_few"] if dialect.chained else [])):
        sql = queries_for(dialect)[name].sql
        for state in LEASED:
            words = ", ".join(f"'{new}'" for new in ItemState if new in TRANSITIONS[state])
            assert re.search(rf"= '{state}' AND \S+ IN \({words}\)", sql), (name, state)


def test_the_guard_follows_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    table = {**TRANSITIONS, ItemState.PROCESSING: frozenset({ItemState.SKIPPED})}
    monkeypatch.setattr("backstay.store.queries.TRANSITIONS", table)
    assert ":was = 'processing' AND :state IN ('skipped')" in render("SELECT {follows :was :state}", SQLITE).sql
