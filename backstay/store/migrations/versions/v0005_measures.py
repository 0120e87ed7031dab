"""Measures: what each worker did in each minute, so that charts and alarms need not count rows; how far a replay is."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

COUNTS = (
    "succeeded",
    "failed",
    "retried",
    "repeats",
    "calls",
    "latency_ms",
    "cost_micros",
    "input_tokens",
    "output_tokens",
    "within_tenth",
    "within_quarter",
    "within_half",
    "within_one",
    "within_two",
    "within_five",
    "within_ten",
    "within_thirty",
    "within_sixty",
    "longer",
)


def upgrade() -> None:
    op.create_table(
        "measures",
        # The owner first: a page reads one owner's minutes, one after the other.
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("minute", sa.BigInteger(), nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("worker", sa.Text(), nullable=False),
        sa.Column("provider", sa.Text(), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False, server_default="0") for name in COUNTS),
        sa.PrimaryKeyConstraint("owner", "minute", "handler", "worker"),
    )
    op.create_index("ix_measures_minute", "measures", ["minute"])
    op.add_column("replays", sa.Column("expected", sa.BigInteger()))


def downgrade() -> None:
    op.drop_column("replays", "expected")
    op.drop_table("measures")
