"""What only PostgreSQL has: durability that can be switched off, sessions that end, waits for a standby, servers that
restart in the middle of a commit (A5, A6). The contract itself is in the other files, for every backend."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from ledger_kit import EXECUTOR, Book, from_outside
from postgresql_server import Server
from sqlalchemy import Connection, Engine, event, select, text, update
from sqlalchemy.exc import DBAPIError

from executor.ledger import tables
from executor.ledger.ledger import CommitUncertain, LedgerError, LedgerUnavailable, SchemaTooNew
from executor.ledger.sql import open_ledger
from executor.model.admission import Refusal, Refused
from executor.model.operation import Attempt, Operation


@pytest.fixture
def url(server: Server) -> str:
    return server.empty_database()


@pytest.fixture
def aside() -> Iterator[ThreadPoolExecutor]:
    """Where a call is made while somebody interferes with it."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@contextmanager
def listening(name: str, listener: Callable[..., None]) -> Iterator[None]:
    event.listen(Engine, name, listener)
    try:
        yield
    finally:
        event.remove(Engine, name, listener)


@contextmanager
def role_with(server: Server, name: str, value: str) -> Iterator[None]:
    server.execute(f"ALTER ROLE interlock SET {name} = {value}")
    try:
        yield
    finally:
        server.execute(f"ALTER ROLE interlock RESET {name}")


def past(connection: Connection) -> Any:
    """The driver's own connection: what goes through it no listener hears."""
    return connection.connection.dbapi_connection


# -- opening -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("value", ["off", "local", "remote_write"])
def test_a_database_that_reports_before_it_is_durable_is_refused(server: Server, url: str, value: str) -> None:
    with (
        role_with(server, "synchronous_commit", value),
        pytest.raises(LedgerUnavailable, match=rf"synchronous_commit is {value}.*ALTER ROLE"),
    ):
        open_ledger(url)
    assert server.execute("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'", "ledger") == [(0,)]


@pytest.mark.parametrize("value", ["on", "remote_apply"])
def test_a_session_keeps_its_durability_and_its_limits(server: Server, url: str, value: str) -> None:
    seen: dict[str, str] = {}
    names = (
        "synchronous_commit",
        "lock_timeout",
        "statement_timeout",
        "idle_in_transaction_session_timeout",
        "transaction_isolation",
    )

    def look(connection: Connection) -> None:
        seen.update({name: past(connection).execute(f"SHOW {name}").fetchone()[0] for name in names})

    with (
        role_with(server, "synchronous_commit", value),
        role_with(server, "default_transaction_isolation", "serializable"),
    ):
        book = Book(open_ledger(url))
    server.reload(synchronous_commit="off")  # the session has its own by now
    with listening("commit", look):
        book.proposed()
    server.reload(synchronous_commit="")
    book.ledger.close_connections()
    assert seen == dict(zip(names, (value, "30s", "2min", "15s", "read committed"), strict=True))


def test_a_session_that_was_told_otherwise_since_writes_nothing(book: Book) -> None:
    """As behind a pooler that gives one session to several clients."""
    operation = book.proposed()

    def weaken(connection: Connection) -> None:
        past(connection).execute("SET synchronous_commit = off")

    with listening("begin", weaken), pytest.raises(LedgerUnavailable, match="synchronous_commit is off"):
        book.approve(operation)
    assert book.ledger.operation(operation.id) == operation


def test_a_server_that_does_not_sync_is_refused(server: Server, url: str) -> None:
    server.reload(fsync="off")
    try:
        with pytest.raises(LedgerUnavailable, match="fsync is off"):
            open_ledger(url)
    finally:
        server.reload(fsync="on")


def test_a_server_that_takes_no_writes_is_refused(server: Server, url: str) -> None:
    with (
        role_with(server, "default_transaction_read_only", "on"),
        pytest.raises(LedgerUnavailable, match="read-only"),
    ):
        open_ledger(url)


def test_a_database_that_does_not_hold_every_text_is_refused(server: Server, url: str) -> None:
    server.execute("CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1'")
    try:
        with pytest.raises(LedgerUnavailable, match="LATIN1"):
            open_ledger(server.url(database="latin"))
    finally:
        server.execute("DROP DATABASE latin")


