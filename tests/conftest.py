"""What all rooms share: the switch `--long`, which runs the long cases too, and a PostgreSQL server.

A test (or one case of it) marked `long` is left out by default, and deselected rather than skipped: a skip is for what
cannot be had here. Cases that every change must pass carry no mark.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from postgresql_server import Server


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the cases marked `long` as well (make test-long)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    config.hook.pytest_deselected(items=long)
    items[:] = [item for item in items if not item.get_closest_marker("long")]


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """A PostgreSQL server for all tests that need one, started by the first."""
    made = Server()
    try:
        made.start()
        yield made
    finally:
        made.remove()
