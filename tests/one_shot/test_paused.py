"""A worker is stopped at each moment from its claim to its answer, for longer than its lease; another process settles
what it left; it wakes, and goes on as if nothing had been (A5, C8, F3).

One effect at most, by the site's own record. What recovery settled stays: the waking worker may not write, what it saw
is added beside the record and changes no outcome, and its exit code says what the record says.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from child import IDLE, NOT_SENT, SUCCEEDED, UNKNOWN, Child, Shape, check_the_record, ending, eventually, shape_of
from child import let_the_leases_run_out as time_passes
from desk import PERSON, Desk

from executor.errors import Exit
from executor.model.reasons import NotSent
from executor.model.step_table import STEPS
from executor.service import Executor
from playground.faults import Fault

SCRIPT = Path(__file__).with_name("paused_runs.py")

pytestmark = [pytest.mark.browser, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Pause:
    step: int
    moment: str
    settled: Shape | None
    """None where it depends on how far the page had come: one of what the step table allows."""
    published: int | None
    lost: bool = False
    """The site commits and never answers."""

    def __str__(self) -> str:
        return f"{self.step}-{self.moment}" + ("-lost" if self.lost else "")


BEFORE_THE_RELEASE = (
    Pause(8, "claiming", IDLE, 0),
    Pause(8, "done", NOT_SENT, 0),
    Pause(9, "begin", NOT_SENT, 0),
    Pause(9, "done", NOT_SENT, 0),
    Pause(10, "begin", NOT_SENT, 0),
    Pause(10, "recorded", NOT_SENT, 0),
    Pause(11, "spooled", NOT_SENT, 0),
    Pause(11, "compared", NOT_SENT, 0),
    Pause(11, "connected", NOT_SENT, 0),
)
FROM_THE_RELEASE_ON = (
    Pause(11, "released", UNKNOWN, 0),
    Pause(11, "done", UNKNOWN, 1),
    Pause(12, "answered", SUCCEEDED, 1),
    Pause(12, "done", SUCCEEDED, 1),
    Pause(15, "done", SUCCEEDED, 1),
    # The gesture is made, and the page takes its own time.
    Pause(10, "done", None, None),
    Pause(12, "begin", None, None),
)
WITHOUT_AN_ANSWER = (
    # Recovery does not look. The worker has looked, or does, and sees the item: that changes nothing any more.
    Pause(12, "done", UNKNOWN, 1, lost=True),
    Pause(15, "done", UNKNOWN, 1, lost=True),
)
ON_POSTGRESQL = (
    # After each commit of the attempt, and on both sides of the release.
    Pause(8, "done", NOT_SENT, 0),
    Pause(10, "recorded", NOT_SENT, 0),
    Pause(11, "connected", NOT_SENT, 0),
    Pause(11, "released", UNKNOWN, 0),
    Pause(11, "done", UNKNOWN, 1),
    Pause(12, "answered", SUCCEEDED, 1),
)
EXITS = {IDLE: Exit.REFUSED, NOT_SENT: Exit.NOT_SENT, UNKNOWN: Exit.UNKNOWN, SUCCEEDED: Exit.SUCCEEDED}


@pytest.mark.parametrize(
    ("database", "pauses"),
    [
        ("sqlite", BEFORE_THE_RELEASE),
        ("sqlite", FROM_THE_RELEASE_ON),
        ("sqlite", WITHOUT_AN_ANSWER),
        ("postgresql", ON_POSTGRESQL),
    ],
    ids=["before-the-release", "from-the-release-on", "without-an-answer", "on-postgresql"],
)
async def test_paused_across_its_lease_it_has_one_effect_and_overwrites_nothing(
    database: str, pauses: tuple[Pause, ...], desk: Desk, request: pytest.FixtureRequest
) -> None:
    if database == "postgresql":
        desk.overrides["database_url"] = request.getfixturevalue("server").empty_database()
    if any(pause.lost for pause in pauses):
        desk.overrides["answer_s"] = 1.5
    async with desk.executor() as executor:
        approved = [(await desk.approved(executor, title=f"Notice {n}")).id for n, _ in enumerate(pauses)]
        order = {
            "settings": desk.settings.model_dump(mode="json"),
            "runs": [(operation, pause.step, pause.moment) for operation, pause in zip(approved, pauses, strict=True)],
        }
        with ending(Child.begin(SCRIPT, order)) as worker:
            for operation, pause in zip(approved, pauses, strict=True):
                await _paused(desk, executor, worker, operation, pause)
            assert worker.ended() == (0, {})


async def _paused(desk: Desk, executor: Executor, worker: Child, operation: str, pause: Pause) -> None:
    truth = desk.playground.truth
    truth.reset()
    desk.sign_in()
    if pause.lost:
        truth.inject(Fault.LOST, path_prefix="/form/publish")
    worker.told("go")
    assert worker.said() == {"stops": operation}, pause
    worker.stopped()
    since = time.monotonic()
    time_passes(desk)

    recovered = [one.id for one in await executor.recover(by=PERSON)]
    settled = await shape_of(executor, operation)
    assert recovered == ([] if settled == IDLE else [operation]), pause
    assert settled in STEPS[pause.step - 1].after_crash, pause
    assert pause.settled in (settled, None), pause
    standing, history = (await executor.receipt(operation)).standing, await executor.events(operation)
    if pause.published:
        eventually(lambda: truth.publish_count() == 1)  # it is on its way: the site may need a moment
    if pause.moment == "released" or pause.settled is None:
        # Only the limit on writing under a release holds it back now, and that goes by the clock.
        await asyncio.sleep(max(0.0, since + desk.settings.write_within_s + 0.1 - time.monotonic()))

    worker.go_on()
    said = worker.said()
    assert said == {"operation": operation, "exit": EXITS[settled]}, pause
    assert await check_the_record(desk, executor, operation) == settled, pause
    assert pause.published in (truth.publish_count(), None), pause
    assert truth.publish_count() == len(truth.published()) <= 1, pause
    now = await executor.receipt(operation)
    assert (await executor.events(operation))[: len(history)] == history, pause
    if settled != IDLE:
        assert now.standing is standing, pause
    if pause.settled == NOT_SENT:
        assert now.reason is not None
        assert now.reason.code == f"not_sent:{NotSent.LEASE_LOST}", pause
    for stop in await executor.stops():
        await executor.lift(stop.id, by=PERSON, why="looked")
