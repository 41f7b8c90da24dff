"""What PostgreSQL needs so that a commit that was reported is durable, and no wait is without end (A6).

A connection is refused unless the server is new enough, may be written, syncs, and answers a commit only when it is
durable; every session then pins that for itself and bounds its waits. Knows no table and decides nothing about the
record. psycopg is loaded by the dialect, when there is a PostgreSQL to talk to.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import URL, Connection, Engine, Label, create_engine, event, func, true
from sqlalchemy.exc import DBAPIError

from executor.ledger.ledger import LedgerError, LedgerUnavailable

OLDEST_VERSION = 15
"""The oldest major version that the contract suite is run on."""

DURABLE = ("on", "remote_apply")
"""The values of `synchronous_commit` under which COMMIT returns after the flush to disk, here and on the synchronous
standbys if there are any. `off` may lose what was reported; `local` and `remote_write` may lose it in a failover."""

STATEMENT_TIMEOUT_S = 120.0
"""How long one statement may take. Far above any of them; the end of waiting for a server that is stuck."""

IDLE_TIMEOUT_S = 15.0
"""How long a transaction may do nothing before the server undoes it. A paused process would else hold the ledger's row,
and with it every other process, for as long as it sleeps. Shorter than others wait for the row."""

_LOCK = 0x1E7E_10C4
"""Number of the advisory lock; any fixed one does."""

_CONNECT: dict[str, str | int] = {
    "application_name": "interlock",
    "client_encoding": "utf8",
    "connect_timeout": 10,
    # A peer that is gone is noticed within half a minute, during a COMMIT too.
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
    # Of several hosts the one that may be written: never a standby, whose record is older than the truth.
    "target_session_attrs": "read-write",
}
"""libpq's parameters, where the address does not give them."""

_ADVICE = {
    "55P03": "Another transaction has held the ledger for too long: `pg_stat_activity` shows whose.",
    "57014": "The statement took too long or was cancelled by somebody; try again.",
    "40001": "The database undid it in favour of another transaction; try again.",
    "40P01": "The database undid it in favour of another transaction; try again.",
    "25006": "The server does not take writes; name the one that does.",
}
"""By SQLSTATE: what a person looks at."""


def address(url: URL) -> URL:
    """The address with the driver that is used. Raises `LedgerUnavailable` when it names another one."""
    if url.drivername not in ("postgresql", "postgresql+psycopg"):
        raise LedgerUnavailable(
            f"the ledger talks to PostgreSQL by psycopg: write postgresql://, not {url.drivername}."
        )
    return url.set(drivername="postgresql+psycopg")


def shown(url: URL) -> str:
    """The address for people. The part after `?` can hold a password, so it is left out."""
    return url.set(drivername="postgresql", query={}).render_as_string(hide_password=True)


def engine(url: URL, *, lock_timeout_s: float) -> Engine:
    """An engine whose every session is checked and bounded. A connection that died between two transactions is replaced
    before the next one begins; nothing is ever done a second time."""
    # Not left to the server's default: above READ COMMITTED a writer that waited for the ledger's row is undone.
    made = create_engine(
        url,
        pool_pre_ping=True,
        isolation_level="READ COMMITTED",
        connect_args={name: value for name, value in _CONNECT.items() if name not in url.query},
    )

    def prepare(connection: Any, record: Any) -> None:
        try:
            _bound(connection, _checked(connection), lock_timeout_s)
        except BaseException:
            connection.close()
            raise
        warnings: list[str] = []
        record.info["warnings"] = warnings

        def hear(diagnostic: Any) -> None:
            if diagnostic.severity_nonlocalized == "WARNING":
                warnings.append(diagnostic.message_primary or "")

        connection.add_notice_handler(hear)

    event.listen(made, "connect", prepare)
    return made


