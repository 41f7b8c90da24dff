"""An author's code that ends more than itself costs a run neither its verdict nor its receipt."""

from __future__ import annotations

import pytest
from checks import nothing_dispatched
from desk import PERSON, Desk
from odd_authors import AUTHORS

from executor.errors import Exit
from executor.model.reasons import Halt
from executor.model.transitions import Outcome, Transmission
from flows.registry import Registry

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("flow", "reason", "detail"),
    [
        ("CancelsInPrepare", Halt.PREPARE_FAILED, "CancelledError"),
        ("ExitsInPrepare", Halt.PREPARE_FAILED, "SystemExit"),
        ("HoldsOnInPrepare", Halt.PREPARE_FAILED, "TimeoutError"),
        ("GivesNothingBackAtOnce", Halt.COULD_NOT_LOOK, "NoneType"),
        ("FindsNothingOnAnErrorPage", Halt.COULD_NOT_LOOK, "error_page"),
    ],
)
async def test_before_the_claim_it_halts(flow: str, reason: Halt, detail: str, desk: Desk) -> None:
    if flow == "HoldsOnInPrepare":
        desk.overrides["prepare_s"] = 8.0
    async with desk.executor() as executor:
        operation = await desk.approved(executor, AUTHORS + flow)
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, desk.playground.truth, reason, exit=Exit.DEFECT)
        assert ended.ending is not None
        assert detail in ended.ending.detail
        if flow == "HoldsOnInPrepare":
            type(Registry.discover().get(AUTHORS + flow)).let_go.set()  # type: ignore[attr-defined]  # that flow's own


@pytest.mark.parametrize("flow", ["CancelsInView", "ExitsInView", "GivesNothingBack"])
async def test_after_the_submit_it_could_not_look(flow: str, desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = await desk.approved(executor, AUTHORS + flow)
        ended = await executor.run(operation.id, by=PERSON)
    assert ended.exit is Exit.SUCCEEDED
    assert desk.playground.truth.publish_count() == 1
    state = ended.operation.state
    assert (state.transmission, state.outcome) == (Transmission.ANSWERED, Outcome.SUCCEEDED)
    assert ended.ending is not None
    after = [look for look in ended.ending.looks if look.view == "mine" and look.when == "after"]
    assert [look.result for look in after] == ["could_not_look"]
    assert ended.receipt_paths.json.exists()
