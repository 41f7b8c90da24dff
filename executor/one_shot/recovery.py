"""Recovery: settle attempts that nobody closed (C8). It may run at any time, on live processes too.

Settling raises the account's token in the same transaction, so a sleeper that wakes can no longer release. What the
record proves decides: nothing possible, nothing to judge; answered, judged by what the contract read then; everything
else is `unknown`. Nothing is submitted, and no page is opened.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from executor.ledger.ledger import AttemptClosed, Judgement
from executor.ledger.thread import AsyncLedger
from executor.model.ending import AnswerRead, Ending, code
from executor.model.operation import Actor, Attempt, EventRecord, Operation
from executor.model.reasons import NotSent, Unsure
from executor.model.transitions import Event, Outcome, Transmission
from executor.model.verdict import Reading, Verdict, verdict
from flows.effect import Says


async def settle_open_attempts(ledger: AsyncLedger, *, by: Actor, expired_only: bool = True) -> Sequence[Operation]:
    """Settle what was left open; returns the operations as they stand now. With `expired_only` an attempt whose run
    still holds its lease is left alone."""
    settled = []
    for attempt in await ledger.open_attempts(expired_only=expired_only):
        operation = await _settle(ledger, attempt, by)
        if operation is not None:
            settled.append(operation)
    return settled


async def _settle(ledger: AsyncLedger, attempt: Attempt, by: Actor) -> Operation | None:
    operation = await ledger.operation(attempt.operation)
    events = await ledger.events(operation.id)
    answer = _last(events, Event.ANSWERED.value)
    reading = _reading(answer)
    judged = verdict(
        transmission=attempt.transmission,
        reading=reading,
        looks=(),
        baseline=None,
        account=operation.intent.account,
        guarantee=None,
    )
    sent = attempt.transmission is not Transmission.NONE_PROVEN
    reason: NotSent | Unsure = Unsure.PROCESS_LOST if sent else NotSent.PROCESS_LOST
    try:
        operation = await ledger.settle(attempt.id, by=by, why=reason.sentence, judgement=_judgement(judged, operation))
    except AttemptClosed:
        return None  # its own run, or another recovery, was faster
    conclusive = judged is not None and judged.outcome is not Outcome.UNKNOWN
    ending = Ending(
        run=f"recovery of {attempt.holder}",
        attempt=attempt.id,
        started_at=attempt.claimed_at,
        ended_at=datetime.now(UTC),
        step=_step(attempt),
        reason=None if conclusive else code(reason),
        detail="settled by recovery",
        transmission=operation.state.transmission,
        verdict_reason=judged.reason if judged else None,
        verdict_why=judged.why if judged else "",
        item=judged.item if judged else None,
        item_url=judged.url if judged else None,
        answer=_answer(answer, reading),
        baseline=_baseline(events),
    )
    operation = await ledger.note(
        operation.id, kind="run_ended", by=by, why=reason.sentence, data=ending.model_dump(mode="json")
    )
    if operation.state.outcome is Outcome.UNKNOWN:
        await ledger.stop(
            by=by,
            why=f"operation {operation.id} is unknown",
            flow=operation.flow.name,
            account_key=operation.account_key,
        )
    return operation


def _judgement(judged: Verdict | None, operation: Operation) -> Judgement | None:
    if judged is None or judged.outcome is Outcome.UNKNOWN:
        return None
    return Judgement(
        outcome=judged.outcome,
        reason=judged.reason.value,
        why=judged.why,
        evidence=judged.evidence,
        data={"item": judged.item, "url": judged.url, "action": operation.intent.action},
    )


def _reading(answer: EventRecord | None) -> Reading | None:
    read: dict[str, Any] | None = answer.data.get("reading") if answer is not None else None
    if not read:
        return None
    return Reading(says=Says(read["says"]), clause=read["clause"], item=read["item"], url=read["url"])


def _answer(answer: EventRecord | None, reading: Reading | None) -> AnswerRead | None:
    if answer is None:
        return None
    return AnswerRead(
        status=int(answer.data["status"]),
        complete=bool(answer.data["complete"]),
        says=reading.says.value if reading else Says.NOTHING.value,
        clause=reading.clause if reading else "",
        item=reading.item if reading else None,
        url=reading.url if reading else None,
    )


def _baseline(events: Sequence[EventRecord]) -> tuple[str, ...] | None:
    claimed = _last(events, Event.CLAIMED.value)
    ids = claimed.data.get("baseline") if claimed is not None else None
    return tuple(ids) if ids is not None else None


def _step(attempt: Attempt) -> int:
    """The step that the attempt is known to have reached."""
    if attempt.answered_at is not None:
        return 12
    if attempt.released_at is not None:
        return 11
    return 10 if attempt.gesture_at is not None else 8


def _last(events: Sequence[EventRecord], kind: str) -> EventRecord | None:
    return next((event for event in reversed(events) if event.kind == kind), None)
