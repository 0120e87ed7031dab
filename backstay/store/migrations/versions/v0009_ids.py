"""Ids that never return, and callback tags that only the job they were made for has.

SQLite gives out the id of a deleted row again if it was the newest, unless the table says AUTOINCREMENT; PostgreSQL
never does. Tags of callbacks were made of such ids alone. On PostgreSQL an id stands for one job for ever, so the tags
that were sent out for the jobs of today are still good (`old_tags`). On SQLite they are not.
"""

import re

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

# Those whose ids are shown to people and taken from them.
NUMBERED = ("jobs", "inbox", "archives", "replays", "deliveries")


def upgrade() -> None:
    is_postgres = op.get_bind().dialect.name == "postgresql"
    op.add_column(
        "jobs", sa.Column("old_tags", sa.SmallInteger(), nullable=False, server_default=str(int(is_postgres)))
    )
    if is_postgres:
        op.alter_column("jobs", "old_tags", server_default="0")  # of jobs from now on; no row is rewritten
    else:
        for table in NUMBERED:
            _number(table)


def _number(table: str) -> None:
    """Rebuilds the table with AUTOINCREMENT, with the same indexes and triggers."""
    bind = op.get_bind()
    made = "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND type {} AND sql IS NOT NULL ORDER BY rowid"
    [(create,)] = bind.exec_driver_sql(made.format("= 'table'"), (table,)).all()
    if "AUTOINCREMENT" in create:
        return
    upon = [sql for (sql,) in bind.exec_driver_sql(made.format("IN ('index', 'trigger')"), (table,))]
    for statement in (
        _numbered(create, table),
        f"INSERT INTO {table}_numbered SELECT * FROM {table}",
        f"DROP TABLE {table}",
        f"ALTER TABLE {table}_numbered RENAME TO {table}",
        *upon,
    ):
        bind.exec_driver_sql(statement)


def _numbered(create: str, table: str) -> str:
    for pattern, text in (
        (rf'^CREATE TABLE "?{table}"?', f"CREATE TABLE {table}_numbered"),
        (r"\bid INTEGER NOT NULL", "id INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"),
        (r",\s*PRIMARY KEY \(id\)", ""),
    ):
        create, found = re.subn(pattern, text, create, count=1)
        assert found, f"the table {table} is not as Backstay has made it"
    return create


def downgrade() -> None:
    """Ids that do not return do an older version no harm."""
    op.drop_column("jobs", "old_tags")
