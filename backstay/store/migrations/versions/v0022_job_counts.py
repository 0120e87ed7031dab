"""Counts of large jobs that are not yet in the rows of these jobs; alarms say where to look."""

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"
branch_labels = None
depends_on = None

COUNTS = (
    "processing",
    "succeeded",
    "failed",
    "skipped",
    "cancelled",
    "repeats",
    "input_tokens",
    "output_tokens",
    "truncated",
    "refused",
    "filtered",
    "unfinished",
)


def upgrade() -> None:
    op.create_table(
        "job_counts",
        sa.Column("job_id", sa.BigInteger(), primary_key=True, autoincrement=False),
        sa.Column("id", sa.BigInteger(), sa.Identity(), primary_key=True),
        *(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0") for name in COUNTS),
    )
    op.add_column("jobs", sa.Column("counted_id", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("counted_at", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("alarms", sa.Column("detail", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    op.drop_column("alarms", "detail")
    op.drop_column("jobs", "counted_at")
    op.drop_column("jobs", "counted_id")
    op.drop_table("job_counts")
