"""The state of an operation: three dimensions, one qualifier, and the rules that tie them.

An operation is never "failed" or "done". It has a *permission* (may it be submitted?), a *dispatch* (has a submit been
started, is the attempt closed?) and an *outcome* (what does the evidence establish?). They move independently, because
each is answered by somebody else: a person, the executor, the evidence (A1). An attempt also has a *transmission*: what
is known to have crossed the wire. It is the fact from which the outcome of a crash follows:

    none_proven   the gate was open for nothing, or nothing was written: proven not sent (C5)
    possible      the request may have left: `released` is committed, or another write that could cause the effect left
    answered      a complete, well-framed answer to the effect request was read

Each dimension is a table from (state, event) to state, below. A table says nothing about an event that does not concern
it. An event is legal when every dimension that it concerns has a row for it, the guards of the joint rules hold before
it, and the joint state after it is legal; otherwise `IllegalTransition` is raised and nothing has changed.

The joint rules:

1. Claiming needs permission `authorized` and outcome `unobserved`, or a linked decision or the provider's key that
   opened the operation again. An approval of an operation that was dispatched renews the permission and opens nothing.
2. While an attempt is open the outcome does not move: it is judged when the attempt is closed, in the same step.
3. An attempt closed with transmission `none_proven` leaves the outcome `unobserved`; with any other it may not stay
   `unobserved` (`unknown` is a result). So "completed, unobserved" always means "proven not sent", and nothing else.
4. A verdict needs something to judge: `unobserved` has no verdict. (A linked attempt that was proven not sent keeps
   the `unknown` of the attempt before it, and that one may still be resolved.)
5. `succeeded` and `rejected` are final, except that a linked decision or a key may open an operation `rejected` by
   proven absence again. Contradicting evidence becomes a discrepancy beside the outcome, it never moves it back.

This file holds tables and pure functions, no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeVar

S = TypeVar("S")


class Permission(StrEnum):
    PENDING = "pending"
    AUTHORIZED = "authorized"
    EXPIRED = "expired"
    REVOKED = "revoked"


class Dispatch(StrEnum):
    NOT_STARTED = "not_started"
    STARTED = "started"
    COMPLETED = "completed"


class Transmission(StrEnum):
    NONE_PROVEN = "none_proven"
    POSSIBLE = "possible"
    ANSWERED = "answered"


class Outcome(StrEnum):
    UNOBSERVED = "unobserved"
    ACCEPTED = "accepted"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


class Event(StrEnum):
    """What moves a state. Everything else in an operation's history is a note."""

    APPROVED = "approved"
    APPROVAL_EXPIRED = "approval_expired"
    APPROVAL_REVOKED = "approval_revoked"
    REOPENED = "reopened"
    """A person authorized a further, linked attempt."""
    REISSUED = "reissued"
    """The provider's key makes a further attempt safe: recorded together with the claim of that attempt."""
    CLAIMED = "claimed"
    """The attempt exists and its dispatch has started: committed before the gesture (A6)."""
    EXPOSED = "exposed"
    """A supporting write that could cause the effect is about to leave after the gesture."""
    RELEASED = "released"
    """The effect request may leave from now on: committed before its first byte (A6)."""
    NOTHING_WRITTEN = "nothing_written"
    """After `released`: not one byte of the request was handed to the system (C5)."""
    ANSWERED = "answered"
    CLOSED = "closed"
    """The attempt is over. What could not be proven absent is `unknown` from here."""
    SEEN_ACCEPTED = "seen_accepted"
    SEEN_SUCCEEDED = "seen_succeeded"
    SEEN_REJECTED = "seen_rejected"
    SEEN_UNCLEAR = "seen_unclear"
    """Something taken as accepted can no longer be told: back to unknown."""


PERMISSION: Mapping[Permission, Mapping[Event, Permission]] = {
    Permission.PENDING: {
        Event.APPROVED: Permission.AUTHORIZED,
        Event.APPROVAL_REVOKED: Permission.REVOKED,
    },
    Permission.AUTHORIZED: {
        Event.APPROVED: Permission.AUTHORIZED,
        Event.APPROVAL_EXPIRED: Permission.EXPIRED,
        Event.APPROVAL_REVOKED: Permission.REVOKED,
        Event.REOPENED: Permission.AUTHORIZED,
        Event.REISSUED: Permission.AUTHORIZED,
        Event.CLAIMED: Permission.AUTHORIZED,
        Event.RELEASED: Permission.AUTHORIZED,
    },
    Permission.EXPIRED: {
        Event.APPROVED: Permission.AUTHORIZED,
        Event.APPROVAL_REVOKED: Permission.REVOKED,
        Event.REOPENED: Permission.AUTHORIZED,
    },
    Permission.REVOKED: {
        Event.APPROVED: Permission.AUTHORIZED,
        Event.REOPENED: Permission.AUTHORIZED,
    },
}

