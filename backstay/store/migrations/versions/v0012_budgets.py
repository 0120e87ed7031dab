"""Budgets that several jobs share, and rates of other periods than a minute."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "budgets",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("period", sa.Text(), nullable=False),
        sa.Column("limit_micros", sa.BigInteger(), nullable=False),
        sa.Column("used_micros", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("reserved_micros", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("since_at", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("ends_at", sa.BigInteger()),
        sa.Column("renewals", sa.BigInteger(), nullable=False, server_default="0"),
        sa.UniqueConstraint("owner", "handler", "period"),
    )
    # Which shared budget was too small for a job's next item, and how often money had come back to it by then.
    op.add_column("jobs", sa.Column("short_of", sa.BigInteger()))
    op.add_column("jobs", sa.Column("short_renewals", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("paces", sa.Column("requests_period_ms", sa.BigInteger(), nullable=False, server_default="60000"))


def downgrade() -> None:
    op.drop_column("paces", "requests_period_ms")
    op.drop_column("jobs", "short_renewals")
    op.drop_column("jobs", "short_of")
    op.drop_table("budgets")
