"""What an item's state does not tell of how it ended, and how many answers of a job are not whole."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

COUNTERS = ("truncated", "refused", "filtered")
BY_CODE = "state = 'failed' AND error_code = 'UNKNOWN' AND archive_id IS NULL"
BY_FLAW = "state = 'failed' AND flaw = 'unknown' AND archive_id IS NULL"

# Until now only the words of the last attempt told an unknown outcome from a bug of a handler.
MARK = """
UPDATE items SET flaw = 'unknown'
WHERE state = 'failed' AND error_code = 'UNKNOWN'
  AND EXISTS (SELECT 1 FROM attempts WHERE attempts.item_id = items.id AND attempts.fence = items.fence
              AND attempts.message LIKE 'outcome unknown%')
"""


def upgrade() -> None:
    op.add_column("items", sa.Column("flaw", sa.Text()))
    for name in COUNTERS:
        op.add_column("jobs", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.execute(MARK)
    _index(BY_FLAW)


def downgrade() -> None:
    _index(BY_CODE)
    for name in COUNTERS:
        op.drop_column("jobs", name)
    op.drop_column("items", "flaw")


def _index(condition: str) -> None:
    op.drop_index("ix_items_unknown", "items")
    where = sa.text(condition)
    op.create_index("ix_items_unknown", "items", ["finished_at", "id"], postgresql_where=where, sqlite_where=where)
