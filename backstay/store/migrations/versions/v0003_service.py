"""The service: keys, files, batches, replies to repeat, messages to send, webhooks, and what comes in from outside."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TABLES = ("inbox", "deliveries", "webhooks", "outbox", "replies", "batches", "files", "api_keys")


def upgrade() -> None:
    _keys_and_replies()
    _files_and_batches()
    _messages()
    _webhooks()
    _inbox()
    _dead_letters()
    _tell_of_ended_jobs()


def _text(name: str, *, nullable: bool = False, default: str | None = None) -> "sa.Column[str]":
    return sa.Column(name, sa.Text(), nullable=nullable, server_default=default)


def _number(name: str, *, nullable: bool = False, default: str | None = None) -> "sa.Column[int]":
    return sa.Column(name, sa.BigInteger(), nullable=nullable, server_default=default)


def _counted(name: str = "id") -> "sa.Column[int]":
    """A number that the database gives, in order; only INTEGER is counted by SQLite."""
    return sa.Column(name, sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True, autoincrement=True)


def _keys_and_replies() -> None:
    op.create_table(
        "api_keys",
        sa.Column("id", sa.Text(), primary_key=True),
        _text("owner"),
        _text("name", default=""),
        _text("role"),
        _text("digest"),
        _number("created_at"),
        *(_number(name, nullable=True) for name in ("expires_at", "revoked_at", "used_at")),
        sa.CheckConstraint("role IN ('read', 'write', 'admin')", name="ck_api_keys_role"),
    )
    op.create_index("ix_api_keys_owner", "api_keys", ["owner", "id"])
    op.create_table(  # what was answered to a request with an idempotency key; without a status it is being answered
        "replies",
        _text("owner"),
        _text("key"),
        _text("digest"),
        _number("created_at"),
        _text("token"),
        _number("leased_until"),  # which process answers, and until when it is considered alive
        sa.Column("status", sa.Integer()),
        _text("headers", nullable=True),
        _text("body", nullable=True),
        sa.PrimaryKeyConstraint("owner", "key"),
    )
    op.create_index("ix_replies_created", "replies", ["created_at"])


def _files_and_batches() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), primary_key=True),
        _text("owner"),
        _text("filename"),
        _text("purpose"),
        _number("bytes"),
        _number("created_at"),
        *(_number(name, nullable=True) for name in ("expires_at", "deleted_at")),
        _text("blob", nullable=True),  # its key among the artifacts; none: it is read from the job it stands for
        _number("job_id", nullable=True),
        _text("part", nullable=True),  # and which part of it: input, output, errors
        _text("survey", nullable=True),  # what was found in a file of requests as it came in
    )
    there = sa.text("deleted_at IS NULL")  # the others stay behind as what was once there
    columns = ["owner", "created_at", "id"]
    op.create_index("ix_files_owner", "files", columns, postgresql_where=there, sqlite_where=there)
    expiring = sa.text("expires_at IS NOT NULL AND blob IS NOT NULL")
    op.create_index("ix_files_expiry", "files", ["expires_at"], postgresql_where=expiring, sqlite_where=expiring)
    moments = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), primary_key=True),
        _text("owner"),
        _number("job_id", nullable=True),
        _text("status"),
        _text("endpoint"),
        _text("input_file_id"),
        _text("completion_window"),
        _text("metadata", nullable=True),
        _text("model", nullable=True),
        *(_text(name, nullable=True) for name in ("errors", "output_file_id", "error_file_id")),
        _number("created_at"),
        _number("expires_at"),
        _number("output_seconds", nullable=True),
        *(_number(f"{moment}_at", nullable=True) for moment in moments),
        _number("requests", default="0"),
        _number("leased_until", default="0"),  # who moves it has it for so long
        sa.Column("adopted", sa.SmallInteger(), nullable=False, server_default="0"),  # 1: a run, 2: ended before
    )
    op.create_index("ix_batches_owner", "batches", ["owner", "created_at", "id"])
    op.create_index("uq_batches_job", "batches", ["job_id"], unique=True)
    moving = sa.text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')")
    op.create_index("ix_batches_moving", "batches", ["leased_until"], postgresql_where=moving, sqlite_where=moving)


def _dead_letters() -> None:
    """An owner's jobs with failed items are few among all of them."""
    failing = sa.text("failed > 0")
    op.create_index("ix_jobs_failing", "jobs", ["owner", "id"], postgresql_where=failing, sqlite_where=failing)


def _messages() -> None:
    op.create_table(
        "outbox",
        _counted(),
        _text("owner"),
        _text("aggregate_type"),
        _text("aggregate_id"),
        _text("message_type"),
        _text("payload"),
        _text("status", default="pending"),
        _number("created_at"),
        _number("processed_at", nullable=True),
        _number("retry_count", default="0"),
        _text("error_message", nullable=True),
        _number("due_at", default="0"),
        sa.CheckConstraint("status IN ('pending', 'published', 'dead')", name="ck_outbox_status"),
    )
    pending = sa.text("status = 'pending'")
    op.create_index("ix_outbox_pending", "outbox", ["due_at", "id"], postgresql_where=pending, sqlite_where=pending)
    op.create_index("ix_outbox_aggregate", "outbox", ["aggregate_id", "aggregate_type"])
    done = sa.text("processed_at IS NOT NULL")
    op.create_index("ix_outbox_done", "outbox", ["processed_at"], postgresql_where=done, sqlite_where=done)


