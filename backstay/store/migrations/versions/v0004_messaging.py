"""Messaging: who carries messages away, dead letters that are archived, and who had them done again."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

PENDING = "status = 'pending'"
DEAD = "state = 'failed' AND archive_id IS NULL"


def upgrade() -> None:
    _sinks()
    _archives()
    _replays()


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


def _sinks() -> None:
    op.create_table(  # who takes hints about work; without one none are written
        "sinks",
        sa.Column("name", sa.Text(), primary_key=True),
        _number("opened_at"),
    )
    op.add_column("outbox", _text("sink", default="webhooks"))
    op.drop_index("ix_outbox_pending", "outbox")
    _partial("ix_outbox_pending", "outbox", ["sink", "due_at", "id"], PENDING)


def _archives() -> None:
    op.create_table(  # one file of dead letters each
        "archives",
        _counted(),
        *(_text("owner"), _text("blob"), _number("items"), _number("bytes"), _text("digest", default="")),
        *(_number("first_at"), _number("last_at"), _number("created_at"), _number("restored_at", nullable=True)),
    )
    op.create_index("ix_archives_owner", "archives", ["owner", "id"])
    op.add_column("items", _number("archive_id", nullable=True))
    _partial("ix_items_dead", "items", ["finished_at", "id"], DEAD)


def _replays() -> None:
    op.create_table(  # who had which dead letters done again
        "replays",
        _counted(),
        *(_text("owner"), _text("by"), _number("at"), _text("filter"), _number("items")),
        _number("rate", nullable=True),  # a second, if they were to come back slowly
    )
    op.create_index("ix_replays_owner", "replays", ["owner", "id"])


def downgrade() -> None:
    op.drop_index("ix_items_dead", "items")
    op.drop_column("items", "archive_id")
    op.drop_index("ix_outbox_pending", "outbox")
    op.drop_column("outbox", "sink")
    _partial("ix_outbox_pending", "outbox", ["due_at", "id"], PENDING)
    for table in ("replays", "archives", "sinks"):
        op.drop_table(table)
