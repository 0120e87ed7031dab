"""Old jobs are deleted by age and by number, and their archives are registered."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "job_archives",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("blob", sa.Text(), nullable=False),
        sa.Column("items", sa.BigInteger(), nullable=False),
        sa.Column("bytes", sa.BigInteger(), nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("finished_at", sa.BigInteger(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    op.create_index("uq_job_archives_blob", "job_archives", ["blob"], unique=True)
    # The oldest and the newest ended jobs of an owner, and each owner with one probe.
    over = sa.text("finished_at IS NOT NULL")
    columns = ["owner", "finished_at", "id"]
    op.create_index("ix_jobs_ended_of", "jobs", columns, postgresql_where=over, sqlite_where=over)


def downgrade() -> None:
    op.drop_index("ix_jobs_ended_of", "jobs")
    op.drop_table("job_archives")
