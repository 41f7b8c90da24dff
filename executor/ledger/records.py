"""Rows into the model's records and back. Reads only; decides nothing."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Row, func, or_, select

from executor.ledger.database import Transaction, at, rfc3339, us
from executor.ledger.ledger import AmbiguousId, NoSuchAttempt, NoSuchOperation
from executor.ledger.tables import approvals, attempts, operations, stops
from executor.model.fingerprint import canonical
from executor.model.operation import (
    Actor,
    Approval,
    Attempt,
    Disposition,
    FlowBinding,
    Intent,
    Operation,
    Policy,
    Stop,
)
from executor.model.transitions import Dispatch, Outcome, Permission, State, Transmission

SHORTEST_PREFIX = 8


def load(tx: Transaction, operation: str) -> Operation:
    """One operation by its whole id."""
    row = tx.connection.execute(select(operations).where(operations.c.id == operation)).one_or_none()
    if row is None:
        raise NoSuchOperation(f"there is no operation {operation} in this ledger. List the operations to find its id.")
    return assemble(tx, [row])[0]


def load_attempt(tx: Transaction, attempt: str) -> tuple[Operation, Attempt]:
    """An attempt with its operation."""
    owner = tx.connection.execute(select(attempts.c.operation_id).where(attempts.c.id == attempt)).scalar_one_or_none()
    if owner is None:
        raise NoSuchAttempt(f"there is no attempt {attempt} in this ledger.")
    operation = load(tx, owner)
    return operation, next(a for a in operation.attempts if a.id == attempt)


def full_id(tx: Transaction, prefix: str) -> str:
    """The one operation whose id is, or begins with, `prefix`."""
    if tx.connection.execute(select(operations.c.id).where(operations.c.id == prefix)).first() is not None:
        return prefix
    if len(prefix) < SHORTEST_PREFIX:
        raise NoSuchOperation(f"{prefix} is too short to name an operation; give {SHORTEST_PREFIX} characters or more.")
    found = (
        tx.connection.execute(
            select(operations.c.id).where(func.substr(operations.c.id, 1, len(prefix)) == prefix).limit(2)
        )
        .scalars()
        .all()
    )
    if len(found) > 1:
        raise AmbiguousId(f"several operations begin with {prefix}; give more of the id.")
    if not found:
        raise NoSuchOperation(f"there is no operation {prefix} in this ledger. List the operations to find its id.")
    return str(found[0])


def newest(tx: Transaction, *, unresolved_only: bool, limit: int) -> list[Operation]:
    query = select(operations).order_by(operations.c.proposed_position.desc()).limit(limit)
    if unresolved_only:
        query = query.where(unresolved())
    return assemble(tx, tx.connection.execute(query).all())


def unresolved() -> Any:
    """The condition of rows that are started or unknown."""
    return or_(operations.c.dispatch == Dispatch.STARTED.value, operations.c.outcome == Outcome.UNKNOWN.value)


def assemble(tx: Transaction, rows: Sequence[Row[Any]]) -> list[Operation]:
    """Operations with the approval in force and all attempts: three queries, however many operations."""
    ids = [row.id for row in rows]
    permissions: Mapping[str, list[Approval]] = all_approvals(tx, ids)
    tried: Mapping[str, list[Attempt]] = defaultdict(list)
    for row in tx.connection.execute(
        select(attempts).where(attempts.c.operation_id.in_(ids)).order_by(attempts.c.operation_id, attempts.c.number)
    ):
        tried[row.operation_id].append(attempt_of(row))
    return [
        operation_of(row, permissions[row.id][-1] if permissions[row.id] else None, tuple(tried[row.id]))
        for row in rows
    ]


def all_approvals(tx: Transaction, ids: Iterable[str]) -> Mapping[str, list[Approval]]:
    """Every approval of these operations, the oldest first."""
    found: Mapping[str, list[Approval]] = defaultdict(list)
    for row in tx.connection.execute(
        select(approvals)
        .where(approvals.c.operation_id.in_(list(ids)))
        .order_by(approvals.c.operation_id, approvals.c.number)
    ):
        found[row.operation_id].append(approval_of(row))
    return found


def operation_of(row: Row[Any], approval: Approval | None, tried: tuple[Attempt, ...]) -> Operation:
    return Operation(
        id=row.id,
        intent=intent_of(row.intent),
        fingerprint=row.fingerprint,
        identity=row.identity,
        policy=Policy(row.policy),
        provider_key=row.provider_key,
        flow=_flow_of(row),
        state=state_of(row),
        disposition=Disposition(row.disposition),
        proposed_by=Actor.parse(row.proposed_by),
        created_at=at(row.created_us),
        version=row.version,
        head=row.head,
        meant=row.meant,
        approval=approval,
        attempts=tried,
    )


def state_of(row: Row[Any]) -> State:
    return State(
        permission=Permission(row.permission),
        dispatch=Dispatch(row.dispatch),
        transmission=None if row.transmission is None else Transmission(row.transmission),
        outcome=Outcome(row.outcome),
    )


def approval_of(row: Row[Any]) -> Approval:
    return Approval(
        id=row.id,
        operation=row.operation_id,
        by=Actor.parse(row.by),
        at=at(row.at_us),
        expires=at(row.expires_us),
        attempts=row.attempts,
        used=row.used,
        fingerprint=row.fingerprint,
        account=row.account,
        destination=row.destination,
        action=row.action,
        flow=_flow_of(row),
        revoked_at=_at(row.revoked_us),
    )


def attempt_of(row: Row[Any]) -> Attempt:
    return Attempt(
        id=row.id,
        operation=row.operation_id,
        number=row.number,
        approval=row.approval_id,
        holder=row.holder,
        token=row.token,
        transmission=Transmission(row.transmission),
        claimed_at=at(row.claimed_us),
        gesture_at=_at(row.gesture_us),
        exposed=row.exposed,
        released_at=_at(row.released_us),
        answered_at=_at(row.answered_us),
        closed_at=_at(row.closed_us),
        reason=row.reason,
    )


def stop_of(row: Row[Any]) -> Stop:
    return Stop(
        id=row.id,
        flow=row.flow,
        account_key=row.account_key,
        by=Actor.parse(row.by),
        at=at(row.at_us),
        why=row.why,
        lifted_at=_at(row.lifted_us),
    )


def load_stops(tx: Transaction, *, in_force_only: bool) -> list[Stop]:
    query = select(stops).order_by(stops.c.at_us, stops.c.id)
    if in_force_only:
        query = query.where(stops.c.lifted_us.is_(None))
    return [stop_of(row) for row in tx.connection.execute(query)]


def intent_text(intent: Intent) -> str:
    return canonical(
        {
            "task": intent.task,
            "action": intent.action,
            "destination": intent.destination,
            "account": intent.account,
            "flow": intent.flow,
            "payload": intent.payload,
            "material": intent.material,
            "common": intent.common,
            "after": intent.after,
            "deadline": None if intent.deadline is None else us(intent.deadline),
        }
    ).decode()


def intent_of(text: str) -> Intent:
    stored = json.loads(text)
    return Intent(
        task=stored["task"],
        action=stored["action"],
        destination=stored["destination"],
        account=stored["account"],
        flow=stored["flow"],
        payload=stored["payload"],
        material=stored["material"],
        common=stored["common"],
        after=tuple(stored["after"]),
        deadline=_at(stored["deadline"]),
    )


def flow_data(flow: FlowBinding) -> dict[str, str]:
    """A binding as it stands in an event."""
    return {"name": flow.name, "version": flow.version, "code_digest": flow.code_digest}


def flow_columns(flow: FlowBinding) -> dict[str, str]:
    return {"flow_name": flow.name, "flow_version": flow.version, "flow_digest": flow.code_digest}


def deadline_text(intent: Intent) -> str | None:
    return None if intent.deadline is None else rfc3339(us(intent.deadline))


def _flow_of(row: Row[Any]) -> FlowBinding:
    return FlowBinding(name=row.flow_name, version=row.flow_version, code_digest=row.flow_digest)


def _at(when_us: int | None) -> Any:
    return None if when_us is None else at(when_us)
