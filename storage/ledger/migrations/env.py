"""Alembic's entry: migrates the connection that `storage.ledger` hands over."""

from alembic import context

from storage.ledger.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
