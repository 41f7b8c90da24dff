"""Upwards from every revision that people have on their disks, with data in it; two programs of different revisions on
one ledger; migrations at the same time, and migrations that die in the middle (A8, C8).

A revision that is added without its frozen ledger fails here: `tools/freeze_ledger.py` makes it.
"""

from __future__ import annotations

import itertools
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from frozen_ledger import dump, thaw
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, Book, from_outside, intent
from next_schema import NEXT
from sqlalchemy import MetaData, select

from executor.ledger import migrations, tables
from executor.ledger.ledger import SchemaTooNew
from executor.ledger.sql import open_ledger
from executor.model.admission import Refusal, Refused
from executor.model.operation import Attempt, Operation, Policy
from executor.model.transitions import Outcome

NEXT_PROGRAM = Path(__file__).with_name("next_schema.py")
Content = dict[str, list[Mapping[str, Any]]]


def content(url: str) -> Content:
    """Every row of every table as it is, whatever tables there are."""
    with from_outside(url) as engine, engine.connect() as connection:
        there = MetaData()
        there.reflect(connection)
        return {
            name: sorted((dict(row) for row in connection.execute(select(table)).mappings()), key=str)
            for name, table in there.tables.items()
        }


def revision_of(url: str) -> Sequence[str]:
    return [row["version_num"] for row in content(url)["alembic_version"]]


def opened_by_this_program(url: str) -> None:
    open_ledger(url).close_connections()


@pytest.mark.parametrize("database", ["postgresql", "sqlite"])
@pytest.mark.parametrize("revision", migrations.KNOWN)
def test_every_revision_has_a_frozen_ledger(revision: str, database: str) -> None:
    assert dump(revision, database).exists(), "run tools/freeze_ledger.py, and commit what it makes"


