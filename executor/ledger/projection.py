"""State as a fold over events, and the ledger held against it (A8). Reads only.

`replay` makes of a history what its rows must say. It is written apart from the code that writes the rows, so that the
two can disagree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, select

from executor.ledger import records
from executor.ledger.claims import release_slot
from executor.ledger.database import Transaction, at
from executor.ledger.history import read, running_head
from executor.ledger.intents import DISPOSED, GESTURE, PROPOSED, proposal_data
from executor.ledger.ledger import ChainBroken, Verification
from executor.ledger.permissions import LIFTED, STOPPED
from executor.ledger.tables import attempts, events, operations, stops
from executor.model import transitions
from executor.model.fingerprint import NotCanonical
from executor.model.operation import Approval, Attempt, Disposition, EventRecord, FlowBinding, Operation, Policy
from executor.model.transitions import INITIAL, AttemptFacts, Event, IllegalTransition, State, Transmission

_EVENTS = frozenset(event.value for event in Event)


@dataclass(slots=True)
class Replayed:
    """What a history comes to."""

    state: State = INITIAL
    disposition: Disposition = Disposition.OPEN
    meant: bool = False
    proposed: Mapping[str, Any] = field(default_factory=dict)
    approvals: list[Approval] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)


def replay(history: Iterable[EventRecord]) -> Replayed:
    """Fold the transition tables over a history. Raises `IllegalTransition` for one that they do not allow."""
    so_far = Replayed()
    for record in history:
        if record.kind in _EVENTS:
            _apply(so_far, record, Event(record.kind))
        elif record.kind == PROPOSED:
            so_far.proposed = record.data
        elif record.kind == DISPOSED:
            so_far.disposition = Disposition(record.data["disposition"])
        elif record.kind == GESTURE:
            so_far.attempts[-1] = replace(so_far.attempts[-1], gesture_at=record.at)
    return so_far


def _apply(so_far: Replayed, record: EventRecord, event: Event) -> None:
    facts = AttemptFacts()
    if event is not Event.CLAIMED and so_far.attempts:
        latest = so_far.attempts[-1]
        facts = AttemptFacts(exposed=latest.exposed, released=latest.released_at is not None)
    so_far.state = transitions.apply(so_far.state, event, facts)
    data, transmission = record.data, so_far.state.transmission
    match event:
        case Event.APPROVED | Event.REOPENED:
            so_far.approvals.append(_approval(record))
            so_far.meant = so_far.meant or data["meant"]
        case Event.APPROVAL_REVOKED if so_far.approvals:
            so_far.approvals[-1] = replace(so_far.approvals[-1], revoked_at=record.at)
        case Event.CLAIMED:
            assert transmission is not None  # by the tables
            so_far.approvals[-1] = replace(so_far.approvals[-1], used=so_far.approvals[-1].used + 1)
            so_far.attempts.append(_attempt(record, transmission))
        case Event.EXPOSED:
            _change(so_far, exposed=True, transmission=transmission)
        case Event.RELEASED:
            _change(so_far, released_at=record.at, transmission=transmission)
        case Event.NOTHING_WRITTEN:
            _change(so_far, transmission=transmission)
        case Event.ANSWERED:
            _change(so_far, answered_at=record.at, transmission=transmission)
        case Event.CLOSED:
            _change(so_far, closed_at=record.at, reason=data["reason"], transmission=transmission)


def _change(so_far: Replayed, **changes: Any) -> None:
    so_far.attempts[-1] = replace(so_far.attempts[-1], **changes)


def _approval(record: EventRecord) -> Approval:
    data = record.data
    return Approval(
        id=data["approval"],
        operation=record.operation,
        by=record.actor,
        at=record.at,
        expires=datetime.fromisoformat(data["expires"]),
        attempts=data["attempts"],
        used=0,
        fingerprint=data["fingerprint"],
        account=data["account"],
        destination=data["destination"],
        action=data["action"],
        flow=FlowBinding(**data["flow"]),
    )


def _attempt(record: EventRecord, transmission: Transmission) -> Attempt:
    data = record.data
    return Attempt(
        id=data["attempt"],
        operation=record.operation,
        number=data["number"],
        approval=data["approval"],
        holder=data["holder"],
        token=data["token"],
        transmission=transmission,
        claimed_at=record.at,
    )


def verify(tx: Transaction) -> Verification:
    """Everything that can be checked from inside the database."""
    ids = tx.connection.execute(select(operations.c.id).order_by(operations.c.proposed_position)).scalars().all()
    flaws = [flaw for operation in ids for flaw in _operation_flaws(tx, operation)]
    for row in tx.connection.execute(select(stops)).all():
        flaws += _stop_flaws(tx, row)
    flaws += _whole_ledger_flaws(tx)
    return Verification(operations=len(ids), events=tx.events, flaws=tuple(flaws))


def _operation_flaws(tx: Transaction, operation: str) -> Iterator[str]:
    try:
        history = list(read(tx, operation))
        shown = records.load(tx, operation)
        replayed = replay(history)
        first = proposal_data(shown.intent, _flow(replayed), Policy(replayed.proposed["policy"]), shown.provider_key)
    except ChainBroken as error:
        yield str(error)
        return
    except IllegalTransition as error:
        yield f"{operation}: its history is not one that this program writes: {error}"
        return
    except (ValueError, KeyError, IndexError, TypeError, NotCanonical) as error:
        yield f"{operation}: its row or its history cannot be read ({type(error).__name__}: {error})"
        return
    if shown.version != len(history):
        yield f"{operation}: its row counts {shown.version} events, its history has {len(history)}"
    if shown.head != history[-1].hash:
        yield f"{operation}: its row's head is not the hash of its last event"
    if dict(replayed.proposed) | first != dict(replayed.proposed):
        yield f"{operation}: the intent in its row is not the one that was proposed"
    for name, ours, theirs in _compared(shown, replayed, records.all_approvals(tx, [operation])[operation]):
        if ours != theirs:
            yield f"{operation}: its row's {name} is not what its events make of it"
    yield from _guard_flaws(tx, shown)


def _flow(replayed: Replayed) -> FlowBinding:
    return FlowBinding(**replayed.proposed["flow"])


def _compared(
    shown: Operation, replayed: Replayed, permissions: list[Approval]
) -> Iterator[tuple[str, object, object]]:
    yield "state", shown.state, replayed.state
    yield "disposition", shown.disposition, replayed.disposition
    yield "meant", shown.meant, replayed.meant
    yield "policy", shown.policy.value, replayed.proposed["policy"]
    yield "flow", shown.flow, _flow(replayed)
    yield "identity", shown.identity, replayed.proposed["identity"]
    yield "fingerprint", shown.fingerprint, replayed.proposed["fingerprint"]
    yield "approvals", permissions, replayed.approvals
    yield "attempts", list(shown.attempts), replayed.attempts


def _guard_flaws(tx: Transaction, operation: Operation) -> Iterator[str]:
    """The columns that carry the database's own guards and the look-ups of admission."""
    for row in tx.connection.execute(select(attempts).where(attempts.c.operation_id == operation.id)):
        slot = release_slot(operation.policy, operation.id, row.number) if row.released_us is not None else None
        busy = operation.account_key if row.closed_us is None else None
        if (row.release_slot, row.open_account, row.account_key) != (slot, busy, operation.account_key):
            yield f"{operation.id}: the guards of {row.id} are not as its events set them"
    row = tx.connection.execute(select(operations).where(operations.c.id == operation.id)).one()
    intent = operation.intent
    expected = (intent.task, intent.slot, intent.look_alike, operation.account_key, intent.deadline)
    deadline = None if row.deadline_us is None else at(row.deadline_us)
    if (row.task, row.slot, row.look_alike, row.account_key, deadline) != expected:
        yield f"{operation.id}: what its row is found by is not its intent's"


