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
        *(_text("owner"), _text("name", default=""), _text("role"), _text("digest"), _number("created_at")),
        *(_number(name, nullable=True) for name in ("expires_at", "revoked_at", "used_at")),
        sa.CheckConstraint("role IN ('read', 'write', 'admin')", name="ck_api_keys_role"),
    )
    op.create_index("ix_api_keys_owner", "api_keys", ["owner", "id"])
    op.create_table(  # what was answered to a request with an idempotency key; without a status it is being answered
        "replies",
        *(_text("owner"), _text("key"), _text("digest"), _number("created_at")),
        *(sa.Column("status", sa.Integer()), _text("headers", nullable=True), _text("body", nullable=True)),
        sa.PrimaryKeyConstraint("owner", "key"),
    )
    op.create_index("ix_replies_created", "replies", ["created_at"])


def _files_and_batches() -> None:
    op.create_table(
        "files",
        sa.Column("id", sa.Text(), primary_key=True),
        *(_text("owner"), _text("filename"), _text("purpose"), _number("bytes"), _number("created_at")),
        *(_number(name, nullable=True) for name in ("expires_at", "deleted_at")),
        _text("blob", nullable=True),  # its key among the artifacts; none: it is read from the job it stands for
        _number("job_id", nullable=True),
        _text("survey", nullable=True),  # what was found in a file of requests as it came in
    )
    op.create_index("ix_files_owner", "files", ["owner", "created_at", "id"])
    expiring = sa.text("expires_at IS NOT NULL AND deleted_at IS NULL")
    op.create_index("ix_files_expiry", "files", ["expires_at"], postgresql_where=expiring, sqlite_where=expiring)
    moments = ("in_progress", "finalizing", "completed", "failed", "expired", "cancelling", "cancelled")
    op.create_table(
        "batches",
        sa.Column("id", sa.Text(), primary_key=True),
        *(_text("owner"), _number("job_id", nullable=True), _text("status"), _text("endpoint"), _text("input_file_id")),
        *(_text("completion_window"), _text("metadata", nullable=True), _text("model", nullable=True)),
        *(
            _text("errors", nullable=True),
            _text("output_file_id", nullable=True),
            _text("error_file_id", nullable=True),
        ),
        *(_number("created_at"), _number("expires_at"), _number("output_seconds", nullable=True)),
        *(_number(f"{moment}_at", nullable=True) for moment in moments),
        _number("leased_until", default="0"),  # who moves it on has it to himself for so long
    )
    op.create_index("ix_batches_owner", "batches", ["owner", "created_at", "id"])
    op.create_index("uq_batches_job", "batches", ["job_id"], unique=True)
    moving = sa.text("status IN ('validating', 'in_progress', 'finalizing', 'cancelling')")
    op.create_index("ix_batches_moving", "batches", ["leased_until"], postgresql_where=moving, sqlite_where=moving)


def _messages() -> None:
    op.create_table(
        "outbox",
        _counted(),
        *(_text("owner"), _text("aggregate_type"), _text("aggregate_id"), _text("message_type"), _text("payload")),
        *(_text("status", default="pending"), _number("created_at"), _number("processed_at", nullable=True)),
        *(_number("retry_count", default="0"), _text("error_message", nullable=True), _number("due_at", default="0")),
        sa.CheckConstraint("status IN ('pending', 'published', 'dead')", name="ck_outbox_status"),
    )
    pending = sa.text("status = 'pending'")
    op.create_index("ix_outbox_pending", "outbox", ["due_at", "id"], postgresql_where=pending, sqlite_where=pending)
    op.create_index("ix_outbox_aggregate", "outbox", ["aggregate_id", "aggregate_type"])
    op.create_table(
        "webhooks",
        sa.Column("id", sa.Text(), primary_key=True),
        *(_text("owner"), _text("url"), _text("events"), _number("created_at"), _number("secret_version", default="1")),
        *(_number(name, nullable=True) for name in ("old_secret_until", "failing_since", "disabled_at", "deleted_at")),
        _text("disabled_why", nullable=True),
    )
    op.create_index("ix_webhooks_owner", "webhooks", ["owner", "id"])
    op.create_table(
        "deliveries",
        sa.Column("id", sa.Text(), primary_key=True),
        *(_text("webhook_id"), _text("owner"), _text("event_id"), _text("event_type"), _text("body")),
        *(_number("created_at"), _number("due_at", nullable=True), _number("tries", default="0")),
        *(_number("delivered_at", nullable=True), _number("given_up_at", nullable=True)),
        *(sa.Column("last_status", sa.Integer()), _text("last_error", nullable=True)),
        sa.UniqueConstraint("webhook_id", "event_id", name="uq_deliveries_event"),
    )
    waiting = sa.text("due_at IS NOT NULL")
    op.create_index("ix_deliveries_due", "deliveries", ["due_at"], postgresql_where=waiting, sqlite_where=waiting)
    op.create_index("ix_deliveries_webhook", "deliveries", ["webhook_id", "created_at", "id"])
    op.create_table(  # what remote workers said about items, as it came
        "inbox",
        _counted(),
        *(_number("item_id"), _number("fence"), _text("kind"), _number("received_at"), _text("body")),
        *(sa.Column("is_late", sa.SmallInteger(), nullable=False, server_default="0"), _text("digest")),
        *(_number("accepted_at", nullable=True), _text("accepted_by", nullable=True)),
        sa.UniqueConstraint("item_id", "digest", name="uq_inbox_digest"),
    )
    op.create_index("ix_inbox_item", "inbox", ["item_id", "id"])


# One rule at one place: whichever of the statements that can end a job does it, the message is in the same transaction.
# Without anyone to tell there is none.
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


def _tell_of_ended_jobs() -> None:
    if op.get_bind().dialect.name == "sqlite":
        op.execute(SQLITE_TRIGGER)
    else:
        op.execute(POSTGRES_FUNCTION)
        op.execute(POSTGRES_TRIGGER)


def downgrade() -> None:
    op.execute("DROP TRIGGER tell_ended" + ("" if op.get_bind().dialect.name == "sqlite" else " ON jobs"))
    if op.get_bind().dialect.name != "sqlite":
        op.execute("DROP FUNCTION tell_ended")
    for table in TABLES:
        op.drop_table(table)
