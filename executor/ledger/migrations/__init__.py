"""Brings a database to the schema that this program knows, and refuses one that it does not know.

A revision is written once and never changed afterwards; `tools/freeze_ledger.py` keeps a ledger of it for the tests.
Nothing here may lose a row: a revision that would is a defect.
alembic is loaded only when there is something to do, since most openings find the schema as it should be.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, ScalarSelect, inspect, select
from sqlalchemy.sql import column, table

from executor.ledger.ledger import LedgerUnavailable, SchemaTooNew
from executor.ledger.postgresql import lock_opening

KNOWN = ("0001",)
"""Every revision that this program can bring forward, in order."""

SCHEMA = KNOWN[-1]
"""The revision that the tables of this program describe."""

_LEDGER = table("ledger", column("only_row"))
_VERSIONS = table("alembic_version", column("version_num"))

_PLACE = Path(__file__).parent


def upgrade(engine: Engine) -> bool:
    """Create or migrate the schema, in one transaction under a lock; true when something was done. Safe to call from
    several processes at once.

    Raises `SchemaTooNew` for a revision that this program does not know and `LedgerUnavailable` for a database that
    belongs to something else; either is left as it was.
    """
    with engine.connect() as connection, connection.begin():
        if _revision(connection) == SCHEMA:
            return False
    with engine.connect().execution_options(ledger_writes=True) as connection, connection.begin():
        if connection.dialect.name == "postgresql":
            lock_opening(connection)
        found = _revision(connection)
        if found == SCHEMA:  # another process was faster
            return False
        if found is not None:
            # As every writer does: what an older program has begun comes before, what it begins then is refused.
            connection.execute(select(_LEDGER.c.only_row).with_for_update())
        _migrate(connection)
    return True


def in_force() -> ScalarSelect[str]:
    """A column that says which revision the database has in the transaction that asks."""
    return select(_VERSIONS.c.version_num).scalar_subquery()


def must_be_known(found: str | None) -> None:
    """Raises `SchemaTooNew` when somebody migrated the database while this program had it open."""
    if found != SCHEMA:
        raise SchemaTooNew(
            f"the ledger's schema has become {found} while this process had it open, and this program knows {SCHEMA}. "
            "End this process and use the newer version. Nothing was changed."
        )


def _revision(connection: Connection) -> str | None:
    """The database's revision, None when it is empty. Raises when it is not for this program to touch."""
    names = set(inspect(connection).get_table_names())
    if not names:
        return None
    if _VERSIONS.name not in names or "ledger" not in names:
        raise LedgerUnavailable(
            "the database holds tables that are not a ledger's. Name another file or database for the ledger; "
            "nothing was changed."
        )
    found = connection.execute(select(_VERSIONS.c.version_num)).scalars().all()
    if len(found) != 1 or found[0] not in KNOWN:
        raise SchemaTooNew(
            f"the ledger's schema is {', '.join(found) or 'unnamed'}, and this program knows {SCHEMA}. It was written "
            "by a newer version: use that version. Nothing was changed."
        )
    return str(found[0])


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(_PLACE).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, SCHEMA)
