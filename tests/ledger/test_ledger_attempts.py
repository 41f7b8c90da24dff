"""Leases, claim, gesture, release, endings, recovery (A5, A6, A7, B1, C5, C8): the contract for one attempt."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from ledger_kit import EXECUTOR, FLOW, PERSON, SUCCEEDED, Book, from_outside
from sqlalchemy import text, update
from sqlalchemy.exc import IntegrityError

from executor.ledger import tables
from executor.ledger.ids import new_id
from executor.ledger.ledger import AccountBusy, AttemptClosed, Judgement, LeaseLost, LedgerError, NoSuchAttempt
from executor.model.admission import Refusal, Refused
from executor.model.operation import Attempt, Disposition, Operation, Policy
from executor.model.transitions import Dispatch, IllegalTransition, Outcome, Permission, Transmission


# -- leases ------------------------------------------------------------------------------------------------------------
def test_one_account_one_lease_and_a_token_that_only_rises(book: Book) -> None:
    ledger = book.ledger
    first = ledger.lease("site|ann", holder="a", ttl_s=600)
    with pytest.raises(AccountBusy):
        ledger.lease("site|ann", holder="b", ttl_s=600)
    assert ledger.lease("site|bob", holder="b", ttl_s=600).token == 1
    again = ledger.lease("site|ann", holder="a", ttl_s=600)
    assert again.token > first.token
    with pytest.raises(LeaseLost):
        ledger.renew(first, ttl_s=600)
    ledger.surrender(first)  # not mine any more: nothing happens
    with pytest.raises(AccountBusy):
        ledger.lease("site|ann", holder="b", ttl_s=600)
    ledger.surrender(again)
    assert ledger.lease("site|ann", holder="b", ttl_s=600).token > again.token


def test_a_lease_that_ran_out_is_free_for_others_and_lost_for_its_holder(book: Book) -> None:
    ledger = book.ledger
    brief = ledger.lease("site|ann", holder="a", ttl_s=0.05)
    book.until(brief.until)
    with pytest.raises(LeaseLost):
        ledger.renew(brief, ttl_s=600)
    assert ledger.lease("site|ann", holder="b", ttl_s=600).token > brief.token


def test_renewing_keeps_the_token(book: Book) -> None:
    lease = book.ledger.lease("site|ann", holder="a", ttl_s=60)
    longer = book.ledger.renew(lease, ttl_s=600)
    assert longer.token == lease.token
    assert longer.until > lease.until


def test_an_expired_lease_frees_no_open_attempt(book: Book) -> None:
    operation, attempt = book.claimed()
    book.lose_the_lease(operation, attempt)
    for holder in ("worker", "other"):
        with pytest.raises(AccountBusy):
            book.lease(operation, holder=holder)


@pytest.mark.parametrize("ttl_s", [0, -1, float("nan")])
def test_a_lease_lasts(book: Book, ttl_s: float) -> None:
    with pytest.raises(ValueError):
        book.ledger.lease("site|ann", holder="a", ttl_s=ttl_s)


# -- claiming ----------------------------------------------------------------------------------------------------------
def test_a_claim_is_a_committed_dispatch_and_spends_one_use(book: Book) -> None:
    operation = book.approved()
    lease = book.lease(operation)
    attempt = book.claim(operation, lease, data={"baseline": ["7"]}, evidence=["e0"])
    assert isinstance(attempt, Attempt)
    shown = book.ledger.operation(operation.id)
    assert shown.attempts == (attempt,)
    assert (attempt.number, attempt.token, attempt.holder) == (1, lease.token, "worker")
    assert (shown.state.dispatch, shown.state.transmission) == (Dispatch.STARTED, Transmission.NONE_PROVEN)
    assert shown.approval is not None
    assert (shown.approval.id, shown.approval.used) == (attempt.approval, 1)
    said = book.ledger.events(operation.id)[-1]
    assert (said.kind, said.data["baseline"], said.data["token"], said.evidence) == (
        "claimed",
        ["7"],
        lease.token,
        ("e0",),
    )
    assert book.claim(operation, lease) == Refused(Refusal.ALREADY_DISPATCHED)
    book.sound()


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lease: replace(lease, token=lease.token + 1),
        lambda lease: replace(lease, holder="somebody"),
        lambda lease: replace(lease, account_key="https://news.example|bob"),
    ],
)
def test_a_claim_needs_a_current_lease_of_this_account(book: Book, spoil: Callable) -> None:
    operation = book.approved()
    lease = book.lease(operation)
    book.ledger.lease("https://news.example|bob", holder="worker", ttl_s=600)
    assert book.claim(operation, spoil(lease)) == Refused(Refusal.LEASE_LOST)
    assert book.ledger.operation(operation.id) == operation


def test_a_claim_with_a_lease_that_ran_out_is_refused(book: Book) -> None:
    operation = book.approved()
    lease = book.lease(operation, ttl_s=0.05)
    book.until(lease.until)
    assert book.claim(operation, lease) == Refused(Refusal.LEASE_LOST)


def test_what_a_caller_says_cannot_pass_for_what_the_ledger_says(book: Book) -> None:
    operation = book.approved()
    with pytest.raises(ValueError, match="token"):
        book.claim(operation, book.lease(operation), data={"token": 99})
    assert book.ledger.operation(operation.id) == operation


# -- gesture and exposure ----------------------------------------------------------------------------------------------
def test_there_is_one_gesture(book: Book) -> None:
    operation, attempt = book.claimed()
    assert book.ledger.gesture(attempt.id, by=EXECUTOR).gesture_at is not None
    with pytest.raises(LedgerError):
        book.ledger.gesture(attempt.id, by=EXECUTOR)
    assert book.kinds(operation)[-2:] == ["claimed", "gesture"]
    book.sound()


def test_an_exposing_write_makes_the_attempt_possible_and_its_silence_no_proof(book: Book) -> None:
    operation, attempt = book.claimed()
    exposed = book.ledger.expose(attempt.id, by=EXECUTOR, write="autosave", url="https://news.example/autosave")
    assert (exposed.exposed, exposed.transmission) == (True, Transmission.POSSIBLE)
    book.let_go(attempt)
    with pytest.raises(IllegalTransition):
        book.ledger.nothing_written(attempt.id, by=EXECUTOR, why="")
    assert book.close(attempt).state.outcome is Outcome.UNKNOWN
    assert book.ledger.operation(operation.id).attempts[0].exposed
    book.sound()


def test_after_the_lease_nothing_that_could_act_is_recorded_as_about_to_happen(book: Book) -> None:
    operation, attempt = book.claimed()
    book.lose_the_lease(operation, attempt)
    with pytest.raises(LeaseLost):
        book.ledger.gesture(attempt.id, by=EXECUTOR)
    with pytest.raises(LeaseLost):
        book.ledger.expose(attempt.id, by=EXECUTOR, write="w", url="u")
    assert book.let_go(attempt) == Refused(Refusal.LEASE_LOST)


# -- release (rule 4) --------------------------------------------------------------------------------------------------
def test_a_release_happens_once(book: Book) -> None:
    operation, attempt = book.released()
    assert attempt.released_at is not None
    assert operation.state.transmission is Transmission.POSSIBLE
    assert book.let_go(attempt) == Refused(Refusal.ALREADY_RELEASED)
    assert book.kinds(operation).count("released") == 1
    book.sound()


def _stop(book: Book, operation: Operation) -> None:
    book.ledger.stop(by=PERSON, why="hold", account_key=operation.account_key)


def _revoke(book: Book, operation: Operation) -> None:
    book.ledger.revoke(operation.id, by=PERSON, why="no")


def _abandon(book: Book, operation: Operation) -> None:
    book.ledger.dispose(operation.id, Disposition.ABANDONED, by=PERSON, why="no", version=operation.version)


def _settle(book: Book, operation: Operation) -> None:
    assert operation.attempt is not None
    book.ledger.settle(operation.attempt.id, by=EXECUTOR, why="its worker is gone")


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        (_stop, Refusal.STOPPED),
        (_revoke, Refusal.APPROVAL_REVOKED),
        (_abandon, Refusal.DISPOSITION_CLOSED),
        (_settle, Refusal.LEASE_LOST),
    ],
)
def test_what_happens_between_claim_and_release_holds_the_release(
    book: Book, before: Callable[[Book, Operation], None], reason: Refusal
) -> None:
    operation, attempt = book.claimed()
    before(book, operation)
    said = book.let_go(attempt)
    assert isinstance(said, Refused)
    assert said.reason is reason
    assert "released" not in book.kinds(operation)
    assert book.ledger.operation(operation.id).releases == 0
    book.sound()


def test_an_approval_that_runs_out_before_the_release_is_recorded_and_holds_it(book: Book) -> None:
    operation, attempt = book.claimed(valid_for_s=2)
    assert operation.approval is not None
    book.until(operation.approval.expires)
    assert book.let_go(attempt) == Refused(Refusal.APPROVAL_EXPIRED)
    assert book.let_go(attempt) == Refused(Refusal.APPROVAL_EXPIRED)
    assert book.kinds(operation)[-2:] == ["claimed", "approval_expired"]
    closed = book.close(attempt)
    assert (closed.state.permission, closed.state.outcome) == (Permission.EXPIRED, Outcome.UNOBSERVED)
    book.sound()


def test_a_deadline_that_passes_before_the_release_holds_it(book: Book) -> None:
    deadline = book.ledger.now() + timedelta(seconds=2)
    _, attempt = book.claimed(deadline=deadline)
    book.until(deadline)
    assert book.let_go(attempt) == Refused(Refusal.DEADLINE_PASSED)


@pytest.mark.parametrize("policy", list(Policy))
def test_the_database_itself_refuses_a_second_release(book: Book, url: str, policy: Policy) -> None:
    """Two attempts of one operation, as no code would make them; the unique slot is the last line."""
    _, attempt = book.claimed(policy=policy)
    book.close(attempt)
    operation = book.proposed(policy=policy)
    book.approve(operation)
    second = book.claim(operation, book.lease(operation))
    assert isinstance(second, Attempt)
    with from_outside(url) as engine:
        with engine.begin() as connection:
            slot = operation.id if policy is Policy.ABSOLUTE else f"{operation.id}#{second.number}"
            connection.execute(
                update(tables.attempts).where(tables.attempts.c.id == attempt.id).values(release_slot=slot)
            )
        assert book.let_go(second) == Refused(Refusal.ALREADY_RELEASED)
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(update(tables.attempts).values(release_slot=slot))
        with pytest.raises(IntegrityError), engine.begin() as connection:
            connection.execute(update(tables.attempts).values(open_account=operation.account_key))
    assert book.ledger.operation(operation.id).releases == 0


def test_the_guarded_update_alone_refuses(book: Book, url: str) -> None:
    """Whatever was read before it: the statement's own conditions hold the release back."""
    operation, attempt = book.claimed()
    spoiled = [
        "UPDATE accounts SET token = token + 1",
        "UPDATE accounts SET expires_us = 1",
        "UPDATE approvals SET expires_us = 1",
        "UPDATE approvals SET revoked_us = 1",
        "UPDATE operations SET deadline_us = 1",
        "UPDATE operations SET permission = 'expired'",
        "UPDATE attempts SET closed_us = 1",
        "UPDATE attempts SET released_us = 1",
        "INSERT INTO stops (id, by, at_us, why, version, head) VALUES ('st_1', 'person:a', 1, '', 1, '')",
    ]
    from executor.ledger.claims import _spend_release

    with from_outside(url) as engine:
        for statement in spoiled:
            with engine.connect() as connection:
                connection.execute(text(statement.replace(" by,", ' "by",')))
                assert connection.execute(_spend_release(operation, attempt, 1)).rowcount == 0, statement
                connection.rollback()
        with engine.connect() as connection:
            assert connection.execute(_spend_release(operation, attempt, 1)).rowcount == 1
            connection.rollback()


