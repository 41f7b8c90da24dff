"""A browser that is there and does not answer any more holds up no run: its driver would wait for ever."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from desk import PERSON, Desk

from executor.browser import sessions
from executor.errors import Exit
from executor.model.reasons import Halt
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.one_shot.run import StepEvent
from executor.service import Ended

pytestmark = pytest.mark.browser


class Frozen:
    """Stops every process of this test's browsers when it hears the moment, until the end of the test."""

    def __init__(self, step: int, moment: str) -> None:
        self._at = (step, moment)
        self.processes: list[int] = []

    def __call__(self, event: StepEvent) -> None:
        if (event.number, event.moment) == self._at and not self.processes:
            self.processes = _browsers(os.getpid())
            for process in self.processes:
                os.kill(process, signal.SIGSTOP)

    def left(self) -> list[int]:
        return [process for process in self.processes if Path(f"/proc/{process}/exe").exists()]


def _browsers(process: int) -> list[int]:
    """The descendants that run Chromium or Chrome."""
    found = []
    for child in Path(f"/proc/{process}/task").glob("*/children"):
        for number in map(int, child.read_text().split()):
            with contextlib.suppress(OSError):
                if b"chrom" in Path(f"/proc/{number}/cmdline").read_bytes().split(b"\0")[0]:
                    found.append(number)
                found += _browsers(number)
    return found


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_OPEN_S", 3.0)


async def _run(desk: Desk, frozen: Frozen) -> Ended:
    try:
        async with desk.executor(frozen) as executor:
            operation = await desk.approved(executor)
            ended = await executor.run(operation.id, by=PERSON)
        assert frozen.processes
        assert not frozen.left()
        return ended
    finally:
        for process in frozen.processes:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@pytest.mark.usefixtures("short")
async def test_frozen_before_the_look_it_halts(desk: Desk) -> None:
    ended = await _run(desk, Frozen(8, "begin"))
    assert ended.ending is not None
    assert ended.ending.coded_reason() is Halt.COULD_NOT_LOOK
    assert ended.operation.state.dispatch is Dispatch.NOT_STARTED
    assert desk.playground.truth.publish_count() == 0


@pytest.mark.usefixtures("short")
async def test_frozen_after_the_answer_the_verdict_rests_on_the_answer(desk: Desk) -> None:
    ended = await _run(desk, Frozen(15, "begin"))
    assert ended.exit is Exit.SUCCEEDED
    state = ended.operation.state
    assert (state.transmission, state.outcome) == (Transmission.ANSWERED, Outcome.SUCCEEDED)
    assert desk.playground.truth.publish_count() == 1
    assert ended.receipt_paths.json.exists()