DISPATCH: Mapping[Dispatch, Mapping[Event, Dispatch]] = {
    Dispatch.NOT_STARTED: {
        Event.APPROVED: Dispatch.NOT_STARTED,
        Event.CLAIMED: Dispatch.STARTED,
    },
    Dispatch.STARTED: {
        Event.EXPOSED: Dispatch.STARTED,
        Event.RELEASED: Dispatch.STARTED,
        Event.NOTHING_WRITTEN: Dispatch.STARTED,
        Event.ANSWERED: Dispatch.STARTED,
        Event.CLOSED: Dispatch.COMPLETED,
    },
    Dispatch.COMPLETED: {
        Event.APPROVED: Dispatch.COMPLETED,
        Event.REOPENED: Dispatch.NOT_STARTED,
        Event.REISSUED: Dispatch.NOT_STARTED,
        Event.SEEN_ACCEPTED: Dispatch.COMPLETED,
        Event.SEEN_SUCCEEDED: Dispatch.COMPLETED,
        Event.SEEN_REJECTED: Dispatch.COMPLETED,
        Event.SEEN_UNCLEAR: Dispatch.COMPLETED,
    },
}

TRANSMISSION: Mapping[Transmission | None, Mapping[Event, Transmission | None]] = {
    None: {
        Event.CLAIMED: Transmission.NONE_PROVEN,
    },
    Transmission.NONE_PROVEN: {
        Event.EXPOSED: Transmission.POSSIBLE,
        Event.RELEASED: Transmission.POSSIBLE,
        Event.CLOSED: Transmission.NONE_PROVEN,
        Event.REOPENED: None,
        Event.REISSUED: None,
    },
    Transmission.POSSIBLE: {
        Event.EXPOSED: Transmission.POSSIBLE,
        Event.RELEASED: Transmission.POSSIBLE,
        Event.NOTHING_WRITTEN: Transmission.NONE_PROVEN,
        Event.ANSWERED: Transmission.ANSWERED,
        Event.CLOSED: Transmission.POSSIBLE,
        Event.REOPENED: None,
        Event.REISSUED: None,
    },
    Transmission.ANSWERED: {
        # After the answer the attempt's gate still lets declared supporting writes go; nothing more becomes possible.
        Event.EXPOSED: Transmission.ANSWERED,
        Event.CLOSED: Transmission.ANSWERED,
        Event.REOPENED: None,
        Event.REISSUED: None,
    },
}

OUTCOME: Mapping[Outcome, Mapping[Event, Outcome]] = {
    Outcome.UNOBSERVED: {
        Event.CLAIMED: Outcome.UNOBSERVED,
        Event.CLOSED: Outcome.UNKNOWN,  # unless transmission is none_proven: joint rule 3
        Event.REOPENED: Outcome.UNOBSERVED,
        Event.REISSUED: Outcome.UNOBSERVED,
    },
    Outcome.UNKNOWN: {
        Event.CLAIMED: Outcome.UNKNOWN,
        Event.CLOSED: Outcome.UNKNOWN,
        Event.REOPENED: Outcome.UNKNOWN,
        Event.REISSUED: Outcome.UNKNOWN,
        Event.SEEN_ACCEPTED: Outcome.ACCEPTED,
        Event.SEEN_SUCCEEDED: Outcome.SUCCEEDED,
        Event.SEEN_REJECTED: Outcome.REJECTED,
        Event.SEEN_UNCLEAR: Outcome.UNKNOWN,
    },
    Outcome.ACCEPTED: {
        Event.SEEN_ACCEPTED: Outcome.ACCEPTED,
        Event.SEEN_SUCCEEDED: Outcome.SUCCEEDED,
        Event.SEEN_REJECTED: Outcome.REJECTED,
        Event.SEEN_UNCLEAR: Outcome.UNKNOWN,
    },
    Outcome.SUCCEEDED: {},
    Outcome.REJECTED: {
        Event.REOPENED: Outcome.UNOBSERVED,
        Event.REISSUED: Outcome.UNOBSERVED,
    },
}

_CONCERNS: Mapping[str, frozenset[Event]] = {
    name: frozenset(event for row in table.values() for event in row)
    for name, table in (
        ("permission", PERMISSION),
        ("dispatch", DISPATCH),
        ("transmission", TRANSMISSION),
        ("outcome", OUTCOME),
    )
}


