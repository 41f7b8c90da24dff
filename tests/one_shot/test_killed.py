"""SIGKILL at the begin and at every moment of each step, as `executor.model.step_table` lists them (C8, F2).

After each kill another process opens the same home. The site has at most one item, and none where the kill came before
the release; the state is one that the table allows; there is a receipt; and what runs again publishes once in all.

On SQLite at every moment. On PostgreSQL, where a commit is made by another process, at each durable commit and around
the release; the rest of them with `--long`.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from _pytest.mark.structures import ParameterSet
from child import IDLE, NOT_SENT, SEEN, SUCCEEDED, UNKNOWN, Shape, check_the_record, child, eventually
from child import let_the_leases_run_out as time_passes
from desk import PERSON, Desk

from executor.errors import Exit
from executor.ledger.ledger import NotEligible
from executor.model.admission import refusal
from executor.model.step_table import STEPS
from executor.service import Executor
from playground.faults import Fault

pytestmark = pytest.mark.browser

Moment = tuple[int, str]

MOMENTS: tuple[Moment, ...] = tuple(
    (step.number, moment)
    for step in STEPS
    # Step 11 is begun by the page, not by the run.
    for moment in (*(["begin"] if step.number != 11 else []), *step.moments)
)
CLAIMED, RELEASED, WRITTEN, ANSWERED = (8, "done"), (11, "released"), (11, "done"), (12, "answered")

# The gesture is made in step 10 and the page takes its own time: what steps 11 and 12 do may be before or after.
UNORDERED = {(10, "done"), (12, "begin")}

RUN_AGAIN = {(1, "done"), (4, "done"), (8, "claiming"), CLAIMED, (10, "recorded"), (11, "connected")}
"""Where the whole run is made again; elsewhere it is asked whether it might be."""


@dataclass(frozen=True)
class Case:
    at: Moment
    flow: str = "playground-form"
    lost: bool = False
    """The site commits and never answers."""
    database: str = "sqlite"

    def __str__(self) -> str:
        parts = [f"{self.at[0]}-{self.at[1]}"]
        if self.flow != "playground-form":
            parts.append(self.flow[11:])
        if self.lost:
            parts.append("lost")
        if self.database != "sqlite":
            parts.append(self.database)
        return "-".join(parts)

    @property
    def expected(self) -> Shape | None:
        """The state after recovery; None where it depends on how far the page had come."""
        if self.at in UNORDERED:
            return None
        order = MOMENTS.index(self.at)
        if order < MOMENTS.index(CLAIMED):
            return IDLE
        if order < MOMENTS.index(RELEASED):
            return NOT_SENT
        if order < MOMENTS.index(ANSWERED):
            return UNKNOWN
        if not self.lost:
            return SUCCEEDED
        # Recovery does not look, so what the run had seen counts from its verdict on.
        return UNKNOWN if order < MOMENTS.index((16, "done")) else SEEN

    @property
    def published(self) -> int | None:
        if self.at in UNORDERED:
            return None
        return int(MOMENTS.index(self.at) >= MOMENTS.index(WRITTEN))


ON_SQLITE = (
    *(Case(at) for at in MOMENTS),
    # A draft is saved ahead by supporting writes.
    *(
        Case(at, flow="playground-panel")
        for at in ((4, "done"), CLAIMED, (10, "recorded"), (11, "connected"), RELEASED, ANSWERED, (16, "begin"))
    ),
    *(Case(at, lost=True) for at in ((12, "done"), (14, "done"), (15, "done"), (16, "done"), (17, "begin"))),
)


ALWAYS_ON_POSTGRESQL = {
    (2, "done"),  # leased, and the run's begin recorded
    CLAIMED,
    (10, "recorded"),
    (11, "connected"),
    RELEASED,
    WRITTEN,
    ANSWERED,
    (16, "done"),  # closed and judged
    (17, "begin"),  # its end recorded
    (17, "done"),  # its receipt recorded
}


def _on_postgresql() -> Iterator[ParameterSet]:
    for case in ON_SQLITE:
        plain = case.flow == "playground-form" and not case.lost
        marks = () if plain and case.at in ALWAYS_ON_POSTGRESQL else (pytest.mark.long,)
        yield pytest.param(replace(case, database="postgresql"), marks=marks)


@pytest.mark.parametrize("case", [*ON_SQLITE, *_on_postgresql()], ids=str)
async def test_killed(case: Case, desk: Desk, request: pytest.FixtureRequest) -> None:
    truth = desk.playground.truth
    if case.database == "postgresql":
        desk.overrides["database_url"] = request.getfixturevalue("server").empty_database()
    if case.lost:
        desk.overrides["answer_s"] = 1.5
        truth.inject(Fault.LOST, path_prefix="/form/publish")
    async with desk.executor() as executor:
        operation = (await desk.approved(executor, case.flow)).id
    with child(desk.settings, operation, case.at, sent="SIGKILL") as killed:
        assert killed.ended() == (-signal.SIGKILL, {})
    if case.published:
        eventually(lambda: truth.publish_count() == 1)  # it is on its way: the site may need a moment
    time_passes(desk)

    async with desk.executor() as executor:
        shape = await check_the_record(desk, executor, operation)
        assert shape in STEPS[case.at[0] - 1].after_crash
        assert case.expected in (shape, None)
        assert case.published in (truth.publish_count(), None)
        await _again(case, desk, executor, operation, shape)
        assert (await executor.ledger.verify_all()).flaws == ()
    assert truth.publish_count() == len(truth.published())


async def _again(case: Case, desk: Desk, executor: Executor, operation: str, shape: Shape) -> None:
    """Running it again is refused, or needs a fresh approval, or is the first run that comes to anything."""
    truth = desk.playground.truth
    before = truth.publish_count()
    if shape != IDLE:
        refused = await executor.run(operation, by=PERSON)
        assert (refused.exit, refused.ending) == (Exit.REFUSED, None)
        assert truth.publish_count() == before
    fingerprint = (await executor.operation(operation)).fingerprint
    if shape not in (IDLE, NOT_SENT):
        with pytest.raises(NotEligible):
            await executor.approve(operation, by=PERSON, fingerprint=fingerprint)
        return
    if shape == NOT_SENT:
        await executor.approve(operation, by=PERSON, fingerprint=fingerprint)
    found = await executor.operation(operation)
    assert refusal(await executor.ledger.admission(operation, found.flow)) is None
    if case.at in RUN_AGAIN:
        assert (await executor.run(operation, by=PERSON)).exit is Exit.SUCCEEDED
        assert truth.publish_count() == 1


async def test_the_browser_of_a_killed_run_ends_with_it(desk: Desk) -> None:
    """Nobody kills it by hand, and what it still holds has no way out: its gate is gone."""
    async with desk.executor() as executor:
        operation = (await desk.approved(executor)).id
    with child(desk.settings, operation, (10, "recorded"), sent="SIGKILL") as killed:
        assert killed.ended() == (-signal.SIGKILL, {})
        eventually(lambda: not killed.browser_groups())
    assert desk.playground.truth.publish_count() == 0
