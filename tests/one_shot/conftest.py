"""Fixtures for runs: one playground per module, its record and its faults reset before each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from desk import Desk

from executor.browser.finding import BrowserMissing, find_browser
from playground.process import Playground


@pytest.fixture(scope="session", autouse=True)
def browser() -> None:
    """Skips what needs a browser where none can be had."""
    try:
        find_browser()
    except BrowserMissing:
        pytest.skip("a browser that cannot be had here")


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with Playground.start(tmp_path_factory.mktemp("playground")) as started:
        yield started


@pytest.fixture
def desk(playground: Playground, tmp_path: Path) -> Desk:
    """Signed in as `editor`, over plain HTTP."""
    playground.truth.reset()
    desk = Desk(playground, tmp_path)
    desk.sign_in()
    return desk


@pytest.fixture
def tls_desk(playground: Playground, tmp_path: Path) -> Desk:
    """Signed in as `editor`, over TLS."""
    playground.truth.reset()
    desk = Desk(playground, tmp_path, tls=True)
    desk.sign_in()
    return desk
