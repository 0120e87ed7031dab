"""Invocations: a row for each tick, since a process of minutes has nobody who asks it for metrics."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "invocations",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("depth", sa.SmallInteger(), nullable=False),
        sa.Column("begun_at", sa.BigInteger(), nullable=False),
        # One that has not ended by then was killed.
        sa.Column("ends_by", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger()),
        sa.Column("items", sa.BigInteger(), nullable=False, server_default="0"),
        sa.Column("was_full", sa.SmallInteger(), nullable=False, server_default="0"),
        sa.Column("error", sa.Text()),
    )
    op.create_index("ix_invocations_begun", "invocations", ["begun_at"])


def downgrade() -> None:
    op.drop_table("invocations")
