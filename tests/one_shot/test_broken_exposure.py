"""A write that could cause the effect and is still leaving at the gesture: "not sent" is then no proven fact (C5)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from release_kit import Bench, bench

from executor.gate.rules import Phase
from executor.model.transitions import Outcome, Transmission
from executor.one_shot import before, claiming
from flows.effect import Write


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


SAVE = Write(name="save", method="POST", path="/save", matches=lambda request: True, may_cause_effect=True)
LARGE = b"x" * 6_000_000 + b" the end."


async def _nothing(*_: Any, **__: Any) -> None:
    return


async def _until_it_leaves(one: Bench) -> None:
    assert await one.gate.until(lambda: any(entry.write == "save" and entry.bytes_out for entry in one.run.log), 5)


@pytest.mark.parametrize("began", [Phase.PREPARE, Phase.ARMED])
async def test_a_write_that_is_still_leaving_at_the_gesture_is_recorded(
    tmp_path: Path, began: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path, limits={"upstream_write_stall_s": 5.0}) as one:
        run, read_on = one.run, asyncio.Event()
        got = bytearray()

        async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await read_on.wait()
            while LARGE[-9:] != got[-9:] and (data := await reader.read(1 << 16)):
                got.extend(data)
            writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
            writer.close()

        one.site._server.close()
        server = await asyncio.start_server(slow, "127.0.0.1", one.site.port)
        monkeypatch.setattr(claiming, "same", _nothing)
        monkeypatch.setattr(claiming, "make_gesture", _nothing)
        monkeypatch.setattr(one.services.ledger, "gesture", _nothing)  # the bench has recorded it
        run.flow.supporting = (SAVE,)  # type: ignore[misc]
        run.gesture_at = None
        run.session = SimpleNamespace(crashed=asyncio.Event(), page=None, dialogs=[])  # type: ignore[assignment]
        run.pinned = object()  # type: ignore[assignment]
        one.gate._state.before_write = lambda request, write: before._before_write(run, request, write)
        one.gate.enter(began, rules=run.composer_rules(), door=one.release)
        saving = asyncio.create_task(one.ask("POST", "/save", LARGE))
        await _until_it_leaves(one)
        one.gate.enter(Phase.ARMED)
        await claiming.gesture(run)
        assert run.gesture_at is not None
        read_on.set()
        await asyncio.wait_for(saving, 10)
        assert one.release.disarm()
        one.gate.enter(Phase.SHUT)
        operation = await one.judged()
        server.close()
        # The site has read it, after the gesture: whatever it made of that, nobody here can say that nothing left.
        assert len(got) > len(LARGE)
        assert (operation.state.transmission, operation.state.outcome) == (Transmission.POSSIBLE, Outcome.UNKNOWN)
