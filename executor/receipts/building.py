"""Build a receipt from the record (E1, E4).

`build_receipt` is a pure function of operation, events and the flow's contract: the receipt of today's run and the one
made in a year say the same. It never claims more than the record, and holds nothing of the payload: free text of the
record has payload values cut out, addresses lose their query, items lose their titles.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from executor.model.ending import Ending, code
from executor.model.operation import ActorKind, EventRecord, Operation, Policy
from executor.model.retry import Permits
from executor.model.step_table import STEPS
from executor.model.verdict import Discrepancy, VerdictReason
from executor.receipts.guidance import (
    ActionPermitted,
    Detector,
    Standing,
    detector,
    permitted,
    prohibited,
    verdict_detector,
)
from executor.receipts.reading import Reading
from executor.receipts.schema import (
    Answer,
    Approved,
    Attempted,
    Authorized,
    Dimensions,
    EffectRequestSeen,
    Evidence,
    Failure,
    Handle,
    Happening,
    Ids,
    ItemSeen,
    Look,
    Observed,
    Ownership,
    Permitted,
    PictureKept,
    Position,
    Prohibited,
    ProviderKey,
    Receipt,
    Retry,
    Stage,
    Times,
    UndoInstructions,
    WebSocketOpen,
    Why,
    WriteThatLeft,
)
from executor.receipts.sent import attempts_made, effect_request, without_query
from executor.receipts.words import Payloadless, unknowns, verdict_line
from flows.effect import Contract

DEFAULT_OWNER = "operator"
"""Who owns an unresolved operation where no handoff names somebody."""
RESPOND_WITHIN = timedelta(hours=4)
"""From the start of the dispatch: half a working day, so that an unknown of the morning is looked at before evening."""


@dataclass(frozen=True, slots=True)
class Handover:
    """To whom what stays unresolved goes, and how soon they look, where no handoff was recorded that says so."""

    owner: str = DEFAULT_OWNER
    queue: str | None = None
    respond_within: timedelta = RESPOND_WITHIN


def build_receipt(
    operation: Operation,
    events: Sequence[EventRecord],
    contract: Contract | None,
    *,
    now: datetime,
    handover: Handover = Handover(),
) -> Receipt:
    """The receipt of an operation as its record stands. `contract` is None when the flow cannot be loaded any more;
    then undo, the key's terms and whether looks are allowed are left out. `now` is only the time of making.

    Raises ValueError (pydantic's, or a reason that is not known) when a stored ending cannot be read.
    """
    return _Builder(operation, events, contract, handover, now).receipt(now)


class _Builder:
    def __init__(
        self,
        operation: Operation,
        events: Sequence[EventRecord],
        contract: Contract | None,
        handover: Handover,
        now: datetime,
    ) -> None:
        self.handover = handover
        self.operation = operation
        self.events = events
        self.contract = contract
        self.clean = Payloadless.of(operation.intent)
        self.reading = Reading.of(operation, events, contract, now)
        self.ending = self.reading.ending

    def receipt(self, now: datetime) -> Receipt:
        operation, ending, reading, case = self.operation, self.ending, self.reading, self.reading.case
        may = permitted(case)
        return Receipt(
            made_at=now,
            standing=reading.standing,
            verdict=verdict_line(
                reading.standing,
                operation.intent.action,
                case.discrepancy,
                ending.verdict_reason if ending else None,
                by_key=reading.eligibility.permits is Permits.SAME_KEY,
            ),
            ids=Ids(
                operation=operation.id,
                task=operation.intent.task,
                attempt=operation.attempt.id if operation.attempt else None,
                attempts=len(operation.attempts),
                run=ending.run if ending else None,
            ),
            times=self._times(),
            stage=_stage(ending),
            dimensions=Dimensions(
                permission=operation.state.permission,
                dispatch=operation.state.dispatch,
                transmission=operation.state.transmission,
                outcome=operation.state.outcome,
                disposition=operation.disposition,
            ),
            failure=Failure(failure_class=reading.failure, response=reading.failure.response)
            if reading.failure
            else None,
            reason=self._why(),
            authorized=self._authorized(),
            attempted=self._attempted(),
            observed=self._observed(),
            unknown=unknowns(reading.standing, operation, ending),
            permitted=tuple(
                Permitted(action=action, sentence=action.sentence, command=self._command(action)) for action in may
            ),
            prohibited=tuple(Prohibited(action=action, sentence=action.sentence) for action in prohibited(case)),
            next_step=may[0].sentence,
            ownership=self._ownership(case.discrepancy),
            handle=self._handle(),
            retry=Retry(
                policy=operation.policy,
                permits=reading.eligibility.permits,
                reason=reading.eligibility.reason,
                sentence=reading.eligibility.reason.sentence,
                until=reading.key.until if reading.key is not None and operation.policy is Policy.IDEMPOTENT else None,
            ),
            undo=self._undo(),
            evidence=self._evidence(),
            read_from_page_only=ending.effect.from_page_only if ending and ending.effect else (),
            record=Position(chain_head=operation.head, version=operation.version),
            timeline=tuple(
                Happening(
                    sequence=event.sequence,
                    at=event.at,
                    actor=str(event.actor),
                    kind=event.kind,
                    why=self.clean(event.why),
                )
                for event in self.events
            ),
        )

    def _times(self) -> Times:
        attempt, ending = self.operation.attempt, self.ending
        return Times(
            proposed=self.operation.created_at,
            run_started=ending.started_at if ending else None,
            dispatch_started=attempt.claimed_at if attempt else None,
            gesture=attempt.gesture_at if attempt else None,
            released=attempt.released_at if attempt else None,
            answered=attempt.answered_at if attempt else None,
            closed=attempt.closed_at if attempt else None,
            run_ended=ending.ended_at if ending else None,
        )

    def _why(self) -> Why | None:
        ending = self.ending
        if (judged := self._moved_to_outcome()) is not None:
            return self._why_judged(judged)
        if self.reading.reason is not None:
            return Why(
                code=code(self.reading.reason),
                sentence=self.reading.reason.sentence,
                detail=self.clean(ending.detail) if ending and self.reading.refused is None else "",
                detector=detector(self.reading.reason),
                because=self.reading.refused.because if self.reading.refused else (),
            )
        if ending is not None and ending.verdict_reason is not None:
            return Why(
                code=f"verdict:{ending.verdict_reason.value}",
                sentence=self.clean(ending.verdict_why),
                detail=self.clean(ending.detail),
                detector=verdict_detector(ending.verdict_reason),
                because=(),
            )
        return None

    def _why_judged(self, event: EventRecord) -> Why:
        """Why an outcome was reached: the event that moved it, which may be later than the run."""
        recorded = event.data.get("reason")
        if not isinstance(recorded, str):
            recorded = self.ending.verdict_reason.value if self.ending and self.ending.verdict_reason else "recorded"
        recorded = recorded.removeprefix("verdict:")
        if event.actor.kind is ActorKind.PERSON:
            noticed = Detector.PERSON
        elif recorded in {reason.value for reason in VerdictReason}:
            noticed = verdict_detector(VerdictReason(recorded))
        else:
            noticed = Detector.RUNNER
        return Why(
            code=recorded if ":" in recorded else f"verdict:{recorded}",
            sentence=self.clean(event.why),
            detail="",
            detector=noticed,
            because=(),
        )

    def _moved_to_outcome(self) -> EventRecord | None:
        """The event that moved the outcome to where it is; None where nothing was established."""
        if self.reading.standing not in (Standing.SUCCEEDED, Standing.ACCEPTED, Standing.REJECTED):
            return None
        return _last(self.events, f"seen_{self.operation.state.outcome.value}")

    def _authorized(self) -> Authorized:
        operation = self.operation
        return Authorized(
            action=operation.intent.action,
            account=operation.intent.account,
            destination=operation.intent.destination,
            fingerprint=operation.fingerprint,
            flow=operation.flow.name,
            flow_version=operation.flow.version,
            proposed_by=str(operation.proposed_by),
            deadline=operation.intent.deadline,
            approval=self._approval(),
        )

    def _approval(self) -> Approved | None:
        approval = self.operation.approval
        if approval is None:
            return None
        return Approved(
            reference=approval.id,
            by=str(approval.by),
            at=approval.at,
            expires=approval.expires,
            revoked_at=approval.revoked_at,
            attempts=approval.attempts,
            used=approval.used,
            flow_version=approval.flow.version,
            code_digest=approval.flow.code_digest,
        )

    def _attempted(self) -> Attempted:
        attempt, ending = self.operation.attempt, self.ending
        return Attempted(
            gesture_recorded=attempt is not None and attempt.gesture_at is not None,
            released=attempt is not None and attempt.released_at is not None,
            other_write_exposed=attempt is not None and attempt.exposed,
            dispatches=self.operation.releases,
            attempts=attempts_made(self.operation),
            effect_request=self._effect_request(),
            left=tuple(
                WriteThatLeft(
                    at=write.at,
                    name=write.name,
                    kind=write.kind,
                    method=write.method,
                    url=without_query(write.url),
                    status=write.status,
                    after_gesture=write.after_gesture,
                    item=write.item,
                )
                for write in (ending.left if ending else ())
            ),
            websockets=tuple(
                WebSocketOpen(
                    at=one.at,
                    name=one.name,
                    url=without_query(one.url),
                    messages_out=one.messages_out,
                    messages_in=one.messages_in,
                    ended=self.clean(one.ended),
                )
                for one in (ending.websockets if ending else ())
            ),
            refused_writes=tuple(
                self.clean(" ".join(map(without_query, text.split())))
                for text in (ending.refused_writes if ending else ())
            ),
            dialogs=len(ending.dialogs) if ending else 0,
            reads=ending.reads if ending else 0,
        )

    def _effect_request(self) -> EffectRequestSeen | None:
        ending = self.ending
        return effect_request(ending.effect) if ending and ending.effect else None

    def _observed(self) -> Observed:
        ending = self.ending
        effect, established_by = self._established()
        item, item_url = self._item()
        return Observed(
            answer=self._answer(),
            looks=tuple(
                Look(
                    view=look.view,
                    when=look.when,
                    at=look.at,
                    result=look.result,
                    scope=self.clean(look.scope),
                    complete=look.complete,
                    items=tuple(
                        ItemSeen(**{name: item.get(name) for name in ItemSeen.model_fields}) for item in look.items
                    ),
                    detail=self.clean(look.detail),
                )
                for look in (ending.looks if ending else ())
            ),
            verdict_reason=ending.verdict_reason if ending else None,
            verdict_why=self.clean(ending.verdict_why) if ending else "",
            effect=effect,
            established_by=established_by,
            item=item,
            item_url=item_url,
            discrepancy=self.reading.case.discrepancy,
        )

    def _item(self) -> tuple[str | None, str | None]:
        """The item and its address: what the run found, else what was found later."""
        ending, event = self.ending, self._moved_to_outcome()
        if (ending is None or ending.item is None) and event is not None:
            found, address = event.data.get("item"), event.data.get("url")
            return (found if isinstance(found, str) else None, address if isinstance(address, str) else None)
        return (ending.item, ending.item_url) if ending is not None else (None, None)

    def _answer(self) -> Answer | None:
        answer = self.ending.answer if self.ending else None
        if answer is None:
            return None
        return Answer(
            status=answer.status,
            complete=answer.complete,
            says=answer.says,
            clause=self.clean(answer.clause),
            item=answer.item,
            url=answer.url,
        )

    def _established(self) -> tuple[str | None, tuple[str, ...]]:
        """The business effect and the evidence of the event that moved the outcome to where it is."""
        event = self._moved_to_outcome()
        if event is None:
            return None, ()
        effect = event.data.get("effect")
        return effect if isinstance(effect, str) else None, event.evidence

    def _command(self, action: ActionPermitted) -> str | None:
        """What to type, ready for a shell: names and addresses are other people's text."""
        operation = self.operation
        because = self.reading.refused.because if self.reading.refused else ()
        match action:
            case (
                ActionPermitted.APPROVE_AND_RUN
                | ActionPermitted.APPROVE_AGAIN_AND_RUN
                | ActionPermitted.APPROVE_AND_RUN_WITH_KEY
            ):
                return f"interlock approve {operation.id} && interlock run {operation.id}"
            case ActionPermitted.SAY_IT_IS_MEANT:
                return f"interlock approve {operation.id} --meant"
            case ActionPermitted.RUN_AGAIN | ActionPermitted.RUN_AGAIN_WITH_KEY:
                return f"interlock run {operation.id}"
            case ActionPermitted.WAIT | ActionPermitted.SETTLE_OTHERS_FIRST:
                return f"interlock show {because[0] if because else operation.id}"
            case ActionPermitted.SIGN_IN_AGAIN:
                intent = operation.intent
                return shlex.join(
                    [
                        "interlock",
                        "login",
                        operation.flow.name,
                        "--site",
                        intent.destination,
                        "--account",
                        intent.account,
                    ]
                )
            case ActionPermitted.LIFT_STOP:
                return f"interlock stop --lift {because[0]}" if because else "interlock stop --list"
            case ActionPermitted.FIX_FLOW:
                return shlex.join(["interlock", "flows", "show", operation.flow.name])
            case ActionPermitted.FIX_SURROUNDINGS:
                return "interlock doctor"
            case _:
                return None

    def _ownership(self, discrepancy: Discrepancy | None) -> Ownership:
        if not self.reading.standing.unresolved and discrepancy is None:
            return Ownership(owner=None, respond_by=None, reason="There is nothing about it to find out.")
        handoff = _last(self.events, "handoff")
        owner, queue, respond_by = self.handover.owner, self.handover.queue, None
        if handoff is not None:
            owner = str(handoff.data.get("owner") or owner)
            queue = handoff.data.get("queue")
            if isinstance(given := handoff.data.get("respond_by"), str):
                respond_by = datetime.fromisoformat(given)
        attempt = self.operation.attempt
        since = attempt.claimed_at if attempt else self.operation.created_at
        why = (
            "What became of it is not known."
            if self.reading.standing.unresolved
            else "What was seen does not fit together."
        )
        return Ownership(
            owner=owner, queue=queue, respond_by=respond_by or since + self.handover.respond_within, reason=why
        )

    def _handle(self) -> Handle:
        operation, ending = self.operation, self.ending
        key = self.contract.key if self.contract else None
        return Handle(
            reference=operation.id,
            provider_key=ProviderKey(
                key=operation.provider_key,
                scope=key.scope if key else None,
                lifetime_s=key.lifetime_s if key else None,
                attempts=key.attempts if key else None,
            )
            if operation.provider_key is not None
            else None,
            account=operation.intent.account,
            destination=operation.intent.destination,
            effect_request=self._effect_request(),
            baseline=ending.baseline if ending else None,
            item=self._item()[0],
            item_url=self._item()[1],
        )

    def _undo(self) -> UndoInstructions | None:
        if self.contract is None:
            return None
        return UndoInstructions(
            category=self.contract.category, undo=self.contract.undo, instructions=self.contract.undo_instructions
        )

    def _evidence(self) -> Evidence | None:
        ending = self.ending
        if ending is None or ending.evidence is None:
            return None
        kept = ending.evidence
        return Evidence(
            manifest=kept.manifest,
            manifest_sha256=kept.manifest_sha256,
            items=kept.items,
            pictures=tuple(PictureKept.model_validate(picture.model_dump()) for picture in kept.pictures),
            gaps=tuple(map(self.clean, kept.gaps)),
        )


def _last(events: Sequence[EventRecord], kind: str) -> EventRecord | None:
    return next((event for event in reversed(events) if event.kind == kind), None)


def _stage(ending: Ending | None) -> Stage | None:
    if ending is None:
        return None
    step = STEPS[ending.step - 1]
    return Stage(number=step.number, name=step.name, does=step.does)
