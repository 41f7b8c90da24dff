"""Half a request may be a whole effect, and half an answer is none: neither is taken for more or for less."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from child import UNKNOWN
from release_kit import Got, Held, bench, shape

from executor.gate.port import WriteFailed
from executor.gate.rules import Phase
from executor.model.reasons import Unsure


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


async def test_a_request_of_which_a_part_was_written_may_have_arrived(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        error = WriteFailed("the connection was reset after 40 bytes", nothing_written=False)
        one.gate.enter(Phase.ARMED, door=Held(one.release, "write", error=error))
        publishing = asyncio.create_task(one.publish())
        await asyncio.wait_for(one.release.taken.wait(), 5)
        assert shape(await one.judged()) == UNKNOWN
        assert one.run.unsure is Unsure.WRITE_FAILED
        assert "nothing_written" not in await one.kinds()
        assert not publishing.done()  # the browser gets no answer that it could act on
        one.gate.let_go()
        assert await publishing == Got(None)


async def test_a_cut_answer_is_no_answer(tmp_path: Path) -> None:
    async with bench(tmp_path, answer_s=1.0) as one:
        one.site.answer = b"HTTP/1.1 302 Found\r\nLocation: /form/done?item=7\r\nContent-Length: 99\r\n\r\ncut"
        publishing = asyncio.create_task(one.publish())
        await asyncio.wait_for(one.release.taken.wait(), 5)
        assert shape(await one.judged()) == UNKNOWN
        assert one.run.unsure in (Unsure.ANSWER_CUT, Unsure.NO_ANSWER)
        assert "answered" not in await one.kinds()
        assert not publishing.done()
        one.gate.let_go()
        assert await publishing == Got(None)
        assert len(one.site.posts) == 1
