"""A ledger that goes back in time is noticed, and claims nothing until a person accepts it (C8)."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, Book, from_outside
from sqlalchemy import Table, delete, insert, select

from executor.ledger.anchor import Anchor, AnchorState
from executor.ledger.ledger import AnchorUnreadable, CommitUncertain, LedgerIdentity, NotAPerson
from executor.ledger.sql import SqlLedger, open_ledger
from executor.ledger.tables import METADATA
from executor.model.admission import Refusal, Refused
from executor.model.operation import Attempt, Operation

Copy = dict[Table, Sequence[Mapping[str, Any]]]

BEHIND = Refused(Refusal.LEDGER_BEHIND_ANCHOR)


class Place:
    """A ledger, its anchor in another folder, and what a person may do to them."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.anchor_file = folder / "evidence" / "anchor.json"
        self.anchor = Anchor(self.anchor_file)
        self.ledger: SqlLedger = open_ledger(self.url, anchor=self.anchor)

    @property
    def book(self) -> Book:
        return Book(self.ledger)

    def copy(self) -> Copy:
        with from_outside(self.url) as engine, engine.connect() as connection:
            return {table: connection.execute(select(table)).mappings().all() for table in METADATA.sorted_tables}

    def restore(self, copy: Copy) -> None:
        """Everything as in the copy, without a trace of what came after it."""
        self.ledger.close_connections()
        with from_outside(self.url) as engine, engine.begin() as connection:
            for table in reversed(METADATA.sorted_tables):
                connection.execute(delete(table))
            for table in METADATA.sorted_tables:
                if copy[table]:
                    connection.execute(insert(table), [dict(row) for row in copy[table]])
        self.ledger = open_ledger(self.url, anchor=self.anchor)


@pytest.fixture
def place(url: str, tmp_path: Path) -> Iterator[Place]:
    made = Place(url, tmp_path)
    yield made
    made.ledger.close_connections()


def test_a_file_put_back_to_yesterdays_copy_claims_nothing(tmp_path: Path) -> None:
    file, yesterday = tmp_path / "ledger.sqlite", tmp_path / "yesterday.sqlite"
    place = Place(f"sqlite:///{file}", tmp_path)
    operation = place.book.approved()
    with closing(sqlite3.connect(file)) as old, closing(sqlite3.connect(yesterday)) as new:
        old.backup(new)
    assert isinstance(claim(place.book, operation), Attempt)
    place.ledger.close_connections()
    for suffix in ("-wal", "-shm"):
        file.with_name(file.name + suffix).unlink(missing_ok=True)
    yesterday.replace(file)
    ledger = open_ledger(file, anchor=place.anchor)
    assert claim(Book(ledger), operation) == BEHIND
    ledger.close_connections()


def claim(book: Book, operation: Operation) -> Attempt | Refused:
    lease = book.lease(operation)
    said = book.claim(operation, lease)
    if isinstance(said, Refused):
        book.ledger.surrender(lease)
    return said


def test_the_anchor_follows_every_claim_and_release_before_they_return(place: Place) -> None:
    operation = place.book.approved()
    assert place.anchor.read() is None
    attempt = claim(place.book, operation)
    assert isinstance(attempt, Attempt)
    for act in (lambda: None, lambda: place.book.let_go(attempt)):
        act()
        kept, identity = place.anchor.read(), place.ledger.identity()
        assert kept is not None
        assert (kept.id, kept.events, kept.head) == (identity.id, identity.events, identity.head)
    assert place.anchor_file.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in place.anchor_file.parent.iterdir()) == ["anchor.json", "anchor.json.lock"]


def test_a_restored_copy_claims_nothing_until_a_person_accepts(place: Place) -> None:
    operation = place.book.approved()
    copy = place.copy()
    attempt = claim(place.book, operation)
    assert isinstance(attempt, Attempt)
    assert isinstance(place.book.let_go(attempt), Attempt)  # the effect left

    place.restore(copy)
    assert place.ledger.admission(operation.id, FLOW).behind_anchor
    assert claim(place.book, operation) == BEHIND

    # Going on writing it does not make it the ledger that the anchor saw.
    for number in range(6):
        other = place.book.approved(f"t{number}", f"title {number}")
    assert place.ledger.identity().events > place.anchor.read().events  # type: ignore[union-attr]
    assert claim(place.book, other) == BEHIND
    place.ledger.stop(by=PERSON, why="hold", flow="elsewhere")  # would advance the anchor of a sound ledger
    assert claim(place.book, other) == BEHIND
    place.book.sound()

    with pytest.raises(NotAPerson):
        place.ledger.accept_as_it_is(by=PROPOSER, why="")
    before = place.anchor.read()
    place.ledger.accept_as_it_is(by=PERSON, why="the disk was lost; both posts were looked up")
    assert isinstance(claim(place.book, other), Attempt)
    kept = place.anchor.read()
    assert kept is not None
    assert before is not None
    assert [(entry.by, entry.expected_events) for entry in kept.accepted] == [("person:ann", before.events)]


