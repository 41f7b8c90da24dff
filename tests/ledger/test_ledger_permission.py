"""Proposing, approving, deciding, stopping (A2, A4, A9, A10, B1, B3, B5, C10): the ledger's contract before a claim."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, SUCCEEDED, Book, intent

from executor.ledger.ledger import (
    AmbiguousId,
    Judgement,
    NoSuchOperation,
    NoSuchStop,
    NotAPerson,
    NotEligible,
    NotWhatWasSeen,
    VersionChanged,
)
from executor.ledger.sql import SqlLedger
from executor.model.admission import Refusal, Refused, refusal
from executor.model.fingerprint import NotCanonical
from executor.model.operation import Actor, Attempt, Disposition, Operation, Policy
from executor.model.transitions import Dispatch, IllegalTransition, Outcome, Permission


def refused(book: Book, operation: Operation) -> Refused:
    """What a claim says, given a good lease. Nothing may have been dispatched."""
    lease = book.lease(operation)
    said = book.claim(operation, lease)
    book.ledger.surrender(lease)
    assert isinstance(said, Refused), said
    assert book.ledger.operation(operation.id).attempts == operation.attempts
    return said


# -- proposing ---------------------------------------------------------------------------------------------------------
def test_the_record_holds_the_whole_intent_before_anything_is_dispatched(book: Book) -> None:
    deadline = datetime(2040, 5, 1, 12, 30, 0, 123456, tzinfo=UTC)
    asked = intent(material={"title": "Grüße 🙂", "tags": ["a"], "n": 1.5}, deadline=deadline)
    made = book.ledger.propose(asked, flow=FLOW, policy=Policy.IDEMPOTENT, by=PROPOSER, provider_key="il-1")
    shown = book.ledger.operation(made.operation.id)
    assert made.created
    assert shown.intent == asked
    assert (shown.fingerprint, shown.identity) == (asked.fingerprint, asked.identity)
    assert (shown.policy, shown.provider_key, shown.flow) == (Policy.IDEMPOTENT, "il-1", FLOW)
    assert (shown.proposed_by, shown.version, shown.approval) == (PROPOSER, 1, None)
    assert re.fullmatch(r"op_[0-9a-z]{20}", shown.id)
    book.sound()


def test_the_same_intent_is_the_same_operation_in_whatever_state(book: Book) -> None:
    operation, _ = book.claimed()
    other_flow = replace(FLOW, version="2")
    again = book.ledger.propose(intent(payload={"other": 1}), flow=other_flow, policy=Policy.REAUTHORIZE, by=PROPOSER)
    assert not again.created
    assert again.operation == operation


def test_ids_sort_by_age(book: Book) -> None:
    ids = [book.proposed(f"t{n}").id for n in range(20)]
    assert [operation.id for operation in book.ledger.operations()] == ids[::-1]


def test_an_intent_after_an_unknown_operation_is_refused(book: Book) -> None:
    with pytest.raises(NoSuchOperation):
        book.proposed(after=("op_nowhere",))
    assert book.ledger.operations() == []


def test_what_cannot_be_fingerprinted_is_not_recorded(book: Book) -> None:
    with pytest.raises(NotCanonical):
        book.proposed(payload={"n": 2**60})
    assert book.ledger.identity().events == 0


def test_a_unique_prefix_names_an_operation(book: Book) -> None:
    first, second = book.proposed("t1"), book.proposed("t2")
    assert book.ledger.operation(first.id[:-1]).id == first.id
    shared = "".join(a for a, b in zip(first.id, second.id, strict=True) if a == b)[:8]
    with pytest.raises(AmbiguousId):
        book.ledger.operation(shared)
    for nobody in ("op_", "op_%%%%%%%%", "op_zzzzzzzzzz"):
        with pytest.raises(NoSuchOperation):
            book.ledger.operation(nobody)


def test_unresolved_operations_are_listed_apart(book: Book) -> None:
    book.proposed("waiting", "w")
    _, attempt = book.released("done", "d")
    book.close(attempt, SUCCEEDED)
    unknown, attempt = book.released("unknown", "u")
    book.close(attempt)
    started, _ = book.claimed("started", "s")
    listed = [operation.id for operation in book.ledger.operations(unresolved_only=True)]
    assert listed == [started.id, unknown.id]
    assert len(book.ledger.operations(limit=2)) == 2


# -- history -----------------------------------------------------------------------------------------------------------
def test_a_note_says_who_what_why_and_moves_no_state(book: Book) -> None:
    operation = book.approved()
    after = book.ledger.note(operation.id, kind="step", by=EXECUTOR, why="composed", data={"step": 7}, evidence=["abc"])
    assert after.state == operation.state
    last = book.ledger.events(operation.id)[-1]
    assert (last.kind, last.actor, last.why, last.data, last.evidence) == (
        "step",
        EXECUTOR,
        "composed",
        {"step": 7},
        ("abc",),
    )
    assert (last.sequence, last.hash) == (after.version, after.head)
    assert abs(last.at - book.ledger.now()) < timedelta(minutes=1)


@pytest.mark.parametrize("kind", ["released", "proposed", "gesture", "seen_succeeded"])
def test_nobody_notes_what_only_the_ledger_may_say(book: Book, kind: str) -> None:
    operation = book.proposed()
    with pytest.raises(ValueError, match=kind):
        book.ledger.note(operation.id, kind=kind, by=EXECUTOR, why="")


def test_a_decision_needs_the_version_that_was_seen_and_changes_no_state(book: Book) -> None:
    operation = book.approved()
    with pytest.raises(VersionChanged):
        book.ledger.dispose(operation.id, Disposition.WAIT, by=PERSON, why="", version=operation.version - 1)
    after = book.ledger.dispose(
        operation.id, Disposition.ABANDONED, by=PERSON, why="no longer news", version=operation.version
    )
    assert (after.disposition, after.state) == (Disposition.ABANDONED, operation.state)
    assert refused(book, after).reason is Refusal.DISPOSITION_CLOSED
    with pytest.raises(NotEligible):
        book.approve(after)
    book.sound()


def test_a_decision_never_makes_a_dispatched_operation_runnable(book: Book) -> None:
    operation, attempt = book.released()
    closed = book.close(attempt)
    for disposition in Disposition:
        version = book.ledger.operation(operation.id).version
        after = book.ledger.dispose(operation.id, disposition, by=PERSON, why="", version=version)
        assert after.state == closed.state
        assert refused(book, after).reason is Refusal.ALREADY_DISPATCHED


# -- approving ---------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("by", [PROPOSER, EXECUTOR])
def test_only_a_person_approves(book: Book, by: Actor) -> None:
    operation = book.proposed()
    with pytest.raises(NotAPerson):
        book.ledger.approve(operation.id, by=by, flow=FLOW, fingerprint=operation.fingerprint, valid_for_s=60)
    assert book.ledger.operation(operation.id) == operation


def test_an_approval_is_for_what_was_seen(book: Book) -> None:
    operation, other = book.proposed("t1", "one"), book.proposed("t2", "two")
    for fingerprint, flow in ((other.fingerprint, FLOW), (operation.fingerprint, replace(FLOW, name="elsewhere"))):
        with pytest.raises(NotWhatWasSeen):
            book.ledger.approve(operation.id, by=PERSON, flow=flow, fingerprint=fingerprint, valid_for_s=60)


@pytest.mark.parametrize("bad", [{"valid_for_s": 0}, {"valid_for_s": float("nan")}, {"attempts": 0}])
def test_an_approval_is_for_some_time_and_some_attempt(book: Book, bad: dict[str, float]) -> None:
    operation = book.proposed()
    with pytest.raises(ValueError):
        book.approve(operation, **bad)


def test_an_approval_binds_everything(book: Book) -> None:
    operation = book.approved(valid_for_s=90)
    bound = operation.approval
    assert bound is not None
    assert bound.expires - bound.at == timedelta(seconds=90)
    assert (bound.account, bound.destination, bound.action) == ("ann", "https://news.example/", "publish")
    assert (bound.fingerprint, bound.flow, bound.attempts, bound.used) == (operation.fingerprint, FLOW, 1, 0)
    assert (bound.by, bound.revoked_at) == (PERSON, None)


def test_nobody_approved(book: Book) -> None:
    assert refused(book, book.proposed()).reason is Refusal.NOT_AUTHORIZED


@pytest.mark.parametrize("change", [{"version": "2"}, {"code_digest": "0ther"}])
def test_other_code_than_the_approved_may_not_claim(book: Book, change: dict[str, str]) -> None:
    operation = book.approved()
    said = book.claim(operation, book.lease(operation), flow=replace(FLOW, **change))
    assert said == Refused(Refusal.FLOW_CHANGED)


def test_an_expired_approval_is_recorded_when_it_is_met_at_a_claim(book: Book) -> None:
    operation = book.approved(valid_for_s=0.05)
    assert operation.approval is not None
    lease = book.lease(operation)
    book.until(operation.approval.expires)
    assert book.claim(operation, lease) == Refused(Refusal.APPROVAL_EXPIRED)
    assert book.claim(operation, lease) == Refused(Refusal.APPROVAL_EXPIRED)
    assert book.kinds(operation) == ["proposed", "approved", "approval_expired"]
    assert book.ledger.operation(operation.id).state.permission is Permission.EXPIRED
    book.sound()


def test_an_expired_approval_is_recorded_on_looking_and_may_be_given_anew(book: Book) -> None:
    operation = book.approved(valid_for_s=0.05)
    assert operation.approval is not None
    book.until(operation.approval.expires)
    assert book.ledger.operations()[0].state.permission is Permission.EXPIRED
    assert book.ledger.operation(operation.id).state.permission is Permission.EXPIRED
    book.approve(operation)
    assert book.kinds(operation) == ["proposed", "approved", "approval_expired", "approved"]
    assert isinstance(book.claim(operation, book.lease(operation)), Attempt)
    book.sound()


def test_a_revoked_approval(book: Book) -> None:
    operation = book.approved()
    after = book.ledger.revoke(operation.id, by=PERSON, why="a typo")
    assert after.state.permission is Permission.REVOKED
    assert after.approval is not None
    assert after.approval.revoked_at is not None
    assert refused(book, after).reason is Refusal.APPROVAL_REVOKED
    with pytest.raises(IllegalTransition):
        book.ledger.revoke(operation.id, by=PERSON, why="again")
    book.approve(operation)
    assert isinstance(book.claim(operation, book.lease(operation)), Attempt)
    book.sound()


def test_a_passed_deadline_is_recorded_once(book: Book) -> None:
    operation = book.approved(deadline=book.ledger.now() - timedelta(seconds=1))
    assert refused(book, operation).reason is Refusal.DEADLINE_PASSED
    assert refused(book, operation).reason is Refusal.DEADLINE_PASSED
    assert book.kinds(operation) == ["proposed", "approved", "deadline_passed"]
    book.sound()


# -- a further attempt (B3) --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("policy", list(Policy))
def test_what_was_proven_not_sent_is_reopened_by_a_fresh_approval(book: Book, policy: Policy) -> None:
    operation, first = book.claimed(policy=policy)
    closed = book.close(first, reason="validation_message")
    assert (closed.state.dispatch, closed.state.outcome) == (Dispatch.COMPLETED, Outcome.UNOBSERVED)
    assert refused(book, closed).reason is Refusal.ALREADY_DISPATCHED
    book.approve(operation)
    assert book.ledger.events(operation.id)[-1].data["after_attempt"] == first.id
    second = book.claim(operation, book.lease(operation))
    assert isinstance(second, Attempt)
    assert second.number == 2
    assert isinstance(book.let_go(second), Attempt)
    book.sound()


def test_absolute_means_one_release_whatever_became_of_it(book: Book) -> None:
    operation, attempt = book.released()
    book.ledger.nothing_written(attempt.id, by=EXECUTOR, why="refused by the host")
    closed = book.close(attempt)
    assert closed.state.outcome is Outcome.UNOBSERVED
    with pytest.raises(NotEligible, match="release_spent"):
        book.approve(operation)


@pytest.mark.parametrize("policy", [Policy.REAUTHORIZE, Policy.IDEMPOTENT])
def test_other_policies_may_release_once_per_attempt(book: Book, policy: Policy) -> None:
    operation, attempt = book.released(policy=policy)
    book.ledger.nothing_written(attempt.id, by=EXECUTOR, why="refused by the host")
    book.close(attempt)
    book.approve(operation)
    second = book.claim(operation, book.lease(operation))
    assert isinstance(second, Attempt)
    assert isinstance(book.let_go(second), Attempt)
    assert book.let_go(second) == Refused(Refusal.ALREADY_RELEASED)
    book.sound()


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("outcome", [None, Outcome.SUCCEEDED, Outcome.ACCEPTED, Outcome.REJECTED, Outcome.UNKNOWN])
def test_no_plain_approval_reopens_what_may_have_been_sent(book: Book, policy: Policy, outcome: Outcome | None) -> None:
    operation, attempt = book.released(policy=policy)
    with pytest.raises(NotEligible, match="attempt_open"):
        book.approve(operation)
    book.close(attempt, outcome and Judgement(outcome=outcome, reason="r", why="w"))
    with pytest.raises(NotEligible):
        book.approve(operation)
    assert refused(book, book.ledger.operation(operation.id)).reason is Refusal.ALREADY_DISPATCHED


# -- neighbours (A4, A10, B5) ------------------------------------------------------------------------------------------
def test_a_changed_mind_waits_while_the_first_is_unresolved(book: Book) -> None:
    first, attempt = book.released("task", "first")
    second = book.approved("task", "second")
    assert second.intent.slot == first.intent.slot
    assert book.claim(second, book.ledger.lease("other|account", holder="w", ttl_s=60)) == Refused(
        Refusal.TASK_UNRESOLVED, (first.id,)
    )
    book.close(attempt)
    assert refused(book, second) == Refused(Refusal.TASK_UNRESOLVED, (first.id,))
    book.ledger.judge(first.id, Judgement(outcome=Outcome.REJECTED, reason="absent", why=""), by=EXECUTOR)
    assert isinstance(book.claim(second, book.lease(second)), Attempt)


@pytest.mark.parametrize("state", ["authorized", "started", "unknown", "succeeded"])
def test_a_look_alike_of_another_task_is_stopped_until_a_person_means_it(book: Book, state: str) -> None:
    first = book.approved("monday", "Same")
    if state != "authorized":
        attempt = book.claim(first, book.lease(first))
        assert isinstance(attempt, Attempt)
    if state in ("unknown", "succeeded"):
        book.let_go(attempt)
        book.close(attempt, SUCCEEDED if state == "succeeded" else None)
    second = book.approved("tuesday", "Same")
    lease = book.ledger.lease("other|account", holder="w", ttl_s=60)
    assert book.claim(second, lease) == Refused(Refusal.LOOK_ALIKE, (first.id,))
    book.approve(second, meant=True)
    said = book.claim(second, lease)
    assert said == Refused(Refusal.ACCOUNT_BUSY if state == "started" else Refusal.LEASE_LOST)
    assert book.ledger.operation(second.id).meant
    book.sound()


def test_the_first_look_alike_runs_and_one_that_cannot_run_stands_in_nobodys_way(book: Book) -> None:
    first, second = book.approved("monday", "Same"), book.approved("tuesday", "Same")
    assert refusal(book.ledger.admission(first.id, FLOW)) is None
    assert refused(book, second).reason is Refusal.LOOK_ALIKE
    book.until(book.approve(first, valid_for_s=0.001).expires)  # nobody has recorded that it is over
    assert isinstance(book.claim(second, book.lease(second)), Attempt)


def test_an_operation_waits_for_the_one_before_it(book: Book) -> None:
    first = book.approved("task", "first")
    second = book.approved("task", "second", after=(first.id,))
    assert refused(book, second) == Refused(Refusal.DEPENDENCY_NOT_SUCCEEDED, (first.id,))
    attempt = book.claim(first, book.lease(first))
    assert isinstance(attempt, Attempt)
    book.let_go(attempt)
    book.close(attempt)
    assert refused(book, second).reason is Refusal.DEPENDENCY_NOT_SUCCEEDED
    book.ledger.judge(first.id, SUCCEEDED, by=EXECUTOR)
    assert isinstance(book.claim(second, book.lease(second)), Attempt)


def test_admission_shows_what_the_claim_will_decide_on(book: Book) -> None:
    operation = book.approved()
    busy, _ = book.claimed("another", "Else")
    seen = book.ledger.admission(operation.id, FLOW)
    assert seen.account_busy
    assert refusal(seen) == Refused(Refusal.ACCOUNT_BUSY)
    assert (seen.operation, seen.approval, seen.flow, seen.behind_anchor) == (
        operation,
        operation.approval,
        FLOW,
        False,
    )
    assert busy.account_key == operation.account_key


# -- stops (C10) -------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("scope", [{}, {"flow": "news"}, {"account_key": "https://news.example|ann"}])
def test_a_stop_holds_claims_until_a_person_lifts_it(book: Book, scope: dict[str, str]) -> None:
    operation = book.approved()
    stop = book.ledger.stop(by=EXECUTOR, why="an unknown", **scope)
    assert refused(book, operation) == Refused(Refusal.STOPPED, (stop.id,))
    assert book.ledger.stops() == [stop]
    with pytest.raises(NotAPerson):
        book.ledger.lift(stop.id, by=EXECUTOR, why="")
    lifted = book.ledger.lift(stop.id, by=PERSON, why="looked")
    assert lifted.lifted_at is not None
    assert book.ledger.lift(stop.id, by=PERSON, why="again") == lifted
    assert book.ledger.stops() == []
    assert book.ledger.stops(in_force_only=False) == [lifted]
    assert [event.kind for event in book.ledger.events(stop.id)] == ["stopped", "lifted"]
    assert isinstance(book.claim(operation, book.lease(operation)), Attempt)
    book.sound()


def test_a_stop_elsewhere_stops_nothing_here(book: Book) -> None:
    book.ledger.stop(by=PERSON, why="", flow="other")
    book.ledger.stop(by=PERSON, why="", flow="news", account_key="https://news.example|bob")
    with pytest.raises(NoSuchStop):
        book.ledger.lift("st_nowhere", by=PERSON, why="")
    assert book.claimed()


def test_two_ledgers_have_two_names(ledger: SqlLedger, tmp_path: Path) -> None:
    other = SqlLedger(f"sqlite:///{tmp_path / 'other.sqlite'}")
    try:
        assert other.identity().id != ledger.identity().id
    finally:
        other.close_connections()
