"""Requests have keys, so that the answer of an earlier run can be used again."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    # Two numbers of 64 bits instead of a text of 64 characters: a row for every request must cost little.
    op.create_table(
        "answer_keys",
        sa.Column("item_id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False, autoincrement=False),
        sa.Column("key_high", sa.BigInteger(), nullable=False),
        sa.Column("key_low", sa.BigInteger(), nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("answered_at", sa.BigInteger()),  # of an answer that was itself reused: when the first one came
        sa.PrimaryKeyConstraint("item_id"),
    )
    op.create_index("ix_answer_keys_key", "answer_keys", ["key_high", "item_id"])
    op.add_column("items", sa.Column("reused_from", sa.BigInteger()))
    op.add_column("jobs", sa.Column("reused", sa.BigInteger(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("jobs", "reused")
    op.drop_column("items", "reused_from")
    op.drop_table("answer_keys")
