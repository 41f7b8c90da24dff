"""Freezes a ledger of the program's present schema, with data in it, for the tests that upgrade it later on.

    freeze_ledger.py

makes `tests/ledger/frozen/REVISION.sqlite.sql` and `REVISION.postgresql.sql`, once for each revision: a file that is
there is left as it is, because what was frozen is what lies on people's disks. To be run, and its files committed, with
the commit that adds a revision. Needs PostgreSQL's programs, as the tests do.
"""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "ledger")]

from frozen_ledger import FOLDER, dump  # type: ignore[import-not-found]  # noqa: E402
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, SUCCEEDED, Book, intent  # type: ignore[import-not-found]  # noqa: E402
from postgresql_server import Server, programs  # type: ignore[import-not-found]  # noqa: E402

from executor.ledger.ledger import Judgement  # noqa: E402
from executor.ledger.migrations import SCHEMA  # noqa: E402
from executor.ledger.sql import open_ledger  # noqa: E402
from executor.model.operation import Attempt, Disposition, Policy  # noqa: E402
from executor.model.transitions import Outcome  # noqa: E402

FOR_GOOD_S = 3_000_000_000.0
"""Longer than anybody keeps a test: what is authorized in the dump must still be when it is thawed."""


def fill(url: str) -> None:
    """One operation in every state that a ledger can be in for long. Their tasks are their names in the tests."""
    ledger = open_ledger(url)
    book = Book(ledger)
    try:
        book.proposed("pending", "pending")
        book.approved("authorized", "größer — ✓", valid_for_s=FOR_GOOD_S)
        expired = book.approved("expired", "expired", valid_for_s=0.001)
        book.until(expired.approval.expires)
        ledger.operation(expired.id)
        ledger.revoke(book.approved("revoked", "revoked").id, by=PERSON, why="taken back")
        done = book.approved("succeeded", "succeeded", account="bob")
        lease = book.lease(done)
        attempt = book.claim(done, lease, data={"baseline": ["3", "4"]}, evidence=["e0"])
        assert isinstance(attempt, Attempt)
        ledger.gesture(attempt.id, by=EXECUTOR)
        assert isinstance(book.let_go(attempt), Attempt)
        ledger.answered(attempt.id, by=EXECUTOR, data={"status": 201, "complete": True, "reading": None})
        book.close(attempt, SUCCEEDED)
        ledger.surrender(lease)
        ledger.note(done.id, kind="receipt", by=EXECUTOR, why="written", data={"sha256": "0" * 64, "n": 1.5, "x": None})
        book.approved("after", "after", valid_for_s=FOR_GOOD_S, account="dora", after=(done.id,))
        lost, attempt = book.released("unknown", "unknown", account="carl")
        ledger.expose(attempt.id, by=EXECUTOR, write="save", url="https://news.example/save")
        book.close(attempt)
        seen = ledger.operation(lost.id)
        ledger.dispose(lost.id, Disposition.WAIT, by=PERSON, why="looking", version=seen.version)
        _, attempt = book.released("rejected", "rejected", account="emil")
        why = "the account's list is complete and does not show it"
        book.close(attempt, Judgement(outcome=Outcome.REJECTED, reason="absent_under_guarantee", why=why))
        again, attempt = book.claimed("again", "again", account="fred")
        book.close(attempt, reason="no_request")
        book.approve(again, valid_for_s=FOR_GOOD_S)
        ledger.propose(
            intent("keyed", "keyed", account="greta", deadline=datetime(2100, 1, 1, tzinfo=UTC)),
            flow=FLOW,
            policy=Policy.IDEMPOTENT,
            by=PROPOSER,
            provider_key="il-0123456789",
        )
        for name, account in (("open", "hugo"), ("left", "ines")):
            operation, attempt = book.claimed(name, name, account=account)
            if name == "left":
                assert isinstance(book.let_go(attempt), Attempt)
            book.lose_the_lease(operation, attempt)
        ledger.lift(ledger.stop(by=EXECUTOR, why="looked", flow=FLOW.name).id, by=PERSON, why="it is out")
        ledger.stop(by=PERSON, why="moved", account_key="https://elsewhere.example ann")
        assert ledger.verify_all().flaws == ()
    finally:
        ledger.close_connections()


def freeze_sqlite(into: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.sqlite"
        fill(f"sqlite:///{file}")
        with closing(sqlite3.connect(file)) as connection:
            into.write_text("\n".join(connection.iterdump()) + "\n", encoding="utf-8")


def freeze_postgresql(into: Path) -> None:
    server = Server()
    try:
        server.start()
        fill(server.empty_database())
        host = server.url().rpartition("host=")[2].replace("%2F", "/")
        said = subprocess.run(
            [
                programs() / "pg_dump",
                "--no-owner",
                "--no-privileges",
                "--inserts",
                "-U",
                "postgres",
                "-h",
                host,
                "ledger",
            ],
            capture_output=True,
            check=True,
            text=True,
            env={**os.environ, "PGCLIENTENCODING": "UTF8"},
        ).stdout
    finally:
        server.remove()
    # What configures the session that restores it, and psql's own commands, are not part of the ledger.
    out = ("--", "\\", "SET ", "SELECT pg_catalog.set_config", "CREATE SCHEMA", "COMMENT ON SCHEMA")
    lines = [line for line in said.splitlines() if line.strip() and not line.startswith(out)]
    into.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> int:
    FOLDER.mkdir(exist_ok=True)
    for database, freeze in (("sqlite", freeze_sqlite), ("postgresql", freeze_postgresql)):
        into = dump(SCHEMA, database)
        if into.exists():
            print(f"{into.relative_to(ROOT)} is there; it is left as it is")
            continue
        freeze(into)
        print(f"{into.relative_to(ROOT)}: {into.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
