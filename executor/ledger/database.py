"""Connections, transactions and what differs between databases. Knows no table but the ledger's one row.

A writing transaction locks that row first, so the writers of all processes follow one another: what a transaction has
read is still true when it commits, on either database, and the order of commits is the order of events. A transaction
takes a few milliseconds and a run takes seconds, so this costs nothing that matters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import URL, BigInteger, Connection, Engine, make_url, select, update
from sqlalchemy.exc import DataError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from executor.ledger import migrations, postgresql, sqlite, tables
from executor.ledger.ids import new_id
from executor.ledger.ledger import CommitUncertain, LedgerError, LedgerUnavailable

BUSY_TIMEOUT_S = 30.0
"""How long a transaction waits for the writers before it. Far above what any queue of them takes."""

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(us: int) -> datetime:
    """A stored time as an aware datetime in UTC."""
    return EPOCH + timedelta(microseconds=us)


def us(when: datetime) -> int:
    """An aware datetime in whole microseconds since the epoch."""
    if when.tzinfo is None:
        raise ValueError(f"{when.isoformat()} has no time zone; give one")
    return (when - EPOCH) // timedelta(microseconds=1)


def rfc3339(when_us: int) -> str:
    """A stored time as text, the only form in which an event's hash covers it."""
    return at(when_us).isoformat(timespec="microseconds").replace("+00:00", "Z")


class now_us(FunctionElement[int]):
    """The database's clock in microseconds since the epoch, at the instant of the statement (rule 6). SQLite's clock
    counts milliseconds."""

    type = BigInteger()
    inherit_cache = True


@compiles(now_us, "sqlite")
def _now_sqlite(element: now_us, compiler: SQLCompiler, **options: Any) -> str:
    # A Julian day in a double is exact to 40 microseconds; SQLite's own resolution is one millisecond.
    return "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"


@compiles(now_us, "postgresql")
def _now_postgresql(element: now_us, compiler: SQLCompiler, **options: Any) -> str:
    # Not now(): that is when the transaction began, which may be long before it got its lock.
    return "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)"


@dataclass(slots=True)
class Transaction:
    """One transaction: its connection, one reading of the database's clock, and the ledger's counters as they will be
    when it commits. Only `history` moves the counters."""

    connection: Connection
    now_us: int
    ledger_id: str
    events: int
    head: str
    writes: bool
    _events_before: int = field(init=False)

    def __post_init__(self) -> None:
        self._events_before = self.events

    @property
    def now(self) -> datetime:
        return at(self.now_us)

    @property
    def appended(self) -> bool:
        return self.events != self._events_before

    def hit_one(self, statement: Any, missed: str) -> None:
        """Run a conditional change that must hit exactly one row; another number undoes the transaction."""
        if (count := self.connection.execute(statement).rowcount) != 1:
            raise LedgerError(f"{missed} ({count} rows fitted, 1 was expected). Nothing was changed.")


