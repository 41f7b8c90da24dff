"""What may run now, fairly among accounts; and what waits (B5, B6, C10). Functions inside one
transaction.

`due` is a choice, not a permit: the claim decides again, on its own snapshot. It costs what is authorized and not
started, however much lies settled around it.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, and_, exists, false, func, or_, select

from executor.ledger import claims, records
from executor.ledger.database import Transaction, at, rfc3339, us
from executor.ledger.history import Line, note
from executor.ledger.ledger import Due, NotAPerson, Waiting
from executor.ledger.tables import accounts, approvals, attempts, events, operations, stops
from executor.model.admission import refusal
from executor.model.operation import ActorKind, Disposition, FlowBinding, Operation
from executor.model.transitions import Dispatch, Event, Outcome, Permission
from executor.model.waiting import RESUMED, WAITS

PAGE = 2000
"""How many authorized operations are looked at together: of each account the longest permitted, then the next of each.
The next as many only where these do not fill the answer: what waits must not hide what does not."""

LONGEST_WAIT_S = 31 * 24 * 3600.0

_BY_A_PERSON = (RESUMED, Event.APPROVED.value, Event.REOPENED.value)


def due(
    tx: Transaction,
    flows: Collection[FlowBinding],
    *,
    limit: int,
    without: Collection[str],
    behind_anchor: bool,
) -> list[Due]:
    found: list[Due] = []
    taken = set(without)
    by_name = {flow.name: flow for flow in flows}
    offset = 0
    while len(found) < limit:
        rows = _candidates(tx, flows, offset)
        _choose(tx, rows, by_name, found, taken, limit=limit, behind_anchor=behind_anchor)
        if len(rows) < PAGE:
            break
        offset += PAGE
    return found


def _choose(
    tx: Transaction,
    rows: Sequence[Row[Any]],
    by_name: Mapping[str, FlowBinding],
    found: list[Due],
    taken: set[str],
    *,
    limit: int,
    behind_anchor: bool,
) -> None:
    """Add to `found` what of these may run now, by their turns, and to `taken` its accounts."""
    # An account's turn begins when its operation was permitted, or its last run ended, whichever was later: who has
    # many goes behind who has waited longer. Of one account this keeps the order in which they were permitted.
    rows = sorted(rows, key=lambda row: (max(row.permitted_us, row.served_us or 0), row.place))
    missing = _not_succeeded(tx, rows)
    for row in rows:
        if len(found) >= limit:
            break
        if (
            row.account_key in taken
            or row.id in taken
            or _until(row.said, tx.now_us)
            or not missing.isdisjoint(_after(row))
        ):
            continue
        operation = records.load(tx, row.id)
        # Without the key: another attempt under it is what a person runs, and never due by itself.
        seen = claims.snapshot(tx, operation, by_name[row.flow_name], key=None, behind_anchor=behind_anchor)
        if refusal(seen) is not None:
            continue
        taken.add(row.account_key)
        found.append(Due(operation=operation, authorized_at=at(row.permitted_us)))


def _candidates(tx: Transaction, flows: Collection[FlowBinding], offset: int) -> list[Row[Any]]:
    """Authorized and not started, with nothing in the way that a query can see."""
    last = approvals.alias("last")
    other = operations.alias("other")
    newest = (
        select(func.max(approvals.c.number))
        .where(approvals.c.operation_id == operations.c.id)
        .correlate(operations)
        .scalar_subquery()
    )
    theirs = (
        select(approvals.c.expires_us)
        .where(approvals.c.operation_id == other.c.id)
        .correlate(other)
        .order_by(approvals.c.number.desc())
        .limit(1)
        .scalar_subquery()
    )
    place = (
        func.row_number()
        .over(partition_by=operations.c.account_key, order_by=(last.c.at_us, operations.c.proposed_position))
        .label("place")
    )
    is_unresolved = or_(other.c.dispatch == Dispatch.STARTED.value, other.c.outcome == Outcome.UNKNOWN.value)
    query = (
        select(
            operations.c.id,
            operations.c.account_key,
            operations.c.flow_name,
            operations.c.intent,
            last.c.at_us.label("permitted_us"),
            accounts.c.expires_us.label("served_us"),
            place,
            _said().label("said"),
        )
        .select_from(
            operations.join(last, and_(last.c.operation_id == operations.c.id, last.c.number == newest)).outerjoin(
                accounts, accounts.c.account_key == operations.c.account_key
            )
        )
        .where(
            operations.c.dispatch == Dispatch.NOT_STARTED.value,
            operations.c.permission == Permission.AUTHORIZED.value,
            operations.c.disposition == Disposition.OPEN.value,
            or_(operations.c.deadline_us.is_(None), operations.c.deadline_us > tx.now_us),
            last.c.expires_us > tx.now_us,
            last.c.revoked_us.is_(None),
            last.c.used < last.c.attempts,
            or_(false(), *(_is_for(last, flow) for flow in flows)),
            or_(accounts.c.holder.is_(None), accounts.c.expires_us <= tx.now_us),
            ~exists().where(attempts.c.open_account == operations.c.account_key),
            ~exists().where(
                stops.c.lifted_us.is_(None),
                or_(stops.c.flow.is_(None), stops.c.flow == operations.c.flow_name),
                or_(stops.c.account_key.is_(None), stops.c.account_key == operations.c.account_key),
            ),
            ~exists().where(other.c.task == operations.c.task, other.c.id != operations.c.id, is_unresolved),
            or_(
                operations.c.meant,
                ~exists().where(
                    other.c.look_alike == operations.c.look_alike,
                    other.c.task != operations.c.task,
                    or_(
                        is_unresolved,
                        other.c.outcome.in_((Outcome.SUCCEEDED.value, Outcome.ACCEPTED.value)),
                        and_(
                            other.c.proposed_position < operations.c.proposed_position,
                            other.c.permission == Permission.AUTHORIZED.value,
                            other.c.dispatch == Dispatch.NOT_STARTED.value,
                            theirs > tx.now_us,
                        ),
                    ),
                ),
            ),
        )
        .order_by(place, last.c.at_us, operations.c.proposed_position)
        .limit(PAGE)
        .offset(offset)
    )
    return list(tx.connection.execute(query))


def _is_for(approval: Any, flow: FlowBinding) -> Any:
    return and_(
        operations.c.flow_name == flow.name,
        approval.c.flow_name == flow.name,
        approval.c.flow_version == flow.version,
        approval.c.flow_digest == flow.code_digest,
    )


def _said() -> Any:
    """The data of the last event that began or ended a wait; None when there is none."""
    return (
        select(events.c.data)
        .where(events.c.subject == operations.c.id, events.c.kind.in_((WAITS, *_BY_A_PERSON)))
        .order_by(events.c.sequence.desc())
        .limit(1)
        .correlate(operations)
        .scalar_subquery()
    )


def _until(said: str | None, now_us: int) -> bool:
    """Whether a wait is in force. An event of another kind, by which a person acted, names no halt."""
    data: Mapping[str, Any] = json.loads(said) if said else {}
    if "halt" not in data:
        return False
    return data["until"] is None or us(datetime.fromisoformat(data["until"])) > now_us


def _after(row: Row[Any]) -> Sequence[str]:
    return tuple(json.loads(row.intent)["after"])


def _not_succeeded(tx: Transaction, rows: Sequence[Row[Any]]) -> set[str]:
    """Of the operations that these come after, those that have not succeeded (A10)."""
    wanted = {before for row in rows for before in _after(row)}
    done: set[str] = set()
    for part in _parts(sorted(wanted)):
        query = select(operations.c.id).where(
            operations.c.id.in_(part), operations.c.outcome == Outcome.SUCCEEDED.value
        )
        done |= set(tx.connection.execute(query).scalars())
    return wanted - done


def _parts(ids: Sequence[str], size: int = 500) -> Iterator[Sequence[str]]:
    """A statement takes only so many parameters."""
    for start in range(0, len(ids), size):
        yield ids[start : start + size]


def halts(tx: Transaction, task: str) -> int:
    """How many waits the operations of a task have recorded, each since a person last acted on it."""
    newer = events.alias("newer")
    query = (
        select(func.count())
        .select_from(events.join(operations, operations.c.id == events.c.subject))
        .where(
            operations.c.task == task,
            events.c.kind == WAITS,
            ~exists().where(
                newer.c.subject == events.c.subject,
                newer.c.sequence > events.c.sequence,
                newer.c.kind.in_(_BY_A_PERSON),
            ),
        )
    )
    return int(tx.connection.execute(query).scalar_one())


def waiting(tx: Transaction) -> list[Waiting]:
    """The operations that wait, the longest permitted first."""
    query = (
        select(operations.c.id, operations.c.account_key, operations.c.flow_name, _said().label("said"))
        .where(
            operations.c.dispatch == Dispatch.NOT_STARTED.value,
            operations.c.permission == Permission.AUTHORIZED.value,
            operations.c.disposition == Disposition.OPEN.value,
        )
        .order_by(operations.c.proposed_position)
    )
    found = []
    for row in tx.connection.execute(query):
        if not _until(row.said, tx.now_us):
            continue
        data = json.loads(row.said)
        until = None if data["until"] is None else datetime.fromisoformat(data["until"])
        found.append(
            Waiting(
                operation=row.id, account_key=row.account_key, flow=row.flow_name, until=until, halt=str(data["halt"])
            )
        )
    return found


def wait(tx: Transaction, operation: str, *, halt: str, seconds: float | None, line: Line) -> Operation:
    if seconds is not None and not 0 < seconds < LONGEST_WAIT_S:
        raise ValueError("a wait takes more than no time and less than a month; no time at all means: for a person")
    found = records.load(tx, records.full_id(tx, operation))
    until = None if seconds is None else rfc3339(tx.now_us + round(seconds * 1_000_000))
    return note(tx, found, WAITS, line.naming({"halt": halt, "until": until}))


def resume(tx: Transaction, operation: str, *, line: Line) -> Operation:
    if line.by.kind is not ActorKind.PERSON:
        raise NotAPerson(f"{line.by} is not a person, and only a person may end a wait. Ask somebody who may.")
    return note(tx, records.load(tx, records.full_id(tx, operation)), RESUMED, line)
