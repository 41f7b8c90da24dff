"""What a change of the database from outside comes to (A8): which ones are found from the inside, and which are not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest
from ledger_kit import EXECUTOR, PERSON, SUCCEEDED, Book, from_outside
from sqlalchemy import delete, insert, select, text

from executor.ledger.database import us
from executor.ledger.history import event_hash, running_head
from executor.ledger.ledger import ChainBroken
from executor.ledger.tables import METADATA
from executor.model.operation import Disposition, Operation, Policy


@pytest.fixture
def history(book: Book) -> Operation:
    """Two operations with everything that can happen to one, and a stop; the second's is the one to spoil."""
    book.close(book.released("t0", "zero")[1], SUCCEEDED)
    operation, first = book.claimed("t1", "one", policy=Policy.REAUTHORIZE)
    book.ledger.gesture(first.id, by=EXECUTOR)
    book.close(first)
    book.approve(operation)
    second = book.claim(operation, book.lease(operation))
    book.let_go(second)  # type: ignore[arg-type]
    book.ledger.answered(second.id, by=EXECUTOR, data={"status": 201, "took_s": 0.25})  # type: ignore[union-attr]
    book.close(second, SUCCEEDED)  # type: ignore[arg-type]
    version = book.ledger.operation(operation.id).version
    book.ledger.dispose(operation.id, Disposition.CLOSED, by=PERSON, why="done", version=version)
    stop = book.ledger.stop(by=PERSON, why="a pause", flow="other")
    book.ledger.stop(by=PERSON, why="a pause", flow="another")
    book.ledger.lift(stop.id, by=PERSON, why="over")
    book.sound()
    return book.ledger.operation(operation.id)


def spoil(url: str, *statements: str, **values: object) -> None:
    """Change rows as somebody with the database could, foreign keys aside. `:op` is the operation."""
    with from_outside(url) as engine, engine.begin() as connection:
        for statement in statements:
            changed = connection.execute(text(statement), {k: v for k, v in values.items() if f":{k}" in statement})
            assert changed.rowcount != 0, statement


IN_ITS_HISTORY = {
    "why": ["UPDATE events SET why = 'x' WHERE subject = :op AND sequence = 3"],
    "who": ["UPDATE events SET actor = 'person:bob' WHERE subject = :op AND sequence = 3"],
    "when": ["UPDATE events SET at_us = at_us + 1 WHERE subject = :op AND sequence = 3"],
    "kind": ["UPDATE events SET kind = 'step' WHERE subject = :op AND sequence = 3"],
    "data": ["UPDATE events SET data = '{}' WHERE subject = :op AND sequence = 3"],
    "data that is no JSON": ["UPDATE events SET data = '{' WHERE subject = :op AND sequence = 3"],
    "evidence": ["UPDATE events SET evidence = '[]' WHERE subject = :op AND evidence <> '[]'"],
    "removed": ["DELETE FROM events WHERE subject = :op AND sequence = 4"],
    "removed first": ["DELETE FROM events WHERE subject = :op AND sequence = 1"],
    "removed tail": ["DELETE FROM events WHERE subject = :op AND sequence = :version"],
    "removed and closed up": [
        "DELETE FROM events WHERE subject = :op AND sequence = 4",
        "UPDATE events SET sequence = -sequence WHERE subject = :op AND sequence > 4",
        "UPDATE events SET sequence = -sequence - 1 WHERE subject = :op AND sequence < 0",
    ],
    "reordered": [
        "UPDATE events SET sequence = -1 WHERE subject = :op AND sequence = 3",
        "UPDATE events SET sequence = 3 WHERE subject = :op AND sequence = 4",
        "UPDATE events SET sequence = 4 WHERE subject = :op AND sequence = -1",
    ],
    "head": ["UPDATE operations SET head = 'x' WHERE id = :op"],
}

