"""Half a request may be a whole effect, and half an answer is none: neither is taken for more or for less."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from child import SUCCEEDED, UNKNOWN
from release_kit import Got, Held, bench, form, shape

from executor.gate.port import WriteFailed
from executor.gate.rules import Phase
from executor.model.reasons import Unsure
from executor.one_shot import after, claiming


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


async def test_a_body_that_still_arrives_holds_the_window_open(tmp_path: Path) -> None:
    """Step 12: the window ends with no candidate there, not in the middle of one."""
    async with bench(tmp_path, effect_window_s=0.3) as one:
        crashed = asyncio.Event()
        one.run.session = SimpleNamespace(crashed=crashed, page=None)  # type: ignore[assignment]  # nothing is read of it
        host, port = one.gate.address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        body = form()
        writer.write(
            f"POST {one.site.url}/form/publish HTTP/1.1\r\nHost: 127.0.0.1:{one.site.port}\r\nConnection: close\r\n"
            "Cookie: pg_session=s3cret\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body[:5]
        )
        assert await one.gate.until(lambda: one.gate.candidates == 1, 5)
        waiting = asyncio.create_task(after.answer(one.run))
        done, _ = await asyncio.wait([waiting], timeout=1.0)  # three windows long
        assert not done
        writer.write(body[5:])
        await asyncio.wait_for(waiting, 10)
        assert b" 302 " in (await reader.read()).partition(b"\r\n")[0]
        writer.close()
        await writer.wait_closed()
        assert shape(await one.judged()) == SUCCEEDED
        assert one.site.posts == [body]


async def test_after_a_page_that_sent_it_by_itself_no_gesture_is_made(tmp_path: Path) -> None:
    """Step 9: what it sent was the one."""
    async with bench(tmp_path) as one:
        assert await one.publish() == Got(302)
        one.run.gesture_at = None
        nothing_may_be_touched = object()
        one.run.session = one.run.pinned = nothing_may_be_touched  # type: ignore[assignment]
        await claiming.gesture(one.run)
        assert one.run.control_changed == "the page sent the request before the gesture"
        assert one.run.gesture_at is not None
        assert shape(await one.judged()) == SUCCEEDED
