"""migrate: one history for both databases, refused when the schema is newer than the code."""

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from importlib.resources import files
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory

from backstay import wiring
from backstay.core.errors import DatabaseUnreachable, SchemaBehind, SchemaNewer, UsageError
from backstay.store.databases import schema, sqlite
from tests.messaging.rig import until
from tests.servers.fault_proxy import FaultProxy

TABLES = {"jobs", "items", "requests", "attempts", "events", "providers", "workers", "endpoints", "paces", "copies"} | {
    "sinks",
    "job_links",
    "item_keys",
    "answer_keys",
    "archives",
    "job_archives",
    "replays",
    "measures",
    "alarms",
    "invocations",
    "schedules",
}
INDEXES = {
    "ix_answer_keys_key",
    "ix_outbox_pending",
    "ix_outbox_aggregate",
    "ix_outbox_done",
    "ix_webhooks_owner",
    "ix_deliveries_due",
    "ix_deliveries_webhook",
    "ix_deliveries_over",
    "uq_deliveries_event",
    "ix_inbox_item",
    "ix_inbox_late",
    "uq_inbox_digest",
    "ix_archives_owner",
    "uq_archives_blob",
    "ix_items_letters",
    "ix_items_dead",
    "ix_items_late",
    "ix_items_unknown",
    "ix_jobs_open_of",
    "ix_replays_owner",
    "ix_measures_minute",
    "ix_invocations_begun",
    "ix_jobs_ended",
    "ix_jobs_ended_of",
    "uq_job_archives_blob",
    "ix_api_keys_owner",
    "ix_batches_moving",
    "ix_batches_owner",
    "ix_files_expiry",
    "ix_files_owner",
    "ix_jobs_failing",
    "ix_replies_created",
    "ix_schedules_due",
    "uq_batches_job",
    "ix_jobs_move",
    "ix_jobs_short",
    "uq_jobs_key",
    "ix_jobs_held",
    "ix_jobs_timeout",
    "ix_jobs_open",
    "ix_jobs_owner",
    "ix_items_ready",
    "ix_items_due",
    "ix_items_poll",
    "ix_items_lease",
    "ix_items_failed",
    "ix_items_deadline",
    "ix_events_subject",
    "ix_job_links_after",
    "ix_job_links_ended",
    "ix_item_keys_item",
}
SQLITE_SCHEMA = "SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name"
POSTGRES_SCHEMA = """
    SELECT 'index', indexname, indexdef FROM pg_indexes WHERE schemaname = 'public'
    UNION ALL SELECT table_name, column_name, data_type || is_nullable || coalesce(column_default, '')
              FROM information_schema.columns WHERE table_schema = 'public'
    UNION ALL SELECT 'check', conname, pg_get_constraintdef(oid) FROM pg_constraint
              WHERE connamespace = 'public'::regnamespace
    UNION ALL SELECT 'storage', relname, array_to_string(reloptions, ',') FROM pg_class
              WHERE relnamespace = 'public'::regnamespace AND reloptions IS NOT NULL ORDER BY 1, 2, 3"""


