"""Messaging: who carries messages away, dead letters that are archived, and who had them done again."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

PENDING = "status = 'pending'"
DONE = "processed_at IS NOT NULL"
WAITING = "due_at IS NOT NULL"
DEAD = "state = 'failed' AND archive_id IS NULL"
FAILING = "failed > archived"


def upgrade() -> None:
    _deliveries()
    _sinks()
    _archives()
    _dead_letters()
    _replays()
    _duties()


def _partial(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, postgresql_where=condition, sqlite_where=condition)


def _counted(name: str = "id") -> "sa.Column[int]":
    """A number that the database gives, in order; only INTEGER is counted by SQLite."""
    return sa.Column(name, sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True)


def _number(name: str, *, nullable: bool = False, default: str | None = None) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), nullable=nullable, server_default=default)


def _text(name: str, *, nullable: bool = False, default: str | None = None) -> "sa.Column[str]":
    return sa.Column(name, sa.Text(), nullable=nullable, server_default=default)


def _deliveries() -> None:
    """By webhook, so that nobody waits behind what waits for another."""
    op.drop_index("ix_deliveries_due", "deliveries")
    _partial("ix_deliveries_due", "deliveries", ["webhook_id", "due_at"], WAITING)


def _sinks() -> None:
    op.create_table(  # who takes hints about work; without one none are written
        "sinks",
        sa.Column("name", sa.Text(), primary_key=True),
        _number("opened_at"),
    )
    op.add_column("outbox", _text("sink", default="webhooks"))
    op.drop_index("ix_outbox_pending", "outbox")
    _partial("ix_outbox_pending", "outbox", ["sink", "due_at", "id"], PENDING)
    op.drop_index("ix_outbox_done", "outbox")
    _partial("ix_outbox_done", "outbox", ["sink", "processed_at"], DONE)


def _archives() -> None:
    op.create_table(  # one file of dead letters each
        "archives",
        _counted(),
        _text("owner"),
        _text("blob"),
        _number("items"),
        _number("bytes"),
        _text("digest", default=""),
        _number("first_at"),
        _number("last_at"),
        _number("created_at"),
        _number("restored_at", nullable=True),
    )
    op.create_index("ix_archives_owner", "archives", ["owner", "id"])
    op.create_index("uq_archives_blob", "archives", ["blob"], unique=True)
    op.add_column("items", _number("archive_id", nullable=True))
    op.add_column("items", _number("kept_until", nullable=True))  # one that was restored is not archived before
    op.add_column("jobs", _number("archived", default="0"))  # of those that failed


def _dead_letters() -> None:
    _partial("ix_items_dead", "items", ["finished_at", "id"], DEAD)
    _partial("ix_items_letters", "items", ["job_id", "id"], DEAD)
    op.drop_index("ix_jobs_failing", "jobs")
    _partial("ix_jobs_failing", "jobs", ["owner", "id"], FAILING)


def _replays() -> None:
    op.create_table(  # who had which dead letters done again
        "replays",
        _counted(),
        _text("owner"),
        _text("by"),
        _number("at"),
        _text("filter"),
        _number("items"),
        sa.Column("rate", sa.Double()),  # a second, if they were to come back slowly
        _number("until_at", nullable=True),  # when the last of them comes back
    )
    op.create_index("ix_replays_owner", "replays", ["owner", "id"])


def _duties() -> None:
    op.create_table(  # what one process does for all, and what it has told them
        "duties",
        sa.Column("name", sa.Text(), primary_key=True),
        _number("until_at", default="0"),
        _text("told", default=""),
    )


def downgrade() -> None:
    op.drop_index("ix_deliveries_due", "deliveries")
    _partial("ix_deliveries_due", "deliveries", ["due_at"], WAITING)
    op.drop_index("ix_jobs_failing", "jobs")
    _partial("ix_jobs_failing", "jobs", ["owner", "id"], "failed > 0")
    op.drop_index("ix_items_letters", "items")
    op.drop_index("ix_items_dead", "items")
    op.drop_column("jobs", "archived")
    op.drop_column("items", "kept_until")
    op.drop_column("items", "archive_id")
    op.drop_index("ix_outbox_pending", "outbox")
    op.drop_index("ix_outbox_done", "outbox")
    op.drop_column("outbox", "sink")
    _partial("ix_outbox_pending", "outbox", ["due_at", "id"], PENDING)
    _partial("ix_outbox_done", "outbox", ["processed_at"], DONE)
    for table in ("duties", "replays", "archives", "sinks"):
        op.drop_table(table)
