"""Limits of input tokens, of output tokens and of requests per day, and the output tokens of each item."""

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"
branch_labels = None
depends_on = None

LIMITS = ("input_tokens_per_minute", "output_tokens_per_minute", "requests_per_day")
TAKEN = ("input_at", "output_at")


def upgrade() -> None:
    op.add_column("items", sa.Column("output_tokens", sa.BigInteger(), nullable=False, server_default="0"))
    for name in LIMITS:
        op.add_column("paces", sa.Column(name, sa.BigInteger()))
    for name in TAKEN:
        op.add_column("paces", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("paces", sa.Column("day_calls", sa.Text(), nullable=False, server_default=""))


def downgrade() -> None:
    for name in ("day_calls", *TAKEN, *LIMITS):
        op.drop_column("paces", name)
    op.drop_column("items", "output_tokens")
