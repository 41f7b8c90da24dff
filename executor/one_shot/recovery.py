"""Recovery: settle attempts that nobody closed, and finish runs that were lost after they closed theirs (C8). It may
run at any time, on live processes too.

Settling raises the account's token in the same transaction, so a sleeper that wakes can no longer release. What the
record proves decides: nothing possible, nothing to judge; answered, judged by what the contract read then; everything
else is `unknown`. Nothing is submitted, and no page is opened.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from executor.ledger.ledger import AccountBusy, AttemptClosed, Judgement
from executor.ledger.thread import AsyncLedger
from executor.model.ending import AnswerRead, Ending, code
from executor.model.key import may_have_been_sent
from executor.model.operation import Actor, Attempt, EventRecord, Operation
from executor.model.reasons import NotSent, Unsure
from executor.model.transitions import Dispatch, Event, Outcome, Transmission
from executor.model.verdict import Reading, Verdict, verdict
from flows.effect import Says

RUN_STARTED = "run_started"
RUN_ENDED = "run_ended"
RUN_OVERTAKEN = "run_overtaken"
"""How a run ended that another one had overtaken; it explains nothing about the attempt that the operation has now."""
_CONCLUSIVE = "answered"
"""The reason with which a run closes an attempt whose answer was conclusive."""
_NOTE_S = 30.0
"""How long the account is held while somebody else's end is recorded: one short transaction, on a slow disk."""


def _always(operation: Operation) -> bool:
    del operation
    return True


async def settle_open_attempts(
    ledger: AsyncLedger,
    *,
    by: Actor,
    expired_only: bool = True,
    breaks: Callable[[Operation], bool] = _always,
) -> Sequence[Operation]:
    """Settle what was left open; returns the operations as they stand now. With `expired_only` an attempt whose run
    still holds its lease is left alone. `breaks` says whether an unknown of this operation breaks the circuit."""
    settled = []
    for attempt in await ledger.open_attempts(expired_only=expired_only):
        operation = await _settle(ledger, attempt, by, breaks)
        if operation is not None:
            settled.append(operation)
    return settled


async def _settle(
    ledger: AsyncLedger, attempt: Attempt, by: Actor, breaks: Callable[[Operation], bool]
) -> Operation | None:
    operation = await ledger.operation(attempt.operation)
    # As it is by now: a stop that is set for what somebody else has settled well would say what is not so.
    attempt = next(one for one in operation.attempts if one.id == attempt.id)
    if attempt.closed_at is not None:
        return None
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
        sent_before=bool(may_have_been_sent(operation)),
    )
    sent = _may_be_sent(attempt)
    reason: NotSent | Unsure = Unsure.PROCESS_LOST if sent else NotSent.PROCESS_LOST
    conclusive = judged is not None and judged.outcome is not Outcome.UNKNOWN
    if sent and not conclusive and breaks(operation):
        await break_circuit(ledger, operation, by)
    try:
        operation = await ledger.settle(attempt.id, by=by, why=reason.sentence, judgement=_judgement(judged, operation))
    except AttemptClosed:
        return None  # its own run, or another recovery, was faster
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
    return await ledger.note(
        operation.id, kind=RUN_ENDED, by=by, why=reason.sentence, data=ending.model_dump(mode="json")
    )


async def break_circuit(ledger: AsyncLedger, operation: Operation, by: Actor) -> None:
    """After an unknown nothing more runs with this flow as this account until a person has looked (C10). To be called
    before the outcome is recorded: a crash in between must not leave an unknown without its stop."""
    why = f"operation {operation.id} is unknown"
    await ledger.stop(by=by, why=why, flow=operation.flow.name, account_key=operation.account_key, once=True)


async def finish_lost_runs(ledger: AsyncLedger, receipts: Path, *, by: Actor) -> Sequence[Operation]:
    """Operations whose run closed its attempt and was lost before its receipt was in the folder `receipts`, among the
    newest. Their end is recorded when this returns; what is left to do is to write the receipts."""
    finished = []
    for operation in await ledger.operations():
        if _lacks_receipt(operation, receipts / f"{operation.id}.json") and await _record_end(ledger, operation, by):
            finished.append(await ledger.operation(operation.id))
    return finished


