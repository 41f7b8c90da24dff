"""May an operation have a further attempt? Its own decision with its own reason code (B2, B3), from the record and
the provider's contract alone: never from an exception, a status or a model. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
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
    REJECTED_ABSOLUTE = "rejected_absolute"
    REJECTED_NEEDS_LINKED_DECISION = "rejected_needs_linked_decision"
    REJECTED_NOT_BY_ABSENCE = "rejected_not_by_absence"
    """The provider refused it for a reason; the same again would be refused again. Propose a changed intent."""


class Permits(StrEnum):
    """What would be needed for a further attempt."""

    NOTHING = "nothing"
    """No further attempt, by anybody."""
    FRESH_APPROVAL = "fresh_approval"
    LINKED_DECISION = "linked_decision"
    SAME_KEY = "same_key"


@dataclass(frozen=True, slots=True)
class Eligibility:
    permits: Permits
    reason: RetryReason


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFacts:
    """What can be shown about a provider's idempotency key right now. All must hold (B3)."""

    honoured: bool
    same_fields: bool
    inside_lifetime: bool
    attempts_left: int

    @property
    def shown(self) -> bool:
        return self.honoured and self.same_fields and self.inside_lifetime and self.attempts_left > 0


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
            if key is not None and key.shown:
                return Eligibility(Permits.SAME_KEY, RetryReason.KEY_MAKES_IT_SAFE)
            return Eligibility(Permits.NOTHING, RetryReason.KEY_CONDITIONS_NOT_SHOWN)
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
            if key is not None and key.shown:
                return Eligibility(Permits.SAME_KEY, RetryReason.KEY_MAKES_IT_SAFE)
            return Eligibility(Permits.NOTHING, RetryReason.KEY_CONDITIONS_NOT_SHOWN)
