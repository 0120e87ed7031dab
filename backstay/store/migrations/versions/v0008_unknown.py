"""Items with an unknown outcome have an index of their own: a person must find these few among all that failed."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UNKNOWN = "state = 'failed' AND error_code = 'UNKNOWN' AND archive_id IS NULL"


def upgrade() -> None:
    where = sa.text(UNKNOWN)
    op.create_index("ix_items_unknown", "items", ["finished_at", "id"], postgresql_where=where, sqlite_where=where)


def downgrade() -> None:
    op.drop_index("ix_items_unknown", "items")
