"""Every fault at the socket, in front of a real browser: what the site's own record holds, and what the run claims.

The table says both. A claim is checked against the record twice: by the row, and by the rule that holds for all rows
(`_honest`). F1.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import pytest
from desk import Desk

from executor.errors import Exit
from executor.model.reasons import Unsure
from executor.model.transitions import Outcome, Transmission
from executor.service import Ended
from flows.playground import PlaygroundForm
from playground.faults import Fault
from playground.truth import Truth

pytestmark = pytest.mark.browser


@dataclass(frozen=True)
class Row:
    fault: Fault
    published: int
    exit: Exit
    transmission: Transmission
    reason: Unsure | None = None
    argument: str | float | None = None


ANSWERED, POSSIBLE = Transmission.ANSWERED, Transmission.POSSIBLE

ROWS = (
    # The site committed. Without an answer that says so, the account's own view is what establishes it.
    Row(Fault.LATE, 1, Exit.SUCCEEDED, ANSWERED, argument=1),
    Row(Fault.LOST, 1, Exit.SUCCEEDED, POSSIBLE, Unsure.NO_ANSWER),
    Row(Fault.RESET_AFTER, 1, Exit.SUCCEEDED, POSSIBLE, Unsure.NO_ANSWER),
    Row(Fault.CLOSE_AFTER, 1, Exit.SUCCEEDED, POSSIBLE, Unsure.NO_ANSWER),
    Row(Fault.TRUNCATED, 1, Exit.SUCCEEDED, POSSIBLE, Unsure.ANSWER_CUT),
    Row(Fault.STATUS_408_AFTER, 1, Exit.SUCCEEDED, ANSWERED, Unsure.ANSWER_SAYS_NOTHING),
    Row(Fault.STATUS_500_AFTER, 1, Exit.SUCCEEDED, ANSWERED, Unsure.ANSWER_SAYS_NOTHING),
    Row(Fault.NO_CONTENT, 1, Exit.SUCCEEDED, ANSWERED, Unsure.ANSWER_SAYS_NOTHING),
    # It did not. Until the listing's window has passed that cannot be known (`_absence_shown` says which it was).
    Row(Fault.LOST_BEFORE, 0, Exit.UNKNOWN, POSSIBLE, Unsure.NO_ANSWER),
    Row(Fault.RESET_BEFORE, 0, Exit.UNKNOWN, POSSIBLE, Unsure.NO_ANSWER),
    Row(Fault.CLOSE_BEFORE, 0, Exit.UNKNOWN, POSSIBLE, Unsure.NO_ANSWER),
    Row(Fault.STATUS_500_BEFORE, 0, Exit.UNKNOWN, ANSWERED, Unsure.ANSWER_SAYS_NOTHING),
    # The second hop of a 307 would carry the body elsewhere: the gate does not follow it.
    Row(Fault.REDIRECT_307, 0, Exit.UNKNOWN, ANSWERED, Unsure.ANSWER_SAYS_NOTHING),
    # The contract names clauses for these two.
    Row(Fault.REDIRECT_LOGIN, 0, Exit.REJECTED, ANSWERED),
    Row(Fault.QUEUED, 0, Exit.ACCEPTED, ANSWERED),
)

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
    _honest(ended, truth)
    assert ended.exit is (Exit.REJECTED if row.exit is Exit.UNKNOWN and _absence_shown(ended) else row.exit)
    assert ended.operation.state.transmission is row.transmission
    assert ended.ending is not None
    assert ended.ending.reason == (f"unsure:{row.reason.value}" if row.reason else None)


def _absence_shown(ended: Ended) -> bool:
    """Whether a complete look began after the contract's window: then absence is a fact, and the verdict must use it.
    Where the run was quick, it was too early to tell."""
    absence = PlaygroundForm.contract.absence
    assert ended.ending is not None
    assert absence is not None
    released = ended.ending.effect.released_at if ended.ending.effect else None
    assert released is not None
    window = timedelta(seconds=absence.consistency_window_s)
    return any(
        look.when == "after" and look.result == "not_found" and look.complete and look.at - released > window
        for look in ended.ending.looks
        if look.view == absence.view
    )


@pytest.mark.parametrize("flow", ["playground-form", "playground-spa"])
@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.CLOSE_AFTER, Fault.STATUS_408_AFTER])
async def test_one_click_is_one_commit_where_plain_chromium_makes_two(flow: str, fault: Fault, tls_desk: Desk) -> None:
    """The fault strikes any connection: the effect travels on a fresh one, so a fault that waits for a reused one
    would never be met. What plain Chromium does with it is a test of the playground."""
    truth = tls_desk.playground.truth
    truth.inject(fault, path_prefix="/", times=5)
    ended = await tls_desk.publish(flow)
    assert truth.publish_count() == 1
    _honest(ended, truth)


def _honest(ended: Ended, truth: Truth) -> None:
    """What holds for every row: no duplicate, no claim beyond the site's record, and a receipt that agrees."""
    state, published = ended.operation.state, truth.publish_count()
    assert published <= 1
    match state.outcome:
        case Outcome.SUCCEEDED:
            assert published == 1
        case Outcome.REJECTED | Outcome.UNOBSERVED:
            assert published == 0
        case Outcome.ACCEPTED:
            assert len(truth.items(state="queued")) == 1
        case Outcome.UNKNOWN:
            assert "unknown" in ended.receipt_paths.text.read_text().lower().splitlines()[0]
    if state.transmission is Transmission.NONE_PROVEN:
        assert published == 0
