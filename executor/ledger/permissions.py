"""Approvals and stops: what a person permits and forbids (B1, B3, C10). Functions inside one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import func, insert, select, update

from executor.ledger import records
from executor.ledger.claims import key_in_the_record
from executor.ledger.database import Transaction, rfc3339
from executor.ledger.history import Line, append, move, record_expiry
from executor.ledger.ids import new_id
from executor.ledger.ledger import NoSuchStop, NotAPerson, NotEligible, NotWhatWasSeen
from executor.ledger.tables import approvals, stops
from executor.model.operation import ActorKind, Approval, Disposition, FlowBinding, Operation, Stop
from executor.model.retry import KeyFacts, Permits, eligibility
from executor.model.transitions import Dispatch, Event
from flows.effect import ClientKey

STOPPED = "stopped"
LIFTED = "lifted"


def approve(
    tx: Transaction,
    operation: str,
    *,
    flow: FlowBinding,
    fingerprint: str,
    valid_for_s: float,
    attempts: int,
    meant: bool,
    key: ClientKey | None,
    line: Line,
) -> Approval:
    if line.by.kind is not ActorKind.PERSON:
        raise NotAPerson(f"{line.by} is not a person, and only a person may approve. Ask somebody who may.")
    if not valid_for_s > 0 or attempts < 1:
        raise ValueError("an approval is valid for more than 0 seconds and at least one attempt")
    found = record_expiry(tx, records.load(tx, records.full_id(tx, operation)))
    if not found.fingerprint == fingerprint == found.intent.fingerprint:
        raise NotWhatWasSeen(f"{found.id} is not what was seen: its fingerprint is another. Look at it again.")
    if flow.name != found.flow.name:
        raise NotWhatWasSeen(f"{found.id} is for the flow {found.flow.name}, not {flow.name}. Look at it again.")
    if found.disposition in (Disposition.ABANDONED, Disposition.CLOSED):
        raise NotEligible(f"{found.id} was {found.disposition.value} by a person; it may not be approved.")
    event, reopening = _how(found, *key_in_the_record(tx, found, flow, key))
    intent, expires_us = found.intent, tx.now_us + round(valid_for_s * 1_000_000)
    approval = new_id("ap")
    move(
        tx,
        found,
        event,
        line.naming(
            {
                "approval": approval,
                "expires": rfc3339(expires_us),
                "attempts": attempts,
                "fingerprint": fingerprint,
                "account": intent.account,
                "destination": intent.destination,
                "action": intent.action,
                "flow": records.flow_data(flow),
                "meant": meant,
                **reopening,
            }
        ),
        meant=found.meant or meant,
    )
    last = tx.connection.execute(
        select(func.coalesce(func.max(approvals.c.number), 0)).where(approvals.c.operation_id == found.id)
    ).scalar_one()
    tx.connection.execute(
        insert(approvals).values(
            id=approval,
            operation_id=found.id,
            number=last + 1,
            by=str(line.by),
            at_us=tx.now_us,
            expires_us=expires_us,
            attempts=attempts,
            used=0,
            fingerprint=fingerprint,
            account=intent.account,
            destination=intent.destination,
            action=intent.action,
            **records.flow_columns(flow),
            revoked_us=None,
        )
    )
    return records.approval_of(tx.connection.execute(select(approvals).where(approvals.c.id == approval)).one())


def _how(operation: Operation, key: KeyFacts | None, by_absence: bool) -> tuple[Event, dict[str, Any]]:
    """By which event an approval takes hold, and what links it to the attempt before. Raises `NotEligible` (B3).

    Where the key makes another attempt safe, the approval renews the permission and opens nothing: the claim of that
    attempt does, once it has asked about the key again."""
    judged = eligibility(operation, key=key, rejected_by_absence=by_absence)
    if judged.permits is Permits.SAME_KEY:
        return Event.APPROVED, {}
    if judged.permits is Permits.FRESH_APPROVAL and operation.state.dispatch is Dispatch.NOT_STARTED:
        return Event.APPROVED, {}
    if judged.permits is not Permits.FRESH_APPROVAL or operation.attempt is None:
        raise NotEligible(
            f"{operation.id} was dispatched and may not have another attempt by approval ({judged.reason.value}): "
            f"{judged.reason.sentence} Read its receipt."
        )
    return Event.REOPENED, {"after_attempt": operation.attempt.id, "reason": judged.reason.value}


def revoke(tx: Transaction, operation: str, *, line: Line) -> Operation:
    found = records.load(tx, records.full_id(tx, operation))
    approval = found.approval.id if found.approval else None
    move(tx, found, Event.APPROVAL_REVOKED, line.naming({"approval": approval}))
    if approval is not None:
        tx.hit_one(
            update(approvals).where(approvals.c.id == approval).values(revoked_us=tx.now_us),
            f"the approval {approval} is gone",
        )
    return records.load(tx, found.id)


def stop(tx: Transaction, *, flow: str | None, account_key: str | None, once: bool, line: Line) -> Stop:
    if once:
        for found in records.load_stops(tx, in_force_only=True):
            if (found.flow, found.account_key, found.why) == (flow, account_key, line.why):
                return found
    own = new_id("st")
    head = append(tx, own, 0, "", STOPPED, line.naming({"flow": flow, "account_key": account_key}))
    tx.connection.execute(
        insert(stops).values(
            id=own,
            flow=flow,
            account_key=account_key,
            by=str(line.by),
            at_us=tx.now_us,
            why=line.why,
            lifted_us=None,
            version=1,
            head=head,
        )
    )
    return Stop(id=own, flow=flow, account_key=account_key, by=line.by, at=tx.now, why=line.why)


def lift(tx: Transaction, own: str, *, line: Line) -> Stop:
    """Lifting a lifted stop changes nothing."""
    if line.by.kind is not ActorKind.PERSON:
        raise NotAPerson(f"{line.by} is not a person, and only a person may lift a stop. Ask somebody who may.")
    row = tx.connection.execute(select(stops).where(stops.c.id == own)).one_or_none()
    if row is None:
        raise NoSuchStop(f"there is no stop {own} in this ledger. List the stops to find its id.")
    found = records.stop_of(row)
    if found.lifted_at is not None:
        return found
    head = append(tx, own, row.version, row.head, LIFTED, line)
    tx.hit_one(
        update(stops)
        .where(stops.c.id == own, stops.c.version == row.version)
        .values(lifted_us=tx.now_us, version=row.version + 1, head=head),
        f"the stop {own} changed under a transaction that had locked the ledger",
    )
    return replace(found, lifted_at=tx.now)
