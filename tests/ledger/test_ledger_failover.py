"""What replaces a database by an older one, or by one that is not to be relied on: a standby that is promoted without
the last commits, a standby that is not, a copy of the file put back (A6, C8). And what a database may be set to.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from ledger_kit import EXECUTOR, Book, from_outside
from postgresql_server import Server
from sqlalchemy import text

from executor.ledger import sqlite
from executor.ledger.anchor import Anchor
from executor.ledger.ledger import LedgerError, LedgerUnavailable, NoSuchAttempt
from executor.ledger.sql import SqlLedger, open_ledger
from executor.model.admission import Refusal, Refused
from executor.model.operation import Attempt

BEHIND = Refused(Refusal.LEDGER_BEHIND_ANCHOR)


@contextmanager
def opened(where: str | Path, anchor: Anchor | None = None) -> Iterator[SqlLedger]:
    ledger = open_ledger(where, anchor=anchor)
    try:
        yield ledger
    finally:
        ledger.close_connections()


# -- failover ----------------------------------------------------------------------------------------------------------
def test_a_standby_is_refused_and_one_promoted_without_the_last_commits_claims_nothing(
    server: Server, tmp_path: Path
) -> None:
    """By streaming replication as an operator sets it up, with nobody waiting for the standby."""
    url, anchor = server.empty_database(), Anchor(tmp_path / "evidence" / "anchor.json")
    with ExitStack() as until_the_end, server.standby() as standby:
        ledger = until_the_end.enter_context(opened(url, anchor))
        book = Book(ledger)
        _, known = book.claimed("t1", "one", account="ann")
        operation = book.approved("t2", "two", account="bob")
        (problem,) = ledger.durability_problems()
        assert "1 standby(s) follow the server and no commit waits" in problem

        follower = f"{standby.url()}&target_session_attrs=any"
        here = server.execute("SELECT pg_current_wal_lsn()")[0][0]
        standby.until(lambda: standby.execute(f"SELECT pg_last_wal_replay_lsn() >= '{here}'")[0][0], "what was written")
        with pytest.raises(LedgerUnavailable, match="follows another one"):
            open_ledger(follower)
        with pytest.raises(LedgerUnavailable, match="read-only"):
            open_ledger(standby.url())

        standby.stop()
        attempt = book.claim(operation, book.lease(operation))
        assert isinstance(attempt, Attempt)
        assert isinstance(book.let_go(attempt), Attempt)  # the effect leaves
        server.stop(at_once=True)
        try:
            standby.start()
            standby.execute("SELECT pg_promote()")
            promoted = Book(until_the_end.enter_context(opened(standby.url(), anchor)))
            # The one that was promoted knows nothing of it, is a whole ledger, and lets nobody do it again.
            assert promoted.ledger.operation(operation.id).attempts == ()
            promoted.sound()
            with pytest.raises(NoSuchAttempt):
                promoted.ledger.answered(attempt.id, by=EXECUTOR, data={"status": 201})
            assert promoted.claim(operation, promoted.lease(operation)) == BEHIND
            assert promoted.let_go(known) == BEHIND
        finally:
            server.start()


def test_a_role_that_may_not_write_is_refused_in_one_sentence(server: Server) -> None:
    url = f"{server.empty_database()}&target_session_attrs=any"
    server.execute("ALTER ROLE interlock SET default_transaction_read_only = on")
    try:
        with pytest.raises(LedgerUnavailable, match="default_transaction_read_only is on"):
            open_ledger(url)
    finally:
        server.execute("ALTER ROLE interlock RESET default_transaction_read_only")


def test_a_database_that_reports_before_it_is_durable_is_refused_whoever_set_it(server: Server) -> None:
    url = server.empty_database()
    server.execute("ALTER DATABASE ledger SET synchronous_commit = off")
    try:
        with pytest.raises(LedgerUnavailable, match="synchronous_commit is off"):
            open_ledger(url)
    finally:
        server.execute("ALTER DATABASE ledger RESET synchronous_commit")


def test_a_server_that_may_garble_its_pages_is_named(server: Server) -> None:
    with opened(server.empty_database()) as ledger:
        assert ledger.durability_problems() == ()
        server.reload(full_page_writes="off")
        try:
            (problem,) = ledger.durability_problems()
        finally:
            server.reload(full_page_writes="on")
            server.reload(full_page_writes="")
        assert "full_page_writes is off" in problem


# -- a file that is put back -------------------------------------------------------------------------------------------
def put(folder: Path, into: Path) -> None:
    for file in folder.iterdir():
        shutil.copy(file, into / file.name)


@pytest.mark.parametrize("copied", ["the file alone", "with its log"])
@pytest.mark.parametrize("left", ["nothing", "today's log", "today's log and its index"])
def test_a_copy_taken_while_it_ran_and_put_back_claims_nothing_of_what_was_claimed(
    tmp_path: Path, copied: str, left: str
) -> None:
    """As with `cp`, which is no backup: the file may lack what its log holds, and the log that lies there may belong to
    another day. Whatever SQLite makes of that, nothing is claimed that was claimed before."""
    home, yesterday, today = (tmp_path / name for name in ("home", "yesterday", "today"))
    for folder in (home, yesterday, today):
        folder.mkdir()
    file, anchor = home / "ledger.sqlite", Anchor(tmp_path / "evidence" / "anchor.json")
    with opened(file, anchor) as ledger:
        book = Book(ledger)
        operations = [book.approved(f"t{n}", f"title {n}", account=f"account{n}") for n in range(3)]
        for name in (
            "ledger.sqlite",
            *(["ledger.sqlite-wal", "ledger.sqlite-shm"] if copied == "with its log" else []),
        ):
            shutil.copy(home / name, yesterday / name)
        for operation in operations:
            attempt = book.claim(operation, book.lease(operation))
            assert isinstance(attempt, Attempt)
            assert isinstance(book.let_go(attempt), Attempt)
        put(home, today)  # as a power loss leaves it: not closed
    for leftover in home.iterdir():
        leftover.unlink()
    put(yesterday, home)
    for suffix in {"nothing": (), "today's log": ("-wal",)}.get(left, ("-wal", "-shm")):
        shutil.copy(today / f"ledger.sqlite{suffix}", home / f"ledger.sqlite{suffix}")

    with suppress(LedgerError), opened(file, anchor) as ledger:
        said = [_claimed(ledger, operation.id) for operation in operations]
        assert not [one for one in said if isinstance(one, Attempt)]
        if (copied, left) == ("with its log", "nothing"):  # what SQLite takes for yesterday's ledger
            assert said == [BEHIND] * 3


def _claimed(ledger: SqlLedger, operation: str) -> Attempt | Refused | None:
    """None where it is not even there, or its account is held by what was claimed."""
    with suppress(LedgerError):
        found = ledger.operation(operation)
        return Book(ledger).claim(found, Book(ledger).lease(found))
    return None


def test_a_file_over_a_network_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/sda1 / ext4 rw 0 0\nserver:/export {tmp_path} nfs4 rw 0 0\nproc /proc proc rw 0 0\n")
    monkeypatch.setattr(sqlite, "_MOUNTS", mounts)
    with opened(tmp_path / "ledger.sqlite") as ledger:
        (problem,) = ledger.durability_problems()
        assert "nfs4" in problem
        mounts.write_text("/dev/sda1 / ext4 rw 0 0\n")
        assert ledger.durability_problems() == ()
        mounts.unlink()  # not Linux
        assert ledger.durability_problems() == ()


# -- a clock that steps ------------------------------------------------------------------------------------------------
@contextmanager
def clock_stepped_by(url: str, seconds: int) -> Iterator[None]:
    """Every lease, approval and deadline moves the other way, which is the same to whoever compares with the clock."""
    with from_outside(url) as engine:

        def move(by_us: int) -> None:
            with engine.begin() as connection:
                connection.execute(text("UPDATE accounts SET expires_us = expires_us - :us"), {"us": by_us})
                connection.execute(text("UPDATE approvals SET expires_us = expires_us - :us"), {"us": by_us})

        move(seconds * 1_000_000)
        yield
        move(-seconds * 1_000_000)


def test_a_database_clock_that_goes_back_frees_nothing(url: str) -> None:
    """A lease then lasts longer than it was meant to, and nobody acts as the account meanwhile: order, not safety."""
    with opened(url) as ledger:
        book = Book(ledger)
        operation, attempt = book.claimed()
        with clock_stepped_by(url, -3600):
            assert ledger.open_attempts() == []
            with pytest.raises(LedgerError):
                book.lease(operation, holder="another")
            assert isinstance(book.let_go(attempt), Attempt)
            book.close(attempt)


def test_a_database_clock_that_goes_forward_stops_the_run_and_not_its_settlement(url: str) -> None:
    with opened(url) as ledger:
        book = Book(ledger)
        operation, attempt = book.claimed(valid_for_s=600)
        with clock_stepped_by(url, 3600):
            said = book.let_go(attempt)
            assert isinstance(said, Refused)
            assert said.reason in (Refusal.APPROVAL_EXPIRED, Refusal.LEASE_LOST)
            assert [one.id for one in ledger.open_attempts()] == [attempt.id]
            settled = ledger.settle(attempt.id, by=EXECUTOR, why="its lease ran out")
            assert settled.releases == 0
        assert isinstance(book.let_go(attempt), Refused)
        assert ledger.operation(operation.id).releases == 0
