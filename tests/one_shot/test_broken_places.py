"""Folders that go away, fill up or cannot be written to, while a run goes on and after it."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from desk import PERSON, Desk

from executor.errors import Exit
from executor.model.reasons import Halt
from executor.model.transitions import Outcome, Transmission
from executor.one_shot.run import StepEvent
from executor.service import Ended

pytestmark = pytest.mark.browser


class At:
    """A listener that does one thing at one moment."""

    def __init__(self, step: int, moment: str, does: Callable[[], None]) -> None:
        self._at, self._does = (step, moment), does

    def __call__(self, event: StepEvent) -> None:
        if (event.number, event.moment) == self._at:
            self._does()


async def _run(desk: Desk, step: int, moment: str, does: Callable[[], None]) -> Ended:
    async with desk.executor(At(step, moment, does)) as executor:
        operation = await desk.approved(executor)
        return await executor.run(operation.id, by=PERSON)


async def test_without_its_evidence_nothing_is_claimed(desk: Desk) -> None:
    blobs = desk.settings.evidence_folder / "blobs"
    ended = await _run(desk, 7, "begin", lambda: shutil.rmtree(blobs))
    assert desk.playground.truth.publish_count() == 0
    assert ended.exit is Exit.DEFECT
    assert ended.ending is not None
    assert ended.ending.coded_reason() is Halt.EVIDENCE_NOT_STORED
    assert ended.operation.attempts == ()


async def test_evidence_that_is_lost_after_the_claim_is_named_and_changes_nothing(desk: Desk) -> None:
    blobs = desk.settings.evidence_folder / "blobs"
    ended = await _run(desk, 9, "begin", lambda: shutil.rmtree(blobs))
    assert desk.playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None
    assert "evidence" in ended.ending.detail
    assert "step 14" not in ended.ending.detail  # it was carried out to its end, the closing of the context included


async def test_a_receipt_that_cannot_be_written_changes_nothing_about_the_end(desk: Desk) -> None:
    place = desk.settings.receipts_folder

    def block() -> None:
        place.write_text("in the way of the folder")

    ended = await _run(desk, 12, "answered", block)
    assert desk.playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    state = ended.operation.state
    assert (state.transmission, state.outcome) == (Transmission.ANSWERED, Outcome.SUCCEEDED)
    assert str(place) in ended.receipt_problem
    assert not ended.receipt_paths.json.exists()

    async with desk.executor() as executor:  # a person can still look, and stop everything
        await executor.stop(by=PERSON, why="the disk is in disorder")
        assert (await executor.ended(ended.operation.id)).receipt_problem
        before = (await executor.operation(ended.operation.id)).version
    async with desk.executor() as executor:
        assert (await executor.operation(ended.operation.id)).version == before  # trying again leaves no trace
    place.unlink()
    async with desk.executor() as executor:
        assert [one.id for one in executor.recovered] == [ended.operation.id]
    assert ended.receipt_paths.json.exists()
