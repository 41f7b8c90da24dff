"""Another attempt under a provider's key (A5, B3): one transaction, one winner, by the database's clock."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, SUCCEEDED, Book, intent

from executor.ledger.ids import new_id
from executor.ledger.ledger import Judgement, NotEligible
from executor.ledger.sql import open_ledger
from executor.model.admission import Refusal, Refused
from executor.model.fingerprint import provider_key
from executor.model.operation import Attempt, FlowBinding, Lease, Operation, Policy
from executor.model.retry import RetryReason
from executor.model.transitions import Dispatch, IllegalTransition, Outcome, Permission, Transmission
from flows.effect import ClientKey

KEY = ClientKey(
    header="Idempotency-Key",
    field=None,
    scope="account",
    lifetime_s=3600,
    attempts=3,
    same_fields=("title",),
    margin_s=0,
)
ABSENT = Judgement(outcome=Outcome.REJECTED, reason="absent_under_guarantee", why="not in the whole list")
REFUSED = Judgement(outcome=Outcome.REJECTED, reason="not_applied_by_clause", why="422")


def proposed(book: Book, policy: Policy = Policy.IDEMPOTENT, **changes: Any) -> Operation:
    wanted = intent(new_id("task"), new_id("title"), **changes)
    key = provider_key(wanted.identity)
    return book.ledger.propose(wanted, flow=FLOW, policy=policy, by=PROPOSER, provider_key=key).operation


def claim(
    book: Book, operation: Operation, lease: Lease, key: ClientKey | None = KEY, flow: FlowBinding = FLOW
) -> Attempt | Refused:
    return book.claim(operation, lease, flow=flow, key=key)


def sent(
    book: Book, *, attempts: int = 3, policy: Policy = Policy.IDEMPOTENT, key: ClientKey = KEY
) -> tuple[Operation, Lease]:
    """An operation whose first attempt was released and closed without an answer, and the lease that is still held."""
    operation = proposed(book, policy)
    book.approve(operation, attempts=attempts)
    lease = book.lease(operation)
    first = claim(book, operation, lease, key)
    assert isinstance(first, Attempt), first
    release(book, first)
    return book.close(first), lease


def release(book: Book, attempt: Attempt) -> None:
    let_go = book.ledger.release(attempt.id, by=EXECUTOR, data={"from_page_only": []})
    assert isinstance(let_go, Attempt), let_go


def again(book: Book, operation: Operation, lease: Lease, key: ClientKey = KEY) -> Attempt:
    claimed = claim(book, operation, lease, key)
    assert isinstance(claimed, Attempt), claimed
    return claimed


def refused(book: Book, operation: Operation, lease: Lease, **more: Any) -> RetryReason | None:
    before = book.ledger.operation(operation.id)
    said = claim(book, operation, lease, **more)
    assert isinstance(said, Refused), said
    assert said.reason is (Refusal.KEY_NOT_SAFE if said.retry else Refusal.ALREADY_DISPATCHED)
    assert book.ledger.operation(operation.id) == before
    return said.retry


def test_the_claim_opens_the_attempt_in_one_transaction(book: Book) -> None:
    operation, lease = sent(book)
    second = again(book, operation, lease)
    assert (second.number, second.transmission) == (2, Transmission.NONE_PROVEN)
    assert book.kinds(operation)[-2:] == ["reissued", "claimed"]
    now = book.ledger.operation(operation.id)
    assert (now.state.dispatch, now.state.outcome) == (Dispatch.STARTED, Outcome.UNKNOWN)
    release(book, second)
    done = book.close(second, SUCCEEDED)
    assert (done.state.outcome, done.releases) == (Outcome.SUCCEEDED, 2)
    assert [one.approval for one in done.attempts] == [done.approval.id] * 2 if done.approval else False
    book.sound()


def test_until_the_claim_the_unknown_can_still_be_settled(book: Book) -> None:
    operation, lease = sent(book)
    book.ledger.judge(operation.id, SUCCEEDED, by=EXECUTOR)
    assert refused(book, operation, lease) is None
    book.sound()


def test_of_many_that_race_for_it_one_claims(book: Book, url: str) -> None:
    operation, lease = sent(book)
    start, said, ledgers = threading.Barrier(6), [], [open_ledger(url) for _ in range(6)]

    def race(own: Book) -> None:
        start.wait()
        said.append(claim(own, operation, lease))

    threads = [threading.Thread(target=race, args=(Book(one),)) for one in ledgers]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    for ledger in ledgers:
        ledger.close_connections()
    won = [one for one in said if isinstance(one, Attempt)]
    assert (len(said), len(won)) == (6, 1)
    assert all(one == Refused(Refusal.ALREADY_DISPATCHED) for one in said if one not in won)
    assert len(book.ledger.operation(operation.id).attempts) == 2
    book.sound()


@pytest.mark.parametrize("policy", [Policy.ABSOLUTE, Policy.REAUTHORIZE])
def test_other_policies_are_untouched(book: Book, policy: Policy) -> None:
    operation, lease = sent(book, policy=policy)
    assert refused(book, operation, lease) is None
    with pytest.raises(NotEligible):
        book.approve(operation, key=KEY)
    book.sound()


@pytest.mark.parametrize(
    ("reason", "more"),
    [
        (RetryReason.KEY_TERMS_CHANGED, {"flow": replace(FLOW, code_digest="other")}),
        (RetryReason.KEY_TERMS_CHANGED, {"key": replace(KEY, attempts=9)}),
        (None, {"key": None}),
    ],
)
def test_what_cannot_be_shown_is_the_reason(book: Book, reason: RetryReason | None, more: dict[str, Any]) -> None:
    operation, lease = sent(book)
    assert refused(book, operation, lease, **more) is reason


def test_the_key_is_sent_as_often_as_it_may(book: Book) -> None:
    key = replace(KEY, attempts=2)
    operation, lease = sent(book, key=key, attempts=9)
    second = again(book, operation, lease, key)
    release(book, second)
    book.close(second)
    assert refused(book, operation, lease, key=key) is RetryReason.KEY_ATTEMPTS_SPENT


def test_the_approval_counts_too_and_may_be_renewed_without_opening_anything(book: Book) -> None:
    operation, lease = sent(book, attempts=1)
    assert claim(book, operation, lease) == Refused(Refusal.APPROVAL_SPENT)
    approval = book.approve(operation, key=KEY)
    renewed = book.ledger.operation(operation.id)
    assert (renewed.state.dispatch, renewed.state.outcome) == (Dispatch.COMPLETED, Outcome.UNKNOWN)
    assert again(book, operation, lease).approval == approval.id
    book.sound()


@pytest.mark.parametrize("then", ["revoked", "expired"])
def test_a_permission_that_ended_opens_nothing(book: Book, then: str) -> None:
    operation, lease = sent(book)
    if then == "revoked":
        book.ledger.revoke(operation.id, by=PERSON, why="no")
        assert book.ledger.operation(operation.id).state.permission is Permission.REVOKED
    else:
        book.until(book.approve(operation, key=KEY, valid_for_s=0.05).expires)
    said = claim(book, operation, lease)
    assert said == Refused(Refusal.APPROVAL_REVOKED if then == "revoked" else Refusal.APPROVAL_EXPIRED)
    book.approve(operation, key=KEY)
    again(book, operation, lease)
    book.sound()


def test_the_lifetime_ends_by_the_databases_clock_at_the_claim(book: Book) -> None:
    key = replace(KEY, lifetime_s=0.2)
    operation, lease = sent(book, key=key)
    released = operation.attempts[0].released_at
    assert released is not None
    book.until(released + timedelta(seconds=0.2))
    assert refused(book, operation, lease, key=key) is RetryReason.KEY_LIFETIME_OVER
    with pytest.raises(NotEligible, match="key_lifetime_over"):
        book.approve(operation, key=key)


def test_and_at_the_release(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    key = replace(KEY, lifetime_s=3.0)
    operation, lease = sent(book, key=key)
    second = again(book, operation, lease, key)
    claimed = [event for event in book.ledger.events(operation.id) if event.kind == "claimed"]
    released = operation.attempts[0].released_at
    assert released is not None
    assert claimed[0].data["key_until"] is None
    assert claimed[1].data["key_until"].startswith((released + timedelta(seconds=3)).isoformat()[:19])
    book.until(released + timedelta(seconds=3))
    assert book.let_go(second) == Refused(Refusal.KEY_NOT_SAFE, retry=RetryReason.KEY_LIFETIME_OVER)
    # What was read before it may be old; the statement's own condition holds it back as well.
    monkeypatch.setattr("executor.ledger.claims._release_refusal", lambda *_, **__: None)
    assert isinstance(book.let_go(second), Refused)
    closed = book.close(second)
    assert (closed.state.transmission, closed.state.outcome) == (Transmission.NONE_PROVEN, Outcome.UNKNOWN)
    book.sound()


def test_proven_absence_lets_it_go_again_and_a_refusal_by_the_site_does_not(book: Book) -> None:
    for judgement, may in ((ABSENT, True), (REFUSED, False)):
        operation, lease = sent(book)
        book.ledger.judge(operation.id, judgement, by=EXECUTOR)
        if may:
            second = again(book, operation, lease)
            assert book.ledger.operation(operation.id).state.outcome is Outcome.UNOBSERVED
            book.close(second)
            # Nothing left this time; what may have left before still asks for the key.
            assert isinstance(claim(book, operation, lease), Attempt)
            book.ledger.settle(book.ledger.operation(operation.id).attempts[-1].id, by=EXECUTOR, why="")
        else:
            assert refused(book, operation, lease) is None
    book.sound()


def test_what_is_proven_not_sent_runs_again_under_the_same_approval(book: Book) -> None:
    operation = proposed(book)
    book.approve(operation, attempts=2)
    lease = book.lease(operation)
    book.close(again(book, operation, lease))
    assert again(book, operation, lease).number == 2


def test_a_write_without_the_key_spoils_it(book: Book) -> None:
    operation = proposed(book)
    book.approve(operation, attempts=3)
    lease = book.lease(operation)
    first = again(book, operation, lease)
    release(book, first)
    book.ledger.expose(first.id, by=EXECUTOR, write="save", url="https://news.example/save")
    book.close(first)
    assert refused(book, operation, lease) is RetryReason.KEY_NOT_ALONE


def test_nobody_notes_a_reissue(book: Book) -> None:
    operation, _ = sent(book)
    with pytest.raises(ValueError, match="reissued"):
        book.ledger.note(operation.id, kind="reissued", by=EXECUTOR, why="")


def test_an_approval_while_an_attempt_is_open_is_refused(book: Book) -> None:
    operation, lease = sent(book)
    again(book, operation, lease)
    with pytest.raises((NotEligible, IllegalTransition)):
        book.approve(operation, key=KEY)
