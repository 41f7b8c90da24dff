"""What SQLite needs so that one file is a ledger: for its owner alone, synced at every commit, and open to many writers
of which each gets its turn (A6).

It belongs on a local file system: over a network its locks and syncs cannot be relied on. Knows no table and decides
nothing about the record.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError

from executor.ledger.ledger import LedgerUnavailable

_ASK_AGAIN_S = (0.002, 0.012)
"""The steps in which a writer asks SQLite for the write lock; a transaction takes about as long."""
_CHANCE = secrets.SystemRandom()

_OVER_A_NETWORK = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "afs",
        "ceph",
        "glusterfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "9p",
        "virtiofs",
    }
)
"""Kinds of file systems, as Linux names them, whose locks or syncs another machine answers for."""

_MOUNTS = Path("/proc/self/mounts")


def engine(url: URL, *, lock_timeout_s: float) -> Engine:
    """An engine whose every commit is synced, and whose writers wait for each other for so long and no longer."""
    made = create_engine(url, connect_args={"timeout": lock_timeout_s})

    def begin(connection: Connection) -> None:
        # IMMEDIATE takes the write lock at once: a reader that turns writer later may find that the world moved on.
        if not connection.get_execution_options().get("ledger_writes"):
            connection.exec_driver_sql("BEGIN")
        elif not _begun_in_turn(connection.connection.dbapi_connection, lock_timeout_s):
            connection.exec_driver_sql("BEGIN IMMEDIATE")  # once more, for its error

    event.listen(made, "connect", _prepare)
    event.listen(made, "begin", begin)
    return made


def _prepare(connection: Any, record: object) -> None:
    connection.isolation_level = None  # BEGIN is ours to say: the driver's own comes too late, and never IMMEDIATE
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA foreign_keys = ON")


def _begun_in_turn(connection: Any, lock_timeout_s: float) -> bool:
    """Wait for the write lock; false when it was not to be had in time. SQLite's own waiting sleeps the longer the
    longer it has waited, so that whoever comes last is served first: of 32 writers the unlucky ones waited for 20 s
    where all of them were served in 29 s. Asking in short steps of random length gives each the same chance."""
    give_up = time.monotonic() + lock_timeout_s
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return True
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= give_up:
                    return False
            time.sleep(_CHANCE.uniform(*_ASK_AGAIN_S))
    finally:
        connection.execute(f"PRAGMA busy_timeout = {round(lock_timeout_s * 1000)}")


def file_of(url: URL) -> Path:
    """Raises `LedgerUnavailable` for a database that is no file."""
    if not url.database or url.database == ":memory:" or url.database.startswith("file:"):
        raise LedgerUnavailable("a ledger needs a file: one in memory would forget what was sent.")
    return Path(url.database)


def which(path: Path) -> tuple[int, int] | None:
    """Device and inode of a file; None when there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


@contextmanager
def opening(path: Path) -> Iterator[None]:
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


def advice(error: DBAPIError) -> str | None:
    """What to do about it, where SQLite's code says more than that it failed."""
    code = getattr(error.orig, "sqlite_errorcode", None)
    if code is None or code & 0xFF != sqlite3.SQLITE_BUSY:
        return None
    return (
        "Another process has held the ledger for too long. One that is stopped in the middle of a write (Ctrl-Z, a "
        "debugger, a frozen container) does so until it goes on or is ended."
    )


def durability_problems(file: Path) -> tuple[str, ...]:
    """Why a file may forget what it reported, a sentence each."""
    kind = _file_system_of(file)
    if kind not in _OVER_A_NETWORK:
        return ()
    return (
        f"{file} is on a file system of the kind {kind}: over a network neither locks nor syncs can be relied on. "
        "Put it on a local disk, or use PostgreSQL.",
    )


def _file_system_of(path: Path) -> str | None:
    """The kind of file system that a path is on, as Linux names it; None where that cannot be told."""
    place = path.resolve()
    found: tuple[int, str] | None = None
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return None
    for line in lines:
        _, point, kind, *_ = line.split(" ")
        mounted = Path(point.replace("\\040", " "))
        if place.is_relative_to(mounted) and (found is None or len(mounted.parts) >= found[0]):
            found = len(mounted.parts), kind
    return found[1] if found else None
