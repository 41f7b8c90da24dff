"""Whoever cancels a run, and however often: it ends in its own time, with its receipt, and leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

import pytest
from desk import PERSON, Desk

from executor.model.transitions import Dispatch, Outcome
from executor.one_shot.run import StepEvent

pytestmark = pytest.mark.browser


def _drivers(process: int) -> list[int]:
    """The descendants that are a driver of a browser."""
    found = []
    for child in Path(f"/proc/{process}/task").glob("*/children"):
        for number in map(int, child.read_text().split()):
            with contextlib.suppress(OSError):
                if b"run-driver" in Path(f"/proc/{number}/cmdline").read_bytes():
                    found.append(number)
                found += _drivers(number)
    return found


async def _cancelled_for_ever(running: asyncio.Task[object]) -> None:
    while not running.done():
        running.cancel()
        await asyncio.sleep(0.05)
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_before_its_browser_is_there(desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = await desk.approved(executor)
        running = asyncio.ensure_future(executor.run(operation.id, by=PERSON))
        await asyncio.sleep(0.3)
        await _cancelled_for_ever(running)
        found = await executor.operation(operation.id)
    assert found.state.dispatch is Dispatch.NOT_STARTED
    assert (desk.settings.receipts_folder / f"{operation.id}.json").exists()
    assert _drivers(os.getpid()) == []


@pytest.mark.parametrize(("step", "moment"), [(4, "begin"), (12, "answered"), (17, "begin")])
async def test_over_and_over_from_a_step_on(step: int, moment: str, desk: Desk) -> None:
    reached = asyncio.Event()

    def hear(event: StepEvent) -> None:
        if (event.number, event.moment) == (step, moment):
            reached.set()

    async with desk.executor(hear) as executor:
        operation = await desk.approved(executor)
        running = asyncio.ensure_future(executor.run(operation.id, by=PERSON))
        await asyncio.wait_for(reached.wait(), 60)
        await _cancelled_for_ever(running)
        found = await executor.operation(operation.id)
        receipt = (desk.settings.receipts_folder / f"{operation.id}.json").read_text()
    published = 0 if step == 4 else 1
    assert desk.playground.truth.publish_count() == published
    assert (found.state.outcome is Outcome.SUCCEEDED) == bool(published)
    assert '"run_ended": null' not in receipt
    assert _drivers(os.getpid()) == []
