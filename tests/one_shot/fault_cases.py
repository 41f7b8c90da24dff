"""What the site's record and the run must say after each fault at the socket: one table, for whichever composer sent.

A claim is checked twice: by its row, and by the rules that hold for all rows (`honest`). F1.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from executor.errors import Exit
from executor.model.reasons import Unsure
from executor.model.step_table import STEPS
from executor.model.transitions import Outcome, Transmission
from executor.receipts.guidance import Standing
from executor.service import Ended
from flows.playground import PlaygroundForm
from playground.faults import Fault
from playground.truth import Truth


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
    # It did not. Until the listing's window has passed that cannot be known (`absence_shown` says which it was).
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


def absence_shown(ended: Ended) -> bool:
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


def honest(ended: Ended, truth: Truth) -> None:
    """What holds for every row: no duplicate, a state that the step table has, no claim beyond the site's record, and a
    receipt that agrees."""
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
    assert (state.dispatch, state.transmission, state.outcome) in STEPS[-1].after
    assert ended.receipt.standing is STANDING[state.outcome]
    assert ended.ending is not None
    assert [write.kind for write in ended.ending.left].count("effect") <= 1


STANDING = {
    Outcome.SUCCEEDED: Standing.SUCCEEDED,
    Outcome.ACCEPTED: Standing.ACCEPTED,
    Outcome.REJECTED: Standing.REJECTED,
    Outcome.UNKNOWN: Standing.UNKNOWN,
    Outcome.UNOBSERVED: Standing.NOT_SENT,
}