# -- endings -----------------------------------------------------------------------------------------------------------
def test_an_answered_attempt_is_judged_as_it_is_closed(book: Book) -> None:
    operation, attempt = book.released()
    assert book.ledger.answered(attempt.id, by=EXECUTOR, data={"status": 201}).answered_at is not None
    closed = book.close(attempt, SUCCEEDED, reason="answered")
    assert (closed.state.dispatch, closed.state.transmission) == (Dispatch.COMPLETED, Transmission.ANSWERED)
    assert closed.state.outcome is Outcome.SUCCEEDED
    assert closed.attempt is not None
    assert (closed.attempt.reason, closed.attempt.closed_at is not None) == ("answered", True)
    assert book.ledger.events(operation.id)[-1].evidence == ("e1",)
    book.sound()


def test_what_may_have_been_sent_and_is_not_judged_is_unknown(book: Book) -> None:
    _, attempt = book.released()
    assert book.close(attempt).state.outcome is Outcome.UNKNOWN


def test_nothing_written_is_proven_not_sent(book: Book) -> None:
    _, attempt = book.released()
    assert (
        book.ledger.nothing_written(attempt.id, by=EXECUTOR, why="dead host").transmission is Transmission.NONE_PROVEN
    )
    closed = book.close(attempt)
    assert (closed.state.transmission, closed.state.outcome) == (Transmission.NONE_PROVEN, Outcome.UNOBSERVED)
    book.sound()


