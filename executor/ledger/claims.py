"""Claim, gesture, exposure, release: what happens to an attempt until the effect request may leave (A5, A6, B5).
Functions inside one transaction. Nothing here sends anything, and nothing here decides by a time that was handed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import exists, func, insert, or_, select, update
from sqlalchemy.exc import IntegrityError

from executor.ledger import leases, records
from executor.ledger.database import Transaction, now_us, rfc3339, us
from executor.ledger.history import THE_LEDGER, Line, facts_of, move, note, read, record_expiry
from executor.ledger.intents import DEADLINE_PASSED, GESTURE
from executor.ledger.ledger import AttemptClosed, LedgerError
from executor.ledger.tables import accounts, approvals, attempts, events, operations, stops
from executor.model.admission import Neighbour, Refusal, Refused, Snapshot, refusal, stops_for
from executor.model.key import key_facts, may_have_been_sent, rejected_by_absence, terms
from executor.model.operation import Attempt, Disposition, FlowBinding, Lease, Operation, Policy
from executor.model.retry import KeyFacts, RetryReason
from executor.model.transitions import Dispatch, Event, Outcome, Permission, Transmission
from flows.effect import ClientKey


def snapshot(
    tx: Transaction, operation: Operation, flow: FlowBinding, *, key: ClientKey | None, behind_anchor: bool
) -> Snapshot:
    """What admission decides on, as it is in this transaction."""
    facts, by_absence = key_in_the_record(tx, operation, flow, key)
    return Snapshot(
        operation=operation,
        now=tx.now,
        approval=operation.approval,
        stops=records.load_stops(tx, in_force_only=True),
        dependencies=_outcomes(tx, operation.intent.after),
        neighbours=_neighbours(tx, operation),
        flow=flow,
        account_busy=_is_busy(tx, operation),
        behind_anchor=behind_anchor,
        key=facts,
        rejected_by_absence=by_absence,
    )


def key_in_the_record(
    tx: Transaction, operation: Operation, flow: FlowBinding, key: ClientKey | None
) -> tuple[KeyFacts | None, bool]:
    """What can be shown about the key of an `idempotent` operation, and whether it is rejected by proven absence. No
    other policy asks, so no other history is read."""
    if operation.policy is not Policy.IDEMPOTENT:
        return None, False
    events = list(read(tx, operation.id))
    return key_facts(operation, events, key=key, flow=flow, now=tx.now), rejected_by_absence(events)


def _outcomes(tx: Transaction, ids: Iterable[str]) -> tuple[Outcome, ...]:
    wanted = tuple(ids)
    found: dict[str, str] = {
        row.id: row.outcome
        for row in tx.connection.execute(
            select(operations.c.id, operations.c.outcome).where(operations.c.id.in_(wanted))
        )
    }
    # One that is not there any more has not succeeded as far as this ledger can tell.
    return tuple(Outcome(found.get(operation, Outcome.UNOBSERVED.value)) for operation in wanted)


def _is_busy(tx: Transaction, operation: Operation) -> bool:
    open_one = leases.open_attempt(tx, operation.account_key)
    return open_one is not None and all(attempt.id != open_one for attempt in operation.attempts)


def _neighbours(tx: Transaction, operation: Operation) -> list[Neighbour]:
    """Every look-alike, and of the same task those that are unresolved."""
    last = (
        select(approvals.c.expires_us)
        .where(approvals.c.operation_id == operations.c.id)
        .order_by(approvals.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    mine = select(operations.c.proposed_position).where(operations.c.id == operation.id).scalar_subquery()
    alike = operation.intent.look_alike
    query = (
        select(
            operations,
            func.coalesce(last, 0).label("approved_until_us"),
            (operations.c.proposed_position < mine).label("is_earlier"),
        )
        .where(
            operations.c.id != operation.id,
            or_(
                operations.c.look_alike == alike,
                (operations.c.task == operation.intent.task) & records.unresolved(),
            ),
        )
        .order_by(operations.c.proposed_position)
    )
    return [
        Neighbour(
            id=row.id,
            same_task=row.task == operation.intent.task,
            look_alike=row.look_alike == alike,
            earlier=bool(row.is_earlier),
            permission=_permission_now(tx, row),
            dispatch=Dispatch(row.dispatch),
            outcome=Outcome(row.outcome),
        )
        for row in tx.connection.execute(query)
    ]


def _permission_now(tx: Transaction, row: Any) -> Permission:
    """An approval that has run out stands in nobody's way, recorded or not."""
    if row.permission == Permission.AUTHORIZED.value and row.approved_until_us <= tx.now_us:
        return Permission.EXPIRED
    return Permission(row.permission)


