"""backstay_submit finds the job of a key by its values: Python and PostgreSQL write the same JSON differently."""

import sqlalchemy as sa
from alembic import op

from backstay.store.migrations.versions.v0013_submit_function import FUNCTION

revision = "0021"
down_revision = "0020"
branch_labels = None
depends_on = None

# The mark tells a submit in Python that this digest is of texts as PostgreSQL writes them.
CHANGES = (
    ("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"),
    (
        "(element, number);\n    starts_at",
        "(element, number);\n    all_digest := 'jsonb:' || all_digest;\n    starts_at",
    ),
    ("    starts_at bigint;\n", "    starts_at bigint;\n    is_same boolean;\n"),
    (
        "        IF job.digest <> all_digest THEN\n",
        """        is_same := job.digest = all_digest;
        IF NOT is_same AND job.handler = backstay_submit.handler AND job.total = items_total AND job.sealed = 1 THEN
            BEGIN
                SELECT count(*) = items_total INTO is_same
                FROM jsonb_array_elements(payloads) WITH ORDINALITY AS each(element, number)
                JOIN requests ON requests.item_id = (job.id << 28) | (number - 1)
                WHERE CAST(requests.body AS jsonb) = element;
            EXCEPTION WHEN data_exception THEN
                is_same := false;  -- a text with the character 0, which jsonb cannot hold
            END;
        END IF;
        IF NOT is_same THEN
""",
    ),
)


def _function() -> str:
    text = FUNCTION
    for old, new in CHANGES:
        if text.count(old) != 1:
            raise AssertionError(f"backstay_submit has no {old!r}")
        text = text.replace(old, new)
    return text


def upgrade() -> None:
    _create(_function())


def downgrade() -> None:
    _create(FUNCTION.replace("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))


def _create(function: str) -> None:
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        schema = bind.scalar(sa.text("SELECT quote_ident(current_schema())"))
        bind.exec_driver_sql(function.format(schema=schema))
