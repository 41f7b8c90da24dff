"""Operations as such: proposing, annotating, deciding about them (A2, A4, A9). Functions inside one transaction."""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select

from executor.ledger import records
from executor.ledger.database import Transaction, us
from executor.ledger.history import Line, append, note
from executor.ledger.ids import new_id
from executor.ledger.ledger import NoSuchOperation, Proposed, VersionChanged
from executor.ledger.tables import operations
from executor.model.fingerprint import digest
from executor.model.operation import Disposition, FlowBinding, Intent, Operation, Policy, account_key
from executor.model.transitions import INITIAL, Event
from executor.model.waiting import RESUMED, WAITS

PROPOSED = "proposed"
DISPOSED = "disposed"
GESTURE = "gesture"
DEADLINE_PASSED = "deadline_passed"

OWN_KINDS = frozenset({PROPOSED, DISPOSED, GESTURE, DEADLINE_PASSED, WAITS, RESUMED, *(event.value for event in Event)})
"""Kinds of events that mean something to the ledger: no caller may note one."""


def propose(
    tx: Transaction, intent: Intent, *, flow: FlowBinding, policy: Policy, provider_key: str | None, line: Line
) -> Proposed:
    found = tx.connection.execute(
        select(operations.c.id).where(operations.c.identity == intent.identity)
    ).scalar_one_or_none()
    if found is not None:
        return Proposed(records.load(tx, found), created=False)
    if intent.flow != flow.name:
        raise ValueError(f"the intent is for the flow {intent.flow}, the code that was bound is {flow.name}")
    for other in intent.after:
        _must_exist(tx, other)
    operation = new_id("op")
    deadline = None if intent.deadline is None else us(intent.deadline)
    head = append(tx, operation, 0, "", PROPOSED, line.naming(proposal_data(intent, flow, policy, provider_key)))
    tx.connection.execute(
        insert(operations).values(
            id=operation,
            identity=intent.identity,
            proposed_position=tx.events,
            task=intent.task,
            action=intent.action,
            destination=intent.destination,
            account=intent.account,
            account_key=account_key(intent.destination, intent.account),
            slot=intent.slot,
            look_alike=intent.look_alike,
            fingerprint=intent.fingerprint,
            intent=records.intent_text(intent),
            policy=policy.value,
            provider_key=provider_key,
            **records.flow_columns(flow),
            permission=INITIAL.permission.value,
            dispatch=INITIAL.dispatch.value,
            transmission=None,
            outcome=INITIAL.outcome.value,
            disposition=Disposition.OPEN.value,
            meant=False,
            proposed_by=str(line.by),
            created_us=tx.now_us,
            deadline_us=deadline,
            version=1,
            head=head,
        )
    )
    return Proposed(records.load(tx, operation), created=True)


def proposal_data(intent: Intent, flow: FlowBinding, policy: Policy, provider_key: str | None) -> dict[str, Any]:
    """What the first event binds. Of payload and material only digests: an erased payload breaks no chain (D3)."""
    return {
        "task": intent.task,
        "action": intent.action,
        "destination": intent.destination,
        "account": intent.account,
        "identity": intent.identity,
        "fingerprint": intent.fingerprint,
        "slot": intent.slot,
        "look_alike": intent.look_alike,
        "payload_digest": digest("payload", dict(intent.payload)),
        "after": list(intent.after),
        "deadline": records.deadline_text(intent),
        "flow": records.flow_data(flow),
        "policy": policy.value,
        "provider_key": provider_key,
    }


def _must_exist(tx: Transaction, operation: str) -> None:
    if tx.connection.execute(select(operations.c.id).where(operations.c.id == operation)).first() is None:
        raise NoSuchOperation(f"the intent comes after {operation}, and there is no such operation in this ledger.")


def annotate(tx: Transaction, operation: str, kind: str, line: Line) -> Operation:
    if kind in OWN_KINDS:
        raise ValueError(f"{kind} is a kind of event that the ledger writes itself; name the note otherwise")
    found = records.load(tx, records.full_id(tx, operation))
    return note(tx, found, kind, line)


def dispose(tx: Transaction, operation: str, disposition: Disposition, *, version: int, line: Line) -> Operation:
    found = records.load(tx, records.full_id(tx, operation))
    if found.version != version:
        raise VersionChanged(
            f"{found.id} has {found.version} events, not the {version} that were seen. Look at it again, then decide."
        )
    note(tx, found, DISPOSED, line.naming({"disposition": disposition.value}), disposition=disposition.value)
    return records.load(tx, found.id)