@pytest.fixture(params=migrations.KNOWN)
def revision(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def thawed(revision: str, url: str) -> str:
    """The URL of a ledger as that revision's program left it."""
    thaw(revision, url)
    return url


def test_a_frozen_ledger_is_brought_forward_whole_and_goes_on(revision: str, thawed: str) -> None:
    before = content(thawed)
    assert revision_of(thawed) == [revision]
    ledger = open_ledger(thawed)
    try:
        after = content(thawed)
        assert revision_of(thawed) == [migrations.SCHEMA]
        for name in set(before) - {"alembic_version"}:
            # Whatever a revision adds, what was there says the same.
            kept = [{column: row[column] for column in before[name][0]} for row in after[name]] if before[name] else []
            assert sorted(kept, key=str) == before[name]
        with from_outside(thawed) as engine, engine.connect() as connection:
            assert compare_metadata(MigrationContext.configure(connection), tables.METADATA) == []
        book = Book(ledger)
        book.sound()
        operations = {operation.intent.task: operation for operation in ledger.operations()}
        assert len(operations) == len(before["operations"])
        _the_states_are_as_frozen(operations, before)
        _it_goes_on(book, operations)
        book.sound()
    finally:
        ledger.close_connections()


def _the_states_are_as_frozen(operations: Mapping[str, Operation], before: Content) -> None:
    for row in before["operations"]:
        found = operations[row["task"]]
        transmission = found.state.transmission
        assert (
            found.state.permission.value,
            found.state.dispatch.value,
            None if transmission is None else transmission.value,
            found.state.outcome.value,
            found.version,
            found.head,
        ) == tuple(row[n] for n in ("permission", "dispatch", "transmission", "outcome", "version", "head"))


def _it_goes_on(book: Book, operations: Mapping[str, Operation]) -> None:
    ledger = book.ledger
    # What was authorized then is claimed now, and released once.
    for task in ("authorized", "after", "again"):
        operation = operations[task]
        attempt = book.claim(operation, lease := book.lease(operation))
        assert isinstance(attempt, Attempt), (task, attempt)
        assert isinstance(book.let_go(attempt), Attempt)
        assert book.let_go(attempt) == Refused(Refusal.ALREADY_RELEASED)
        book.close(attempt)
        ledger.surrender(lease)
    # What had its release has had it.
    for task in ("succeeded", "unknown", "rejected"):
        operation = operations[task]
        lease = book.lease(operation)
        assert book.claim(operation, lease) == Refused(Refusal.ALREADY_DISPATCHED)
        ledger.surrender(lease)
    # What was open is settled by what was recorded then.
    settled = {
        ledger.settle(attempt.id, by=EXECUTOR, why="restart").intent.task: attempt for attempt in ledger.open_attempts()
    }
    assert sorted(settled) == ["left", "open"]
    assert ledger.operation(operations["open"].id).state.outcome is Outcome.UNOBSERVED
    assert ledger.operation(operations["left"].id).state.outcome is Outcome.UNKNOWN
    # The same intent is the operation that it was; a new one is new.
    again = ledger.propose(intent("pending", "pending"), flow=FLOW, policy=Policy.ABSOLUTE, by=PROPOSER)
    assert (again.created, again.operation.id) == (False, operations["pending"].id)
    assert len(ledger.stops()) == 1
    ledger.lift(ledger.stops()[0].id, by=PERSON, why="moved")
    _, attempt = book.released("new", "new", account="new")
    book.close(attempt)


# -- a program that is one revision ahead ------------------------------------------------------------------------------
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def ahead(url: str, tmp_path: Path) -> Iterator[Start]:
    """Starts a process of the next program on the test's ledger. What still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []
    number = itertools.count()

    def begin(*statement: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(NEXT_PROGRAM), url, str(tmp_path / f"next{next(number)}"), *statement],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def go(*processes: subprocess.Popen[str]) -> list[str]:
    """Let them begin at the same moment; what each said at its end."""
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n", process.communicate()[1]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode in (0, -signal.SIGKILL), err
        said.append(out.strip())
    return said


def test_an_older_program_refuses_a_newer_ledger_and_touches_nothing(thawed: str, ahead: Start) -> None:
    assert go(ahead()) == ["migrated"]
    before = content(thawed)
    assert revision_of(thawed) == [NEXT]
    with pytest.raises(SchemaTooNew, match=rf"{NEXT}, and this program knows {migrations.SCHEMA}.*Nothing was changed"):
        open_ledger(thawed)
    assert content(thawed) == before


def test_an_older_program_that_has_it_open_does_not_act_on_a_newer_ledger(thawed: str, ahead: Start) -> None:
    """A worker that was not ended before the migration: neither what it reads nor what it writes is to be relied on."""
    ledger = open_ledger(thawed)
    try:
        book = Book(ledger)
        _, attempt = book.claimed("late", "late", account="late")
        assert go(ahead()) == ["migrated"]
        before = content(thawed)
        for act in (
            lambda: book.let_go(attempt),
            lambda: book.proposed("later", "later"),
            lambda: ledger.operation(attempt.operation),
            ledger.open_attempts,
        ):
            with pytest.raises(SchemaTooNew, match=f"has become {NEXT}.*End this process"):
                act()
        assert content(thawed) == before
    finally:
        ledger.close_connections()


def test_of_several_processes_one_migrates(thawed: str, ahead: Start) -> None:
    assert sorted(go(*(ahead() for _ in range(3)))) == ["found it so", "found it so", "migrated"]
    after = content(thawed)
    assert revision_of(thawed) == [NEXT]
    assert {row["novelty"] == f"of {row['task']}" for row in after["operations"]} == {True}


@pytest.mark.parametrize("statement", ["CREATE TABLE novelties", "UPDATE alembic_version", "COMMIT"])
def test_a_migration_that_dies_leaves_the_ledger_as_it_was(thawed: str, ahead: Start, statement: str) -> None:
    opened_by_this_program(thawed)  # at the revision of this one
    before = content(thawed)
    killed = ahead(statement)
    assert go(killed) == [""]
    assert killed.returncode == -signal.SIGKILL
    assert content(thawed) == before
    opened_by_this_program(thawed)
    assert go(ahead()) == ["migrated"]
    assert {row["novelty"] == f"of {row['task']}" for row in content(thawed)["operations"]} == {True}
