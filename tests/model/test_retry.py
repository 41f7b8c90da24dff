"""The retry decision, completely: policy x what became of the attempts x facts (B2, B3)."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from model_builders import NOW, attempt, legal_states, operation

from executor.model.operation import Attempt, Policy
from executor.model.retry import Eligibility, KeyFacts, Permits, RetryReason, eligibility
from executor.model.transitions import Dispatch, Outcome, Permission, State, Transmission

SHOWN = KeyFacts(honoured=True, same_terms=True, alone=True, same_fields=True, inside_lifetime=True, attempts_left=1)
ABSOLUTE, REAUTHORIZE, IDEMPOTENT = Policy.ABSOLUTE, Policy.REAUTHORIZE, Policy.IDEMPOTENT
NOTHING = Permits.NOTHING
R = RetryReason
NOT_SENT = attempt(1)
NOT_WRITTEN = attempt(1, released_at=NOW)
SENT = attempt(1, Transmission.POSSIBLE, released_at=NOW)
EXPOSED = attempt(1, Transmission.POSSIBLE, exposed=True)
ANSWERED = attempt(1, Transmission.ANSWERED, released_at=NOW)


def closed(outcome: Outcome, transmission: Transmission) -> State:
    return State(Permission.AUTHORIZED, Dispatch.COMPLETED, transmission, outcome)


def expected(  # the table of the requirements, written once more and independently
    policy: Policy, outcome: Outcome, attempts: tuple[Attempt, ...], key: bool, ended: bool, absence: bool
) -> Eligibility:
    by_key = (
        Eligibility(Permits.SAME_KEY, R.KEY_MAKES_IT_SAFE) if key else Eligibility(NOTHING, R.KEY_CONDITIONS_NOT_SHOWN)
    )
    if outcome is Outcome.SUCCEEDED:
        return Eligibility(NOTHING, R.SUCCEEDED)
    if outcome is Outcome.ACCEPTED:
        return Eligibility(NOTHING, R.ACCEPTED)
    if outcome is Outcome.UNKNOWN:
        return {
            ABSOLUTE: Eligibility(NOTHING, R.UNKNOWN_ABSOLUTE),
            REAUTHORIZE: Eligibility(Permits.LINKED_DECISION, R.UNKNOWN_NEEDS_LINKED_DECISION)
            if ended
            else Eligibility(NOTHING, R.UNKNOWN_NEEDS_RECONCILIATION),
            IDEMPOTENT: by_key,
        }[policy]
    after_absence = {
        ABSOLUTE: Eligibility(NOTHING, R.REJECTED_ABSOLUTE),
        REAUTHORIZE: Eligibility(Permits.LINKED_DECISION, R.REJECTED_NEEDS_LINKED_DECISION),
        IDEMPOTENT: by_key,
    }[policy]
    if outcome is Outcome.REJECTED:
        return after_absence if absence else Eligibility(NOTHING, R.REJECTED_NOT_BY_ABSENCE)
    if policy is ABSOLUTE and any(one.released_at for one in attempts):
        return Eligibility(NOTHING, R.RELEASE_SPENT)
    if any(one.transmission is not Transmission.NONE_PROVEN for one in attempts):
        return after_absence
    if policy is IDEMPOTENT and key:
        return by_key
    return Eligibility(Permits.FRESH_APPROVAL, R.NONE_PROVEN)


LINKED = replace(NOT_SENT, number=2)
RECORDS = [
    *((closed(Outcome.UNOBSERVED, Transmission.NONE_PROVEN), one) for one in ((NOT_SENT,), (NOT_WRITTEN,))),
    *((closed(Outcome.UNOBSERVED, Transmission.NONE_PROVEN), (one, LINKED)) for one in (NOT_SENT, SENT, ANSWERED)),
    (closed(Outcome.UNKNOWN, Transmission.NONE_PROVEN), (SENT, LINKED)),
    *(
        (closed(outcome, one.transmission), (one,))
        for outcome in (Outcome.UNKNOWN, Outcome.REJECTED, Outcome.ACCEPTED, Outcome.SUCCEEDED)
        for one in (SENT, EXPOSED, ANSWERED)
    ),
]


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(("state", "attempts"), RECORDS)
def test_the_whole_table(policy: Policy, state: State, attempts: tuple[Attempt, ...]) -> None:
    for key, ended, absence, permission in product(
        (False, True), (False, True), (False, True), (Permission.AUTHORIZED, Permission.EXPIRED, Permission.REVOKED)
    ):
        record = operation(replace(state, permission=permission), policy, attempts=attempts)
        found = eligibility(record, key=SHOWN if key else None, reconciliation_ended=ended, rejected_by_absence=absence)
        assert found == expected(policy, state.outcome, attempts, key, ended, absence)


@pytest.mark.parametrize("policy", Policy)
def test_before_and_during_an_attempt(policy: Policy) -> None:
    for state in legal_states():
        if state.dispatch is Dispatch.NOT_STARTED:
            assert eligibility(operation(state, policy)).reason is R.NOT_STARTED
        if state.dispatch is Dispatch.STARTED:
            open_one = operation(state, policy, attempts=(attempt(1),))
            assert eligibility(open_one, key=SHOWN, reconciliation_ended=True, rejected_by_absence=True) == (
                Eligibility(NOTHING, R.ATTEMPT_OPEN)
            )


LACKING = {
    R.KEY_NOT_HONOURED: {"honoured": False},
    R.KEY_TERMS_CHANGED: {"same_terms": False},
    R.KEY_NOT_ALONE: {"alone": False},
    R.KEY_FIELDS_NOT_SHOWN: {"same_fields": False},
    R.KEY_LIFETIME_OVER: {"inside_lifetime": False},
    R.KEY_ATTEMPTS_SPENT: {"attempts_left": 0},
}


@pytest.mark.parametrize("reason", LACKING, ids=lambda reason: reason.value)
def test_a_key_needs_every_condition_and_names_the_first_that_is_missing(reason: RetryReason) -> None:
    later = list(LACKING)[list(LACKING).index(reason) :]
    everything_after = {name: value for one in later for name, value in LACKING[one].items()}
    for state in (closed(Outcome.UNKNOWN, Transmission.POSSIBLE), closed(Outcome.REJECTED, Transmission.POSSIBLE)):
        record = operation(state, IDEMPOTENT, attempts=(SENT,))
        for lacking in (LACKING[reason], everything_after):
            found = eligibility(record, key=replace(SHOWN, **lacking), rejected_by_absence=True)
            assert found == Eligibility(NOTHING, reason)
        assert eligibility(record, rejected_by_absence=True).reason is R.KEY_CONDITIONS_NOT_SHOWN


OPENED_AGAIN = State(Permission.AUTHORIZED, Dispatch.NOT_STARTED, None, Outcome.UNKNOWN)


@pytest.mark.parametrize(
    ("policy", "outcome", "found"),
    [
        (ABSOLUTE, Outcome.UNKNOWN, Eligibility(NOTHING, R.RELEASE_SPENT)),
        (REAUTHORIZE, Outcome.UNKNOWN, Eligibility(Permits.LINKED_DECISION, R.UNKNOWN_NEEDS_LINKED_DECISION)),
        (REAUTHORIZE, Outcome.UNOBSERVED, Eligibility(Permits.LINKED_DECISION, R.REJECTED_NEEDS_LINKED_DECISION)),
        (IDEMPOTENT, Outcome.UNKNOWN, Eligibility(Permits.SAME_KEY, R.KEY_MAKES_IT_SAFE)),
    ],
)
def test_what_a_decision_opened_needs_that_decision_again(policy: Policy, outcome: Outcome, found: Eligibility) -> None:
    """Not a plain approval, however often the decision's own was revoked."""
    for permission in (Permission.AUTHORIZED, Permission.EXPIRED, Permission.REVOKED):
        state = replace(OPENED_AGAIN, permission=permission, outcome=outcome)
        assert eligibility(operation(state, policy, attempts=(SENT,)), key=SHOWN) == found


def test_absolute_permits_nothing_after_a_release() -> None:
    for state, attempts in RECORDS:
        if any(one.released_at for one in attempts):
            record = operation(state, ABSOLUTE, attempts=attempts)
            for ended, absence in product((False, True), repeat=2):
                found = eligibility(record, key=SHOWN, reconciliation_ended=ended, rejected_by_absence=absence)
                assert found.permits is NOTHING


def test_every_reason_is_given_somewhere() -> None:
    given = {R.NOT_STARTED, R.ATTEMPT_OPEN, *LACKING}
    for (state, attempts), policy, key, ended, absence in product(
        RECORDS, Policy, (None, SHOWN), (False, True), (False, True)
    ):
        record = operation(state, policy, attempts=attempts)
        found = eligibility(record, key=key, reconciliation_ended=ended, rejected_by_absence=absence)
        given.add(found.reason)
    assert given == set(RetryReason)
    assert all(reason.sentence.endswith(".") for reason in RetryReason)