@pytest.fixture(params=["sqlite", "postgres"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/empty.db"
    url: str = request.getfixturevalue("empty_postgres_url")
    return url


async def rows(url: str, sqlite: str, postgres: str) -> list[tuple[Any, ...]]:
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            return connection.execute(sqlite).fetchall()
    connected = await asyncpg.connect(url)
    try:
        return [tuple(row) for row in await connected.fetch(postgres)]
    finally:
        await connected.close()


async def schema_of(url: str) -> list[tuple[Any, ...]]:
    return await rows(url, SQLITE_SCHEMA, POSTGRES_SCHEMA)


async def set_version(url: str, version: str) -> None:
    statement = f"UPDATE alembic_version SET version_num = '{version}'"
    await rows(url, statement, statement)


async def test_an_empty_database_gets_every_table_and_index(empty_url: str) -> None:
    await wiring.migrate(empty_url)
    names = await rows(
        empty_url,
        "SELECT name FROM sqlite_master",
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
        " UNION ALL SELECT indexname FROM pg_indexes WHERE schemaname = 'public'",
    )
    assert {row[0] for row in names} >= TABLES | INDEXES
    drift = {row[0] for row in names if str(row[0]).startswith(("ix_", "uq_"))} - INDEXES
    assert drift == set(), "an index that no test of query plans knows"
    assert await wiring.schema_version(empty_url) == schema.HEAD


async def test_migrating_twice_changes_nothing(empty_url: str) -> None:
    await wiring.migrate(empty_url)
    before = await schema_of(empty_url)
    await wiring.migrate(empty_url)
    assert await schema_of(empty_url) == before


async def test_the_code_knows_exactly_alembics_revisions() -> None:
    config = Config()
    config.set_main_option("script_location", str(files("backstay.store").joinpath("migrations")))
    history = [revision.revision for revision in ScriptDirectory.from_config(config).walk_revisions()]
    assert tuple(reversed(history)) == schema.KNOWN


async def test_a_newer_schema_is_refused_with_what_to_do(empty_url: str) -> None:
    await wiring.migrate(empty_url)
    await set_version(empty_url, "9999")
    for act in (wiring.migrate(empty_url), wiring.open_store(empty_url)):
        with pytest.raises(SchemaNewer, match="schema 9999, this Backstay knows up to") as refused:
            await act
        assert refused.value.hint == "upgrade backstay"
    assert await wiring.schema_version(empty_url) == "9999"


async def test_postgres_without_the_schema_is_refused_with_what_to_do(empty_postgres_url: str) -> None:
    with pytest.raises(SchemaBehind, match="no schema") as refused:
        await wiring.open_store(empty_postgres_url)
    assert "backstay migrate" in refused.value.hint


async def test_sqlite_is_migrated_when_it_is_opened(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/new.db"
    store = await wiring.open_store(url)
    await store.close()
    assert await wiring.schema_version(url) == schema.HEAD


async def test_two_who_migrate_at_once_both_succeed(empty_url: str) -> None:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(4) as pool:
        runs = [loop.run_in_executor(pool, lambda: asyncio.run(wiring.migrate(empty_url))) for _ in range(4)]
        await asyncio.gather(*runs)
    assert await wiring.schema_version(empty_url) == schema.HEAD
    assert len(await rows(empty_url, "SELECT * FROM alembic_version", "SELECT * FROM alembic_version")) == 1


async def test_going_down_and_up_again_leaves_the_same_schema(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await wiring.migrate(empty_url)
    before = await schema_of(empty_url)
    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", lambda config, _: command.downgrade(config, "base"))
    monkeypatch.setattr(schema, "sqlite_version", lambda _: None)
    await wiring.migrate(empty_url)
    assert not TABLES & {row[0] for row in await schema_of(empty_url)}
    monkeypatch.setattr(command, "upgrade", upgrade)
    await wiring.migrate(empty_url)
    assert await schema_of(empty_url) == before


async def test_unknown_outcomes_of_before_are_marked_and_bugs_are_not(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await wiring.migrate(empty_url)
    upgrade = command.upgrade
    monkeypatch.setattr(command, "upgrade", lambda config, _: command.downgrade(config, "0008"))
    monkeypatch.setattr(schema, "sqlite_version", lambda _: "0008")
    await wiring.migrate(empty_url)
    columns = "id, job_id, handler, state, order_key, created_at, queued_at, error_code, fence"
    ended = "item_id, fence, number, outcome, started_at, ended_at, error_code, message"
    said = ("outcome unknown: the worker was lost", "ValueError: no", "it was retried; outcome unknown")
    for number, message in enumerate(said):
        item = f"{number}, 1, 'h', 'failed', 0, 0, 0, 'UNKNOWN', 2"
        attempt = f"{number}, 2, 1, 'failed', 0, 0, 'UNKNOWN', '{message}'"
        for statement in (f"items ({columns}) VALUES ({item})", f"attempts ({ended}) VALUES ({attempt})"):
            await rows(empty_url, f"INSERT INTO {statement}", f"INSERT INTO {statement}")
    monkeypatch.setattr(command, "upgrade", upgrade)
    await wiring.migrate(empty_url)
    marked = "SELECT id, flaw FROM items ORDER BY id"
    assert await rows(empty_url, marked, marked) == [(0, "unknown"), (1, None), (2, None)]


def test_a_new_sqlite_database_is_what_the_history_makes(tmp_path: Path) -> None:
    schema.upgrade_sqlite(f"{tmp_path}/history.db")
    made = files("backstay.store").joinpath("migrations", schema.SQLITE_SCHEMA).read_text()
    assert made == schema.sqlite_script(f"{tmp_path}/history.db"), "run: make schema"
    assert schema.create_sqlite(f"{tmp_path}/new.db")
    assert schema.sqlite_script(f"{tmp_path}/new.db") == made


@pytest.mark.parametrize("damaged", ["sqlite_master", "alembic_version"])
def test_a_damaged_sqlite_file_is_named_and_left_alone(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "damaged.db"
    assert schema.create_sqlite(str(path))
    with sqlite3.connect(path) as connection:
        asked = "SELECT rootpage FROM sqlite_master WHERE name = ? UNION ALL SELECT 1"
        [page], *_ = connection.execute(asked, (damaged,)).fetchall()
        [size] = connection.execute("PRAGMA page_size").fetchone()
    connection.close()
    with path.open("r+b") as file:
        file.seek(max((page - 1) * size, 100))  # the head of the file stays
        file.write(b"\xff" * 400)
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"damaged\.db is a file but not an SQLite database"):
        schema.sqlite_version(str(path))
    assert path.read_bytes() == before


def test_tables_that_cannot_be_created_are_a_database_out_of_reach(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.01)
    path = f"{tmp_path}/new.db"
    other = sqlite.connect(path)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseUnreachable, match=r"cannot create the tables in new\.db: database is locked"):
        schema.create_sqlite(path)
    other.execute("COMMIT")
    other.close()
    assert schema.create_sqlite(path)


async def test_a_migration_that_meets_another_application_s_table_changes_nothing(empty_postgres_url: str) -> None:
    connection = await asyncpg.connect(empty_postgres_url)
    await connection.execute("CREATE TABLE outbox (mine text)")
    with pytest.raises(DatabaseUnreachable, match="interrupted and nothing was changed"):
        await schema.migrate_postgres(empty_postgres_url)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert [row["tablename"] for row in tables] == ["outbox"]
    await connection.close()


async def test_a_connection_cut_while_the_schema_is_looked_at_is_a_database_out_of_reach(postgres_url: str) -> None:
    other = await asyncpg.connect(postgres_url)
    asked = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'alembic_version'::regclass"
    async with FaultProxy.of(postgres_url) as proxy, other.transaction():
        await other.execute("LOCK TABLE alembic_version")
        looking = asyncio.create_task(schema.postgres_version(proxy.url(postgres_url)))
        await until(lambda: other.fetchval(asked))
        await proxy.cut()
        with pytest.raises(DatabaseUnreachable, match="cannot reach PostgreSQL"):
            await looking
    await other.close()


async def migrate_to(url: str, revision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database as an older version left it."""
    upgrade = command.upgrade
    with monkeypatch.context() as patched:
        patched.setattr(command, "upgrade", lambda config, _: upgrade(config, revision))
        patched.setattr(schema, "create_sqlite", lambda _: False)
        await wiring.migrate(url)


async def test_a_database_from_before_ids_were_kept_from_returning_keeps_its_rows_indexes_and_triggers(
    empty_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate_to(empty_url, "0008", monkeypatch)
    job = "INSERT INTO jobs (owner, handler, state, priority, ref_seed, created_at, timeout_ms, timeout_at, label)"
    webhook = "INSERT INTO webhooks (id, owner, url, events, created_at, updated_at)"
    late = "INSERT INTO inbox (owner, item_id, fence, kind, received_at, body, digest)"
    for said in (
        *(f"{job} VALUES ('ann', 'echo', 'running', 0, 's{n}', 1, 1, 1, 'Grüße; {n}')" for n in range(5)),
        f"{webhook} VALUES ('wh_1', 'ann', 'https://a.example/', '[]', 1, 1)",
        *(f"{late} VALUES ('ann', 1, 1, 'failed', 1, '{{}}', 'd{n}')" for n in range(3)),
        "DELETE FROM jobs WHERE id = 2",
    ):
        await rows(empty_url, said, said)
    tables = ("jobs", "inbox", "webhooks")
    before = {name: await rows(empty_url, *[f"SELECT * FROM {name} ORDER BY id"] * 2) for name in tables}
    await wiring.migrate(empty_url)
    for name in tables:
        after = await rows(empty_url, *[f"SELECT * FROM {name} ORDER BY id"] * 2)
        assert [row[: len(old)] for row, old in zip(after, before[name], strict=True)] == before[name]
    if empty_url.startswith("sqlite"):
        await wiring.migrate(f"sqlite:///{tmp_path}/new.db")
        assert await schema_of(empty_url) == await schema_of(f"sqlite:///{tmp_path}/new.db")
    flags = "SELECT DISTINCT old_tags FROM jobs"
    is_postgres = empty_url.startswith("postgresql")
    assert await rows(empty_url, flags, flags) == [(int(is_postgres),)], "there an id was never another job's"
    ended = "UPDATE jobs SET state = 'completed' WHERE id = 5 RETURNING id"
    assert await rows(empty_url, ended, ended) == [(5,)]
    told = "SELECT aggregate_id, message_type FROM outbox"
    assert await rows(empty_url, told, told) == [("5", "job.completed")], "the trigger is there"
    for said in ("DELETE FROM jobs WHERE id = 5", f"{job} VALUES ('ann', 'echo', 'running', 0, 's', 1, 1, 1, 'new')"):
        await rows(empty_url, said, said)
    newest = "SELECT id, old_tags FROM jobs ORDER BY id DESC LIMIT 1"
    assert await rows(empty_url, newest, newest) == [(6, 0)]