def _stop_flaws(tx: Transaction, row: Row[Any]) -> Iterator[str]:
    try:
        history = list(read(tx, row.id))
    except ChainBroken as error:
        yield str(error)
        return
    kinds = [record.kind for record in history]
    if kinds not in ([STOPPED], [STOPPED, LIFTED]) or (row.version, row.head) != (len(history), history[-1].hash):
        yield f"{row.id}: its row does not fit its history"
        return
    first, last = history[0], history[-1]
    stop = records.stop_of(row)
    said = (first.data["flow"], first.data["account_key"], first.actor, first.why, first.at)
    lifted = last.at if last.kind == LIFTED else None
    if (stop.flow, stop.account_key, stop.by, stop.why, stop.at) != said or stop.lifted_at != lifted:
        yield f"{row.id}: its row is not what its events make of it"


def _whole_ledger_flaws(tx: Transaction) -> Iterator[str]:
    """The order of all events, and that none belongs to nothing."""
    position, head = 0, ""
    for row in tx.connection.execute(
        select(events.c.position, events.c.hash, events.c.ledger_head).order_by(events.c.position)
    ):
        position, head = position + 1, running_head(head, row.hash)
        if (row.position, row.ledger_head) != (position, head):
            yield f"the ledger's running head does not fit from event {position} on: an event was removed or moved"
            break
    else:
        if (tx.events, tx.head) != (position, head):
            yield f"the ledger counts {tx.events} events and holds {position}, or its head is not that of the last one"
    known = select(operations.c.id).union(select(stops.c.id))
    for orphan in tx.connection.execute(
        select(events.c.subject, func.count()).where(events.c.subject.not_in(known)).group_by(events.c.subject)
    ):
        yield f"{orphan.subject}: its row is gone, its events are still there"
