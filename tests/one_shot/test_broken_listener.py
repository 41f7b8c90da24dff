"""A listener that raises: a closed terminal must not cost an effect its first byte, or an attempt its verdict."""

from __future__ import annotations

from pathlib import Path

import pytest
from release_kit import Got, bench, form

from executor.model.transitions import Outcome, Transmission


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


@pytest.mark.parametrize("moment", ["spooled", "compared", "connected", "released", "done", "answered"])
async def test_a_listener_that_fails_changes_nothing(tmp_path: Path, moment: str) -> None:
    def fail() -> None:
        raise BrokenPipeError("nobody reads the steps any more")

    async with bench(tmp_path) as one:
        one.at[moment] = fail
        assert await one.publish() == Got(302)
        operation = await one.judged()
        assert (operation.state.transmission, operation.state.outcome) == (Transmission.ANSWERED, Outcome.SUCCEEDED)
        assert one.site.posts == [form()]
