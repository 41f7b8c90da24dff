"""The contract suite runs on every backend of this table. A further one needs a URL for an empty database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ledger_kit import Book

from executor.ledger.sql import SqlLedger, open_ledger

BACKENDS: dict[str, Callable[[pytest.FixtureRequest, Path], str]] = {
    "postgresql": lambda request, folder: request.getfixturevalue("server").empty_database(),
    "sqlite": lambda request, folder: f"sqlite:///{folder / 'ledger' / 'ledger.sqlite'}",
}


@pytest.fixture(params=sorted(BACKENDS))
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return BACKENDS[request.param](request, tmp_path)


@pytest.fixture
def ledger(url: str) -> Iterator[SqlLedger]:
    opened = open_ledger(url)
    yield opened
    opened.close_connections()


@pytest.fixture
def book(ledger: SqlLedger) -> Book:
    return Book(ledger)
