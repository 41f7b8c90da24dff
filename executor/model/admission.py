"""May this operation be run, claimed, released now? One pure decision over a snapshot of the record (B5).

The ledger takes the snapshot inside the claiming transaction and calls `refusal`; the runner calls it earlier on the
same data, to refuse before a browser is opened. Reasons have one documented order: the first that holds is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from executor.model.operation import Approval, Disposition, FlowBinding, Operation, Policy, Stop
from executor.model.retry import KeyFacts, Permits, RetryReason, eligibility
from executor.model.transitions import Dispatch, Outcome, Permission, Transmission


class Refusal(StrEnum):
    """Why an operation may not be submitted, in order of precedence (the order of this class)."""

    ALREADY_DISPATCHED = "already_dispatched"
    KEY_NOT_SAFE = "key_not_safe"
    DISPOSITION_CLOSED = "disposition_closed"
    STOPPED = "stopped"
    NOT_AUTHORIZED = "not_authorized"
    APPROVAL_REVOKED = "approval_revoked"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_SPENT = "approval_spent"
    APPROVAL_DIFFERS = "approval_differs"
    FLOW_CHANGED = "flow_changed"
    DEADLINE_PASSED = "deadline_passed"
    DEPENDENCY_NOT_SUCCEEDED = "dependency_not_succeeded"
    TASK_UNRESOLVED = "task_unresolved"
    LOOK_ALIKE = "look_alike"
    LEDGER_BEHIND_ANCHOR = "ledger_behind_anchor"
    ACCOUNT_BUSY = "account_busy"
    LEASE_LOST = "lease_lost"
    ALREADY_RELEASED = "already_released"
    TOO_LATE_TO_WRITE = "too_late_to_write"

    @property
    def sentence(self) -> str:
        """What happened and what a person can do, in one sentence each."""
        return _SENTENCES[self]


_SENTENCES = {
    Refusal.ALREADY_DISPATCHED: "This operation was dispatched before; it is not submitted again. Read its receipt.",
    Refusal.KEY_NOT_SAFE: "It was dispatched before, and the provider's key does not make another attempt safe.",
    Refusal.DISPOSITION_CLOSED: "A person has set this operation aside. It runs only while its disposition is `open`.",
    Refusal.STOPPED: "A stop is set for this flow, this account or everything. Lift it once somebody has looked.",
    Refusal.NOT_AUTHORIZED: "Nobody has approved this operation. Approve it, then run it.",
    Refusal.APPROVAL_REVOKED: "The approval was revoked. Approve the operation again if it is still meant.",
    Refusal.APPROVAL_EXPIRED: "The approval has expired. Approve the operation again if it is still meant.",
    Refusal.APPROVAL_SPENT: "The approval has been used up by an earlier attempt. A person may approve again.",
    Refusal.APPROVAL_DIFFERS: "The approval is for other material, account or destination. Approve what is there.",
    Refusal.FLOW_CHANGED: "The flow's code is not the one that was approved. Approve the operation for this version.",
    Refusal.DEADLINE_PASSED: "The deadline of the task has passed. Propose it anew if it is still meant.",
    Refusal.DEPENDENCY_NOT_SUCCEEDED: "An operation that must come first has not succeeded. Settle that one.",
    Refusal.TASK_UNRESOLVED: "Another operation of this task is started or unknown. Settle that one first.",
    Refusal.LOOK_ALIKE: "Another task publishes the same as this account. Say that this one is meant, or revoke it.",
    Refusal.LEDGER_BEHIND_ANCHOR: "The ledger is older than its anchor (a restored copy?). A person must accept it.",
    Refusal.ACCOUNT_BUSY: "Another run acts as this account. Wait for it to end.",
    Refusal.LEASE_LOST: "This run no longer holds the account's lease, so it may not submit. Look at the record.",
    Refusal.ALREADY_RELEASED: "This operation has had its one release. It is never released again.",
    Refusal.TOO_LATE_TO_WRITE: "Too much time passed between the release and the first byte; nothing was written.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Neighbour:
    """Another operation that shares the task or the look-alike key, as far as admission needs it."""

    id: str
    same_task: bool
    look_alike: bool
    earlier: bool
    """Proposed before this operation."""
    permission: Permission
    dispatch: Dispatch
    outcome: Outcome

    @property
    def unresolved(self) -> bool:
        return self.dispatch is Dispatch.STARTED or self.outcome is Outcome.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """What the ledger knows at one instant. `now` is by the ledger's clock."""

    operation: Operation
    now: datetime
    approval: Approval | None
    stops: Sequence[Stop]
    dependencies: Sequence[Outcome]
    neighbours: Sequence[Neighbour]
    flow: FlowBinding
    """The code that wants to run."""
    account_busy: bool
    """Another attempt as this account is open."""
    behind_anchor: bool = False
    key: KeyFacts | None = None
    """What can be shown about the provider's key; None where there is none."""
    rejected_by_absence: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """A refusal with what it rests on: ids of the operations or stops that stand in the way, and why there is no
    further attempt, where that is what was decided."""

    reason: Refusal
    because: tuple[str, ...] = ()
    retry: RetryReason | None = None

    @property
    def sentence(self) -> str:
        why = f" {self.retry.sentence}" if self.retry is not None else ""
        return self.reason.sentence + why + (f" (See {', '.join(self.because)}.)" if self.because else "")