def test_a_ledger_that_falls_back_during_an_attempt_releases_nothing(place: Place) -> None:
    """Failover to a lagging copy between claim and release: this attempt is known to it, another claim is not."""
    _, attempt = place.book.claimed("t1", "one")
    copy = place.copy()
    place.ledger.stop(by=PERSON, why="everything", flow="elsewhere")
    place.restore(copy)
    assert place.book.let_go(attempt) == BEHIND


def test_another_ledger_in_the_place_of_the_first(place: Place) -> None:
    place.book.claimed()
    place.restore({table: [] for table in METADATA.sorted_tables})
    assert claim(place.book, place.book.approved()) == BEHIND


def test_an_anchor_that_cannot_be_read_holds_every_claim_and_no_stop(place: Place) -> None:
    _, attempt = place.book.claimed("t1", "one")
    place.anchor_file.write_text("{")
    with pytest.raises(AnchorUnreadable, match="Restore it"):
        place.book.let_go(attempt)
    place.book.close(attempt)
    operation = place.book.approved("t2", "two")
    with pytest.raises(AnchorUnreadable, match="Restore it"):
        claim(place.book, operation)
    assert place.ledger.operation(operation.id) == operation
    place.ledger.stop(by=PERSON, why="hold", flow="elsewhere")
    place.ledger.revoke(operation.id, by=PERSON, why="hold")
    assert len(place.ledger.stops()) == 1
    assert place.anchor_file.read_text() == "{"


def test_an_anchor_that_cannot_follow_makes_the_release_uncertain(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, attempt = place.book.claimed()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr("executor.ledger.anchor.os.fsync", full)
        with pytest.raises(CommitUncertain, match="No space left"):
            place.book.let_go(attempt)
        place.ledger.stop(by=PERSON, why="hold", flow="elsewhere")
    assert len(place.ledger.stops()) == 1
    assert place.book.let_go(attempt) == Refused(Refusal.ALREADY_RELEASED)
    assert [path.name for path in place.anchor_file.parent.iterdir() if ".json." not in path.name] == ["anchor.json"]


def test_the_limit_a_copy_from_after_the_last_advance_is_not_noticed(place: Place) -> None:
    operation, attempt = place.book.released()
    copy = place.copy()
    place.book.close(attempt)
    place.restore(copy)
    assert place.ledger.operation(operation.id).attempts[0].closed_at is None  # what was lost is only what it came to
    assert not place.ledger.admission(operation.id, FLOW).behind_anchor
    assert place.ledger.settle(attempt.id, by=EXECUTOR, why="restart").state.outcome == "unknown"


def test_an_anchor_alone(tmp_path: Path) -> None:
    anchor = Anchor(tmp_path / "a" / "anchor")
    heads = {2: "two", 3: "three"}
    here = LedgerIdentity(id="lg_1", events=2, head="two", schema="1")
    assert anchor.check(here, heads.get) is AnchorState.FRESH
    anchor.advance(here)
    assert anchor.check(here, heads.get) is AnchorState.AGREES
    further = replace(here, events=3, head="three")
    assert anchor.check(further, heads.get) is AnchorState.AHEAD
    anchor.advance(further)
    anchor.advance(here)  # a slower process
    assert anchor.check(here, heads.get) is AnchorState.BEHIND
    assert anchor.check(further, {3: "another"}.get) is AnchorState.BEHIND
    assert anchor.check(replace(further, id="lg_2"), heads.get) is AnchorState.OTHER_LEDGER
    anchor.advance(replace(further, id="lg_2", events=9))
    assert anchor.check(further, heads.get) is AnchorState.AGREES
    anchor.accept(here, by=PERSON, why="", at=datetime(2030, 1, 1, tzinfo=UTC))
    assert anchor.check(here, heads.get) is AnchorState.AGREES
    assert [state for state in AnchorState if not state.may_claim] == [AnchorState.BEHIND, AnchorState.OTHER_LEDGER]
