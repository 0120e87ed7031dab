"""Alembic's entry: runs the history over a connection that `store.databases.schema` has already opened."""

from alembic import context

context.configure(
    connection=context.config.attributes["connection"], target_metadata=None, transaction_per_migration=True
)
with context.begin_transaction():
    context.run_migrations()
