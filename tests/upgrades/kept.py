"""The kept databases, one for each revision of the schema, and how they are brought back to life."""

import hashlib
import io
import re
import sqlite3
import time
import tokenize
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import asyncpg
from alembic import command

from backstay import wiring
from backstay.store.databases import schema
from tests.house.sources import ROOT
from tests.upgrades.shop import Bill

DATA = Path(__file__).parent / "data"
PAID = "-- paid: "
DIGEST = "-- digest of the revision: "
KEPT_AT = "-- kept at "
PRACTICE_PORT = 39088  # where the provider listened
RECEIVER = "receiver.place"  # in the place of a webhook's receiver
# PostgreSQL goes on with the numbers that follow those of the rows.
COUNT_ON = """DO $$
DECLARE found record; newest bigint;
BEGIN
  FOR found IN SELECT relname AS name, attname, pg_get_serial_sequence(relname, attname) AS counter
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace AND attnum > 0 AND NOT attisdropped LOOP
    IF found.counter IS NOT NULL THEN
      EXECUTE format('SELECT max(%I) FROM %s', found.attname, found.name) INTO newest;
      PERFORM setval(found.counter, coalesce(newest, 1), newest IS NOT NULL);
    END IF;
  END LOOP;
END $$"""
AGO_MS = 1_800_000  # the run died half an hour ago: leases and retries are over, and no time limit is
_MOMENT = re.compile(r"\b1[789]\d{11}(?:\d{3})?\b")  # milliseconds or microseconds


class Kept(NamedTuple):
    inserts: str
    paid: Sequence[str]  # keys of calls


def file_of(revision: str) -> Path:
    return DATA / f"{revision}.sql"


def read(revision: str, receiver: str) -> Kept:
    """The rows as if the run had died half an hour ago."""
    text = file_of(revision).read_text(encoding="utf-8").replace(RECEIVER, receiver)
    lines = text.splitlines()
    notes = [line for line in lines if line.startswith("-- ")]
    [died] = [int(line.removeprefix(KEPT_AT)) for line in notes if line.startswith(KEPT_AT)]
    later_ms = time.time_ns() // 1_000_000 - AGO_MS - died

    def move(found: re.Match[str]) -> str:
        written = found.group()
        return str(int(written) + later_ms * (1 if len(written) == 13 else 1_000))

    inserts = _MOMENT.sub(move, "\n".join(lines[len(notes) :]))
    return Kept(inserts, [line.removeprefix(PAID) for line in notes if line.startswith(PAID)])


def revision_file(revision: str) -> Path:
    [found] = (ROOT / "backstay/store/migrations/versions").glob(f"v{revision}_*.py")
    return found


def digest_of(source: str) -> str:
    """Of what the code does: comments, docstrings and format do not count."""
    parts: list[str] = []
    before = tokenize.NEWLINE
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        is_docstring = token.type == tokenize.STRING and before in (tokenize.NEWLINE, tokenize.INDENT)
        if token.type not in (tokenize.COMMENT, tokenize.NL):
            before = token.type
            parts.append("" if is_docstring else "".join(token.string.split()))
    return hashlib.sha256("".join(parts).encode()).hexdigest()


async def migrate_to(url: str, revision: str) -> None:
    """A database of an older version."""
    upgrade = command.upgrade
    with (
        patch.object(command, "upgrade", lambda config, _: upgrade(config, revision)),
        patch.object(schema, "create_sqlite", lambda _: False),
    ):
        await wiring.migrate(url)


async def load(url: str, revision: str, bill: Bill, receiver: str = RECEIVER) -> None:
    """Fills an empty database with the rows of a revision, and the bill with what was paid for."""
    await migrate_to(url, revision)
    rows = read(revision, receiver)
    if url.startswith("sqlite"):
        connection = sqlite3.connect(url.removeprefix("sqlite:///"))
        connection.executescript(f"BEGIN; {rows.inserts} COMMIT;")
        connection.close()
    else:
        other = await asyncpg.connect(url)
        await other.execute(rows.inserts)
        await other.execute(COUNT_ON)
        await other.close()
    for key in rows.paid:
        bill.add(key)
