"""After a run that halted before the claim: record until when its operation waits (B6). The rule is
`executor.model.waiting`; here are the facts for it.
"""

from __future__ import annotations

import logging

from executor.ledger.ledger import LedgerError
from executor.model.ending import Ending
from executor.model.transitions import Dispatch
from executor.model.waiting import HaltedRun, Patience, wait_after
from executor.one_shot.run import Run

_log = logging.getLogger(__name__)


async def record_wait(run: Run, ending: Ending) -> None:
    """To be called once the ending is recorded. A ledger that cannot take it is logged and changes nothing about how
    the run ended: then the operation is only due again sooner."""
    operation, settings = run.operation, run.services.settings
    if ending.attempt is not None or ending.reason is None or operation.state.dispatch is not Dispatch.NOT_STARTED:
        return
    halted = HaltedRun(
        reason=ending.coded_reason(),
        left_writes=bool(ending.left) or any(one.messages_out for one in ending.websockets),
        site_unavailable=run.trouble.unavailable,
        retry_after_s=run.trouble.retry_after_s,
    )
    patience = Patience(
        halts=settings.halts_per_task, first_s=settings.halt_wait_s, longest_s=settings.longest_halt_wait_s
    )
    try:
        before = await run.services.ledger.halts(operation.intent.task)
        wait = wait_after(halted, patience, halts_before=before)
        if wait is not None:
            run.operation = await run.services.ledger.wait(
                operation.id, by=run.actor, halt=ending.reason, seconds=wait.seconds, why=wait.why
            )
    except LedgerError as error:
        _log.warning("%s: how long it waits could not be recorded (%s)", operation.id, error)
