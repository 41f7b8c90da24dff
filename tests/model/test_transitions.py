"""The tables: every row moves as written, everything else raises and changes nothing, the joint rules hold."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from model_builders import every_state, legal_states

from executor.model.step_table import STEPS, Shape
from executor.model.transitions import (
    DISPATCH,
    FRESH,
    INITIAL,
    OUTCOME,
    PERMISSION,
    TRANSMISSION,
    AttemptFacts,
    Dispatch,
    Event,
    IllegalTransition,
    Outcome,
    Permission,
    State,
    Transmission,
    apply,
    illegal,
)

TABLES: dict[str, Any] = {
    "permission": PERMISSION,
    "dispatch": DISPATCH,
    "transmission": TRANSMISSION,
    "outcome": OUTCOME,
}
ROWS = [
    pytest.param(name, before, event, after, id=f"{name}: {before} {event} {after}")
    for name, table in TABLES.items()
    for before, row in table.items()
    for event, after in row.items()
]
EVERY_FACT = [AttemptFacts(exposed, released) for exposed, released in product((False, True), repeat=2)]
SEEN = (Event.SEEN_ACCEPTED, Event.SEEN_SUCCEEDED, Event.SEEN_REJECTED, Event.SEEN_UNCLEAR)


def concerned(name: str, event: Event) -> bool:
    return any(event in row for row in TABLES[name].values())


@pytest.mark.parametrize(("name", "before", "event", "after"), ROWS)
def test_every_row_is_used_and_moves_its_dimension(name: str, before: Any, event: Event, after: Any) -> None:
    moves = []
    for state, facts in product(legal_states(), EVERY_FACT):
        if getattr(state, name) is before:
            try:
                moves.append((state, apply(state, event, facts)))
            except IllegalTransition:
                continue
    assert moves, "no legal state uses this row"
    for start, end in moves:
        # Joint rule 3 is the one place where the tables do not say it all.
        if name == "outcome" and event is Event.CLOSED and start.transmission is Transmission.NONE_PROVEN:
            assert end.outcome is start.outcome
        else:
            assert getattr(end, name) is after


@pytest.mark.parametrize("event", Event)
def test_an_event_without_a_row_raises_and_changes_nothing(event: Event) -> None:
    for state, facts in product(legal_states(), EVERY_FACT):
        lacking = [n for n, table in TABLES.items() if concerned(n, event) and event not in table[getattr(state, n)]]
        copy = State(state.permission, state.dispatch, state.transmission, state.outcome)
        if lacking:
            with pytest.raises(IllegalTransition, match="Nothing was changed") as caught:
                apply(state, event, facts)
            assert (caught.value.state, caught.value.event) == (state, event)
        assert state == copy


@pytest.mark.parametrize("event", Event)
def test_no_event_leads_from_a_legal_state_to_an_illegal_one(event: Event) -> None:
    for state, facts in product(legal_states(), EVERY_FACT):
        try:
            after = apply(state, event, facts)
        except IllegalTransition:
            continue
        assert illegal(after) == ""
        for name in TABLES:
            if not concerned(name, event):
                assert getattr(after, name) is getattr(state, name)


def test_the_tables_know_every_state() -> None:
    assert set(PERMISSION) == set(Permission)
    assert set(DISPATCH) == set(Dispatch)
    assert set(TRANSMISSION) == {None, *Transmission}
    assert set(OUTCOME) == set(Outcome)
    assert {event for table in TABLES.values() for row in table.values() for event in row} == set(Event)


class TestJointRules:
    @pytest.mark.parametrize("event", [Event.CLAIMED, Event.RELEASED])
    def test_1_nothing_is_claimed_or_released_without_permission(self, event: Event) -> None:
        for state in legal_states():
            if state.permission is not Permission.AUTHORIZED:
                with pytest.raises(IllegalTransition):
                    apply(state, event)

    def test_1_only_reopening_makes_a_dispatched_operation_claimable(self) -> None:
        for state, event, facts in product(legal_states(), Event, EVERY_FACT):
            if state.dispatch is Dispatch.NOT_STARTED:
                continue
            try:
                after = apply(state, event, facts)
            except IllegalTransition:
                continue
            assert (after.dispatch is Dispatch.NOT_STARTED) == (event in (Event.REOPENED, Event.REISSUED))

    def test_1_a_key_opens_nothing_without_permission(self) -> None:
        for state in legal_states():
            if state.permission is not Permission.AUTHORIZED:
                with pytest.raises(IllegalTransition):
                    apply(state, Event.REISSUED)

    def test_1_an_approval_after_an_attempt_opens_nothing(self) -> None:
        for state in legal_states():
            if state.dispatch is Dispatch.NOT_STARTED:
                continue
            try:
                after = apply(state, Event.APPROVED)
            except IllegalTransition:
                continue
            assert state.dispatch is Dispatch.COMPLETED
            assert state.outcome not in (Outcome.ACCEPTED, Outcome.SUCCEEDED)
            assert after == replace(state, permission=Permission.AUTHORIZED)

    def test_2_the_outcome_stands_still_while_an_attempt_is_open(self) -> None:
        for state, event, facts in product(legal_states(), Event, EVERY_FACT):
            if state.dispatch is not Dispatch.STARTED or event is Event.CLOSED:
                continue
            try:
                after = apply(state, event, facts)
            except IllegalTransition:
                continue
            assert after.outcome is state.outcome
            assert event not in SEEN

    def test_3_completed_and_unobserved_means_proven_not_sent(self) -> None:
        for state in legal_states():
            if state.dispatch is Dispatch.COMPLETED and state.outcome is Outcome.UNOBSERVED:
                assert state.transmission is Transmission.NONE_PROVEN

    @pytest.mark.parametrize("transmission", [Transmission.POSSIBLE, Transmission.ANSWERED])
    def test_3_what_may_have_been_sent_closes_as_unknown(self, transmission: Transmission) -> None:
        state = State(Permission.AUTHORIZED, Dispatch.STARTED, transmission, Outcome.UNOBSERVED)
        assert apply(state, Event.CLOSED).outcome is Outcome.UNKNOWN

    @pytest.mark.parametrize("outcome", [Outcome.UNOBSERVED, Outcome.UNKNOWN])
    def test_3_what_is_proven_not_sent_keeps_the_outcome(self, outcome: Outcome) -> None:
        state = State(Permission.AUTHORIZED, Dispatch.STARTED, Transmission.NONE_PROVEN, outcome)
        assert apply(state, Event.CLOSED).outcome is outcome

    @pytest.mark.parametrize("event", SEEN)
    def test_4_unobserved_has_no_verdict(self, event: Event) -> None:
        for state in legal_states():
            if state.outcome is Outcome.UNOBSERVED:
                with pytest.raises(IllegalTransition):
                    apply(state, event)

    def test_5_succeeded_is_final_and_rejected_is_only_reopened(self) -> None:
        for state, event, facts in product(legal_states(), Event, EVERY_FACT):
            if state.outcome not in (Outcome.SUCCEEDED, Outcome.REJECTED):
                continue
            try:
                after = apply(state, event, facts)
            except IllegalTransition:
                continue
            reopened = state.outcome is Outcome.REJECTED and event in (Event.REOPENED, Event.REISSUED)
            assert after.outcome is (Outcome.UNOBSERVED if reopened else state.outcome)


class TestAttemptFacts:
    OPEN = State(Permission.AUTHORIZED, Dispatch.STARTED, Transmission.POSSIBLE, Outcome.UNOBSERVED)

    def test_one_release_per_attempt(self) -> None:
        claimed = State(Permission.AUTHORIZED, Dispatch.STARTED, Transmission.NONE_PROVEN, Outcome.UNOBSERVED)
        assert apply(claimed, Event.RELEASED, FRESH) == self.OPEN
        for transmission in Transmission:
            again = State(Permission.AUTHORIZED, Dispatch.STARTED, transmission, Outcome.UNOBSERVED)
            with pytest.raises(IllegalTransition):
                apply(again, Event.RELEASED, AttemptFacts(released=True))

    @pytest.mark.parametrize("event", [Event.NOTHING_WRITTEN, Event.ANSWERED])
    def test_nothing_is_said_of_a_request_that_was_not_released(self, event: Event) -> None:
        with pytest.raises(IllegalTransition, match="not released"):
            apply(self.OPEN, event, AttemptFacts(exposed=True))

    def test_another_write_that_left_spoils_the_proof(self) -> None:
        assert apply(self.OPEN, Event.NOTHING_WRITTEN, AttemptFacts(released=True)).transmission is (
            Transmission.NONE_PROVEN
        )
        with pytest.raises(IllegalTransition, match="another write"):
            apply(self.OPEN, Event.NOTHING_WRITTEN, AttemptFacts(exposed=True, released=True))

    def test_an_ended_permission_does_not_keep_an_attempt_from_being_closed(self) -> None:
        for event in (Event.APPROVAL_EXPIRED, Event.APPROVAL_REVOKED):
            ended = apply(self.OPEN, event)
            assert apply(ended, Event.CLOSED).outcome is Outcome.UNKNOWN
            assert apply(ended, Event.ANSWERED, AttemptFacts(released=True)).transmission is Transmission.ANSWERED


def test_illegal_states_are_named() -> None:
    legal = legal_states()
    assert len(legal) == 64
    assert all(illegal(state) for state in every_state() if state not in legal)


def reachable() -> set[State]:
    found, queue = {INITIAL}, deque([INITIAL])
    while queue:
        state = queue.popleft()
        for event, facts in product(Event, EVERY_FACT):
            try:
                after = apply(state, event, facts)
            except IllegalTransition:
                continue
            if after not in found:
                found.add(after)
                queue.append(after)
    return found


def test_every_legal_state_is_reached_and_no_other() -> None:
    assert reachable() == set(legal_states())


def shape(state: State) -> Shape:
    return (state.dispatch, state.transmission, state.outcome)


class TestStepTable:
    def test_has_the_seventeen_steps_in_order(self) -> None:
        assert [step.number for step in STEPS] == list(range(1, 18))
        assert len({step.name for step in STEPS}) == 17
        assert all(step.moments[-1] == "done" and len(set(step.moments)) == len(step.moments) for step in STEPS)

    @pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.number} {step.name}")
    def test_every_shape_is_legal_and_reached(self, step: Any) -> None:
        shapes = {shape(state) for state in reachable()}
        for one in (*step.after, *step.after_crash):
            assert illegal(State(Permission.AUTHORIZED, *one)) == ""
            assert one in shapes
        assert step.after
        assert step.after_crash

    @pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.number} {step.name}")
    def test_recovery_leaves_no_attempt_open_and_nothing_that_is_not_in_the_row(self, step: Any) -> None:
        assert all(dispatch is not Dispatch.STARTED for dispatch, _, _ in step.after_crash)
        for one in step.after:
            state = State(Permission.AUTHORIZED, *one)
            if state.dispatch is Dispatch.STARTED:
                assert shape(apply(state, Event.CLOSED)) in step.after_crash
            else:
                assert one in step.after_crash

    def test_nothing_is_started_before_the_claim_and_nothing_open_after_the_verdict(self) -> None:
        for step in STEPS[:7]:
            assert {one[0] for one in step.after} == {Dispatch.NOT_STARTED}
        for step in STEPS[15:]:
            assert {one[0] for one in step.after} == {Dispatch.COMPLETED}

    @pytest.mark.parametrize("step", STEPS[11:15], ids=lambda step: step.name)
    def test_a_crash_after_the_release_never_yields_success_without_an_answer(self, step: Any) -> None:
        for _, transmission, outcome in step.after_crash:
            if transmission is Transmission.POSSIBLE:
                assert outcome is Outcome.UNKNOWN
