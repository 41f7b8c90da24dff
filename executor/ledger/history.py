"""Appending to a history, and moving what is projected from it (rule 1, A8). Nothing else inserts an event.

An event is hashed over {operation, sequence, at, actor, kind, why, data, evidence} and the hash before it in the same
history; the ledger's running head is hashed over the running head before it and the event's hash. A history belongs to
an operation or to a stop. Whoever may write the database can recompute all of it: that is what the anchor and receipts
outside of it are for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import Row, insert, select, update

from executor.ledger.database import Transaction, at, rfc3339, us
from executor.ledger.ledger import ChainBroken
from executor.ledger.tables import events, operations
from executor.model import transitions
from executor.model.fingerprint import canonical, chain, digest
from executor.model.operation import Actor, Attempt, EventRecord, Operation
from executor.model.transitions import FRESH, AttemptFacts, Dispatch, Event, Permission

THE_LEDGER = Actor.parse("executor:ledger")
"""Who records what only the clock did."""

_KEEP_IT = "the ledger was changed from outside. Keep it as it is and compare its receipts."


@dataclass(frozen=True, slots=True)
class Line:
    """What is to be said in a history."""

    by: Actor
    why: str = ""
    data: Mapping[str, Any] | None = None
    evidence: Sequence[str] = ()

    def naming(self, own: Mapping[str, Any]) -> Line:
        """With the ledger's own facts. The caller's data may not contradict them."""
        given = self.data or {}
        if taken := sorted(set(own) & set(given)):
            raise ValueError(f"these names in the data of an event are the ledger's own: {', '.join(taken)}")
        return replace(self, data={**given, **own})


def append(tx: Transaction, subject: str, version: int, previous: str, kind: str, line: Line) -> str:
    """Write the event after `version` of a history; its hash. The caller moves the projection to it."""
    data, evidence = line.data or {}, tuple(line.evidence)
    own = event_hash(
        previous, subject, version + 1, rfc3339(tx.now_us), str(line.by), kind, line.why, dict(data), evidence
    )
    tx.events += 1
    tx.head = running_head(tx.head, own)
    tx.connection.execute(
        insert(events).values(
            subject=subject,
            sequence=version + 1,
            position=tx.events,
            at_us=tx.now_us,
            actor=str(line.by),
            kind=kind,
            why=line.why,
            data=canonical(dict(data)).decode(),
            evidence=canonical(evidence).decode(),
            previous=previous,
            hash=own,
            ledger_head=tx.head,
        )
    )
    return own


def event_hash(
    previous: str,
    subject: str,
    sequence: int,
    when: str,
    actor: str,
    kind: str,
    why: str,
    data: Mapping[str, Any],
    evidence: Sequence[str],
) -> str:
    return chain(
        previous,
        {
            "operation": subject,
            "sequence": sequence,
            "at": when,
            "actor": actor,
            "kind": kind,
            "why": why,
            "data": dict(data),
            "evidence": list(evidence),
        },
    )


def running_head(before: str, own: str) -> str:
    return digest("ledger", [before, own])


def note(tx: Transaction, operation: Operation, kind: str, line: Line, **columns: Any) -> Operation:
    """Append an event that moves no state; `columns` of the operation go with it."""
    own = append(tx, operation.id, operation.version, operation.head, kind, line)
    return _project(tx, operation, own, columns)


def move(
    tx: Transaction,
    operation: Operation,
    event: Event,
    line: Line,
    *,
    facts: AttemptFacts = FRESH,
    **columns: Any,
) -> Operation:
    """Append an event that moves the state, by the tables of `executor.model.transitions`. Raises
    `IllegalTransition`."""
    after = transitions.apply(operation.state, event, facts)
    own = append(tx, operation.id, operation.version, operation.head, event.value, line)
    columns |= {
        "permission": after.permission.value,
        "dispatch": after.dispatch.value,
        "transmission": None if after.transmission is None else after.transmission.value,
        "outcome": after.outcome.value,
    }
    return replace(_project(tx, operation, own, columns), state=after)


def _project(tx: Transaction, operation: Operation, own: str, columns: dict[str, Any]) -> Operation:
    tx.hit_one(
        update(operations)
        .where(operations.c.id == operation.id, operations.c.version == operation.version)
        .values(version=operation.version + 1, head=own, **columns),
        f"operation {operation.id} changed under a transaction that had locked the ledger",
    )
    return replace(operation, version=operation.version + 1, head=own)


def facts_of(attempt: Attempt) -> AttemptFacts:
    return AttemptFacts(exposed=attempt.exposed, released=attempt.released_at is not None)


def approval_ran_out(tx: Transaction, operation: Operation) -> bool:
    """Whether the time of the approval in force is over while it still matters, and nobody has recorded it."""
    return (
        operation.state.permission is Permission.AUTHORIZED
        and operation.state.dispatch is not Dispatch.COMPLETED
        and operation.approval is not None
        and tx.now >= operation.approval.expires
    )


def record_expiry(tx: Transaction, operation: Operation) -> Operation:
    """Record that the approval in force has run out by the database's clock; the operation as it then is."""
    if operation.approval is None or not approval_ran_out(tx, operation):
        return operation
    return move(
        tx,
        operation,
        Event.APPROVAL_EXPIRED,
        Line(
            THE_LEDGER,
            "The approval's time is over.",
            {"approval": operation.approval.id, "expires": rfc3339(us(operation.approval.expires))},
        ),
    )


def read(tx: Transaction, subject: str) -> Iterator[EventRecord]:
    """A history in order, each event held against the chain. Raises `ChainBroken`."""
    previous = ""
    rows = tx.connection.execute(select(events).where(events.c.subject == subject).order_by(events.c.sequence))
    for sequence, row in enumerate(rows, start=1):
        try:
            record = record_of(row)
        except (ValueError, TypeError) as error:
            raise ChainBroken(f"Event {sequence} of {subject} cannot be read; {_KEEP_IT}") from error
        if (flaw := flaw_of(record, sequence, previous)) is not None:
            raise ChainBroken(f"{flaw}; {_KEEP_IT}")
        previous = record.hash
        yield record


def flaw_of(record: EventRecord, sequence: int, previous: str) -> str | None:
    """What does not fit when this record comes as number `sequence` after the hash `previous`."""
    where = f"Event {sequence} of {record.operation}"
    if record.sequence != sequence:
        return f"{where} is missing"
    if record.previous != previous:
        return f"{where} does not follow the one before it"
    own = event_hash(
        previous,
        record.operation,
        sequence,
        rfc3339(us(record.at)),
        str(record.actor),
        record.kind,
        record.why,
        record.data,
        record.evidence,
    )
    return None if own == record.hash else f"{where} is not what was hashed"


def record_of(row: Row[Any]) -> EventRecord:
    return EventRecord(
        operation=row.subject,
        sequence=row.sequence,
        at=at(row.at_us),
        actor=Actor.parse(row.actor),
        kind=row.kind,
        why=row.why,
        data=json.loads(row.data),
        evidence=tuple(json.loads(row.evidence)),
        previous=row.previous,
        hash=row.hash,
    )
