"""May an operation have a further attempt? Its own decision with its own reason code (B2, B3), from the record and
the provider's contract alone: never from an exception, a status or a model. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from executor.model.operation import Operation, Policy
from executor.model.transitions import Dispatch, Outcome, Transmission


class RetryReason(StrEnum):
    """Why a further attempt is, or is not, possible."""

    NOT_STARTED = "not_started"
    """There was no attempt yet, or a further one has been opened and not begun; nothing is left to decide."""
    ATTEMPT_OPEN = "attempt_open"
    SUCCEEDED = "succeeded"
    ACCEPTED = "accepted"
    NONE_PROVEN = "none_proven"
    """Proven not sent: a fresh approval opens one linked attempt, under every policy."""
    RELEASE_SPENT = "release_spent"
    """`absolute`: the one release is used, whatever became of it."""
    UNKNOWN_ABSOLUTE = "unknown_absolute"
    UNKNOWN_NEEDS_RECONCILIATION = "unknown_needs_reconciliation"
    UNKNOWN_NEEDS_LINKED_DECISION = "unknown_needs_linked_decision"
    KEY_MAKES_IT_SAFE = "key_makes_it_safe"
    KEY_CONDITIONS_NOT_SHOWN = "key_conditions_not_shown"
    """There is no key to speak of: the contract has none, or the operation was proposed without one."""
    KEY_NOT_HONOURED = "key_not_honoured"
    KEY_TERMS_CHANGED = "key_terms_changed"
    """The flow's code, or what it says about the key, is not what the earlier attempt ran under."""
    KEY_NOT_ALONE = "key_not_alone"
    """A write without the key could have caused the effect."""
    KEY_FIELDS_NOT_SHOWN = "key_fields_not_shown"
    KEY_LIFETIME_OVER = "key_lifetime_over"
    KEY_ATTEMPTS_SPENT = "key_attempts_spent"
    REJECTED_ABSOLUTE = "rejected_absolute"
    REJECTED_NEEDS_LINKED_DECISION = "rejected_needs_linked_decision"
    REJECTED_NOT_BY_ABSENCE = "rejected_not_by_absence"
    """The provider refused it for a reason; the same again would be refused again. Propose a changed intent."""

    @property
    def sentence(self) -> str:
        """Why a further attempt is, or is not, possible, for a reader."""
        return _SENTENCES[self]


_SENTENCES = {
    RetryReason.NOT_STARTED: "There was no attempt yet; it needs a good approval to run.",
    RetryReason.ATTEMPT_OPEN: "An attempt is open; there is no other beside it.",
    RetryReason.SUCCEEDED: "It has succeeded; there is no further attempt.",
    RetryReason.ACCEPTED: "The site has taken it in; there is no further attempt.",
    RetryReason.NONE_PROVEN: "It is proven that nothing left: a fresh approval opens one further attempt.",
    RetryReason.RELEASE_SPENT: "The one release of the policy `absolute` is used; there is no further attempt.",
    RetryReason.UNKNOWN_ABSOLUTE: "It may be out, and the policy is `absolute`: there is no further attempt.",
    RetryReason.UNKNOWN_NEEDS_RECONCILIATION: "It may be out: looking comes first, then a person may decide.",
    RetryReason.UNKNOWN_NEEDS_LINKED_DECISION: "Looking has ended without a result: a person may decide on one more.",
    RetryReason.KEY_MAKES_IT_SAFE: "The provider honours the key: the same request with the same key is safe.",
    RetryReason.KEY_CONDITIONS_NOT_SHOWN: "There is no key to show that it is safe: no further attempt.",
    RetryReason.KEY_NOT_HONOURED: "The key in the record does not follow from the intent: no further attempt.",
    RetryReason.KEY_TERMS_CHANGED: "The flow or its promise about the key has changed since: no further attempt.",
    RetryReason.KEY_NOT_ALONE: "A write without the key may have caused it already: no further attempt.",
    RetryReason.KEY_FIELDS_NOT_SHOWN: "It cannot be shown that the fields are the same as before: no further attempt.",
    RetryReason.KEY_LIFETIME_OVER: "The provider may have forgotten the key by now: no further attempt.",
    RetryReason.KEY_ATTEMPTS_SPENT: "The key was sent as often as the provider allows: no further attempt.",
    RetryReason.REJECTED_ABSOLUTE: "The policy is `absolute`: there is no further attempt.",
    RetryReason.REJECTED_NEEDS_LINKED_DECISION: "It is not there: a person may decide on a further attempt.",
    RetryReason.REJECTED_NOT_BY_ABSENCE: "The site refused it; the same again would be refused again.",
}


class Permits(StrEnum):
    """What would be needed for a further attempt."""

    NOTHING = "nothing"
    """No further attempt, by anybody."""
    FRESH_APPROVAL = "fresh_approval"
    LINKED_DECISION = "linked_decision"
    SAME_KEY = "same_key"
    """A run, under an approval that has a use left; the claim opens the attempt by itself."""


