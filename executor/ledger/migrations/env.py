"""What alembic runs for every command: the caller's own connection and transaction, no configuration file."""

from __future__ import annotations

from alembic import context

from executor.ledger.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
with context.begin_transaction():
    context.run_migrations()