def test_a_judgement_of_what_was_never_sent_is_refused_and_the_attempt_stays_open(book: Book) -> None:
    operation, attempt = book.claimed()
    before = book.ledger.operation(operation.id)
    with pytest.raises(IllegalTransition):
        book.close(attempt, SUCCEEDED)
    assert book.ledger.operation(operation.id) == before
    with pytest.raises(IllegalTransition):
        book.ledger.answered(attempt.id, by=EXECUTOR, data={})
    assert book.close(attempt).state.outcome is Outcome.UNOBSERVED
    book.sound()


def test_closing_frees_the_account_and_happens_once(book: Book) -> None:
    operation, attempt = book.claimed()
    book.close(attempt)
    for late in (
        lambda: book.close(attempt),
        lambda: book.ledger.settle(attempt.id, by=EXECUTOR, why=""),
        lambda: book.ledger.gesture(attempt.id, by=EXECUTOR),
        lambda: book.ledger.answered(attempt.id, by=EXECUTOR, data={}),
    ):
        with pytest.raises(AttemptClosed):
            late()
    assert book.lease(operation, holder="worker")


def test_evidence_moves_the_outcome_and_what_is_final_stays(book: Book) -> None:
    operation, attempt = book.released()
    with pytest.raises(IllegalTransition):
        book.ledger.judge(operation.id, SUCCEEDED, by=EXECUTOR)  # still open
    book.close(attempt)
    queued = Judgement(outcome=Outcome.ACCEPTED, reason="queued", why="", data={"job": 4})
    assert book.ledger.judge(operation.id, queued, by=EXECUTOR).state.outcome is Outcome.ACCEPTED
    assert book.ledger.judge(operation.id, SUCCEEDED, by=PERSON).state.outcome is Outcome.SUCCEEDED
    with pytest.raises(IllegalTransition):
        book.ledger.judge(operation.id, queued, by=EXECUTOR)
    with pytest.raises(ValueError):
        book.ledger.judge(operation.id, replace(queued, outcome=Outcome.UNOBSERVED), by=EXECUTOR)
    assert book.kinds(operation)[-2:] == ["seen_accepted", "seen_succeeded"]
    book.sound()


