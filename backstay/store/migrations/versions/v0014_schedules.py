"""Schedules: which handler gets a job when."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None

WATCHED = "due_at IS NOT NULL"


def upgrade() -> None:
    texts = ("owner", "name", "handler", "cron", "timezone", "payload", "missed")
    moments = ("declared_at", "paused_at", "next_at", "due_at", "last_at", "last_job", "error_at")
    op.create_table(
        "schedules",
        *(sa.Column(name, sa.Text(), nullable=False) for name in texts),
        *(sa.Column(name, sa.BigInteger()) for name in moments),
        sa.Column("error", sa.Text()),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False, server_default="1"),
        sa.PrimaryKeyConstraint("owner", "name"),
    )
    watched = sa.text(WATCHED)
    columns = ["handler", "due_at"]
    op.create_index("ix_schedules_due", "schedules", columns, postgresql_where=watched, sqlite_where=watched)


def downgrade() -> None:
    op.drop_table("schedules")
