"""What the ledger promises, as a Protocol. Its docstring is the atomicity contract; the contract suite runs it on every
backend. Callers never see a table, a session or a transaction.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from executor.model.admission import Refused, Snapshot
from executor.model.operation import (
    Actor,
    Approval,
    Attempt,
    Disposition,
    EventRecord,
    FlowBinding,
    Intent,
    Lease,
    Operation,
    Policy,
    Stop,
)
from executor.model.transitions import Outcome
from flows.effect import ClientKey


@dataclass(frozen=True, slots=True)
class Proposed:
    """`created` is false when the same intent had been proposed before: then this is that operation, as it stands."""

    operation: Operation
    created: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """An outcome with what it rests on. `reason` is a reason code, `effect` the business effect where it succeeded."""

    outcome: Outcome
    reason: str
    why: str
    evidence: tuple[str, ...] = ()
    data: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """An operation that may run now. The claim decides again."""

    operation: Operation
    authorized_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An authorized operation that no worker runs yet, after a run that halted: until a time, or until a person has
    acted (`until` None). `halt` is the coded reason of the run."""

    operation: str
    account_key: str
    flow: str
    until: datetime | None
    halt: str


class Ledger(Protocol):
    """The durable truth about operations.

    Atomicity contract. Every method is one transaction: when it returns, what it says is durable (fsync; on PostgreSQL
    `synchronous_commit` on); when it raises `CommitUncertain`, the caller must treat the change as possibly made and
    read it back; when it raises anything else, nothing was changed. Methods are synchronous and are called on one
    ledger thread per process; they are safe against other processes on the same database.

    1. A state change appends its event (hash-chained to the operation's last) in the transaction that updates the
       projection, by a conditional UPDATE that must hit exactly one row. `executor.model.transitions` is consulted
       inside the transaction: an illegal event raises `IllegalTransition` and changes nothing.
    2. `propose` is idempotent by the intent's identity: of any number of concurrent proposals one creates.
    3. `claim` is won at most once per approval use: it takes the admission snapshot inside its own transaction, and
       requires the caller's lease to be current (holder, token, unexpired by the database's clock).
    4. `release` succeeds at most once per attempt, and under the policy `absolute` at most once per operation: the
       database itself refuses a second one by a unique constraint. It requires: attempt open and not released, token
       equal to the account's current one, lease unexpired, approval unexpired and unrevoked, deadline not passed, no
       stop in force.
    5. `settle` raises the account's token in the transaction that closes the attempt: whoever still believes to hold
       it can no longer release.
    6. Times that decide are the database's, never the caller's.
    7. Nothing is deleted. Nothing is updated without an event, leases apart.
    8. Where there is an anchor, it has followed when `claim` and `release` return; a ledger behind it claims and
       releases nothing (C8).

    A `ValueError` says that the caller asked for nonsense (no duration, a reserved kind of event, a time without a
    zone, data without a canonical form, a text that the database cannot hold); it too has changed nothing.
    """

    # -- operations ---------------------------------------------------------------------------------------------------
    def propose(
        self,
        intent: Intent,
        *,
        flow: FlowBinding,
        policy: Policy,
        by: Actor,
        provider_key: str | None = None,
    ) -> Proposed:
        """Record an intent, or return the operation that it already is (A4). Raises `NoSuchOperation` when it comes
        after one that is not in this ledger."""

    def operation(self, operation: str) -> Operation:
        """One operation with its approval in force and its attempts. A unique prefix of an id (8+ characters) will do,
        here and wherever an operation is named. An approval found expired is recorded as such. Raises
        `NoSuchOperation`, `AmbiguousId`."""

    def operations(self, *, unresolved_only: bool = False, limit: int = 200) -> Sequence[Operation]:
        """The newest first."""

    def events(self, operation: str) -> Sequence[EventRecord]:
        """The whole history of an operation, or of a stop, in order. Raises `ChainBroken` when a hash does not fit or
        the tail is missing."""

    def note(
        self,
        operation: str,
        *,
        kind: str,
        by: Actor,
        why: str,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Operation:
        """Append an event that moves no state: a step of a run, an observation, a comment, a receipt's digest. The
        kinds that the ledger writes itself are reserved."""

    def dispose(self, operation: str, disposition: Disposition, *, by: Actor, why: str, version: int) -> Operation:
        """Record a business decision (A9). Raises `VersionChanged` when the person saw another version."""

    # -- permission ---------------------------------------------------------------------------------------------------
    def approve(
        self,
        operation: str,
        *,
        by: Actor,
        flow: FlowBinding,
        fingerprint: str,
        valid_for_s: float,
        attempts: int = 1,
        meant: bool = False,
        key: ClientKey | None = None,
        why: str = "",
    ) -> Approval:
        """Bind an approval to exactly this operation, material and code (B1). `fingerprint` is what the person saw; it
        must be the operation's, and so must the flow's name, else `NotWhatWasSeen`. On an operation whose attempt was
        proven not sent this reopens it for one linked attempt (B3, by `executor.model.retry`); where the contract's
        `key` makes another attempt safe it renews the permission and opens nothing; on any other dispatched one, and
        on one that a person has closed, it raises `NotEligible`. Only a person may approve: any other actor raises
        `NotAPerson`."""

    def revoke(self, operation: str, *, by: Actor, why: str) -> Operation:
        """Take the approval in force back; an open attempt can then not be released."""

    # -- order and stops ----------------------------------------------------------------------------------------------
    def lease(self, account_key: str, *, holder: str, ttl_s: float) -> Lease:
        """Take the account's lease and raise its token. Raises `AccountBusy` while another holder's is unexpired, or
        while an attempt as this account is open (settle it first: an expired lease frees nothing)."""

    def renew(self, lease: Lease, *, ttl_s: float) -> Lease:
        """Extend my lease, token unchanged. Raises `LeaseLost` when the account's token is no longer mine or the lease
        has run out."""

    def surrender(self, lease: Lease) -> None:
        """Give the lease back; nothing happens when it is no longer mine."""

    def stop(
        self, *, by: Actor, why: str, flow: str | None = None, account_key: str | None = None, once: bool = False
    ) -> Stop:
        """Hold claims and releases of a flow, an account, both together or (neither given) everything (C10). Anybody
        may; it takes force whatever state the anchor is in. With `once` a stop in force that holds the same for the
        same `why` is given back, and no second one is set."""

    def lift(self, stop: str, *, by: Actor, why: str) -> Stop:
        """Lift a stop; a lifted one stays as it is. Only a person may: any other actor raises `NotAPerson`. Raises
        `NoSuchStop`."""

    def stops(self, *, in_force_only: bool = True) -> Sequence[Stop]:
        """The oldest first."""

    # -- what may run -------------------------------------------------------------------------------------------------
    def due(self, flows: Collection[FlowBinding], *, limit: int, without: Collection[str] = ()) -> Sequence[Due]:
        """Operations that may run now under the code of these flows: of each account the longest permitted, the account
        first whose turn has waited longest (since that permission, or since its last run ended); none for the accounts
        and operations `without`, and none for an account that somebody acts as. A choice, not a permit: the claim
        decides again."""

    def wait(self, operation: str, *, by: Actor, halt: str, seconds: float | None, why: str) -> Operation:
        """Record that an operation whose run halted is not due for a time, or (None) until a person has acted: approved
        it again, or ended the wait."""

    def resume(self, operation: str, *, by: Actor, why: str) -> Operation:
        """End a wait. Only a person may: any other actor raises `NotAPerson`."""

    def halts(self, task: str) -> int:
        """How many waits the operations of a task have recorded, each since a person last acted on it (B6)."""

    def waiting(self) -> Sequence[Waiting]:
        """What waits, the longest proposed first."""

    # -- one attempt --------------------------------------------------------------------------------------------------
    def admission(self, operation: str, flow: FlowBinding, *, key: ClientKey | None = None) -> Snapshot:
        """What `executor.model.admission.refusal` decides on, read at one instant. `key` as in `claim`."""

    def claim(
        self,
        operation: str,
        *,
        attempt: str,
        lease: Lease,
        flow: FlowBinding,
        by: Actor,
        key: ClientKey | None = None,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Attempt | Refused:
        """Reserve the one submit: the attempt exists, `dispatch started` is committed, one use of the approval is
        spent. Returns the refusal, and changes nothing, when admission or the lease says no. An approval or deadline
        that is found expired is recorded as such. `key` is what the contract of this code says about the provider's
        key: its terms are recorded, and under the policy `idempotent` they decide, in the same transaction, whether an
        operation that was dispatched before has another attempt."""

    def gesture(self, attempt: str, *, by: Actor) -> Attempt:
        """Record that the gesture comes next, before it is made. Raises `LeaseLost` when the lease is not current,
        `AttemptClosed`, and `LedgerError` for a second gesture (C6)."""

    def expose(self, attempt: str, *, by: Actor, write: str, url: str) -> Attempt:
        """Record, before it leaves, a supporting write that could cause the effect. Raises as `gesture` does, but may
        be called again."""

    def release(
        self, attempt: str, *, by: Actor, data: Mapping[str, Any] | None = None, not_after: float | None = None
    ) -> Attempt | Refused:
        """Commit that the effect request may leave (A6). See rule 4. Returns the first refusal in the order of
        `Refusal` and changes nothing, except that an approval found expired is recorded as such. An attempt that was
        closed by anybody is refused as `lease_lost`, one that repeats another and comes after the key's lifetime as
        `key_not_safe`. `not_after`, by the monotonic clock, is when the caller would not write any more: a release that
        had to wait that long for its turn raises `LedgerUnavailable` instead of being spent."""

    def nothing_written(self, attempt: str, *, by: Actor, why: str) -> Attempt:
        """After `release`: proven that not one byte was written."""

    def answered(self, attempt: str, *, by: Actor, data: Mapping[str, Any], evidence: Sequence[str] = ()) -> Attempt:
        """Record a complete answer and what the contract reads in it."""

    def close(
        self,
        attempt: str,
        *,
        by: Actor,
        reason: str,
        why: str,
        judgement: Judgement | None = None,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Operation:
        """Close my attempt, and judge it in the same transaction when there is a judgement. What may have been sent
        and is not judged becomes `unknown`. Closing a closed attempt raises `AttemptClosed`."""

    def judge(self, operation: str, judgement: Judgement, *, by: Actor) -> Operation:
        """Move the outcome of a closed attempt by evidence."""

    # -- recovery -----------------------------------------------------------------------------------------------------
    def open_attempts(self, *, expired_only: bool = True) -> Sequence[Attempt]:
        """Attempts that nobody closed; by default those whose account's lease has run out (or was raised)."""

    def settle(self, attempt: str, *, by: Actor, why: str, judgement: Judgement | None = None) -> Operation:
        """Close somebody else's attempt and raise the account's token in the same transaction (rule 5)."""

    # -- the ledger itself --------------------------------------------------------------------------------------------
    def identity(self) -> LedgerIdentity:
        """Who this ledger is and how far it has come."""

    def verify_all(self) -> Verification:
        """Hold every event against the chains, and every row against what its events make of it (A8)."""

    def accept_as_it_is(self, *, by: Actor, why: str) -> None:
        """A person's word that a ledger behind its anchor may claim again (C8). Raises `NotAPerson`."""

    def now(self) -> datetime:
        """The database's clock."""

    def close_connections(self) -> None:
        """Give the connections back. The next call opens new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerIdentity:
    """What the anchor keeps beside the evidence: a ledger with fewer events than its anchor went back in time."""

    id: str
    events: int
    head: str
    """Running hash over the hashes of all events in the order of their commits; empty before the first."""
    schema: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What holding every history against its chain and its projection came to. `flaws` are sentences, none when all
    fits. Not checked: whether somebody who may write the database recomputed the whole of it, or put an older copy in
    its place. Anchor and receipts outside the database show that."""

    operations: int
    events: int
    flaws: tuple[str, ...]


class LedgerError(Exception):
    """The ledger could not do what was asked. Nothing was changed, unless the subclass says otherwise."""


class CommitUncertain(LedgerError):
    """It is not known whether the change was committed. Read it back before doing anything that rests on it."""


class NoSuchOperation(LedgerError):
    """There is no operation of that id."""


class NoSuchAttempt(LedgerError):
    """There is no attempt of that id. When it was claimed, the ledger has gone back in time since."""


class NoSuchStop(LedgerError):
    """There is no stop of that id."""


class AmbiguousId(LedgerError):
    """Several ids begin like that; give more of it."""


class AccountBusy(LedgerError):
    """Another run acts as this account, or an attempt as it is still open."""


class LeaseLost(LedgerError):
    """The account's token is no longer this run's: somebody settled its attempt or took the lease over."""


class NotAPerson(LedgerError):
    """Only a person may approve, lift a stop, end a wait or accept a restored ledger; a proposer's credential never
    can."""


class NotEligible(LedgerError):
    """The operation may not have a further attempt; the message names the reason."""


class NotWhatWasSeen(LedgerError):
    """The fingerprint that was approved is not that of the operation. Look at it again."""


class VersionChanged(LedgerError):
    """The operation has changed since it was looked at. Look at it again."""


class AttemptClosed(LedgerError):
    """The attempt was closed already, by its own run or by recovery."""


class ChainBroken(LedgerError):
    """A stored event does not fit the hash chain: the ledger was changed from outside."""


class SchemaTooNew(LedgerError):
    """The database was written by a newer version of the program. Use that version; nothing was changed."""


class AnchorUnreadable(LedgerError):
    """The anchor is there and cannot be read. Nothing is claimed until it is restored."""


class LedgerUnavailable(LedgerError):
    """The database cannot be opened or does not answer. The message says what to look at."""
