"""A job may name a fallback handler, wait for earlier jobs, and know items by keys of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

# One rule at one place, as for webhooks: whichever statement ends a job, those that wait for it can see it at once.
_ENDED = (
    """NEW.state IN ('completed', 'failed', 'cancelled') AND OLD.state NOT IN ('completed', 'failed', 'cancelled')"""
)
_TELL = "UPDATE job_links SET ended = 1 WHERE after_id = NEW.id; DELETE FROM job_links WHERE job_id = NEW.id;"

SQLITE_TRIGGER = f"CREATE TRIGGER tell_links AFTER UPDATE OF state ON jobs WHEN {_ENDED} BEGIN {_TELL} END"
POSTGRES_FUNCTION = f"""CREATE FUNCTION tell_links() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
{_TELL} RETURN NULL; END $$"""
POSTGRES_TRIGGER = f"""CREATE TRIGGER tell_links AFTER UPDATE OF state ON jobs FOR EACH ROW
WHEN ({_ENDED}) EXECUTE FUNCTION tell_links()"""


def upgrade() -> None:
    op.add_column("jobs", sa.Column("fallback", sa.Text()))
    op.add_column("jobs", sa.Column("waits_for", sa.Text()))
    op.add_column("jobs", sa.Column("known", sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table(
        "job_links",
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("after_id", sa.BigInteger(), nullable=False),
        sa.Column("takes", sa.Text(), nullable=False),
        sa.Column("feeds", sa.Integer(), nullable=False),
        sa.Column("ended", sa.Integer(), nullable=False, server_default="0"),
        sa.Column("cursor", sa.BigInteger()),
        sa.PrimaryKeyConstraint("job_id", "number"),
    )
    op.create_index("ix_job_links_after", "job_links", ["after_id"])
    over = sa.text("ended = 1")
    op.create_index("ix_job_links_ended", "job_links", ["job_id"], postgresql_where=over, sqlite_where=over)
    op.create_table(
        "item_keys",
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("key", sa.Text(), nullable=False),
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("owner", "handler", "key"),
    )
    op.create_index("ix_item_keys_item", "item_keys", ["item_id"])
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in [SQLITE_TRIGGER] if sqlite else [POSTGRES_FUNCTION, POSTGRES_TRIGGER]:
        op.execute(statement)


def downgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in ["TRIGGER tell_links"] if sqlite else ["TRIGGER tell_links ON jobs", "FUNCTION tell_links"]:
        op.execute(f"DROP {statement}")
    op.drop_table("item_keys")
    op.drop_table("job_links")
    for name in ("known", "waits_for", "fallback"):
        op.drop_column("jobs", name)