@dataclass(frozen=True, slots=True)
class Eligibility:
    permits: Permits
    reason: RetryReason


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """What can be shown about a provider's idempotency key right now; `executor.model.key` works it out. All must
    hold (B3). `until` is when `inside_lifetime` ends, None while the key was never sent."""

    honoured: bool
    same_terms: bool
    alone: bool
    same_fields: bool
    inside_lifetime: bool
    attempts_left: int
    until: datetime | None = None

    @property
    def flaw(self) -> RetryReason | None:
        """The first condition that cannot be shown; None when all can."""
        for holds, reason in (
            (self.honoured, RetryReason.KEY_NOT_HONOURED),
            (self.same_terms, RetryReason.KEY_TERMS_CHANGED),
            (self.alone, RetryReason.KEY_NOT_ALONE),
            (self.same_fields, RetryReason.KEY_FIELDS_NOT_SHOWN),
            (self.inside_lifetime, RetryReason.KEY_LIFETIME_OVER),
            (self.attempts_left > 0, RetryReason.KEY_ATTEMPTS_SPENT),
        ):
            if not holds:
                return reason
        return None

    @property
    def shown(self) -> bool:
        return self.flaw is None


def eligibility(
    operation: Operation,
    *,
    key: KeyFacts | None = None,
    reconciliation_ended: bool = False,
    rejected_by_absence: bool = False,
) -> Eligibility:
    """Whether, and by what, the operation may have a further attempt. `reconciliation_ended` says that the looks which
    the contract allows have run to their end; `rejected_by_absence` that the outcome rests on proven absence (D6)."""
    state, policy = operation.state, operation.policy
    if state.dispatch is Dispatch.NOT_STARTED:
        # Opened by a decision for one claim that never came: what opened it does not outlive its own approval, and a
        # plain approval does not take its place.
        if any(attempt.transmission is not Transmission.NONE_PROVEN for attempt in operation.attempts):
            return _opened_again(operation, key)
        return Eligibility(Permits.FRESH_APPROVAL, RetryReason.NOT_STARTED)
    if state.dispatch is Dispatch.STARTED:
        return Eligibility(Permits.NOTHING, RetryReason.ATTEMPT_OPEN)
    match state.outcome:
        case Outcome.SUCCEEDED:
            return Eligibility(Permits.NOTHING, RetryReason.SUCCEEDED)
        case Outcome.ACCEPTED:
            return Eligibility(Permits.NOTHING, RetryReason.ACCEPTED)
        case Outcome.UNOBSERVED:
            assert state.transmission is Transmission.NONE_PROVEN  # joint rule 3
            # Not one byte was written, but the release itself was committed: `absolute` means one release, ever.
            if policy is Policy.ABSOLUTE and operation.releases > 0:
                return Eligibility(Permits.NOTHING, RetryReason.RELEASE_SPENT)
            # An earlier attempt that may have been sent was rejected by proven absence, or there would be no later one.
            # What opened the later one, a decision or a key, was for that one: the next needs its own.
            if any(attempt.transmission is not Transmission.NONE_PROVEN for attempt in operation.attempts):
                return _after_rejected(policy, key, by_absence=True)
            if policy is Policy.IDEMPOTENT and key is not None and key.shown:
                return Eligibility(Permits.SAME_KEY, RetryReason.KEY_MAKES_IT_SAFE)
            return Eligibility(Permits.FRESH_APPROVAL, RetryReason.NONE_PROVEN)
        case Outcome.UNKNOWN:
            return _after_unknown(policy, key, reconciliation_ended)
        case Outcome.REJECTED:
            return _after_rejected(policy, key, rejected_by_absence)


def _after_unknown(policy: Policy, key: KeyFacts | None, reconciliation_ended: bool) -> Eligibility:
    match policy:
        case Policy.ABSOLUTE:
            return Eligibility(Permits.NOTHING, RetryReason.UNKNOWN_ABSOLUTE)
        case Policy.IDEMPOTENT:
            return _by_key(key)
        case Policy.REAUTHORIZE:
            if reconciliation_ended:
                return Eligibility(Permits.LINKED_DECISION, RetryReason.UNKNOWN_NEEDS_LINKED_DECISION)
            return Eligibility(Permits.NOTHING, RetryReason.UNKNOWN_NEEDS_RECONCILIATION)


def _after_rejected(policy: Policy, key: KeyFacts | None, by_absence: bool) -> Eligibility:
    if not by_absence:
        return Eligibility(Permits.NOTHING, RetryReason.REJECTED_NOT_BY_ABSENCE)
    match policy:
        case Policy.ABSOLUTE:
            return Eligibility(Permits.NOTHING, RetryReason.REJECTED_ABSOLUTE)
        case Policy.REAUTHORIZE:
            return Eligibility(Permits.LINKED_DECISION, RetryReason.REJECTED_NEEDS_LINKED_DECISION)
        case Policy.IDEMPOTENT:
            return _by_key(key)


def _by_key(key: KeyFacts | None) -> Eligibility:
    if key is None:
        return Eligibility(Permits.NOTHING, RetryReason.KEY_CONDITIONS_NOT_SHOWN)
    if (flaw := key.flaw) is not None:
        return Eligibility(Permits.NOTHING, flaw)
    return Eligibility(Permits.SAME_KEY, RetryReason.KEY_MAKES_IT_SAFE)


def _opened_again(operation: Operation, key: KeyFacts | None) -> Eligibility:
    """What it takes to open an operation that was opened again after an attempt that may have been sent."""
    match operation.policy:
        case Policy.ABSOLUTE:
            return Eligibility(Permits.NOTHING, RetryReason.RELEASE_SPENT)
        case Policy.REAUTHORIZE if operation.state.outcome is Outcome.UNKNOWN:
            return Eligibility(Permits.LINKED_DECISION, RetryReason.UNKNOWN_NEEDS_LINKED_DECISION)
        case Policy.REAUTHORIZE:
            return Eligibility(Permits.LINKED_DECISION, RetryReason.REJECTED_NEEDS_LINKED_DECISION)
        case Policy.IDEMPOTENT:
            return _by_key(key)
