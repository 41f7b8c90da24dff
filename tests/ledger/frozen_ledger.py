"""Ledgers of earlier revisions, frozen with data in them: `frozen/REVISION.DATABASE.sql`.

`tools/freeze_ledger.py` made each of them with the program of its revision. They are never changed afterwards: what is
in them is what lies on people's disks.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
from sqlalchemy import make_url

FOLDER = Path(__file__).with_name("frozen")


def dump(revision: str, database: str) -> Path:
    return FOLDER / f"{revision}.{database}.sql"


def thaw(revision: str, url: str) -> None:
    """Put a frozen ledger into an empty database. Raises `FileNotFoundError` for a revision that was never frozen."""
    where = make_url(url)
    backend = where.get_backend_name()
    statements = dump(revision, backend).read_text(encoding="utf-8")
    if backend == "sqlite":
        assert where.database is not None
        Path(where.database).parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(where.database)) as connection:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.executescript(statements)
    else:
        with psycopg.connect(
            host=where.query["host"],
            user=where.username,
            dbname=where.database,  # type: ignore[arg-type]
        ) as server:
            server.execute(statements)  # type: ignore[call-overload]
