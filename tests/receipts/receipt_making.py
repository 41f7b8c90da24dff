"""Records to make receipts from: operations in any legal state, with endings and events that fit."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from executor.model.ending import (
    AnswerRead,
    EffectRequest,
    Ending,
    EvidenceKept,
    LeftWrite,
    Looked,
    Picture,
)
from executor.model.operation import (
    Actor,
    ActorKind,
    Approval,
    Attempt,
    Disposition,
    EventRecord,
    FlowBinding,
    Intent,
    Operation,
    Policy,
)
from executor.model.transitions import Dispatch, Permission, State, Transmission
from executor.model.verdict import VerdictReason

NOW = datetime(2026, 3, 1, 10, 0, tzinfo=UTC)
PERSON = Actor(ActorKind.PERSON, "ines")
EXECUTOR = Actor(ActorKind.EXECUTOR, "interlock")
PROPOSER = Actor(ActorKind.PROPOSER, "agent-7")
TITLE = "Harbour closed on Sunday"
BODY = "The harbour stays closed.\nBoats may leave by the north channel only."
FLOW = FlowBinding(name="playground-form", version="1", code_digest="c" * 64)

INTENT = Intent(
    task="announce-17",
    action="publish-post",
    destination="https://notes.example",
    account="editor",
    flow="playground-form",
    payload={"title": TITLE, "body": BODY},
    material={"title": TITLE, "body": BODY},
    common={"title": TITLE},
)


def approval(operation: str = "op-1", **changes: Any) -> Approval:
    values: dict[str, Any] = {
        "id": "ap-1",
        "operation": operation,
        "by": PERSON,
        "at": NOW,
        "expires": NOW + timedelta(hours=24),
        "attempts": 1,
        "used": 0,
        "fingerprint": INTENT.fingerprint,
        "account": INTENT.account,
        "destination": INTENT.destination,
        "action": INTENT.action,
        "flow": FLOW,
    }
    return Approval(**(values | changes))


def attempt(transmission: Transmission, **changes: Any) -> Attempt:
    out = transmission is not Transmission.NONE_PROVEN
    values: dict[str, Any] = {
        "id": "at-1",
        "operation": "op-1",
        "number": 1,
        "approval": "ap-1",
        "holder": "run-1",
        "token": 3,
        "transmission": transmission,
        "claimed_at": NOW + timedelta(seconds=4),
        "gesture_at": NOW + timedelta(seconds=5),
        "released_at": NOW + timedelta(seconds=6) if out else None,
        "answered_at": NOW + timedelta(seconds=7) if transmission is Transmission.ANSWERED else None,
        "closed_at": NOW + timedelta(seconds=9),
    }
    return Attempt(**(values | changes))


def operation(state: State, **changes: Any) -> Operation:
    dispatched = state.transmission is not None
    values: dict[str, Any] = {
        "id": "op-1",
        "intent": INTENT,
        "fingerprint": INTENT.fingerprint,
        "identity": INTENT.identity,
        "policy": Policy.ABSOLUTE,
        "provider_key": None,
        "flow": FLOW,
        "state": state,
        "disposition": Disposition.OPEN,
        "proposed_by": PROPOSER,
        "created_at": NOW,
        "version": 7,
        "head": "e" * 64,
        "approval": None if state.permission is Permission.PENDING else approval(used=int(dispatched)),
        "attempts": (attempt(state.transmission),) if state.transmission is not None else (),
    }
    if state.dispatch is Dispatch.STARTED:
        values["attempts"] = tuple(replace(one, closed_at=None) for one in values["attempts"])
    return Operation(**(values | changes))


def ending(**changes: Any) -> Ending:
    """An ending before the claim, unless changes say more."""
    values: dict[str, Any] = {
        "run": "run-1",
        "attempt": None,
        "started_at": NOW + timedelta(seconds=1),
        "ended_at": NOW + timedelta(seconds=10),
        "step": 5,
        "reason": None,
        "transmission": None,
        "baseline": ("11", "12"),
        "evidence": EvidenceKept(
            manifest="op-1/run-1/manifest.json",
            manifest_sha256="a" * 64,
            pictures=(
                Picture(point="composed", label="the composer", sha256="b" * 64, path="blobs/bb/composed.webp"),
                Picture(point="after", label="after", sha256="d" * 64, path="blobs/dd/after.webp", note="by Interlock"),
            ),
            items=9,
            gaps=("after: accessibility text timed out",),
        ),
    }
    return Ending(**(values | changes))


def lost(**changes: Any) -> Ending:
    """An ending after a release whose answer never came."""
    values: dict[str, Any] = {
        "attempt": "at-1",
        "step": 17,
        "reason": "unsure:no_answer",
        "detail": "no answer within 60 s",
        "transmission": Transmission.POSSIBLE,
        "verdict_reason": VerdictReason.ABSENCE_WITHOUT_GUARANTEE,
        "verdict_why": "It was not found, and that proves nothing here.",
        "effect": effect_request(),
        "looks": (look(result="not_found", complete=False), look(view="drafts", result="could_not_look")),
        "left": (
            write(name="post published", kind="effect", status=None),
            write(name="save draft", kind="supporting", status=200, item="13", after_gesture=False),
        ),
        "refused_writes": ("unseen_write POST https://notes.example/track?session=5ec2e7",),
        "dialogs": ("Leave the page?",),
        "reads": 31,
    }
    return ending(**(values | changes))


def published(**changes: Any) -> Ending:
    values: dict[str, Any] = {
        "attempt": "at-1",
        "step": 17,
        "transmission": Transmission.ANSWERED,
        "verdict_reason": VerdictReason.PROVIDER_ID_IN_ANSWER,
        "verdict_why": "The answer gives the provider's id 14 in its documented final state (302 to the item).",
        "item": "14",
        "item_url": "https://notes.example/items/14",
        "effect": effect_request(),
        "answer": AnswerRead(
            status=302, complete=True, says="done", clause="302 to the item", item="14", url="/items/14"
        ),
    }
    return ending(**(values | changes))


def effect_request(**changes: Any) -> EffectRequest:
    values: dict[str, Any] = {
        "method": "POST",
        "url": "https://notes.example/new/form?token=5ec2e7&draft=13",
        "body_sha256": "f" * 64,
        "body_length": 812,
        "material_sha256": "9" * 64,
        "released_at": NOW + timedelta(seconds=6),
    }
    return EffectRequest(**(values | changes))


def write(**changes: Any) -> LeftWrite:
    values: dict[str, Any] = {
        "sequence": 1,
        "at": NOW + timedelta(seconds=6),
        "phase": "armed",
        "name": "post published",
        "kind": "effect",
        "method": "POST",
        "url": "https://notes.example/new/form?token=5ec2e7",
        "status": 302,
        "after_gesture": True,
    }
    return LeftWrite(**(values | changes))


def look(**changes: Any) -> Looked:
    values: dict[str, Any] = {
        "view": "published",
        "when": "after",
        "at": NOW + timedelta(seconds=8),
        "result": "found",
        "scope": "the account's published list, page 1 of 1",
        "complete": True,
        "items": ({"id": "12", "state": "published", "strength": "partial", "account": "editor", "title": TITLE},),
    }
    return Looked(**(values | changes))


def event(sequence: int, kind: str, *, why: str = "", data: dict[str, Any] | None = None, **more: Any) -> EventRecord:
    return EventRecord(
        operation="op-1",
        sequence=sequence,
        at=NOW + timedelta(seconds=sequence),
        actor=more.pop("actor", EXECUTOR),
        kind=kind,
        why=why,
        data=data or {},
        previous="0" * 64,
        hash="1" * 64,
        **more,
    )


def history(end: Ending | None, *more: EventRecord) -> list[EventRecord]:
    """The usual events up to an ending, then more."""
    kinds = ["proposed", "approved", "run_started"]
    if end is None or end.attempt is not None:
        kinds.append("claimed")
    events = [event(number, kind, why=f"{kind} as asked") for number, kind in enumerate(kinds, start=1)]
    if end is not None:
        events.append(event(len(events) + 1, "run_ended", data=end.model_dump(mode="json")))
    return [*events, *more]


def state(
    permission: str = "authorized",
    dispatch: str = "not_started",
    transmission: str | None = None,
    outcome: str = "unobserved",
) -> State:
    from executor.model.transitions import Outcome

    return State(
        Permission(permission),
        Dispatch(dispatch),
        Transmission(transmission) if transmission else None,
        Outcome(outcome),
    )


UNKNOWN = state(dispatch="completed", transmission="possible", outcome="unknown")
SUCCEEDED = state(dispatch="completed", transmission="answered", outcome="succeeded")
NOT_SENT = state(dispatch="completed", transmission="none_proven")
IDLE = state()