BESIDE_IT = {
    "outcome": ["UPDATE operations SET outcome = 'unknown' WHERE id = :op"],
    "disposition": ["UPDATE operations SET disposition = 'open' WHERE id = :op"],
    "policy": ["UPDATE operations SET policy = 'absolute' WHERE id = :op"],
    "meant": ["UPDATE operations SET meant = true WHERE id = :op"],
    "material": ["UPDATE operations SET intent = REPLACE(intent, 'one', 'two') WHERE id = :op"],
    "intent that is no JSON": ["UPDATE operations SET intent = '{' WHERE id = :op"],
    "provider key": ["UPDATE operations SET provider_key = 'k' WHERE id = :op"],
    "task": ["UPDATE operations SET task = 'x' WHERE id = :op"],
    "look-alike": ["UPDATE operations SET look_alike = 'x' WHERE id = :op"],
    "deadline": ["UPDATE operations SET deadline_us = 1 WHERE id = :op"],
    "approval used": ["UPDATE approvals SET used = 0 WHERE operation_id = :op"],
    "approval extended": ["UPDATE approvals SET expires_us = expires_us + 1 WHERE operation_id = :op"],
    "approval removed": ["DELETE FROM approvals WHERE operation_id = :op AND number = 2"],
    "release forgotten": ["UPDATE attempts SET released_us = NULL, release_slot = NULL WHERE operation_id = :op"],
    "slot freed": ["UPDATE attempts SET release_slot = NULL WHERE operation_id = :op"],
    "attempt reopened": ["UPDATE attempts SET open_account = 'x' WHERE operation_id = :op AND number = 2"],
    "attempt removed": ["DELETE FROM attempts WHERE operation_id = :op AND number = 2"],
    "operation removed": ["DELETE FROM operations WHERE id = :op"],
    "operation removed with all that is its": [
        "DELETE FROM attempts WHERE operation_id = :op",
        "DELETE FROM approvals WHERE operation_id = :op",
        "DELETE FROM events WHERE subject = :op",
        "DELETE FROM operations WHERE id = :op",
    ],
    "order of all events": ["UPDATE events SET position = position + 1000 WHERE subject = :op AND sequence = 3"],
    "stop lifted": ["UPDATE stops SET lifted_us = 1 WHERE lifted_us IS NULL"],
    "stop moved": ["UPDATE stops SET flow = 'elsewhere' WHERE lifted_us IS NULL"],
    "stop's history": ["UPDATE events SET why = 'x' WHERE kind = 'stopped'"],
    "stop removed": ["DELETE FROM stops"],
    "ledger's counter": ["UPDATE ledger SET events = events - 1"],
    "ledger's head": ["UPDATE ledger SET head = 'x'"],
    "last event of all with its counter": [
        "DELETE FROM events WHERE position = (SELECT events FROM ledger)",
        "UPDATE ledger SET events = events - 1",
    ],
}


@contextmanager
def put_back(url: str) -> Iterator[None]:
    """All rows as they were, however they were spoiled inside."""
    with from_outside(url) as engine:
        with engine.connect() as connection:
            kept = {table: connection.execute(select(table)).mappings().all() for table in METADATA.sorted_tables}
        yield
        with engine.begin() as connection:
            for table in reversed(METADATA.sorted_tables):
                connection.execute(delete(table))
            for table, rows in kept.items():
                connection.execute(insert(table), [dict(row) for row in rows])


def test_a_changed_history_is_found_on_reading_it_and_by_the_check_of_all(
    book: Book, url: str, history: Operation
) -> None:
    missed = []
    for name, statements in IN_ITS_HISTORY.items():
        with put_back(url):
            spoil(url, *statements, op=history.id, version=history.version)
            if not book.ledger.verify_all().flaws:
                missed.append(name)
            try:
                book.ledger.events(history.id)
                missed.append(f"{name}, on reading")
            except ChainBroken:
                pass
    assert missed == []
    book.sound()


def test_rows_that_are_not_what_the_events_say_are_found(book: Book, url: str, history: Operation) -> None:
    missed = []
    for name, statements in BESIDE_IT.items():
        with put_back(url):
            spoil(url, *statements, op=history.id)
            if not book.ledger.verify_all().flaws:
                missed.append(name)
    assert missed == []
    book.sound()


def test_an_event_that_was_rehashed_is_found_by_the_next_one(book: Book, url: str, history: Operation) -> None:
    event = next(e for e in book.ledger.events(history.id) if e.kind == "approved")
    own = rehashed(asdict(event) | {"why": "forged"}, event.actor)
    spoil(
        url,
        "UPDATE events SET why = 'forged', hash = :own WHERE subject = :op AND sequence = :n",
        own=own,
        op=history.id,
        n=event.sequence,
    )
    assert any("does not follow" in flaw for flaw in book.ledger.verify_all().flaws)


def test_who_recomputes_everything_is_not_found_from_the_inside(book: Book, url: str) -> None:
    """The stated limit: all hashes are in the database, and none is a secret. Anchor and receipts are elsewhere."""
    operation = book.proposed()
    event = book.ledger.events(operation.id)[0]
    own = rehashed(asdict(event) | {"why": "forged"}, event.actor)
    spoil(
        url,
        "UPDATE events SET why = 'forged', hash = :own, ledger_head = :head",
        "UPDATE operations SET head = :own",
        "UPDATE ledger SET head = :head",
        own=own,
        head=running_head("", own),
    )
    book.sound()


def rehashed(event: dict, actor: object) -> str:
    return event_hash(
        event["previous"],
        event["operation"],
        event["sequence"],
        event["at"].isoformat(timespec="microseconds").replace("+00:00", "Z"),
        str(actor),
        event["kind"],
        event["why"],
        event["data"],
        event["evidence"],
    )


def test_the_hash_of_an_event_can_be_recomputed_from_what_is_shown(book: Book, history: Operation) -> None:
    for event in book.ledger.events(history.id):
        assert rehashed(asdict(event), event.actor) == event.hash
        assert us(event.at) > 0
