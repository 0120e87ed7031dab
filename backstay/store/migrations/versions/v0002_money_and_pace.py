"""Budgets and what was spent, how fast a provider may be called, where requests go, and who shares an answer."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JOB_MICROS = ("spent_micros", "reserved_micros", "unknown_micros")
JOB_TOKENS = ("input_tokens", "output_tokens")


def upgrade() -> None:
    _add_columns()
    _create_tables()


def _add_columns() -> None:
    op.add_column("jobs", sa.Column("budget_micros", sa.BigInteger()))
    for name in (*JOB_MICROS, *JOB_TOKENS):
        op.add_column("jobs", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    # Its next item does not fit under the ceiling: the claim passes the job over until something is refunded.
    op.add_column("jobs", sa.Column("short", sa.SmallInteger(), nullable=False, server_default="0"))
    # Who does what the handler has not done by then.
    op.add_column("jobs", sa.Column("handler_then", sa.Text()))
    op.add_column("jobs", sa.Column("move_at", sa.BigInteger()))
    moving = sa.text("move_at IS NOT NULL AND state IN ('queued', 'running', 'paused')")
    op.create_index("ix_jobs_move", "jobs", ["move_at"], postgresql_where=moving, sqlite_where=moving)
    condition = sa.text("short = 1")
    op.create_index("ix_jobs_short", "jobs", ["id"], postgresql_where=condition, sqlite_where=condition)
    op.add_column("items", sa.Column("cost_micros", sa.BigInteger()))  # the worst that one call can cost
    op.add_column("items", sa.Column("tokens", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("items", sa.Column("reserved_micros", sa.BigInteger(), nullable=False, server_default="0"))
    # The kernel and the process namespace a worker's number is good in: there, who is dead can be told at once.
    op.add_column("workers", sa.Column("place", sa.Text(), nullable=False, server_default=""))


def _create_tables() -> None:
    op.create_table(
        "endpoints",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("spec", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
    )
    op.create_table(
        "paces",
        sa.Column("provider", sa.Text(), primary_key=True),
        sa.Column("requests_per_minute", sa.BigInteger()),
        sa.Column("tokens_per_minute", sa.BigInteger()),
        sa.Column("concurrency", sa.BigInteger(), nullable=False),
        sa.Column("ceiling", sa.BigInteger(), nullable=False),  # what the provider bears now, at most `concurrency`
        sa.Column("requests_at", sa.BigInteger(), nullable=False, server_default="0"),  # microseconds
        sa.Column("tokens_at", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("resume_at", sa.BigInteger(), nullable=False, server_default="0"),  # milliseconds
    )
    op.create_table(
        "copies",
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("custom_id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("item_id", "number"),
    )


def downgrade() -> None:
    for table in ("copies", "paces", "endpoints"):
        op.drop_table(table)
    op.drop_column("workers", "place")
    for name in ("cost_micros", "tokens", "reserved_micros"):
        op.drop_column("items", name)
    op.drop_index("ix_jobs_short")
    op.drop_index("ix_jobs_move")
    for name in ("budget_micros", *JOB_MICROS, *JOB_TOKENS, "short", "handler_then", "move_at"):
        op.drop_column("jobs", name)