def _checked(connection: Any) -> str:
    """The session's `synchronous_commit`. Raises `LedgerUnavailable` for a server that no release can rest on."""
    if (version := connection.info.server_version // 10_000) < OLDEST_VERSION:
        raise LedgerUnavailable(f"the server is PostgreSQL {version}; a ledger needs {OLDEST_VERSION} or later.")
    durability, fsync, encoding, follows, read_only = connection.execute(
        "SELECT current_setting('synchronous_commit'), current_setting('fsync'), current_setting('server_encoding'), "
        "pg_is_in_recovery(), current_setting('default_transaction_read_only')"
    ).fetchone()
    if follows:
        raise LedgerUnavailable(
            "the server follows another one (it is a standby, or still recovers), so it takes no writes and may be "
            "behind. Name the one that takes writes; nothing was changed."
        )
    if read_only != "off":
        raise LedgerUnavailable(
            "the server takes no writes from this role (default_transaction_read_only is on). Use a role that may "
            "write; nothing was changed."
        )
    must_be_durable(durability)
    if fsync != "on":
        raise LedgerUnavailable(
            "the server does not sync to its disk (fsync is off), so a power loss would take releases back. "
            "Set fsync = on in postgresql.conf and reload it."
        )
    if encoding != "UTF8":
        raise LedgerUnavailable(
            f"the database's encoding is {encoding}, which does not hold every text. Create it with ENCODING 'UTF8'."
        )
    return str(durability)


def durability_problems(connection: Connection) -> tuple[str, ...]:
    """What may make a server forget or garble what it reported, beyond what an opening refuses: a sentence each, with
    what to do."""
    full_pages, standbys, waited_for = connection.exec_driver_sql(
        "SELECT current_setting('full_page_writes'), (SELECT count(*) FROM pg_stat_replication), "
        "current_setting('synchronous_standby_names')"
    ).one()
    found = []
    if full_pages != "on":
        found.append(
            "full_page_writes is off: a power loss in the middle of a page can leave the ledger unreadable. "
            "Set it to on, unless the file system writes whole pages at once."
        )
    if standbys and not waited_for:
        found.append(
            f"{standbys} standby(s) follow the server and no commit waits for them (synchronous_standby_names is "
            "empty): one that takes over may have forgotten releases. Name the one that may take over."
        )
    return tuple(found)


def must_be_durable(synchronous_commit: str) -> None:
    """Raises `LedgerUnavailable` when a commit is reported before it is durable."""
    if synchronous_commit not in DURABLE:
        raise LedgerUnavailable(
            f"the database reports a commit before it is durable (synchronous_commit is {synchronous_commit}), so a "
            "release could be forgotten. Set it for the ledger's role (ALTER ROLE ... SET synchronous_commit = on) and "
            "put no pooler of transactions between. Nothing was changed."
        )


def _bound(connection: Any, durability: str, lock_timeout_s: float) -> None:
    """The session's own settings: a reload of the server's configuration then changes none of them."""
    own = {
        "synchronous_commit": durability,
        "lock_timeout": _ms(lock_timeout_s),
        "statement_timeout": _ms(STATEMENT_TIMEOUT_S),
        "idle_in_transaction_session_timeout": _ms(IDLE_TIMEOUT_S),
    }
    connection.execute("SELECT " + ", ".join(f"set_config('{name}', %({name})s, false)" for name in own), own)
    connection.commit()


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def lock_opening(connection: Connection) -> None:
    """One transaction at a time creates, migrates or names a ledger; it may take as long as it needs."""
    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_LOCK})")
    connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
    connection.exec_driver_sql("SET LOCAL idle_in_transaction_session_timeout = 0")


def of_the_session(*, writes: bool) -> Label[str]:
    """A column for the first statement of a transaction. Of a writer it is the session's durability; a reader holds
    nothing that others wait for, so it may take its time between statements."""
    said = (
        func.current_setting("synchronous_commit")
        if writes
        else func.set_config("idle_in_transaction_session_timeout", "0", true())
    )
    return said.label("of_the_session")


def must_be_open(connection: Connection) -> None:
    """Raises `LedgerError` for a transaction that has failed: the server would answer its COMMIT by undoing it, without
    calling that an error."""
    status = connection.connection.dbapi_connection.info.transaction_status.name  # type: ignore[union-attr]
    if status == "INERROR":
        raise LedgerError("the transaction had failed before its commit. Nothing was changed.")
    connection.info["warnings"].clear()


def warned(connection: Connection) -> str | None:
    """What the server remarked about a COMMIT that it then reported as done. It does so when the wait for a synchronous
    standby was cancelled: the change is durable there alone, and the next failover may undo it."""
    return "; ".join(connection.info["warnings"]) or None


def advice(error: DBAPIError) -> str | None:
    """What to do about it, where the server's code says more than that it failed."""
    return _ADVICE.get(getattr(error.orig, "sqlstate", None) or "")
