"""For the page: an owner's unknown outcomes and unfinished jobs are found at once, and who logs out is out."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

UNKNOWN = "state = 'failed' AND error_code = 'UNKNOWN' AND archive_id IS NULL"
OPEN = "state IN ('queued', 'running', 'paused')"


def upgrade() -> None:
    for name, table, columns, condition in (
        ("ix_items_unknown", "items", ["finished_at", "id"], UNKNOWN),
        ("ix_jobs_open_of", "jobs", ["owner", "id"], OPEN),
    ):
        where = sa.text(condition)
        op.create_index(name, table, columns, postgresql_where=where, sqlite_where=where)
    op.add_column("api_keys", sa.Column("left_at", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("api_keys", "left_at")
    op.drop_index("ix_jobs_open_of", "jobs")
    op.drop_index("ix_items_unknown", "items")
