"""What is recorded about an attempt after its release, how it ends, and how somebody else ends it (A7, C5, C8).
Functions inside one transaction. None of them needs a lease: to say what happened is never forbidden.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import or_, select, update

from executor.ledger import leases, records
from executor.ledger.claims import open_one, transmitted
from executor.ledger.database import Transaction, now_us
from executor.ledger.history import Line, facts_of, move
from executor.ledger.ledger import AttemptClosed, Judgement
from executor.ledger.tables import accounts, attempts
from executor.model.operation import Actor, Attempt, Operation
from executor.model.transitions import Event, Outcome

SETTLED = "settled"
"""The reason of an attempt that was closed by somebody else than its run."""

_SEEN = {
    Outcome.ACCEPTED: Event.SEEN_ACCEPTED,
    Outcome.SUCCEEDED: Event.SEEN_SUCCEEDED,
    Outcome.REJECTED: Event.SEEN_REJECTED,
    Outcome.UNKNOWN: Event.SEEN_UNCLEAR,
}


def nothing_written(tx: Transaction, attempt: str, *, line: Line) -> Attempt:
    return _record(tx, attempt, Event.NOTHING_WRITTEN, line)


def answered(tx: Transaction, attempt: str, *, line: Line) -> Attempt:
    return replace(_record(tx, attempt, Event.ANSWERED, line, answered_us=tx.now_us), answered_at=tx.now)


def _record(tx: Transaction, attempt: str, event: Event, line: Line, **columns: Any) -> Attempt:
    operation, mine = open_one(tx, attempt)
    after = move(tx, operation, event, line.naming({"attempt": attempt}), facts=facts_of(mine))
    transmission = transmitted(after)
    tx.hit_one(
        update(attempts)
        .where(attempts.c.id == attempt, attempts.c.closed_us.is_(None))
        .values(transmission=transmission.value, **columns),
        f"{attempt} changed under a transaction that had locked the ledger",
    )
    return replace(mine, transmission=transmission)


def close(tx: Transaction, attempt: str, *, reason: str, judgement: Judgement | None, line: Line) -> Operation:
    operation, mine = open_one(tx, attempt)
    return _close(tx, operation, mine, reason, judgement, line.naming({"attempt": attempt, "reason": reason}))


def settle(tx: Transaction, attempt: str, *, judgement: Judgement | None, line: Line) -> Operation:
    operation, mine = open_one(tx, attempt)
    token = leases.raise_token(tx, operation.account_key)
    own = {"attempt": attempt, "reason": SETTLED, "token": token}
    return _close(tx, operation, mine, SETTLED, judgement, line.naming(own))


def _close(
    tx: Transaction, operation: Operation, mine: Attempt, reason: str, judgement: Judgement | None, line: Line
) -> Operation:
    after = move(tx, operation, Event.CLOSED, line, facts=facts_of(mine))
    closed = tx.connection.execute(
        update(attempts)
        .where(attempts.c.id == mine.id, attempts.c.closed_us.is_(None))
        .values(closed_us=tx.now_us, reason=reason, open_account=None, transmission=transmitted(after).value)
    )
    if closed.rowcount != 1:
        raise AttemptClosed(f"{mine.id} was closed by somebody else. Look at the record; nothing was changed.")
    if judgement is not None:
        _judge(tx, after, judgement, line.by)
    return records.load(tx, operation.id)


def judge(tx: Transaction, operation: str, judgement: Judgement, *, by: Actor) -> Operation:
    found = records.load(tx, records.full_id(tx, operation))
    _judge(tx, found, judgement, by)
    return records.load(tx, found.id)


def _judge(tx: Transaction, operation: Operation, judgement: Judgement, by: Actor) -> None:
    if judgement.outcome not in _SEEN:
        raise ValueError("a judgement names what the evidence establishes; `unobserved` is not judged")
    line = Line(by, judgement.why, judgement.data, judgement.evidence)
    move(tx, operation, _SEEN[judgement.outcome], line.naming({"reason": judgement.reason}))


def open_attempts(tx: Transaction, *, expired_only: bool) -> list[Attempt]:
    query = (
        select(attempts)
        .join(accounts, accounts.c.account_key == attempts.c.account_key, isouter=True)
        .where(attempts.c.open_account.is_not(None))
        .order_by(attempts.c.claimed_us, attempts.c.id)
    )
    if expired_only:
        query = query.where(
            or_(
                accounts.c.holder.is_(None),
                accounts.c.holder != attempts.c.holder,
                accounts.c.token != attempts.c.token,
                accounts.c.expires_us <= now_us(),
            )
        )
    return [records.attempt_of(row) for row in tx.connection.execute(query)]