def _webhooks() -> None:
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), primary_key=True),
        _text("owner"),
        _text("name", default=""),
        _text("url"),
        _text("events"),
        _number("created_at"),
        _number("updated_at"),
        _number("secret_version", default="1"),
        *(_number(name, nullable=True) for name in ("old_secret_until", "failing_since", "disabled_at", "deleted_at")),
        _text("disabled_why", nullable=True),
    )
    op.create_index("ix_webhooks_owner", "webhooks", ["owner", "id"])
    op.create_table(
        "deliveries",
        _counted(),
        _text("webhook_id"),
        _text("owner"),
        _text("event_id"),
        _text("event_type"),
        _text("body"),
        _number("created_at"),
        _number("due_at", nullable=True),
        _number("tries", default="0"),
        _number("delivered_at", nullable=True),
        _number("given_up_at", nullable=True),
        sa.Column("last_status", sa.Integer()),
        _text("last_error", nullable=True),
    )
    op.create_index("uq_deliveries_event", "deliveries", ["webhook_id", "event_id"], unique=True)
    waiting = sa.text("due_at IS NOT NULL")
    op.create_index("ix_deliveries_due", "deliveries", ["due_at"], postgresql_where=waiting, sqlite_where=waiting)
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook_id", "id"])
    over = sa.text("due_at IS NULL")
    op.create_index("ix_deliveries_over", "deliveries", ["created_at"], postgresql_where=over, sqlite_where=over)


def _inbox() -> None:
    op.create_table(  # what remote workers said about items, as it came
        "inbox",
        _counted(),
        _text("owner"),
        _number("item_id"),
        _number("fence"),
        _text("kind"),
        _number("received_at"),
        _text("body"),
        sa.Column("is_late", sa.SmallInteger(), nullable=False, server_default="0"),
        _text("digest"),
        _number("accepted_at", nullable=True),
        _text("accepted_by", nullable=True),
    )
    op.create_index("uq_inbox_digest", "inbox", ["item_id", "digest"], unique=True)
    op.create_index("ix_inbox_item", "inbox", ["item_id", "id"])
    late = sa.text("is_late = 1 AND kind = 'succeeded'")
    op.create_index("ix_inbox_late", "inbox", ["owner", "id"], postgresql_where=late, sqlite_where=late)


# One rule at one place: whichever of the statements that can end a job does it, the message is in the same transaction.
# Without a webhook there is no message.
SQLITE_TRIGGER = """CREATE TRIGGER tell_ended AFTER UPDATE OF state ON jobs
WHEN NEW.state IN ('completed', 'failed', 'cancelled') AND OLD.state NOT IN ('completed', 'failed', 'cancelled')
BEGIN INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at)
SELECT NEW.owner, 'job', CAST(NEW.id AS text), 'job.' || NEW.state, '{}', coalesce(NEW.finished_at, NEW.created_at)
WHERE EXISTS (SELECT 1 FROM webhooks WHERE owner = NEW.owner AND disabled_at IS NULL AND deleted_at IS NULL); END"""

POSTGRES_FUNCTION = """CREATE FUNCTION tell_ended() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at)
SELECT NEW.owner, 'job', CAST(NEW.id AS text), 'job.' || NEW.state, '{}', coalesce(NEW.finished_at, NEW.created_at)
WHERE EXISTS (SELECT 1 FROM webhooks WHERE owner = NEW.owner AND disabled_at IS NULL AND deleted_at IS NULL);
RETURN NULL; END $$"""

POSTGRES_TRIGGER = """CREATE TRIGGER tell_ended AFTER UPDATE OF state ON jobs FOR EACH ROW
WHEN (NEW.state IN ('completed', 'failed', 'cancelled') AND OLD.state NOT IN ('completed', 'failed', 'cancelled'))
EXECUTE FUNCTION tell_ended()"""

# A batch has ended when its files are there, which is later than its job; one that was not valid never had a job.
_BATCH_ENDED = """NEW.status IN ('completed', 'failed', 'expired', 'cancelled')
AND OLD.status NOT IN ('completed', 'failed', 'expired', 'cancelled') AND NEW.adopted < 2"""
_TELL_BATCH = """INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at)
SELECT NEW.owner, 'batch', NEW.id, 'batch.' || NEW.status, '{}', coalesce(NEW.completed_at, NEW.failed_at,
NEW.expired_at, NEW.cancelled_at, NEW.created_at)
WHERE EXISTS (SELECT 1 FROM webhooks WHERE owner = NEW.owner AND disabled_at IS NULL AND deleted_at IS NULL);"""

SQLITE_BATCH_TRIGGER = f"""CREATE TRIGGER tell_batch AFTER UPDATE OF status ON batches
WHEN {_BATCH_ENDED} BEGIN {_TELL_BATCH} END"""

POSTGRES_BATCH_FUNCTION = f"""CREATE FUNCTION tell_batch() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
{_TELL_BATCH} RETURN NULL; END $$"""

POSTGRES_BATCH_TRIGGER = f"""CREATE TRIGGER tell_batch AFTER UPDATE OF status ON batches FOR EACH ROW
WHEN ({_BATCH_ENDED}) EXECUTE FUNCTION tell_batch()"""


def _tell_of_ended_jobs() -> None:
    if op.get_bind().dialect.name == "sqlite":
        statements = [SQLITE_TRIGGER, SQLITE_BATCH_TRIGGER]
    else:
        statements = [POSTGRES_FUNCTION, POSTGRES_TRIGGER, POSTGRES_BATCH_FUNCTION, POSTGRES_BATCH_TRIGGER]
    for statement in statements:
        op.execute(statement)


def downgrade() -> None:
    for name, table in (("tell_ended", "jobs"), ("tell_batch", "batches")):
        op.execute(f"DROP TRIGGER {name}" + ("" if op.get_bind().dialect.name == "sqlite" else f" ON {table}"))
        if op.get_bind().dialect.name != "sqlite":
            op.execute(f"DROP FUNCTION {name}")
    op.drop_index("ix_jobs_failing", "jobs")
    for table in TABLES:
        op.drop_table(table)
