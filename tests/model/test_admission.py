"""Admission: each reason is given when it holds, the first in the documented order when several do (B1, B5, A4, A9)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from model_builders import FLOW, HOUR, NOW, PERSON, READY, approval, attempt, intent, operation

from executor.model.admission import Neighbour, Refusal, Refused, Snapshot, refusal, stands_in_the_way, stops_for
from executor.model.operation import Disposition, FlowBinding, Policy, Stop
from executor.model.retry import KeyFacts, RetryReason
from executor.model.transitions import Dispatch, Outcome, Permission, State, Transmission


def snapshot(**changes: Any) -> Snapshot:
    whole = Snapshot(
        operation=operation(),
        now=NOW,
        approval=approval(),
        stops=(),
        dependencies=(),
        neighbours=(),
        flow=FLOW,
        account_busy=False,
    )
    return replace(whole, **changes)


def neighbour(**changes: Any) -> Neighbour:
    whole = Neighbour(
        id="op-2",
        same_task=False,
        look_alike=False,
        earlier=True,
        permission=Permission.AUTHORIZED,
        dispatch=Dispatch.NOT_STARTED,
        outcome=Outcome.UNOBSERVED,
    )
    return replace(whole, **changes)


def stop(**changes: Any) -> Stop:
    whole = Stop(id="stop-1", flow=None, account_key=None, by=PERSON, at=NOW, why="look first")
    return replace(whole, **changes)


def op(s: Snapshot, **changes: Any) -> Snapshot:
    return replace(s, operation=replace(s.operation, **changes))


def permission(s: Snapshot, to: Permission) -> Snapshot:
    return op(s, state=replace(s.operation.state, permission=to))


def approved(s: Snapshot, **changes: Any) -> Snapshot:
    assert s.approval is not None
    return replace(s, approval=replace(s.approval, **changes))


def with_intent(s: Snapshot, **changes: Any) -> Snapshot:
    return op(s, intent=replace(s.operation.intent, **changes))


BREAKS: dict[Refusal, Callable[[Snapshot], Snapshot]] = {
    Refusal.ALREADY_DISPATCHED: lambda s: op(
        s, state=replace(s.operation.state, dispatch=Dispatch.STARTED, transmission=Transmission.POSSIBLE)
    ),
    Refusal.KEY_NOT_SAFE: lambda s: replace(
        op(
            s,
            policy=Policy.IDEMPOTENT,
            attempts=SENT,
            state=s.operation.state
            if s.operation.state.dispatch is Dispatch.STARTED
            else replace(
                s.operation.state,
                dispatch=Dispatch.COMPLETED,
                transmission=Transmission.POSSIBLE,
                outcome=Outcome.UNKNOWN,
            ),
        ),
        key=replace(SHOWN, inside_lifetime=False),
    ),
    Refusal.DISPOSITION_CLOSED: lambda s: op(s, disposition=Disposition.WAIT),
    Refusal.STOPPED: lambda s: replace(s, stops=(stop(),)),
    Refusal.NOT_AUTHORIZED: lambda s: permission(s, Permission.PENDING),
    Refusal.APPROVAL_REVOKED: lambda s: approved(s, revoked_at=NOW),
    Refusal.APPROVAL_EXPIRED: lambda s: approved(s, expires=NOW),
    Refusal.APPROVAL_SPENT: lambda s: approved(s, used=1),
    Refusal.APPROVAL_DIFFERS: lambda s: approved(s, account="somebody else"),
    Refusal.FLOW_CHANGED: lambda s: replace(s, flow=replace(FLOW, code_digest="e" * 64)),
    Refusal.DEADLINE_PASSED: lambda s: with_intent(s, deadline=NOW),
    Refusal.DEPENDENCY_NOT_SUCCEEDED: lambda s: replace(s, dependencies=(Outcome.SUCCEEDED, Outcome.ACCEPTED)),
    Refusal.TASK_UNRESOLVED: lambda s: replace(
        s, neighbours=(*s.neighbours, neighbour(id="op-3", same_task=True, outcome=Outcome.UNKNOWN))
    ),
    Refusal.LOOK_ALIKE: lambda s: replace(s, neighbours=(*s.neighbours, neighbour(look_alike=True))),
    Refusal.LEDGER_BEHIND_ANCHOR: lambda s: replace(s, behind_anchor=True),
    Refusal.ACCOUNT_BUSY: lambda s: replace(s, account_busy=True),
}
SENT = (attempt(1, Transmission.POSSIBLE, released_at=NOW),)
SHOWN = KeyFacts(honoured=True, same_terms=True, alone=True, same_fields=True, inside_lifetime=True, attempts_left=1)
AT_THE_RELEASE = (Refusal.LEASE_LOST, Refusal.ALREADY_RELEASED, Refusal.TOO_LATE_TO_WRITE)
"""Given by the lease and the release, never by admission."""


def test_nothing_stands_against_a_whole_snapshot() -> None:
    assert refusal(snapshot()) is None


@pytest.mark.parametrize("reason", BREAKS)
def test_each_reason_alone(reason: Refusal) -> None:
    found = refusal(BREAKS[reason](snapshot()))
    assert found is not None
    assert found.reason is reason
    assert found.sentence.startswith(reason.sentence)


@given(st.sets(st.sampled_from(list(BREAKS)), min_size=1))
def test_the_first_in_the_order_of_the_class_is_given(reasons: set[Refusal]) -> None:
    broken = snapshot()
    for reason in reasons:
        broken = BREAKS[reason](broken)
    found = refusal(broken)
    assert found is not None
    assert found.reason is min(reasons, key=list(Refusal).index)


def test_every_reason_is_tried_or_belongs_to_the_release() -> None:
    assert [*BREAKS, *AT_THE_RELEASE] == list(Refusal)
    assert all(reason.sentence.endswith(".") for reason in Refusal)


@pytest.mark.parametrize("disposition", Disposition)
def test_only_an_open_operation_runs(disposition: Disposition) -> None:
    found = refusal(op(snapshot(), disposition=disposition))
    expected = None if disposition is Disposition.OPEN else Refused(Refusal.DISPOSITION_CLOSED)
    assert found == expected


@pytest.mark.parametrize("reached", [Dispatch.STARTED, Dispatch.COMPLETED])
def test_no_approval_makes_a_dispatched_operation_run(reached: Dispatch) -> None:
    state = State(Permission.AUTHORIZED, reached, Transmission.NONE_PROVEN, Outcome.UNOBSERVED)
    assert refusal(snapshot(operation=operation(state))) == Refused(Refusal.ALREADY_DISPATCHED)


class TestKey:
    """An operation that was dispatched before, under `idempotent`."""

    UNKNOWN = State(Permission.AUTHORIZED, Dispatch.COMPLETED, Transmission.POSSIBLE, Outcome.UNKNOWN)

    def seen(self, state: State = UNKNOWN, **changes: Any) -> Snapshot:
        return snapshot(operation=operation(state, Policy.IDEMPOTENT, attempts=SENT), **changes)

    def test_runs_again_where_all_is_shown(self) -> None:
        assert refusal(self.seen(key=SHOWN)) is None

    def test_says_what_cannot_be_shown(self) -> None:
        refused = refusal(self.seen(key=replace(SHOWN, attempts_left=0)))
        assert refused == Refused(Refusal.KEY_NOT_SAFE, retry=RetryReason.KEY_ATTEMPTS_SPENT)
        assert refused.sentence.endswith(RetryReason.KEY_ATTEMPTS_SPENT.sentence)

    def test_without_a_key_it_is_dispatched_and_that_is_all(self) -> None:
        assert refusal(self.seen()) == Refused(Refusal.ALREADY_DISPATCHED)

    @pytest.mark.parametrize("policy", [Policy.ABSOLUTE, Policy.REAUTHORIZE])
    def test_no_other_policy_asks_for_the_key(self, policy: Policy) -> None:
        record = operation(self.UNKNOWN, policy, attempts=SENT)
        assert refusal(snapshot(operation=record, key=SHOWN)) == Refused(Refusal.ALREADY_DISPATCHED)

    @pytest.mark.parametrize("absence", [True, False])
    def test_a_rejection_needs_proven_absence(self, absence: bool) -> None:
        rejected = replace(self.UNKNOWN, outcome=Outcome.REJECTED)
        refused = refusal(self.seen(rejected, key=SHOWN, rejected_by_absence=absence))
        assert refused == (None if absence else Refused(Refusal.ALREADY_DISPATCHED))

    def test_whoever_opened_it_again_the_key_is_asked(self) -> None:
        """A decision that was revoked and a plain approval after it do not make up for a key that is over."""
        opened = State(Permission.AUTHORIZED, Dispatch.NOT_STARTED, None, Outcome.UNKNOWN)
        assert refusal(self.seen(opened, key=SHOWN)) is None
        for key in (None, replace(SHOWN, inside_lifetime=False)):
            assert refusal(self.seen(opened, key=key)) is not None

    @pytest.mark.parametrize("spoilt", [{"used": 1}, {"expires": NOW}, {"revoked_at": NOW}])
    def test_the_approval_must_still_be_good(self, spoilt: dict[str, Any]) -> None:
        assert refusal(self.seen(key=SHOWN, approval=approval(**spoilt))) is not None


class TestApproval:
    def test_none_at_all(self) -> None:
        assert refusal(snapshot(approval=None)) == Refused(Refusal.NOT_AUTHORIZED)

    @pytest.mark.parametrize(
        ("state", "reason"),
        [(Permission.REVOKED, Refusal.APPROVAL_REVOKED), (Permission.EXPIRED, Refusal.APPROVAL_EXPIRED)],
    )
    def test_the_record_says_that_it_ended(self, state: Permission, reason: Refusal) -> None:
        assert refusal(permission(snapshot(), state)) == Refused(reason)

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("operation", "op-9"),
            ("fingerprint", "f" * 64),
            ("account", "admin"),
            ("destination", "https://cms.example/other"),
            ("action", "delete-post"),
        ],
    )
    def test_binds_every_part(self, field: str, value: str) -> None:
        assert refusal(approved(snapshot(), **{field: value})) == Refused(Refusal.APPROVAL_DIFFERS)

    @pytest.mark.parametrize(
        "changes",
        [
            {"material": {"title": "Hello", "body": "World!"}},
            {"account": "admin"},
            {"destination": "https://cms.example"},
            {"action": "delete-post"},
        ],
    )
    def test_is_for_the_intent_as_it_is_now(self, changes: dict[str, Any]) -> None:
        assert refusal(with_intent(snapshot(), **changes)) == Refused(Refusal.APPROVAL_DIFFERS)

    def test_and_for_the_fingerprint_that_was_recorded(self) -> None:
        assert refusal(op(snapshot(), fingerprint="0" * 64)) == Refused(Refusal.APPROVAL_DIFFERS)

    @pytest.mark.parametrize("field", ["name", "version", "code_digest"])
    def test_binds_the_code(self, field: str) -> None:
        flow: FlowBinding = replace(FLOW, **{field: "other"})
        assert refusal(snapshot(flow=flow)) == Refused(Refusal.FLOW_CHANGED)

    def test_ends_at_its_expiry_and_not_before(self) -> None:
        assert refusal(snapshot(now=NOW + HOUR - HOUR / 3600)) is None
        assert refusal(snapshot(now=NOW + HOUR)) == Refused(Refusal.APPROVAL_EXPIRED)

    def test_allows_as_many_claims_as_it_says(self) -> None:
        assert refusal(approved(snapshot(), attempts=2, used=1)) is None
        assert refusal(approved(snapshot(), attempts=2, used=2)) == Refused(Refusal.APPROVAL_SPENT)


class TestNeighbours:
    UNRESOLVED = (
        {"dispatch": Dispatch.STARTED},
        {"dispatch": Dispatch.COMPLETED, "outcome": Outcome.UNKNOWN},
        {"dispatch": Dispatch.NOT_STARTED, "outcome": Outcome.UNKNOWN},
    )

    @pytest.mark.parametrize("state", UNRESOLVED)
    def test_an_unresolved_one_of_the_task_blocks_even_what_is_meant(self, state: dict[str, Any]) -> None:
        other = neighbour(same_task=True, **state)
        found = refusal(snapshot(operation=operation(meant=True), neighbours=(other,)))
        assert found == Refused(Refusal.TASK_UNRESOLVED, ("op-2",))
        assert "op-2" in found.sentence

    @pytest.mark.parametrize("outcome", [Outcome.SUCCEEDED, Outcome.REJECTED, Outcome.ACCEPTED, Outcome.UNOBSERVED])
    def test_a_resolved_one_of_the_task_does_not(self, outcome: Outcome) -> None:
        other = neighbour(same_task=True, look_alike=True, dispatch=Dispatch.COMPLETED, outcome=outcome)
        assert refusal(snapshot(neighbours=(other,))) is None

    @pytest.mark.parametrize(
        ("changes", "blocks"),
        [
            *((state, True) for state in UNRESOLVED),
            ({"dispatch": Dispatch.COMPLETED, "outcome": Outcome.SUCCEEDED}, True),
            ({"dispatch": Dispatch.COMPLETED, "outcome": Outcome.ACCEPTED}, True),
            ({"dispatch": Dispatch.COMPLETED, "outcome": Outcome.REJECTED}, False),
            ({"dispatch": Dispatch.COMPLETED, "outcome": Outcome.UNOBSERVED}, False),
            ({"earlier": True}, True),
            ({"earlier": False}, False),
            ({"earlier": True, "permission": Permission.PENDING}, False),
            ({"earlier": True, "permission": Permission.REVOKED}, False),
            ({"earlier": False, "dispatch": Dispatch.STARTED}, True),
            ({"look_alike": False, "dispatch": Dispatch.STARTED}, False),
        ],
    )
    def test_a_look_alike_of_another_task(self, changes: dict[str, Any], blocks: bool) -> None:
        other = neighbour(**{"look_alike": True, **changes})
        assert stands_in_the_way(other) is blocks
        expected = Refused(Refusal.LOOK_ALIKE, ("op-2",)) if blocks else None
        assert refusal(snapshot(neighbours=(other,))) == expected
        assert refusal(snapshot(operation=operation(READY, meant=True), neighbours=(other,))) is None


class TestStopsAndDependencies:
    KEY = operation().account_key

    @pytest.mark.parametrize(
        ("changes", "in_force"),
        [
            ({}, True),
            ({"flow": "cms"}, True),
            ({"flow": "other"}, False),
            ({"account_key": KEY}, True),
            ({"account_key": "https://cms.example|other"}, False),
            ({"flow": "cms", "account_key": KEY}, True),
            ({"flow": "other", "account_key": KEY}, False),
            ({"lifted_at": NOW}, False),
        ],
    )
    def test_a_stop_holds_for_what_it_names(self, changes: dict[str, Any], in_force: bool) -> None:
        assert bool(stops_for((stop(**changes),), flow="cms", account_key=self.KEY)) is in_force
        found = refusal(snapshot(stops=(stop(**changes),)))
        assert found == (Refused(Refusal.STOPPED, ("stop-1",)) if in_force else None)

    @pytest.mark.parametrize("outcome", Outcome)
    def test_what_must_come_first_must_have_succeeded(self, outcome: Outcome) -> None:
        waiting = snapshot(operation=operation(intent=intent(after=("op-0",))), dependencies=(outcome,))
        expected = None if outcome is Outcome.SUCCEEDED else Refused(Refusal.DEPENDENCY_NOT_SUCCEEDED, ("op-0",))
        assert refusal(waiting) == expected