def claim(
    tx: Transaction,
    operation: str,
    *,
    attempt: str,
    lease: Lease,
    flow: FlowBinding,
    key: ClientKey | None,
    behind_anchor: bool,
    line: Line,
) -> Attempt | Refused:
    found = record_expiry(tx, records.load(tx, records.full_id(tx, operation)))
    seen = snapshot(tx, found, flow, key=key, behind_anchor=behind_anchor)
    refused = refusal(seen)
    if refused is not None:
        if refused.reason is Refusal.DEADLINE_PASSED:
            _record_deadline(tx, found)
        return refused
    approval = found.approval
    assert approval is not None  # admission refuses without one
    if lease.account_key != found.account_key or not leases.is_current(
        tx, lease.account_key, holder=lease.holder, token=lease.token
    ):
        return Refused(Refusal.LEASE_LOST)
    number = len(found.attempts) + 1
    until = seen.key.until if seen.key is not None else None
    if found.state.dispatch is Dispatch.COMPLETED:
        # Admission let it through, so the key makes it safe. In one transaction with the claim: of two that race for
        # it the second finds an open attempt, and between the two nothing is open that evidence could not settle.
        assert found.attempt is not None
        found = move(
            tx,
            found,
            Event.REISSUED,
            Line(
                line.by,
                RetryReason.KEY_MAKES_IT_SAFE.sentence,
                {"attempt": attempt, "after_attempt": found.attempt.id, "reason": RetryReason.KEY_MAKES_IT_SAFE.value},
            ),
        )
    after = move(
        tx,
        found,
        Event.CLAIMED,
        line.naming(
            {
                "attempt": attempt,
                "number": number,
                "approval": approval.id,
                "account_key": lease.account_key,
                "holder": lease.holder,
                "token": lease.token,
                "key": terms(found, key),
                "key_until": None if until is None else rfc3339(us(until)),
            }
        ),
    )
    tx.hit_one(
        update(approvals)
        .where(
            approvals.c.id == approval.id,
            approvals.c.used == approval.used,
            approvals.c.used < approvals.c.attempts,
            approvals.c.revoked_us.is_(None),
        )
        .values(used=approvals.c.used + 1),
        f"the approval {approval.id} is no longer what it was",
    )
    assert after.state.transmission is not None  # an open attempt has one
    tx.connection.execute(
        insert(attempts).values(
            id=attempt,
            operation_id=found.id,
            number=number,
            approval_id=approval.id,
            account_key=lease.account_key,
            holder=lease.holder,
            token=lease.token,
            transmission=after.state.transmission.value,
            claimed_us=tx.now_us,
            exposed=False,
            open_account=lease.account_key,
        )
    )
    return records.load_attempt(tx, attempt)[1]


def _record_deadline(tx: Transaction, operation: Operation) -> None:
    said = select(events.c.sequence).where(events.c.subject == operation.id, events.c.kind == DEADLINE_PASSED)
    if tx.connection.execute(said).first() is None:
        note(
            tx,
            operation,
            DEADLINE_PASSED,
            Line(THE_LEDGER, "The task's deadline is over.", {"deadline": records.deadline_text(operation.intent)}),
        )


