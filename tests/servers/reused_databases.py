"""Migrated databases that are emptied and lent again: to empty one is much quicker than to copy a new one."""

import psycopg

from tests.servers.postgres import RunningPostgres, new_name

# Few rows are deleted, because to truncate creates every file anew; many are truncated, so that no bloat is left.
EMPTY = """DO $$
DECLARE found record;
BEGIN
  SET LOCAL session_replication_role = replica;  -- no trigger
  FOR found IN SELECT oid::regclass AS name, pg_relation_size(oid) AS bytes FROM pg_class
    WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND relname <> 'alembic_version' LOOP
    IF found.bytes > 1000000 THEN
      EXECUTE format('TRUNCATE %s CASCADE', found.name);
    ELSIF found.bytes > 0 THEN
      EXECUTE format('DELETE FROM %s', found.name);
    END IF;
  END LOOP;
  PERFORM setval(seqrelid::regclass, seqstart, false) FROM pg_sequence;
END $$"""

DISCONNECT = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid()"""

# Everything that a test may have changed besides rows.
FORM = """SELECT md5(string_agg(part, ' ' ORDER BY part)) FROM (
  SELECT concat_ws('.', 'column', relname, attname, atttypid, attnotnull) AS part
    FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
    WHERE attnum > 0 AND relnamespace = 'public'::regnamespace
  UNION ALL SELECT concat_ws('.', 'class', relname, relkind, reloptions)
    FROM pg_class WHERE relnamespace = 'public'::regnamespace
  UNION ALL SELECT concat_ws('.', 'trigger', tgrelid::regclass, tgname, tgenabled) FROM pg_trigger
  UNION ALL SELECT concat_ws('.', 'constraint', conrelid::regclass, conname) FROM pg_constraint
  UNION ALL SELECT concat_ws('.', 'function', proname, md5(prosrc))
    FROM pg_proc WHERE pronamespace = 'public'::regnamespace
  UNION ALL SELECT concat_ws('.', 'schema', nspname) FROM pg_namespace WHERE nspname NOT LIKE 'pg%'
  UNION ALL SELECT concat_ws('.', 'setting', setconfig)
    FROM pg_db_role_setting JOIN pg_database ON pg_database.oid = setdatabase WHERE datname = current_database()
  UNION ALL SELECT concat_ws('.', 'limit', datconnlimit, datallowconn)
    FROM pg_database WHERE datname = current_database()
  UNION ALL SELECT concat_ws('.', 'version', version_num) FROM alembic_version
) AS parts"""


class ReusedDatabases:
    """The databases of one process. One that a test has changed in its form is dropped.

    Each gets a new name when it comes back, so that what a test left running cannot find it again.
    """

    def __init__(self, postgres: RunningPostgres, template: str) -> None:
        self._postgres = postgres
        self._template = template
        self._free: list[str] = []
        self._form = ""
        self._admin = psycopg.connect(postgres.url(), autocommit=True)

    def lend(self) -> str:
        if self._free:
            return self._free.pop()
        url = self._postgres.create_database(self._template)
        if not self._form:
            with psycopg.connect(url) as connection:
                self._form = form_of(connection)
        return url

    def take_back(self, url: str) -> None:
        try:
            self._free.append(self._renew(url))
        except (psycopg.Error, FormChanged):
            self._postgres.drop_database(url)

    def close(self) -> None:
        self._admin.close()
        for url in self._free:
            self._postgres.drop_database(url)

    def _renew(self, url: str) -> str:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(DISCONNECT)
            if form_of(connection) != self._form:
                raise FormChanged
            connection.execute(EMPTY)
        name = new_name()
        self._admin.execute(f'ALTER DATABASE "{url.rpartition("/")[2]}" RENAME TO "{name}"')
        return self._postgres.url(name)


class FormChanged(Exception):
    """A test has changed more than rows."""


def form_of(connection: psycopg.Connection) -> str:
    row = connection.execute(FORM).fetchone()
    assert row is not None
    return str(row[0])
