"""After a run that halted before the claim, or that was lost before it: record until when its operation waits (B6).
The rule is `executor.model.waiting`; here are the facts for it.
"""

from __future__ import annotations

import logging

from executor.ledger.ledger import LedgerError
from executor.ledger.thread import AsyncLedger
from executor.model.ending import Ending, code
from executor.model.operation import Actor, Operation
from executor.model.reasons import NotSent
from executor.model.transitions import Dispatch, Event
from executor.model.waiting import RESUMED, WAITS, HaltedRun, Patience, wait_after
from executor.one_shot.recovery import RUN_ENDED, RUN_OVERTAKEN, RUN_STARTED
from executor.one_shot.run import Run
from executor.settings import Settings

_log = logging.getLogger(__name__)

BEGINS_ANEW = frozenset({WAITS, RESUMED, Event.APPROVED.value, Event.REOPENED.value})
"""After these, an earlier run that was lost counts no more: it was counted, or a person has acted since."""


async def record_wait(run: Run, ending: Ending) -> None:
    """To be called once the ending is recorded, while the run has its account. A ledger that cannot take it is
    logged and changes nothing about how the run ended: then the operation is only due again sooner."""
    operation, settings = run.operation, run.services.settings
    if ending.attempt is not None or ending.reason is None or operation.state.dispatch is not Dispatch.NOT_STARTED:
        return
    halted = HaltedRun(
        reason=ending.coded_reason(),
        left_writes=bool(ending.left) or any(one.messages_out for one in ending.websockets),
        site_unavailable=run.trouble.unavailable,
        retry_after_s=run.trouble.retry_after_s,
    )
    try:
        before = await run.services.ledger.halts(operation.intent.task)
        wait = wait_after(halted, _patience(settings), halts_before=before)
        if wait is not None:
            run.operation = await run.services.ledger.wait(
                operation.id, by=run.actor, halt=ending.reason, seconds=wait.seconds, why=wait.why
            )
    except LedgerError as error:
        _log.warning("%s: how long it waits could not be recorded (%s)", operation.id, error)


async def wait_of_a_lost_run(ledger: AsyncLedger, settings: Settings, operation: Operation, *, by: Actor) -> bool:
    """Record a wait where a run of this operation was lost before its claim; it left no attempt for recovery to find.
    Without one an operation that takes its worker down with it (memory, a crash) would be begun again by each restart,
    without an end. False where no run was lost. To be called by who acts as the account, so that no run is alive."""
    if operation.state.dispatch is not Dispatch.NOT_STARTED:
        return False
    lost: set[str] = set()
    for event in await ledger.events(operation.id):
        if event.kind == RUN_STARTED:
            lost.add(event.data["run"])
        elif event.kind in (RUN_ENDED, RUN_OVERTAKEN):
            lost.discard(event.data["run"])
        elif event.kind in BEGINS_ANEW:
            lost.clear()
    if not lost:
        return False
    # What it stored on the site nobody knows; at most a few more drafts, within the task's budget.
    halted = HaltedRun(reason=NotSent.PROCESS_LOST, left_writes=False, site_unavailable=False, retry_after_s=None)
    before = await ledger.halts(operation.intent.task)
    wait = wait_after(halted, _patience(settings), halts_before=before)
    assert wait is not None  # for this reason there is always one
    await ledger.wait(operation.id, by=by, halt=code(NotSent.PROCESS_LOST), seconds=wait.seconds, why=wait.why)
    return True


def _patience(settings: Settings) -> Patience:
    return Patience(halts=settings.halts_per_task, first_s=settings.halt_wait_s, longest_s=settings.longest_halt_wait_s)