class Database:
    """An engine whose transactions keep the ledger's contract."""

    def __init__(self, url: URL) -> None:
        self._url = url
        self._pending = False
        self._opened: tuple[int, int] | None = None
        """Device and inode of the file that was opened; None for a server."""
        if url.get_backend_name() == "sqlite":
            with sqlite.opening(sqlite.file_of(url)):
                self._engine = _engine(url)
                self._open()
                self._opened = sqlite.which(sqlite.file_of(url))
        else:
            self._engine = _engine(url)
            self._open()

    def __str__(self) -> str:
        if self._url.get_backend_name() == "postgresql":
            return postgresql.shown(self._url)
        return self._url.render_as_string(hide_password=True)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """One consistent view of the whole database. After a commit whose result is not known it waits for that
        transaction's end: a server may still be at it when the connection to it is long lost."""
        if self._pending:
            with self._connected(writes=True) as connection:
                self._begun(connection, writes=True)
        with self._connected(writes=False) as connection:
            yield self._begun(connection, writes=False)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """Everything inside is committed when the block ends, or undone when it raises. Raises `CommitUncertain` when
        COMMIT itself fails, `LedgerUnavailable` or `LedgerError` for what fails before. Nothing is tried twice."""
        with self._connected(writes=True) as connection:
            transaction = self._begun(connection, writes=True)
            yield transaction
            if transaction.appended:
                transaction.hit_one(
                    update(tables.ledger)
                    .where(tables.ledger.c.events == transaction._events_before)
                    .values(events=transaction.events, head=transaction.head),
                    "the ledger's counter moved under a transaction that had locked it",
                )
            on_postgresql = connection.dialect.name == "postgresql"
            if on_postgresql:
                postgresql.must_be_open(connection)
            try:
                connection.commit()
            except Exception as error:
                # Whatever COMMIT raises, a driver's error or a lost connection: whether it took effect is not known.
                connection.invalidate()
                raise self._uncertain(_brief(error)) from error
            if on_postgresql and (warning := postgresql.warned(connection)) is not None:
                raise self._uncertain(warning)

    def _uncertain(self, why: str) -> CommitUncertain:
        self._pending = True
        return CommitUncertain(
            f"it is not known whether the last change to {self} was committed ({why}). "
            "Read the operation again before doing anything that rests on it."
        )

    def durability_problems(self) -> tuple[str, ...]:
        """Why what was reported as durable may not be: a sentence each, with what to do; none where all is well. What
        must never be is refused at the opening already."""
        with self._connected(writes=False) as connection:
            if connection.dialect.name == "postgresql":
                return postgresql.durability_problems(connection)
        return sqlite.durability_problems(sqlite.file_of(self._url))

    def close(self) -> None:
        self._engine.dispose()

    @contextmanager
    def _connected(self, *, writes: bool) -> Iterator[Connection]:
        """A connection in a transaction, rolled back unless it was committed; the driver's errors as the ledger's."""
        try:
            with self._engine.connect().execution_options(ledger_writes=writes) as connection:
                if not writes and connection.dialect.name == "postgresql":
                    connection.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
                connection.begin()
                yield connection
        except DataError as error:
            raise ValueError(f"a value cannot be stored ({_brief(error)}). Nothing was changed.") from error
        except DBAPIError as error:
            raise _translated(error, self) from error

    def _begun(self, connection: Connection, *, writes: bool) -> Transaction:
        if writes and self._opened is not None and sqlite.which(sqlite.file_of(self._url)) != self._opened:
            # A commit into a file that nobody will find again is a release that will be forgotten.
            raise LedgerUnavailable(
                f"{self} was removed or replaced while it was open, so nothing was changed. Put the file back, or end "
                "every process that uses it before another one takes its place."
            )
        asked: Any = select(tables.ledger)
        if on_postgresql := connection.dialect.name == "postgresql":
            asked = asked.add_columns(postgresql.of_the_session(writes=writes))
        row = connection.execute(asked.with_for_update() if writes else asked).one_or_none()
        if writes:
            self._pending = False  # every writer holds this row to its end
        if row is None:
            raise LedgerUnavailable(f"{self} has lost the row that names it; restore the ledger from a backup.")
        if on_postgresql and writes:
            postgresql.must_be_durable(row.of_the_session)  # what a session was told does not outlive every pooler
        # A statement of its own: it must be read after the lock was obtained.
        now, schema = connection.execute(select(now_us(), migrations.in_force())).one()
        migrations.must_be_known(schema)
        return Transaction(connection, now, row.id, row.events, row.head, writes)

    def _open(self) -> None:
        try:
            try:
                migrations.upgrade(self._engine)
                self._settle_in()
            except DBAPIError as error:
                raise _translated(error, self) from error
        except BaseException:
            self._engine.dispose()
            raise

    def _settle_in(self) -> None:
        """What a database needs once: write-ahead logging and the row that names the ledger."""
        with self._engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                # Outside a transaction; the mode stays with the file.
                mode = connection.connection.dbapi_connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]  # type: ignore[union-attr]
                if mode != "wal":
                    raise LedgerUnavailable(f"{self} cannot use write-ahead logging here; put it on a local disk.")
            if connection.execute(select(tables.ledger.c.id)).first() is not None:
                return
        with self._engine.connect().execution_options(ledger_writes=True) as connection, connection.begin():
            if connection.dialect.name == "postgresql":
                postgresql.lock_opening(connection)  # there is no row yet that could be locked
            if connection.execute(select(tables.ledger.c.id).with_for_update()).first() is None:
                connection.execute(
                    tables.ledger.insert().values(only_row=1, id=new_id("lg"), created_us=now_us(), events=0, head="")
                )


def resolve(path_or_url: str | Path | URL) -> URL:
    """A file name as the URL of a SQLite database; a URL as it is. Raises `LedgerUnavailable`."""
    if isinstance(path_or_url, Path) or (isinstance(path_or_url, str) and "://" not in path_or_url):
        return URL.create("sqlite", database=str(path_or_url))
    try:
        url = make_url(path_or_url)
    except (SQLAlchemyError, ValueError) as error:  # a port that is no number is a ValueError
        raise LedgerUnavailable("the ledger's address is neither a file name nor a database URL.") from error
    return postgresql.address(url) if url.get_backend_name() == "postgresql" else url


def _engine(url: URL) -> Engine:
    backend = url.get_backend_name()
    try:
        if backend == "sqlite":
            engine = sqlite.engine(url, lock_timeout_s=BUSY_TIMEOUT_S)
        elif backend == "postgresql":
            engine = postgresql.engine(url, lock_timeout_s=BUSY_TIMEOUT_S)
        else:
            raise LedgerUnavailable(f"a ledger cannot be kept in {backend}: use SQLite or PostgreSQL.")
    except (ImportError, NoSuchModuleError) as error:
        raise LedgerUnavailable(f"the driver for {url.drivername} is not installed: {error}.") from error
    return engine


def _translated(error: DBAPIError, database: Database) -> LedgerError:
    specific = postgresql.advice(error) or sqlite.advice(error)
    advice = specific or "Look at whether the database runs, is writable and has room, then try again."
    return LedgerUnavailable(f"{database} did not do what was asked ({_brief(error)}). Nothing was changed. {advice}")


def _brief(error: Exception) -> str:
    """The first line of the driver's own words: SQLAlchemy's would show statement and parameters, PostgreSQL's further
    lines rows, and with them material (A11)."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    return f"{type(cause).__name__}: {''.join(said.splitlines()[:1])}"
