"""Opening, schema, file modes, commits whose result is not known, databases that do not answer."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from ledger_kit import EXECUTOR, Book, from_outside, intent
from sqlalchemy import Connection, Engine, event, select, text
from sqlalchemy.dialects import postgresql

from executor.ledger import migrations, tables
from executor.ledger.database import at, now_us, us
from executor.ledger.ids import ALPHABET, new_id
from executor.ledger.ledger import CommitUncertain, Ledger, LedgerError, LedgerUnavailable, SchemaTooNew
from executor.ledger.sql import SqlLedger, open_ledger
from executor.model.admission import Refusal, Refused
from executor.model.operation import Attempt


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "folder" / "ledger.sqlite"


def opened(path: Path) -> None:
    open_ledger(path).close_connections()


# -- the file ----------------------------------------------------------------------------------------------------------
def test_the_ledger_is_for_its_owner_alone(file: Path) -> None:
    ledger = open_ledger(file)
    try:
        Book(ledger).proposed()
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        assert set(modes.values()) == {0o600}, modes
    finally:
        ledger.close_connections()


def test_every_connection_syncs_every_commit_into_a_write_ahead_log(file: Path) -> None:
    seen: list[tuple[object, ...]] = []

    def look(connection: Connection) -> None:
        ask = connection.connection.dbapi_connection.execute  # type: ignore[union-attr]
        seen.append(
            tuple(ask(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous", "foreign_keys"))
        )

    ledger = open_ledger(file)
    with listening("commit", look):
        Book(ledger).proposed()
    ledger.close_connections()
    assert seen == [("wal", 2, 1)]


def test_a_ledger_is_still_itself_when_opened_again(url: str) -> None:
    first = open_ledger(url)
    operation, _ = Book(first).released()
    identity = first.identity()
    first.close_connections()
    second = open_ledger(url)
    try:
        assert second.identity() == identity
        assert second.operation(operation.id) == operation
    finally:
        second.close_connections()


@pytest.mark.parametrize("address", ["sqlite://", "sqlite:///:memory:", "mysql://host/db", "://"])
def test_what_is_no_place_for_a_ledger(address: str) -> None:
    with pytest.raises(LedgerUnavailable):
        open_ledger(address)


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerUnavailable, match="cannot be opened"):
        open_ledger(tmp_path / "file" / "ledger.sqlite")


def test_a_file_that_is_no_database_is_left_as_it_is(file: Path) -> None:
    file.parent.mkdir()
    file.write_bytes(b"a letter, not a database" * 100)
    with pytest.raises(LedgerUnavailable):
        open_ledger(file)
    assert file.read_bytes() == b"a letter, not a database" * 100


def test_somebody_elses_database_is_left_as_it_is(file: Path) -> None:
    file.parent.mkdir()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = digest(file)
    with pytest.raises(LedgerUnavailable, match="not a ledger"):
        open_ledger(file)
    assert digest(file) == before


# -- the schema --------------------------------------------------------------------------------------------------------
def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_newer_schema_is_refused_and_not_touched(file: Path) -> None:
    opened(file)
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '0099'")
    connection.close()
    before = digest(file)
    with pytest.raises(SchemaTooNew, match="0099"):
        open_ledger(file)
    assert digest(file) == before


def test_the_migrations_end_where_the_tables_are(url: str, ledger: SqlLedger) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent))
    config.set_main_option("path_separator", "os")
    revisions = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()][::-1]
    assert tuple(revisions) == migrations.KNOWN
    with from_outside(url) as engine, engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), tables.METADATA) == []
    assert ledger.identity().schema == migrations.SCHEMA


def test_the_clock_is_the_databases_on_either_database(ledger: SqlLedger) -> None:
    assert "clock_timestamp()" in str(select(now_us()).compile(dialect=postgresql.dialect()))
    assert "FOR UPDATE" in str(select(tables.ledger).with_for_update().compile(dialect=postgresql.dialect()))
    assert at(us(ledger.now())) == ledger.now() or ledger.now() is not None


def test_the_class_keeps_the_protocol(ledger: SqlLedger) -> None:
    kept: Ledger = ledger
    missing = [name for name in vars(Ledger) if not name.startswith("_") and not hasattr(kept, name)]
    assert missing == []


def test_ids_name_their_kind_and_sort_by_time() -> None:
    ids = [new_id("op") for _ in range(500)]
    assert len(set(ids)) == 500
    assert [i[:13] for i in ids] == sorted(i[:13] for i in ids)
    assert all(len(i) == 23 and set(i[3:]) <= set(ALPHABET) for i in ids)
    assert sorted(ALPHABET) == list(ALPHABET)


# -- commits -----------------------------------------------------------------------------------------------------------
@contextmanager
def listening(name: str, listener: Callable[[Connection], None]) -> Iterator[None]:
    event.listen(Engine, name, listener)
    try:
        yield
    finally:
        event.remove(Engine, name, listener)


def lost(connection: Connection) -> None:
    """The commit never reaches the database."""
    raise OSError("disk I/O error")


def unanswered(connection: Connection) -> None:
    """The commit takes effect and its answer is lost."""
    dbapi = connection.connection.dbapi_connection
    assert dbapi is not None
    dbapi.commit()
    raise ConnectionResetError("reset by peer")


@pytest.mark.parametrize(("failure", "happened"), [(lost, False), (unanswered, True)])
def test_a_commit_that_raises_is_uncertain_and_the_truth_can_be_read(
    book: Book, failure: Callable[[Connection], None], happened: bool
) -> None:
    operation, attempt = book.claimed()
    with listening("commit", failure), pytest.raises(CommitUncertain, match="Read the operation again"):
        book.let_go(attempt)
    shown = book.ledger.operation(operation.id)
    assert (shown.releases == 1) is happened
    again = book.let_go(attempt)
    assert again == Refused(Refusal.ALREADY_RELEASED) if happened else isinstance(again, Attempt)
    book.sound()


def test_an_error_before_the_commit_changes_nothing_and_says_so(file: Path) -> None:
    """A disk that is full: no page may be added to the file while the listener is there."""
    book = Book(open_ledger(file))
    operation = book.proposed()

    def no_room(connection: Connection) -> None:
        execute = connection.connection.dbapi_connection.execute  # type: ignore[union-attr]
        pages = execute("PRAGMA page_count").fetchone()[0]
        execute(f"PRAGMA max_page_count = {pages}")

    with listening("begin", no_room), pytest.raises(LedgerUnavailable, match="full"):
        book.ledger.note(operation.id, kind="step", by=EXECUTOR, why="x" * 200_000)
    assert book.ledger.operation(operation.id) == operation
    book.sound()
    book.ledger.close_connections()


def test_a_database_that_stays_locked_is_unavailable_and_unchanged(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.ledger.database.BUSY_TIMEOUT_S", 0.05)
    ledger = open_ledger(url)
    try:
        with from_outside(url) as other, other.connect() as connection:
            if other.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            connection.execute(select(tables.ledger).with_for_update())
            with pytest.raises(LedgerUnavailable, match="lock"):
                Book(ledger).proposed()
            assert ledger.operations() == []  # looking needs no lock
            connection.rollback()
        assert Book(ledger).proposed()
    finally:
        ledger.close_connections()


def test_errors_show_no_material(book: Book, url: str) -> None:
    with from_outside(url) as engine, engine.begin() as connection:
        connection.execute(text("ALTER TABLE operations RENAME TO elsewhere"))
    with pytest.raises(LedgerError) as raised:
        book.proposed(title="the secret headline")
    assert "secret headline" not in str(raised.value)
    assert intent(title="the secret headline").material
    with pytest.raises(LedgerError):
        book.ledger.note("op_anything_at_all", kind="step", by=EXECUTOR, why="the secret headline")


@pytest.mark.parametrize("replaced", [False, True], ids=["removed", "replaced"])
def test_nothing_is_written_into_a_file_that_nobody_will_find_again(file: Path, replaced: bool) -> None:
    """A commit into a file that was unlinked succeeds, and is forgotten with the process."""
    ledger = open_ledger(file)
    try:
        _, attempt = Book(ledger).claimed()
        for one in file.parent.glob(f"{file.name}*"):
            one.unlink()
        if replaced:
            opened(file)
        with pytest.raises(LedgerUnavailable, match="removed or replaced"):
            ledger.release(attempt.id, by=EXECUTOR)
        with pytest.raises(LedgerUnavailable, match="removed or replaced"):
            ledger.stop(by=EXECUTOR, why="anything")
    finally:
        ledger.close_connections()
