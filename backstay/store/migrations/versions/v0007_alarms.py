"""Alarms: which are raised, and the jobs that ended, by which one of them is judged."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ENDED = "finished_at IS NOT NULL"


def _number(name: str, *, nullable: bool = False) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), nullable=nullable)


def upgrade() -> None:
    op.create_table(
        "alarms",
        sa.Column("name", sa.Text(), primary_key=True),
        _number("value"),
        _number("bound"),
        _number("raised_at"),
        _number("cleared_at", nullable=True),
    )
    condition = sa.text(ENDED)
    op.create_index("ix_jobs_ended", "jobs", ["finished_at"], postgresql_where=condition, sqlite_where=condition)
    op.drop_column("duties", "told")  # what was told is in alarms now


def downgrade() -> None:
    op.add_column("duties", sa.Column("told", sa.Text(), nullable=False, server_default=""))
    op.drop_index("ix_jobs_ended", "jobs")
    op.drop_table("alarms")
