"""The plain path, for each composer of the playground, over plain HTTP and TLS: one item, and the record says so."""

from __future__ import annotations

import pytest
from desk import Desk, Moments

from executor.errors import Exit
from executor.model.step_table import STEPS
from executor.model.transitions import Dispatch, Outcome, Transmission

VARIANTS = ("playground-form", "playground-spa", "playground-panel", "playground-autosave")

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("flow", VARIANTS)
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_published_once(flow: str, tls: bool, desk: Desk, tls_desk: Desk) -> None:
    at = tls_desk if tls else desk
    ended = await at.publish(flow)

    truth = at.playground.truth
    assert [(item.title, item.account, item.state) for item in truth.published()] == [
        ("Office closed on Friday", "editor", "published")
    ]
    assert truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    state = ended.operation.state
    assert (state.dispatch, state.transmission, state.outcome) == (
        Dispatch.COMPLETED,
        Transmission.ANSWERED,
        Outcome.SUCCEEDED,
    )
    assert ended.ending is not None
    assert ended.ending.item == str(truth.published()[0].id)
    assert ended.ending.effect is not None
    assert ended.ending.effect.from_page_only == ()
    assert [write.kind for write in ended.ending.left].count("effect") == 1


async def test_every_step_is_reported_in_order(desk: Desk) -> None:
    moments = Moments()
    await desk.publish(on_step=moments)
    begun = [number for number, moment in moments.heard if moment == "begin"]
    assert begun == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17]
    assert set(moments.heard) >= {
        (step.number, moment) for step in STEPS for moment in (*step.moments, *(["begin"] if step.number != 11 else []))
    }
    released = [moment for number, moment in moments.heard if number == 11]
    assert released == ["spooled", "compared", "connected", "released", "done"]