def gesture(tx: Transaction, attempt: str, *, line: Line) -> Attempt:
    operation, mine = open_one(tx, attempt)
    leases.must_be_current(tx, operation.account_key, mine)
    if mine.gesture_at is not None:
        raise LedgerError(
            f"the gesture of {attempt} was made before; there is no second one (C6). Nothing was changed."
        )
    note(tx, operation, GESTURE, line.naming({"attempt": attempt}))
    _change(tx, attempts.c.gesture_us.is_(None), attempt, gesture_us=tx.now_us)
    return replace(mine, gesture_at=tx.now)


def expose(tx: Transaction, attempt: str, *, write: str, url: str, line: Line) -> Attempt:
    operation, mine = open_one(tx, attempt)
    leases.must_be_current(tx, operation.account_key, mine)
    after = move(
        tx,
        operation,
        Event.EXPOSED,
        line.naming({"attempt": attempt, "write": write, "url": url}),
        facts=facts_of(mine),
    )
    transmission = transmitted(after)
    _change(tx, attempts.c.closed_us.is_(None), attempt, exposed=True, transmission=transmission.value)
    return replace(mine, exposed=True, transmission=transmission)


def release(tx: Transaction, attempt: str, *, behind_anchor: bool, line: Line) -> Attempt | Refused:
    operation, mine = records.load_attempt(tx, attempt)
    if mine.closed_at is None:
        operation = record_expiry(tx, operation)
    until = _key_until(tx, operation, mine)
    if (refused := _release_refusal(tx, operation, mine, until, behind_anchor=behind_anchor)) is not None:
        return refused
    try:
        with tx.connection.begin_nested():  # a database that refuses the row would else undo what was recorded above
            spent = tx.connection.execute(_spend_release(operation, mine, tx.now_us, until)).rowcount
    except IntegrityError:
        # The unique release slot is taken: the database's own refusal, whatever the code above believed (rule 4).
        return Refused(Refusal.ALREADY_RELEASED)
    if spent != 1:
        # Valid a moment ago and not any more: a lease, an approval or the deadline ran out in between.
        return Refused(Refusal.LEASE_LOST)
    after = move(tx, operation, Event.RELEASED, line.naming({"attempt": attempt}), facts=facts_of(mine))
    transmission = transmitted(after)
    _change(tx, attempts.c.closed_us.is_(None), attempt, transmission=transmission.value)
    return replace(mine, released_at=tx.now, transmission=transmission)


def _key_until(tx: Transaction, operation: Operation, mine: Attempt) -> datetime | None:
    """From when on an attempt that repeats an earlier one may no longer be released: the key's lifetime, as its claim
    recorded it. None where nothing may have been sent before."""
    if operation.policy is not Policy.IDEMPOTENT or not may_have_been_sent(operation):
        return None
    claimed = select(events.c.data).where(events.c.subject == operation.id, events.c.kind == Event.CLAIMED.value)
    said = [json.loads(row.data) for row in tx.connection.execute(claimed)]
    until = next(data["key_until"] for data in said if data["attempt"] == mine.id)
    # A claim without that time was not made by a key: then no time is left.
    return datetime.fromisoformat(until) if until is not None else tx.now


