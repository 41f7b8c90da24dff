"""Step 17: the handoff when it is unresolved, the receipt with its signature, and the exit code that goes with them.

From the record alone, so that it can be taken by the run itself, by recovery after it, or asked for in a year. It may
not judge: what the record does not say, the receipt does not either.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evidence.store import EvidenceError
from executor.errors import Exit
from executor.ledger.thread import AsyncLedger
from executor.model.admission import Refusal, Refused
from executor.model.ending import Ending
from executor.model.operation import Actor, ActorKind, Operation
from executor.model.reasons import Halt, NotSent
from executor.model.step_table import STEPS
from executor.model.transitions import Outcome
from executor.one_shot.recovery import RUN_ENDED
from executor.one_shot.run import Listener, StepEvent, tell
from executor.one_shot.vouching import Kept, is_logged, keep, unvouched
from executor.receipts import Handover, Receipt, ReceiptPaths, build_receipt, paths_of
from executor.settings import Settings
from flows.effect import Contract

_log = logging.getLogger(__name__)

ITSELF = Actor(ActorKind.EXECUTOR, "interlock")
"""The program, as the author of what no run and no person records."""


_TOLD = (RUN_ENDED, "refused", "handoff")
"""After these a receipt is written."""


@dataclass(frozen=True)
class Ended:
    """A run that is over. `ending` is None when it was refused before it began."""

    operation: Operation
    ending: Ending | None
    receipt: Receipt
    receipt_paths: ReceiptPaths
    exit: Exit
    receipt_problem: str = ""
    """Why the receipt is not at those paths, or is there and not signed and logged; empty when all is well. The record
    has what is in it, and the next start mends it."""
    refused: Refused | None = None
    """Why it was refused before it began. The receipt tells of the run before it."""


@dataclass(frozen=True)
class LastStep:
    """What step 17 needs. `contract` gives that of a flow by its name in the record, None when there is none any more;
    who owns what stays unresolved is a setting of the flow and the site."""

    ledger: AsyncLedger
    settings: Settings
    contract: Callable[[str], Contract | None]
    listener: Listener | None

    @property
    def folder(self) -> Path:
        return self.settings.receipts_folder

    async def receipt(self, operation: str) -> Receipt:
        """The receipt as the record stands now."""
        found = await self.ledger.operation(operation)
        events = await self.ledger.events(found.id)
        settings = self.settings.for_run(found.flow.name, found.intent.destination)
        handover = Handover(settings.owner, settings.queue, timedelta(seconds=settings.respond_by_s))
        return build_receipt(found, events, self.contract(found.flow.name), now=datetime.now(UTC), handover=handover)

    async def take(self, operation: str, ending: Ending | None, refused: Refused | None = None) -> Ended:
        """Hand over, write the receipt, and say how it ended. `refused` is why no run began."""
        if ending is not None:
            self._report(operation, "begin")
        receipt, problem = await self.write(operation)
        if ending is not None:
            self._report(operation, "done")
        found = await self.ledger.operation(operation)
        code = exit_of(found, ending) if refused is None else Exit.REFUSED
        return Ended(found, ending, receipt, paths_of(receipt, self.folder), code, problem, refused)

    async def as_it_ended(self, operation: str) -> Ended:
        """How the last run ended, as it was recorded."""
        events = await self.ledger.events(operation)
        last = next((event for event in reversed(events) if event.kind == RUN_ENDED), None)
        ending = Ending.model_validate(dict(last.data)) if last is not None else None
        found = await self.ledger.operation(operation)
        receipt = await self.receipt(operation)
        kept = await asyncio.to_thread(keep, receipt, self.settings)
        problem = kept.problem or kept.unsigned
        return Ended(found, ending, receipt, paths_of(receipt, self.folder), exit_of(found, ending), problem)

    async def write(self, operation: str) -> tuple[Receipt, str]:
        """First the handoff, when it is unresolved, then the receipt that names it; then the record says which receipt
        was written. Returns it with the reason why it could not be written: a folder that cannot be written to changes
        nothing about how a run ended, and keeps nobody from stopping the next one."""
        receipt = await self.receipt(operation)
        to_whom = receipt.ownership
        if to_whom.owner is not None and not await self._handed_off(operation):
            until = to_whom.respond_by.isoformat() if to_whom.respond_by is not None else None
            await self.ledger.note(
                operation,
                kind="handoff",
                by=ITSELF,
                why=to_whom.reason,
                data={"owner": to_whom.owner, "queue": to_whom.queue, "respond_by": until},
            )
            receipt = await self.receipt(operation)
        kept = await asyncio.to_thread(keep, receipt, self.settings)
        if kept.problem or kept.unsigned:
            _log.warning("%s: %s", operation, kept.problem or kept.unsigned)
        if not kept.problem:
            await self._note(operation, receipt, kept)
        return receipt, kept.problem or kept.unsigned

    async def mend(self, operations: Sequence[str]) -> None:
        """Make those receipts anew whose writer was lost before they were signed and logged, or that could not be. One
        that the record says was signed stays as it is, whatever became of it since: that is for
        `interlock evidence verify` to say."""
        try:
            for operation in await asyncio.to_thread(unvouched, operations, self.settings):
                if not await self._was_lost(operation):
                    continue
                receipt = await self.receipt(operation)
                kept = await asyncio.to_thread(keep, receipt, self.settings)
                if kept.problem or kept.unsigned:
                    _log.warning("%s: %s", operation, kept.problem or kept.unsigned)
                    return  # it would be the same for the others
                await self._note(operation, receipt, kept)
        except (OSError, EvidenceError) as error:
            _log.warning("receipts were not looked through: %s", error)

    async def _was_lost(self, operation: str) -> bool:
        """Whether the record knows of no receipt that tells the end of the last run and is in the log."""
        noted = 0
        digest = ""
        for event in await self.ledger.events(operation):
            if event.kind == "receipt":
                noted, digest = event.sequence, str(event.data["sha256"])
            elif event.kind in _TOLD:
                noted = 0
        return not noted or not await asyncio.to_thread(is_logged, operation, digest, self.settings)

    async def _note(self, operation: str, receipt: Receipt, kept: Kept) -> None:
        said = {"sha256": hashlib.sha256(kept.written).hexdigest(), "version": receipt.record.version}
        await self.ledger.note(
            operation,
            kind="receipt",
            by=ITSELF,
            why=kept.unsigned or "written",
            data={**said, "signed": not kept.unsigned},
        )

    async def _handed_off(self, operation: str) -> bool:
        """Whether the attempt that is unresolved has been handed to somebody already."""
        events = await self.ledger.events(operation)
        last = {kind: max((e.sequence for e in events if e.kind == kind), default=0) for kind in ("handoff", "claimed")}
        return last["handoff"] > last["claimed"]

    def _report(self, operation: str, moment: str) -> None:
        if self.listener is not None:
            tell(self.listener, StepEvent(STEPS[16].number, STEPS[16].name, moment, operation))


def exit_of(operation: Operation, ending: Ending | None) -> Exit:
    """The exit code of a run. `unknown` wins over everything that could look better; any other outcome counts only
    where it is that of this run's own attempt."""
    found = ending is not None and ending.coded_reason() is Halt.SETTLED_BY_LOOKING
    own = ending is None or found or (operation.attempt is not None and operation.attempt.id == ending.attempt)
    match operation.state.outcome:
        case Outcome.SUCCEEDED if own:
            return Exit.SUCCEEDED
        case Outcome.ACCEPTED if own:
            return Exit.ACCEPTED
        case Outcome.REJECTED if own:
            return Exit.REJECTED
        case Outcome.UNKNOWN:
            return Exit.UNKNOWN
        case _:
            pass
    reason = ending.coded_reason() if ending is not None else None
    if isinstance(reason, NotSent):
        return Exit.NOT_SENT
    if isinstance(reason, Refusal) or (isinstance(reason, Halt) and reason.is_policy):
        return Exit.REFUSED
    return Exit.DEFECT
