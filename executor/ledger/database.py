"""Connections, transactions and what differs between databases. Knows no table but the ledger's one row.

A writing transaction locks that row first, so the writers of all processes follow one another: what a transaction has
read is still true when it commits, on either database, and the order of commits is the order of events. A transaction
takes a few milliseconds and a run takes seconds, so this costs nothing that matters.

SQLite belongs on a local file system: over a network its locks and syncs cannot be relied on, and nothing here
can tell.
"""

from __future__ import annotations

import fcntl
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import URL, BigInteger, Connection, Engine, create_engine, event, make_url, select, update
from sqlalchemy.exc import DataError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from executor.ledger import migrations, postgresql, tables
from executor.ledger.ids import new_id
from executor.ledger.ledger import CommitUncertain, LedgerError, LedgerUnavailable

BUSY_TIMEOUT_S = 30.0
"""How long a transaction waits for the writers before it. Far above what any queue of them takes."""

_ASK_AGAIN_S = (0.002, 0.012)
"""The steps in which a writer asks SQLite for the write lock; a transaction takes about as long."""

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
            with _opening(_file_of(url)):
                self._engine = _engine(url)
                self._open()
                self._opened = _which(_file_of(url))
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
        if writes and self._opened is not None and _which(_file_of(self._url)) != self._opened:
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
        now = connection.execute(select(now_us())).scalar_one()
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


def _file_of(url: URL) -> Path:
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise LedgerUnavailable("a ledger needs a file: one in memory would forget what was sent.")
    return Path(url.database)


def _which(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None when there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def _opening(path: Path) -> Iterator[None]:
    """Create the file for its owner alone, and let one process at a time open it: switching on write-ahead logging
    does not wait for others as statements do."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        lock = os.open(path.with_name(path.name + ".opening"), os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise LedgerUnavailable(
            f"the ledger {path} cannot be opened: {error.strerror}. Check the folder and its permissions."
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _engine(url: URL) -> Engine:
    backend = url.get_backend_name()
    try:
        if backend == "sqlite":
            engine = create_engine(url, connect_args={"timeout": BUSY_TIMEOUT_S})
        elif backend == "postgresql":
            engine = postgresql.engine(url, lock_timeout_s=BUSY_TIMEOUT_S)
        else:
            raise LedgerUnavailable(f"a ledger cannot be kept in {backend}: use SQLite or PostgreSQL.")
    except (ImportError, NoSuchModuleError) as error:
        raise LedgerUnavailable(f"the driver for {url.drivername} is not installed: {error}.") from error
    if backend == "sqlite":
        event.listen(engine, "connect", _prepare_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
    return engine


def _prepare_sqlite(connection: Any, record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours to say: the driver's own comes too late, and never IMMEDIATE
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begin_sqlite(connection: Connection) -> None:
    # IMMEDIATE takes the write lock at once: a reader that turns writer later may find that the world moved on.
    if not connection.get_execution_options().get("ledger_writes"):
        connection.exec_driver_sql("BEGIN")
    elif not _begun_in_turn(connection.connection.dbapi_connection):
        connection.exec_driver_sql("BEGIN IMMEDIATE")  # once more, for its error


def _begun_in_turn(connection: Any) -> bool:
    """Wait for the write lock; false when it was not to be had in time. SQLite's own waiting sleeps the longer the
    longer it has waited, so that whoever comes last is served first: of 32 writers the unlucky ones waited for 20 s
    where all of them were served in 29 s. Asking in short steps of random length gives each the same chance."""
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return True
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up:
                    return False
            time.sleep(random.uniform(*_ASK_AGAIN_S))
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(BUSY_TIMEOUT_S * 1000)}")


def _translated(error: DBAPIError, database: Database) -> LedgerError:
    advice = postgresql.advice(error) or "Look at whether the database runs, is writable and has room, then try again."
    return LedgerUnavailable(f"{database} did not do what was asked ({_brief(error)}). Nothing was changed. {advice}")


def _brief(error: Exception) -> str:
    """The first line of the driver's own words: SQLAlchemy's would show statement and parameters, PostgreSQL's further
    lines rows, and with them material (A11)."""
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    said = getattr(getattr(cause, "diag", None), "message_primary", None) or str(cause)
    return f"{type(cause).__name__}: {''.join(said.splitlines()[:1])}"