def test_an_older_server_is_refused(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.ledger.postgresql.OLDEST_VERSION", 99)
    with pytest.raises(LedgerUnavailable, match="needs 99"):
        open_ledger(url)


@pytest.mark.parametrize("driver", ["psycopg2", "asyncpg", "pg8000"])
def test_another_driver_is_named_in_the_refusal(driver: str) -> None:
    with pytest.raises(LedgerUnavailable, match=driver):
        open_ledger(f"postgresql+{driver}://host/ledger")


def test_either_spelling_of_the_address_is_the_same_ledger(url: str) -> None:
    first = open_ledger(url)
    second = open_ledger(url.replace("postgresql://", "postgresql+psycopg://"))
    assert first.identity() == second.identity()
    first.close_connections()
    second.close_connections()


def test_no_password_is_shown() -> None:
    with pytest.raises(LedgerUnavailable) as raised:
        open_ledger("postgresql://ann:secret1@127.0.0.1:1/ledger?sslpassword=secret2")
    assert "127.0.0.1:1/ledger" in str(raised.value)
    assert "secret" not in str(raised.value)


def test_a_newer_schema_and_somebody_elses_database_are_left_as_they_are(server: Server, url: str) -> None:
    server.execute("CREATE TABLE bookmarks (url text)", "ledger")
    with pytest.raises(LedgerUnavailable, match="not a ledger"):
        open_ledger(url)
    server.execute("DROP TABLE bookmarks", "ledger")
    open_ledger(url).close_connections()
    server.execute("UPDATE alembic_version SET version_num = '0099'", "ledger")
    with pytest.raises(SchemaTooNew, match="0099"):
        open_ledger(url)
    assert server.execute("SELECT version_num FROM alembic_version", "ledger") == [("0099",)]


# -- before the commit -------------------------------------------------------------------------------------------------
def test_a_session_that_ends_before_the_commit_has_changed_nothing_and_nothing_is_repeated(
    server: Server, book: Book
) -> None:
    operation = book.proposed()
    begun: list[bool] = []

    def count(connection: Connection) -> None:
        begun.append(connection.get_execution_options()["ledger_writes"])

    def end(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        if statement.startswith("INSERT INTO events"):
            server.end_sessions()

    with (
        listening("begin", count),
        listening("before_cursor_execute", end),
        pytest.raises(LedgerUnavailable, match="Nothing was changed"),
    ):
        book.approve(operation)
    assert begun == [True]
    assert book.ledger.operation(operation.id) == operation
    book.approve(operation)
    assert book.kinds(operation) == ["proposed", "approved"]
    book.sound()


def test_a_deadlock_undoes_the_write_and_is_not_tried_again(url: str, book: Book, aside: ThreadPoolExecutor) -> None:
    operation = book.approved()
    lease = book.lease(operation)
    before = book.ledger.operation(operation.id), book.ledger.identity()
    with from_outside(url) as engine, engine.connect() as other:
        other.execute(text("SET deadlock_timeout = '1h'"))  # whoever looks for a deadlock is the one who gives way
        other.execute(update(tables.accounts).values(holder="somebody else"))
        renewal = aside.submit(book.ledger.renew, lease, ttl_s=900)
        while not other.execute(text("SELECT 1 FROM pg_locks WHERE NOT granted")).first():
            pass
        other.execute(select(tables.ledger).with_for_update())  # held by the renewal until it gives way
        with pytest.raises(LedgerUnavailable, match=r"deadlock.*Nothing was changed"):
            renewal.result(timeout=60)
        other.rollback()
    assert (book.ledger.operation(operation.id), book.ledger.identity()) == before
    assert book.ledger.renew(lease, ttl_s=900).token == lease.token


def test_a_process_that_sleeps_in_a_transaction_holds_nobody_up(
    url: str, book: Book, aside: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = book.proposed()
    monkeypatch.setattr("executor.ledger.postgresql.IDLE_TIMEOUT_S", 0.2)
    sleeper, asleep, wake = Book(open_ledger(url)), threading.Event(), threading.Event()

    def sleep(connection: Connection, cursor: object, statement: str, *rest: object) -> None:
        if statement.startswith("INSERT INTO events") and not asleep.is_set():
            asleep.set()
            wake.wait(60)

    with listening("before_cursor_execute", sleep):
        approving = aside.submit(sleeper.approve, operation)
        assert asleep.wait(60)
        book.approve(operation)
        wake.set()
        with pytest.raises(LedgerUnavailable, match="Nothing was changed"):
            approving.result(timeout=60)
    assert book.kinds(operation) == ["proposed", "approved"]
    sleeper.ledger.close_connections()
    book.sound()


def test_looking_may_take_its_time(book: Book) -> None:
    """It holds nothing that others wait for; the check of a long history thinks between two statements."""
    with book.ledger._database.reading() as tx:
        said = tx.connection.exec_driver_sql("SHOW idle_in_transaction_session_timeout").scalar_one()
    assert said == "0"
    assert book.proposed()


def test_a_transaction_that_failed_is_not_committed(book: Book) -> None:
    """The server would undo it and call its COMMIT done."""
    with (
        pytest.raises(LedgerError, match="failed before its commit"),
        book.ledger._database.writing() as tx,
        suppress(DBAPIError),
    ):
        tx.connection.exec_driver_sql("SELECT 1 / 0")
    assert book.proposed()


def test_a_refusal_by_a_constraint_shows_no_row(server: Server, book: Book) -> None:
    server.execute("ALTER TABLE operations ADD CONSTRAINT no_such CHECK (task <> 'task')", "ledger")
    with pytest.raises(LedgerUnavailable, match="no_such") as raised:
        book.proposed(title="the secret headline")
    assert "secret" not in str(raised.value)


def test_a_text_that_the_database_cannot_hold_is_the_callers_error(book: Book) -> None:
    operation = book.proposed()
    with pytest.raises(ValueError, match="NUL"):
        book.ledger.note(operation.id, kind="step", by=EXECUTOR, why="a\0b")
    assert book.ledger.operation(operation.id) == operation


# -- during the commit -------------------------------------------------------------------------------------------------
def committed_here(server: Server) -> int:
    """Wait for a session that has made its commit durable and waits for the standby; its process id."""
    return server.until(lambda: server.sessions("wait_event = 'SyncRep'"), "a wait for the standby")[0]


def test_a_session_that_ends_before_its_commit_arrives(server: Server, book: Book) -> None:
    operation, attempt = book.claimed()
    with (
        listening("commit", lambda connection: server.end_sessions()),
        pytest.raises(CommitUncertain, match="Read the operation again"),
    ):
        book.let_go(attempt)
    assert book.ledger.operation(operation.id).releases == 0
    assert isinstance(book.let_go(attempt), Attempt)
    book.sound()


@pytest.mark.parametrize("interference", ["pg_terminate_backend", "pg_cancel_backend"])
def test_a_commit_that_is_interrupted_while_it_waits_for_the_standby(
    server: Server, book: Book, aside: ThreadPoolExecutor, interference: str
) -> None:
    """The server reports a cancelled one as done, with a warning: the standby does not have it."""
    operation, attempt = book.claimed()
    with server.waiting_for_a_standby():
        releasing = aside.submit(book.let_go, attempt)
        server.execute(f"SELECT {interference}({committed_here(server)})")
        with pytest.raises(CommitUncertain):
            releasing.result(timeout=60)
        assert book.ledger.operation(operation.id).releases == 1
    assert book.let_go(attempt) == Refused(Refusal.ALREADY_RELEASED)
    book.sound()


def test_looking_waits_for_a_commit_that_the_server_is_still_at(
    server: Server, url: str, aside: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the record would say `not released` of what is released a moment later."""
    monkeypatch.setattr("executor.ledger.database.BUSY_TIMEOUT_S", 1.0)
    book = Book(open_ledger(url))
    operation, attempt = book.claimed()
    sockets: list[int] = []
    with server.waiting_for_a_standby():
        with listening("commit", lambda connection: sockets.append(past(connection).fileno())):
            releasing = aside.submit(book.let_go, attempt)
            committed_here(server)
        with socket.socket(fileno=os.dup(sockets[0])) as lost:
            lost.shutdown(socket.SHUT_RDWR)
        with pytest.raises(CommitUncertain):
            releasing.result(timeout=60)
        with pytest.raises(LedgerUnavailable, match="lock timeout"):
            book.ledger.operation(operation.id)
    server.until(lambda: not server.sessions("wait_event = 'SyncRep'"), "no wait for the standby")
    assert book.ledger.operation(operation.id).releases == 1
    book.ledger.close_connections()


# -- a server that restarts --------------------------------------------------------------------------------------------
def step(book: Book, name: str, operation: str) -> Callable[[], object]:
    """The step, ready to be taken; what it needs is done."""
    found = book.ledger.operation(operation)
    attempt = found.attempt.id if found.attempt else ""
    match name:
        case "claimed":
            lease = book.lease(found)
            return lambda: book.claim(found, lease)
        case "gesture":
            return lambda: book.ledger.gesture(attempt, by=EXECUTOR)
        case "released":
            return lambda: book.ledger.release(attempt, by=EXECUTOR)
        case _:
            return lambda: book.ledger.close(attempt, by=EXECUTOR, reason="done", why="")


STEPS = ("claimed", "gesture", "released", "closed")


def test_a_crash_before_a_commit_arrives_leaves_nothing_of_the_step(server: Server, book: Book) -> None:
    operation = book.approved()
    for name in STEPS:
        take = step(book, name, operation.id)
        before = book.ledger.operation(operation.id)
        with listening("commit", lambda connection: server.stop(at_once=True)), pytest.raises(CommitUncertain):
            take()
        with pytest.raises(LedgerUnavailable):
            book.ledger.operation(operation.id)  # the truth cannot be had while it is down
        server.start()
        assert book.ledger.operation(operation.id) == before
        book.sound()
        take()
        assert book.kinds(operation)[-1] == name
    book.sound()


def test_a_crash_in_the_middle_of_a_commit_leaves_the_whole_step(
    server: Server, book: Book, aside: ThreadPoolExecutor
) -> None:
    operation = book.approved()
    for number, name in enumerate(STEPS):
        take = step(book, name, operation.id)
        with server.waiting_for_a_standby():
            taking = aside.submit(take)
            committed_here(server)
            server.restart()
            with pytest.raises(CommitUncertain):
                taking.result(timeout=60)
        assert book.kinds(operation) == ["proposed", "approved", *STEPS[: number + 1]]
        book.sound()
    assert book.ledger.operation(operation.id).releases == 1


def test_after_a_restart_the_next_write_is_made_once(server: Server, book: Book) -> None:
    operation: Operation = book.proposed()
    server.restart()
    book.approve(operation)
    server.restart()
    assert book.kinds(operation) == ["proposed", "approved"]
    book.sound()