def _release_refusal(
    tx: Transaction, operation: Operation, mine: Attempt, key_until: datetime | None, *, behind_anchor: bool
) -> Refused | None:
    """The first reason against letting the effect request leave, in the order of `Refusal`; None when it may (B1)."""
    approval = next((a for a in records.all_approvals(tx, [operation.id])[operation.id] if a.id == mine.approval), None)
    if key_until is not None and tx.now >= key_until:
        return Refused(Refusal.KEY_NOT_SAFE, retry=RetryReason.KEY_LIFETIME_OVER)
    if operation.disposition in (Disposition.ABANDONED, Disposition.CLOSED):
        return Refused(Refusal.DISPOSITION_CLOSED)
    if in_force := stops_for(
        records.load_stops(tx, in_force_only=True), flow=operation.flow.name, account_key=operation.account_key
    ):
        return Refused(Refusal.STOPPED, in_force)
    if approval is None:
        return Refused(Refusal.NOT_AUTHORIZED)
    if approval.revoked_at is not None or operation.state.permission is Permission.REVOKED:
        return Refused(Refusal.APPROVAL_REVOKED)
    if tx.now >= approval.expires or operation.state.permission is not Permission.AUTHORIZED:
        return Refused(Refusal.APPROVAL_EXPIRED)
    if approval.fingerprint != operation.intent.fingerprint:
        return Refused(Refusal.APPROVAL_DIFFERS)
    if operation.intent.deadline is not None and tx.now >= operation.intent.deadline:
        return Refused(Refusal.DEADLINE_PASSED)
    if behind_anchor:
        return Refused(Refusal.LEDGER_BEHIND_ANCHOR)
    if mine.closed_at is not None or not leases.is_current(
        tx, operation.account_key, holder=mine.holder, token=mine.token
    ):
        return Refused(Refusal.LEASE_LOST)
    if mine.released_at is not None or (operation.policy is Policy.ABSOLUTE and operation.releases > 0):
        return Refused(Refusal.ALREADY_RELEASED)
    return None


def release_slot(policy: Policy, operation: str, number: int) -> str:
    """What may be taken once: by the operation under `absolute`, else by each of its attempts (B3)."""
    return operation if policy is Policy.ABSOLUTE else f"{operation}#{number}"


def _spend_release(operation: Operation, mine: Attempt, when_us: int, key_until: datetime | None = None) -> Any:
    """The one UPDATE that must hit one row. Its conditions repeat what was just read, against the live clock: this
    statement alone would be enough."""
    return (
        update(attempts)
        .where(
            attempts.c.id == mine.id,
            attempts.c.released_us.is_(None),
            attempts.c.closed_us.is_(None),
            *([] if key_until is None else [now_us() < us(key_until)]),
            exists(
                select(accounts.c.token)
                .where(
                    accounts.c.account_key == attempts.c.account_key,
                    accounts.c.holder == attempts.c.holder,
                    accounts.c.token == attempts.c.token,
                    accounts.c.expires_us > now_us(),
                )
                .correlate(attempts)
            ),
            exists(
                select(approvals.c.id)
                .where(
                    approvals.c.id == attempts.c.approval_id,
                    approvals.c.revoked_us.is_(None),
                    approvals.c.expires_us > now_us(),
                )
                .correlate(attempts)
            ),
            exists(
                select(operations.c.id)
                .where(
                    operations.c.id == attempts.c.operation_id,
                    operations.c.permission == Permission.AUTHORIZED.value,
                    operations.c.dispatch == Dispatch.STARTED.value,
                    or_(operations.c.deadline_us.is_(None), operations.c.deadline_us > now_us()),
                )
                .correlate(attempts)
            ),
            ~exists(
                select(stops.c.id)
                .where(
                    stops.c.lifted_us.is_(None),
                    or_(stops.c.flow.is_(None), stops.c.flow == operation.flow.name),
                    or_(stops.c.account_key.is_(None), stops.c.account_key == attempts.c.account_key),
                )
                .correlate(attempts)
            ),
        )
        .values(released_us=when_us, release_slot=release_slot(operation.policy, operation.id, mine.number))
    )


def open_one(tx: Transaction, attempt: str) -> tuple[Operation, Attempt]:
    """An attempt that is open, with its operation. Raises `AttemptClosed`."""
    operation, mine = records.load_attempt(tx, attempt)
    if mine.closed_at is not None:
        raise AttemptClosed(f"{attempt} was closed before ({mine.reason}). Look at the record; nothing was changed.")
    return operation, mine


def transmitted(operation: Operation) -> Transmission:
    assert operation.state.transmission is not None  # an operation with an attempt has one
    return operation.state.transmission


def _change(tx: Transaction, condition: Any, attempt: str, **columns: Any) -> None:
    tx.hit_one(
        update(attempts).where(attempts.c.id == attempt, condition).values(**columns),
        f"{attempt} changed under a transaction that had locked the ledger",
    )