@dataclass(frozen=True, slots=True)
class State:
    """One joint state. `transmission` is that of the latest attempt, None before there is one."""

    permission: Permission = Permission.PENDING
    dispatch: Dispatch = Dispatch.NOT_STARTED
    transmission: Transmission | None = None
    outcome: Outcome = Outcome.UNOBSERVED

    def __str__(self) -> str:
        sent = self.transmission.value if self.transmission else "-"
        return f"{self.permission.value} / {self.dispatch.value} ({sent}) / {self.outcome.value}"


INITIAL = State()


class IllegalTransition(Exception):
    """An event came that this state does not allow. Nothing was changed."""

    def __init__(self, state: State, event: Event, rule: str) -> None:
        super().__init__(f"{event.value} is not allowed in state {state}: {rule}. Nothing was changed.")
        self.state = state
        self.event = event
        self.rule = rule


@dataclass(frozen=True, slots=True)
class AttemptFacts:
    """What the open attempt has done so far: `exposed` when a write that could cause the effect has left (then "not
    one byte of the effect request was written" proves nothing any more), `released` when its one release is spent."""

    exposed: bool = False
    released: bool = False


FRESH = AttemptFacts()


def apply(state: State, event: Event, attempt: AttemptFacts = FRESH) -> State:
    """The state after `event`. Raises `IllegalTransition`."""
    if rule := _forbidden_before(state, event, attempt):
        raise IllegalTransition(state, event, rule)
    after = State(
        permission=_move("permission", PERMISSION, state.permission, state, event),
        dispatch=_move("dispatch", DISPATCH, state.dispatch, state, event),
        transmission=_move("transmission", TRANSMISSION, state.transmission, state, event),
        outcome=_move("outcome", OUTCOME, state.outcome, state, event),
    )
    # Joint rule 3: what is proven not sent has nothing to be unknown about.
    if event is Event.CLOSED and state.transmission is Transmission.NONE_PROVEN:
        after = replace(after, outcome=state.outcome)
    if rule := illegal(after):
        raise IllegalTransition(state, event, rule)
    return after


def illegal(state: State) -> str:
    """Why a joint state may not exist; the empty string when it may."""
    match state.dispatch:
        case Dispatch.NOT_STARTED:
            if state.transmission is not None:
                return "nothing can have been transmitted before an attempt"
            if state.outcome not in (Outcome.UNOBSERVED, Outcome.UNKNOWN):
                return "there is no outcome before an attempt"
            if state.outcome is Outcome.UNKNOWN and state.permission is Permission.PENDING:
                return "an unknown outcome was approved once"
        case Dispatch.STARTED:
            if state.transmission is None:
                return "an open attempt has a transmission"
            if state.permission is Permission.PENDING:
                return "an attempt is claimed under an approval only"
            if state.outcome not in (Outcome.UNOBSERVED, Outcome.UNKNOWN):
                return "the outcome does not move while an attempt is open"
        case Dispatch.COMPLETED:
            if state.transmission is None:
                return "a closed attempt has a transmission"
            if state.permission is Permission.PENDING:
                return "an attempt is claimed under an approval only"
            if state.transmission is not Transmission.NONE_PROVEN and state.outcome is Outcome.UNOBSERVED:
                return "a closed attempt that may have been sent has an outcome"
    return ""


def _forbidden_before(state: State, event: Event, attempt: AttemptFacts) -> str:
    needs_permission = (Event.CLAIMED, Event.RELEASED, Event.REISSUED)
    if event in needs_permission and state.permission is not Permission.AUTHORIZED:
        return "the operation is not authorized"
    if event is Event.RELEASED and attempt.released:
        return "the attempt's one release is spent"
    if event in (Event.NOTHING_WRITTEN, Event.ANSWERED) and not attempt.released:
        return "the attempt was not released"
    if event is Event.NOTHING_WRITTEN and attempt.exposed:
        return "another write that could cause the effect has left"
    if event is Event.APPROVED and state.outcome in (Outcome.ACCEPTED, Outcome.SUCCEEDED):
        return "there is nothing left to permit"
    return ""


def _move(name: str, table: Mapping[S, Mapping[Event, S]], current: S, state: State, event: Event) -> S:
    if event not in _CONCERNS[name]:
        return current
    row = table[current]
    if event not in row:
        shown = "none" if current is None else str(current)
        raise IllegalTransition(state, event, f"{name} {shown} has no row for it")
    return row[event]
