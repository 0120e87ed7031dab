"""Items that have failed for good and are in no event yet: a relay collects them into events."""

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"
branch_labels = None
depends_on = None

# One rule at one place, as for jobs: whichever statement fails an item, the notice is in the same transaction. It holds
# what a retry would change. If no webhook and no broker wants the event, no notice is written.
_FAILED = "NEW.state = 'failed' AND OLD.state <> 'failed'"
_NOTE = """INSERT INTO failure_notices
(item_id, fence, job_id, handler, attempt_count, calls, error_code, flaw, failed_at)
SELECT NEW.id, NEW.fence, NEW.job_id, NEW.handler, NEW.attempt_count, NEW.calls, NEW.error_code, NEW.flaw,
coalesce(NEW.finished_at, 0)
WHERE EXISTS (SELECT 1 FROM sinks WHERE name = 'messages')
OR EXISTS (SELECT 1 FROM jobs JOIN webhooks ON webhooks.owner = jobs.owner WHERE jobs.id = NEW.job_id
AND webhooks.disabled_at IS NULL AND webhooks.deleted_at IS NULL AND webhooks.events LIKE '%"item.failed"%');"""

SQLITE_TRIGGER = f"CREATE TRIGGER tell_failed AFTER UPDATE OF state ON items WHEN {_FAILED} BEGIN {_NOTE} END"
POSTGRES_FUNCTION = f"""CREATE FUNCTION tell_failed() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
{_NOTE} RETURN NULL; END $$"""
POSTGRES_TRIGGER = f"""CREATE TRIGGER tell_failed AFTER UPDATE OF state ON items FOR EACH ROW
WHEN ({_FAILED}) EXECUTE FUNCTION tell_failed()"""


def _number(name: str) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), nullable=False)


def upgrade() -> None:
    counted = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
    op.create_table(
        "failure_notices",
        sa.Column("id", counted, primary_key=True, autoincrement=True),
        _number("item_id"),
        _number("fence"),
        _number("job_id"),
        sa.Column("handler", sa.Text(), nullable=False),
        _number("attempt_count"),
        _number("calls"),
        sa.Column("error_code", sa.Text()),
        sa.Column("flaw", sa.Text()),
        _number("failed_at"),
    )
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in [SQLITE_TRIGGER] if sqlite else [POSTGRES_FUNCTION, POSTGRES_TRIGGER]:
        op.execute(statement)


def downgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    for statement in ["TRIGGER tell_failed"] if sqlite else ["TRIGGER tell_failed ON items", "FUNCTION tell_failed"]:
        op.execute(f"DROP {statement}")
    op.drop_table("failure_notices")