def refusal(snapshot: Snapshot) -> Refused | None:
    """The first reason against submitting this operation, or None. Pure; the order is that of `Refusal`."""
    operation, approval, now = snapshot.operation, snapshot.approval, snapshot.now
    intent = operation.intent

    if refused_again := _refused_again(snapshot):
        return refused_again
    if operation.disposition is not Disposition.OPEN:
        return Refused(Refusal.DISPOSITION_CLOSED)
    if stops := stops_for(snapshot.stops, flow=operation.flow.name, account_key=operation.account_key):
        return Refused(Refusal.STOPPED, stops)
    if refused := approval_refusal(operation, approval, snapshot.flow, now):
        return Refused(refused)
    if intent.deadline is not None and now >= intent.deadline:
        return Refused(Refusal.DEADLINE_PASSED)
    if any(outcome is not Outcome.SUCCEEDED for outcome in snapshot.dependencies):
        return Refused(Refusal.DEPENDENCY_NOT_SUCCEEDED, intent.after)
    if others := tuple(n.id for n in snapshot.neighbours if n.same_task and n.unresolved):
        return Refused(Refusal.TASK_UNRESOLVED, others)
    if not operation.meant and (others := tuple(n.id for n in snapshot.neighbours if stands_in_the_way(n))):
        return Refused(Refusal.LOOK_ALIKE, others)
    if snapshot.behind_anchor:
        return Refused(Refusal.LEDGER_BEHIND_ANCHOR)
    if snapshot.account_busy:
        return Refused(Refusal.ACCOUNT_BUSY)
    return None


def _refused_again(snapshot: Snapshot) -> Refused | None:
    """Why an operation that was dispatched before has no further attempt (B3). The key is asked about whenever an
    earlier attempt may have been sent, whoever opened the operation since."""
    operation = snapshot.operation
    match operation.state.dispatch:
        case Dispatch.NOT_STARTED:
            if operation.policy is not Policy.IDEMPOTENT or not _sent_before(operation):
                return None
        case Dispatch.STARTED:
            return Refused(Refusal.ALREADY_DISPATCHED)
        case Dispatch.COMPLETED:
            if operation.policy is not Policy.IDEMPOTENT:
                return Refused(Refusal.ALREADY_DISPATCHED)
    may = eligibility(operation, key=snapshot.key, rejected_by_absence=snapshot.rejected_by_absence)
    if may.permits is Permits.SAME_KEY:
        return None
    if snapshot.key is not None and may.reason is snapshot.key.flaw:
        return Refused(Refusal.KEY_NOT_SAFE, retry=may.reason)
    return Refused(Refusal.ALREADY_DISPATCHED)


def _sent_before(operation: Operation) -> bool:
    return any(attempt.transmission is not Transmission.NONE_PROVEN for attempt in operation.attempts)


def stands_in_the_way(other: Neighbour) -> bool:
    """Whether a look-alike of another task stops this one (A4): it has run or may have run, or it was there first and
    is authorized to run."""
    if not other.look_alike or other.same_task:
        return False
    if other.unresolved or other.outcome in (Outcome.SUCCEEDED, Outcome.ACCEPTED):
        return True
    return other.earlier and other.permission is Permission.AUTHORIZED and other.dispatch is Dispatch.NOT_STARTED


def stops_for(stops: Sequence[Stop], *, flow: str, account_key: str) -> tuple[str, ...]:
    """The ids of the stops in force for a flow and an account."""
    return tuple(
        stop.id
        for stop in stops
        if stop.lifted_at is None and stop.flow in (None, flow) and stop.account_key in (None, account_key)
    )


def approval_refusal(
    operation: Operation, approval: Approval | None, flow: FlowBinding, now: datetime
) -> Refusal | None:
    """Why the approval does not permit exactly this operation with exactly this code, or None (B1)."""
    if approval is None or operation.state.permission is Permission.PENDING:
        return Refusal.NOT_AUTHORIZED
    if approval.revoked_at is not None or operation.state.permission is Permission.REVOKED:
        return Refusal.APPROVAL_REVOKED
    if now >= approval.expires or operation.state.permission is Permission.EXPIRED:
        return Refusal.APPROVAL_EXPIRED
    if approval.used >= approval.attempts:
        return Refusal.APPROVAL_SPENT
    bound = (approval.operation, approval.fingerprint, approval.account, approval.destination, approval.action)
    intent = operation.intent
    if bound != (operation.id, intent.fingerprint, intent.account, intent.destination, intent.action):
        return Refusal.APPROVAL_DIFFERS
    if approval.fingerprint != operation.fingerprint:
        return Refusal.APPROVAL_DIFFERS
    if approval.flow != flow:
        return Refusal.FLOW_CHANGED
    return None
