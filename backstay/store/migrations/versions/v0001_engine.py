"""The engine's tables: jobs, items, requests, attempts, events, providers, workers."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# A rowid alias on SQLite must be spelt INTEGER; everywhere else ids are 64 bits wide.
BIG = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
ITEM_STATES = "'queued', 'submitting', 'processing', 'succeeded', 'failed', 'skipped', 'cancelled'"
JOB_STATES = "'queued', 'running', 'paused', 'completed', 'failed', 'cancelled'"


def upgrade() -> None:
    _jobs()
    _items()
    _bodies_and_attempts()
    _events_providers_workers()
    if op.get_bind().dialect.name == "postgresql":
        # Hot rows die young: vacuum them early, and leave room so that an update stays on its page.
        op.execute("ALTER TABLE items SET (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02)")
        op.execute("ALTER TABLE jobs SET (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02)")


def _count(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")


def _flag(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.SmallInteger(), nullable=False, server_default="0")


def _partial(name: str, table: str, columns: list[str], where: str, unique: bool = False) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, unique=unique, postgresql_where=condition, sqlite_where=condition)


def _jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        _flag("held"),  # paused or stopping: the claim passes its items over
        _flag("sealed"),  # every item is in
        sa.Column("stop_reason", sa.Text()),
        sa.Column("priority", sa.SmallInteger(), nullable=False),
        sa.Column("retry", sa.Text()),
        sa.Column("delivery", sa.Text()),
        sa.Column("label", sa.Text()),
        sa.Column("ref_seed", sa.Text(), nullable=False),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("digest", sa.Text(), nullable=False, server_default=""),
        *(_count(name) for name in ("total", "processing", "succeeded", "failed", "skipped", "cancelled", "repeats")),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("started_at", sa.BigInteger()),
        sa.Column("paused_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("timeout_ms", sa.BigInteger(), nullable=False),
        sa.Column("timeout_at", sa.BigInteger(), nullable=False),
        sa.Column("deadline_at", sa.BigInteger()),
        sa.CheckConstraint(f"state IN ({JOB_STATES})", name="ck_jobs_state"),
    )
    _partial("uq_jobs_key", "jobs", ["owner", "idempotency_key"], "idempotency_key IS NOT NULL", unique=True)
    _partial("ix_jobs_held", "jobs", ["id"], "held = 1")
    _partial("ix_jobs_timeout", "jobs", ["timeout_at"], "state IN ('queued', 'running')")
    _partial("ix_jobs_open", "jobs", ["id"], "state IN ('queued', 'running', 'paused')")
    op.create_index("ix_jobs_owner", "jobs", ["owner", "id"])


def _items() -> None:
    op.create_table(
        "items",
        sa.Column("id", BIG, primary_key=True, autoincrement=False),
        sa.Column("job_id", sa.BigInteger(), nullable=False),
        sa.Column("handler", sa.Text(), nullable=False),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("order_key", sa.BigInteger(), nullable=False),
        sa.Column("due_at", sa.BigInteger()),  # null: ready now
        sa.Column("leased_by", sa.Text()),
        sa.Column("lease_expires_at", sa.BigInteger()),
        sa.Column("reconcile_after", sa.BigInteger()),
        _count("fence"),
        _flag("attempt_count"),
        _flag("round"),
        _flag("rescues"),
        _flag("repeats"),
        _flag("ask_first"),
        _flag("progress"),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("queued_at", sa.BigInteger(), nullable=False),  # its time counts from here; a person's retry moves it
        sa.Column("last_attempt_at", sa.BigInteger()),
        sa.Column("finished_at", sa.BigInteger()),
        sa.Column("timed_out_at", sa.BigInteger()),
        sa.Column("deadline_at", sa.BigInteger()),
        sa.Column("error_code", sa.Text()),
        sa.Column("provider_task_id", sa.Text()),
        sa.Column("account", sa.Text()),
        sa.CheckConstraint(f"state IN ({ITEM_STATES})", name="ck_items_state"),
    )
    _partial("ix_items_ready", "items", ["handler", "order_key"], "state = 'queued' AND due_at IS NULL")
    _partial("ix_items_due", "items", ["due_at"], "state = 'queued' AND due_at IS NOT NULL")
    _partial("ix_items_poll", "items", ["handler", "due_at"], "state = 'processing'")
    _partial("ix_items_lease", "items", ["lease_expires_at"], "state = 'submitting'")
    _partial("ix_items_failed", "items", ["job_id", "id"], "state = 'failed'")
    unfinished = "deadline_at IS NOT NULL AND state IN ('queued', 'submitting', 'processing')"
    _partial("ix_items_deadline", "items", ["deadline_at"], unfinished)


def _bodies_and_attempts() -> None:
    op.create_table(
        "requests",
        sa.Column("item_id", BIG, primary_key=True, autoincrement=False),
        sa.Column("body", sa.Text(), nullable=False),
    )
    op.create_table(
        "attempts",
        sa.Column("item_id", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("outcome", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("ended_at", sa.BigInteger(), nullable=False),
        sa.Column("error_code", sa.Text()),
        sa.Column("message", sa.Text()),
        sa.Column("provider_status", sa.Integer()),
        sa.Column("result", sa.Text()),
        sa.Column("input_tokens", sa.BigInteger()),
        sa.Column("output_tokens", sa.BigInteger()),
        sa.Column("cost_micros", sa.BigInteger()),
        sa.PrimaryKeyConstraint("item_id", "fence"),
    )


def _events_providers_workers() -> None:
    op.create_table(
        "events",
        sa.Column("id", BIG, primary_key=True, autoincrement=True),
        sa.Column("subject", sa.Text(), nullable=False),  # item:ID, job:ID or provider:NAME
        sa.Column("at", sa.BigInteger(), nullable=False),
        sa.Column("act", sa.Text(), nullable=False),
        sa.Column("detail", sa.Text()),
    )
    op.create_index("ix_events_subject", "events", ["subject", "id"])
    op.create_table(
        "providers",
        sa.Column("name", sa.Text(), primary_key=True),
        sa.Column("state", sa.Text(), nullable=False),
        sa.Column("since_at", sa.BigInteger(), nullable=False),
        sa.Column("until_at", sa.BigInteger()),
        sa.Column("reason", sa.Text(), nullable=False, server_default=""),
        sa.Column("calls", sa.Text(), nullable=False, server_default="[]"),
        _count("probe_until"),
        sa.CheckConstraint("state IN ('closed', 'open', 'half_open', 'held')", name="ck_providers_state"),
    )
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), primary_key=True),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("handlers", sa.Text(), nullable=False),
        sa.Column("started_at", sa.BigInteger(), nullable=False),
        sa.Column("seen_at", sa.BigInteger(), nullable=False),
        sa.Column("stopped_at", sa.BigInteger()),
    )


def downgrade() -> None:
    for table in ("workers", "providers", "events", "attempts", "requests", "items", "jobs"):
        op.drop_table(table)
