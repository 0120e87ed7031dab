"""Every call is counted, breakers remember how often they opened, jobs take turns, and late results are waited for."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("items", sa.Column("calls", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("items", sa.Column("refused_at", sa.BigInteger()))
    op.execute("UPDATE items SET calls = attempt_count WHERE attempt_count > 0")
    for name in ("level_key", "first_key", "last_key"):
        op.add_column("jobs", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column("jobs", sa.Column("stopped_at", sa.BigInteger()))
    late = sa.text("state = 'failed' AND due_at IS NOT NULL")
    op.create_index("ix_items_late", "items", ["handler", "due_at"], postgresql_where=late, sqlite_where=late)
    op.create_table(
        "turns",
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("level_key", sa.BigInteger(), nullable=False),
        sa.Column("served_key", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("handler", "level_key"),
    )
    # Jobs that are under way take turns from where they are: an item's turn is its position.
    op.execute("UPDATE jobs SET level_key = CAST(9 - priority AS bigint) << 52")
    op.execute("UPDATE jobs SET first_key = level_key, last_key = level_key + total")
    op.execute(
        "UPDATE items SET order_key = (SELECT level_key FROM jobs WHERE jobs.id = items.job_id) + (id & 268435455)"
        " WHERE state IN ('queued', 'submitting', 'processing')"
    )
    op.add_column("providers", sa.Column("opened", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("providers", "opened")
    op.drop_table("turns")
    op.drop_index("ix_items_late", "items")
    for name in ("level_key", "first_key", "last_key", "stopped_at"):
        op.drop_column("jobs", name)
    op.drop_column("items", "refused_at")
    op.drop_column("items", "calls")