def test_an_attempt_that_is_not_in_the_ledger(book: Book) -> None:
    for call in (book.ledger.gesture, book.ledger.release):
        with pytest.raises(NoSuchAttempt):
            call(new_id("at"), by=EXECUTOR)


# -- recovery (rule 5, C8) ---------------------------------------------------------------------------------------------
def test_settling_makes_the_sleepers_release_impossible(book: Book) -> None:
    """A live worker, its lease unexpired: recovery may run at any time."""
    operation, attempt = book.claimed()
    assert book.ledger.open_attempts() == []
    assert [a.id for a in book.ledger.open_attempts(expired_only=False)] == [attempt.id]
    settled = book.ledger.settle(attempt.id, by=EXECUTOR, why="restart")
    assert (settled.state.dispatch, settled.state.outcome) == (Dispatch.COMPLETED, Outcome.UNOBSERVED)
    assert book.let_go(attempt) == Refused(Refusal.LEASE_LOST)
    assert book.lease(operation, holder="other").token > attempt.token + 1
    assert book.ledger.open_attempts(expired_only=False) == []
    book.sound()


def test_a_worker_paused_across_its_lease_wakes_to_a_refusal(book: Book) -> None:
    operation, attempt = book.claimed()
    book.lose_the_lease(operation, attempt)
    assert [a.id for a in book.ledger.open_attempts()] == [attempt.id]
    assert book.let_go(attempt) == Refused(Refusal.LEASE_LOST)  # before anybody settled it
    book.ledger.settle(attempt.id, by=EXECUTOR, why="its lease ran out")
    assert book.let_go(attempt) == Refused(Refusal.LEASE_LOST)
    book.approve(operation)
    second = book.claim(operation, book.lease(operation, holder="other"))
    assert isinstance(second, Attempt)
    assert isinstance(book.let_go(second), Attempt)
    assert book.ledger.operation(operation.id).releases == 1
    book.sound()


def test_a_released_attempt_is_settled_as_unknown_or_by_evidence(book: Book) -> None:
    operation, attempt = book.released()
    settled = book.ledger.settle(attempt.id, by=EXECUTOR, why="killed")
    assert settled.state.outcome is Outcome.UNKNOWN
    assert settled.attempt is not None
    assert settled.attempt.reason == "settled"
    _, other = book.released("t2", "other")
    assert book.ledger.settle(other.id, by=EXECUTOR, why="", judgement=SUCCEEDED).state.outcome is Outcome.SUCCEEDED
    assert book.ledger.operation(operation.id).attempts[0].closed_at is not None
    book.sound()


def test_a_surrendered_lease_leaves_its_open_attempt_to_recovery(book: Book) -> None:
    operation = book.approved()
    lease = book.lease(operation)
    attempt = book.claim(operation, lease)
    assert isinstance(attempt, Attempt)
    book.ledger.surrender(lease)
    assert [a.id for a in book.ledger.open_attempts()] == [attempt.id]
    assert book.claim(operation, lease, flow=FLOW) == Refused(Refusal.ALREADY_DISPATCHED)