def _lacks_receipt(operation: Operation, receipt: Path) -> bool:
    """Whether the attempt is closed and its receipt does not tell the end: there is none, or one from before."""
    attempt = operation.attempt
    if attempt is None or operation.state.dispatch is not Dispatch.COMPLETED:
        return False
    try:
        told = json.loads(receipt.read_bytes())
        return bool(told["ids"]["attempt"] != attempt.id or told["times"]["run_ended"] is None)
    except (OSError, ValueError, KeyError, TypeError):
        return True


async def _record_end(ledger: AsyncLedger, operation: Operation, by: Actor) -> bool:
    """Record how the run ended, unless it is recorded. False when the run may still be alive and do so itself: it
    holds the account's lease until it has."""
    attempt = operation.attempt
    assert attempt is not None
    if _has_end(await ledger.events(operation.id)):
        return True
    try:
        # A name of its own: a lease may be taken again by who has it, and another recovery may be at work.
        lease = await ledger.lease(operation.account_key, holder=f"recovery_{secrets.token_hex(8)}", ttl_s=_NOTE_S)
    except AccountBusy:
        return False
    try:
        # Afresh: the run, or another recovery, may have recorded the end before it let the account go.
        events = await ledger.events(operation.id)
        if not _has_end(events):
            await _note_end(ledger, operation, attempt, events, by)
    finally:
        await ledger.surrender(lease)
    return True


def _has_end(events: Sequence[EventRecord]) -> bool:
    """Whether the end of the run that closed the last attempt is recorded."""
    closed = _last(events, Event.CLOSED.value)
    assert closed is not None
    return any(event.kind == RUN_ENDED and event.sequence > closed.sequence for event in events)


async def _note_end(
    ledger: AsyncLedger, operation: Operation, attempt: Attempt, events: Sequence[EventRecord], by: Actor
) -> None:
    closed = _last(events, Event.CLOSED.value)
    assert closed is not None
    reason = _reason_of(attempt)
    seen = next(
        (event for event in events if event.sequence > closed.sequence and event.kind.startswith("seen_")), None
    )
    answer = _last(events, Event.ANSWERED.value)
    ending = Ending(
        run=f"recovery of {attempt.holder}",
        attempt=attempt.id,
        started_at=attempt.claimed_at,
        ended_at=datetime.now(UTC),
        step=16,
        reason=code(reason) if reason is not None else None,
        detail="the run was lost after its verdict",
        transmission=attempt.transmission,
        verdict_reason=closed.data.get("verdict"),
        verdict_why=seen.why if seen is not None else "",
        item=closed.data.get("item"),
        item_url=seen.data.get("url") if seen is not None else None,
        answer=_answer(answer, _reading(answer)),
        baseline=_baseline(events),
    )
    await ledger.note(
        operation.id,
        kind=RUN_ENDED,
        by=by,
        why="the run was lost after its verdict",
        data=ending.model_dump(mode="json"),
    )


def _reason_of(attempt: Attempt) -> NotSent | Unsure | None:
    """The reason with which an attempt was closed, as its enum; None where the answer was conclusive."""
    if attempt.reason == _CONCLUSIVE:
        return None
    reasons: type[NotSent] | type[Unsure] = Unsure if _may_be_sent(attempt) else NotSent
    lost = reasons("process_lost")  # as after a settlement by a recovery that was lost itself
    return next((reason for reason in reasons if reason.value == attempt.reason), lost)


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


def _may_be_sent(attempt: Attempt) -> bool:
    return attempt.transmission is not Transmission.NONE_PROVEN


def _step(attempt: Attempt) -> int:
    """The step that the attempt is known to have reached."""
    if attempt.answered_at is not None:
        return 12
    if attempt.released_at is not None:
        return 11
    return 10 if attempt.gesture_at is not None else 8


def _last(events: Sequence[EventRecord], kind: str) -> EventRecord | None:
    return next((event for event in reversed(events) if event.kind == kind), None)
