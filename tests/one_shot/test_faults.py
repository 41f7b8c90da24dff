"""Every fault at the socket, in front of a real browser: what the site's own record holds, and what the run claims.

The table (`fault_cases`) says both. F1.
"""

from __future__ import annotations

import pytest
from desk import Desk
from fault_cases import ROWS, Row, absence_shown, honest

from executor.errors import Exit
from playground.faults import Fault

pytestmark = pytest.mark.browser


QUICK = {Fault.LOST, Fault.RESET_AFTER, Fault.STATUS_500_BEFORE, Fault.QUEUED}
"""For the composers that differ only in what goes before the effect."""

CASES = [
    pytest.param(flow, row, id=f"{flow.removeprefix('playground-')}-{row.fault.value}")
    for flow in ("playground-form", "playground-spa", "playground-panel", "playground-autosave")
    for row in ROWS
    if flow in ("playground-form", "playground-spa") or row.fault in QUICK
]


@pytest.mark.parametrize(("flow", "row"), CASES)
async def test_fault(flow: str, row: Row, desk: Desk) -> None:
    truth = desk.playground.truth
    truth.inject(row.fault, path_prefix="/", argument=row.argument)
    ended = await desk.publish(flow)

    assert truth.pending_faults() == [], "the fault was not met, so the case shows nothing"
    assert truth.publish_count() == row.published
    honest(ended, truth)
    assert ended.exit is (Exit.REJECTED if row.exit is Exit.UNKNOWN and absence_shown(ended) else row.exit)
    assert ended.operation.state.transmission is row.transmission
    assert ended.ending is not None
    assert ended.ending.reason == (f"unsure:{row.reason.value}" if row.reason else None)


@pytest.mark.parametrize("flow", ["playground-form", "playground-spa"])
@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.CLOSE_AFTER, Fault.STATUS_408_AFTER])
async def test_one_click_is_one_commit_where_plain_chromium_makes_two(flow: str, fault: Fault, tls_desk: Desk) -> None:
    """The fault strikes any connection: the effect travels on a fresh one, so a fault that waits for a reused one
    would never be met. What plain Chromium does with it is a test of the playground."""
    truth = tls_desk.playground.truth
    truth.inject(fault, path_prefix="/", times=5)
    ended = await tls_desk.publish(flow)
    assert truth.publish_count() == 1
    honest(ended, truth)
