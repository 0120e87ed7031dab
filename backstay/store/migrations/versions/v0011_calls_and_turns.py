"""Every call of an item is counted, breakers remember how often they opened, and jobs take turns at any rate."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("items", sa.Column("calls", sa.Integer(), nullable=False, server_default="0"))
    op.add_column("items", sa.Column("refused_at", sa.BigInteger()))
    op.execute("UPDATE items SET calls = attempt_count WHERE attempt_count > 0")
    op.add_column("providers", sa.Column("opened", sa.Integer(), nullable=False, server_default="0"))


def downgrade() -> None:
    op.drop_column("providers", "opened")
    op.drop_column("items", "refused_at")
    op.drop_column("items", "calls")
