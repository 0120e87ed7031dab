"""backstay_submit: programs in other languages submit jobs with plain SQL, inside a transaction of their own."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

SIGNATURE = "backstay_submit(text, jsonb, text, text, integer, double precision)"

# Does what `submit_few` does, for up to 10,000 payloads. Its tables are those of the schema that it is made in,
# whatever the caller's search_path is. A column's name wins over a parameter's, which is written with the function's
# name.
FUNCTION = """CREATE FUNCTION backstay_submit(
    handler text, payloads jsonb, owner text DEFAULT 'local', idempotency_key text DEFAULT NULL,
    priority integer DEFAULT 0, deadline_seconds double precision DEFAULT NULL
) RETURNS bigint LANGUAGE plpgsql SET search_path = {schema}, pg_temp AS $$
#variable_conflict use_column
DECLARE
    this_ms CONSTANT bigint := CAST(extract(epoch FROM statement_timestamp()) * 1000 AS bigint);
    items_total bigint;
    all_digest text;
    starts_at bigint;
    job jobs%ROWTYPE;
BEGIN
    IF coalesce(backstay_submit.handler, '') = '' OR coalesce(backstay_submit.owner, '') = '' THEN
        RAISE EXCEPTION 'handler and owner must not be empty' USING ERRCODE = '22023';
    ELSIF jsonb_typeof(payloads) IS DISTINCT FROM 'array' THEN
        RAISE EXCEPTION 'payloads must be a JSON array, one element for each item' USING ERRCODE = '22023';
    ELSIF jsonb_array_length(payloads) NOT BETWEEN 1 AND 10000 THEN
        RAISE EXCEPTION 'payloads must have 1 to 10000 elements, not %', jsonb_array_length(payloads)
            USING ERRCODE = '22023', HINT = 'submit several jobs';
    ELSIF backstay_submit.priority IS NULL OR backstay_submit.priority NOT BETWEEN 0 AND 9 THEN
        RAISE EXCEPTION 'priority must be from 0 to 9' USING ERRCODE = '22023';
    ELSIF NOT (deadline_seconds > 0 AND deadline_seconds <= 366 * 86400) THEN
        RAISE EXCEPTION 'deadline_seconds must be above 0, and at most 366 days' USING ERRCODE = '22023';
    ELSIF length(backstay_submit.idempotency_key) NOT BETWEEN 1 AND 255
            OR backstay_submit.idempotency_key ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'idempotency_key must have 1 to 255 printable characters' USING ERRCODE = '22023';
    END IF;
    SELECT count(*), encode(sha256(convert_to(
        backstay_submit.handler || string_agg(CAST(element AS text) || E'\\n', '' ORDER BY number), 'UTF8')), 'hex')
    INTO items_total, all_digest FROM jsonb_array_elements(payloads) WITH ORDINALITY AS each(element, number);
    starts_at := CAST(9 - backstay_submit.priority AS bigint) << 52;
    INSERT INTO jobs (owner, handler, state, priority, ref_seed, idempotency_key, total, digest, sealed, created_at,
                      timeout_ms, timeout_at, deadline_at, level_key, first_key, last_key)
    SELECT backstay_submit.owner, backstay_submit.handler, 'queued', backstay_submit.priority,
           left(replace(CAST(gen_random_uuid() AS text), '-', ''), 16), backstay_submit.idempotency_key, items_total,
           all_digest, 1, this_ms, 172800000, this_ms + 172800000, this_ms + CAST(deadline_seconds * 1000 AS bigint),
           starts_at, turn.first_key, turn.first_key + items_total
    FROM (SELECT coalesce((SELECT served_key FROM turns
                           WHERE turns.handler = backstay_submit.handler AND turns.level_key = starts_at), starts_at)
          AS first_key) AS turn
    ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING * INTO job;
    IF job.id IS NULL THEN
        SELECT * INTO STRICT job FROM jobs
        WHERE jobs.owner = backstay_submit.owner AND jobs.idempotency_key = backstay_submit.idempotency_key;
        IF job.digest <> all_digest THEN
            RAISE EXCEPTION 'this idempotency key belongs to job %, which has different items', job.id
                USING ERRCODE = '23505', HINT = 'send the same payloads again, or use a new key';
        END IF;
        RETURN job.id;
    END IF;
    INSERT INTO items (id, job_id, handler, state, order_key, created_at, queued_at, deadline_at)
    SELECT (job.id << 28) | position, job.id, job.handler, 'queued', job.first_key + position, this_ms, this_ms,
           job.deadline_at
    FROM generate_series(0, items_total - 1) AS each(position);
    INSERT INTO requests (item_id, body)
    SELECT (job.id << 28) | (number - 1), CAST(element AS text)
    FROM jsonb_array_elements(payloads) WITH ORDINALITY AS each(element, number);
    INSERT INTO outbox (owner, aggregate_type, aggregate_id, message_type, payload, created_at, due_at, sink)
    SELECT job.owner, 'items', CAST((job.id << 28) | position AS text), 'work.ready',
           CAST(jsonb_build_object('handler', job.handler, 'priority', job.priority, 'first',
                (job.id << 28) | position, 'count', least(50, items_total - position)) AS text),
           this_ms, this_ms, 'work'
    FROM generate_series(0, items_total - 1, 50) AS each(position)
    WHERE EXISTS (SELECT 1 FROM sinks WHERE sinks.name = 'work');
    PERFORM pg_notify('backstay_wake', '');
    RETURN job.id;
END $$"""


def upgrade() -> None:
    bind = op.get_bind()
    if bind.dialect.name == "postgresql":
        schema = bind.scalar(sa.text("SELECT quote_ident(current_schema())"))
        bind.exec_driver_sql(FUNCTION.format(schema=schema))


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        op.execute(f"DROP FUNCTION {SIGNATURE}")
