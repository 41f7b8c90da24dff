"""Where an operation stands, read from its record: the last run's end, the reason that counts, what follows from it.

Pure. The state of the operation decides; an ending only explains the attempt that it belongs to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from executor.model.admission import Refusal, approval_refusal
from executor.model.ending import Ending, parse_reason
from executor.model.failure import FailureClass, classify
from executor.model.key import key_facts, rejected_by_absence
from executor.model.operation import Disposition, EventRecord, Operation
from executor.model.reasons import Reason
from executor.model.retry import Eligibility, KeyFacts, eligibility
from executor.model.transitions import Dispatch, Event, Outcome
from executor.model.verdict import Discrepancy
from executor.receipts.guidance import Case, Standing
from flows.effect import Contract


@dataclass(frozen=True, slots=True)
class RunRefused:
    """A run that was refused before it opened a browser. `because`: the operations or stops in the way."""

    reason: Refusal
    because: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The record of one operation, read for a receipt. `ending` is None where the last one belongs to an earlier
    attempt, or none was recorded."""

    ending: Ending | None
    refused: RunRefused | None
    reason: Reason | None
    standing: Standing
    failure: FailureClass | None
    eligibility: Eligibility
    key: KeyFacts | None
    case: Case

    @classmethod
    def of(cls, operation: Operation, events: Sequence[EventRecord], contract: Contract | None, now: datetime) -> Self:
        """`now` matters to a provider's key alone, whose lifetime ends by itself. Raises ValueError when a stored
        ending or reason cannot be read."""
        ending, refused = _last_run(events)
        if ending is not None and _superseded(ending, operation):
            ending = None
        if operation.state.dispatch is Dispatch.COMPLETED:
            # Why another attempt was refused is in the timeline; it explains nothing about the one that was made.
            refused = None
        reason = refused.reason if refused is not None else ending.coded_reason() if ending is not None else None
        standing = _standing(operation, refused, reason)
        ran = standing not in (Standing.NOT_RUN, Standing.STARTED)
        failure = classify(reason, operation.state.outcome) if ran else None
        approval = operation.approval
        key = key_facts(
            operation,
            events,
            key=contract.key if contract is not None else None,
            flow=approval.flow if approval is not None else operation.flow,
            now=now,
        )
        may = eligibility(operation, key=key, rejected_by_absence=rejected_by_absence(events))
        at = events[-1].at if events else operation.created_at
        # Whether the code is still the approved one is not in the record; the run itself finds out.
        approved = approval_refusal(operation, approval, approval.flow if approval else operation.flow, at) is None
        case = Case(
            standing=standing,
            reason=reason,
            eligibility=may,
            failure=failure,
            discrepancy=_discrepancy(ending, events),
            approved=approved,
            closed=operation.disposition in (Disposition.ABANDONED, Disposition.CLOSED),
            looks_allowed=contract is None or contract.look_after,
        )
        return cls(
            ending=ending,
            refused=refused,
            reason=reason,
            standing=standing,
            failure=failure,
            eligibility=may,
            key=key,
            case=case,
        )


def _discrepancy(ending: Ending | None, events: Sequence[EventRecord]) -> Discrepancy | None:
    """What did not fit together when somebody last judged: the run itself, or a look after it."""
    for event in reversed(events):
        if event.kind == "run_ended":
            break
        if event.kind.startswith("seen_") and isinstance(found := event.data.get("discrepancy"), str):
            return Discrepancy(found)
    return ending.discrepancy if ending is not None else None


def _superseded(ending: Ending, operation: Operation) -> bool:
    """Whether the ending is that of an earlier attempt: the operation was reopened, or a new attempt is open."""
    if operation.state.dispatch is Dispatch.NOT_STARTED:
        return ending.attempt is not None
    return operation.attempt is not None and ending.attempt != operation.attempt.id


def _standing(operation: Operation, refused: RunRefused | None, reason: Reason | None) -> Standing:
    if operation.state.dispatch is Dispatch.STARTED:
        return Standing.STARTED
    match operation.state.outcome:
        case Outcome.UNKNOWN:
            return Standing.UNKNOWN
        case Outcome.ACCEPTED:
            return Standing.ACCEPTED
        case Outcome.SUCCEEDED:
            return Standing.SUCCEEDED
        case Outcome.REJECTED:
            return Standing.REJECTED
        case Outcome.UNOBSERVED:
            if operation.state.dispatch is Dispatch.COMPLETED:
                return Standing.NOT_SENT
            if refused is not None:
                return Standing.REFUSED
            return Standing.HALTED if reason is not None else Standing.NOT_RUN


def _last_run(events: Sequence[EventRecord]) -> tuple[Ending | None, RunRefused | None]:
    """The last run's ending, and the refusal that came after it. A refusal because the operation was dispatched before
    says nothing new about it, so the ending before it counts."""
    refused: RunRefused | None = None
    for event in reversed(events):
        if event.kind == "run_ended":
            return Ending.model_validate(dict(event.data)), refused
        if event.kind == Event.CLAIMED.value:
            return None, refused  # an attempt without a recorded end: what came before it explains nothing any more
        if event.kind == "refused" and refused is None:
            found = _run_refused(event)
            refused = found if found.reason is not Refusal.ALREADY_DISPATCHED else None
    return None, refused


def _run_refused(event: EventRecord) -> RunRefused:
    text = str(event.data["reason"])
    reason = parse_reason(text if ":" in text else f"refusal:{text}")
    if not isinstance(reason, Refusal):
        raise ValueError(f"event {event.sequence} of {event.operation} is a refusal with the reason {text}")
    return RunRefused(reason, tuple(str(one) for one in event.data.get("because") or ()))
