"""Ways to get a second release, or none at all, out of what is new: much that waits, sequences of permission under the
key, and an operation whose policy is not that of its flow any more."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, Book, intent

from executor.ledger import waiting
from executor.ledger.ids import new_id
from executor.ledger.ledger import LedgerError
from executor.ledger.sql import open_ledger
from executor.model.admission import Refused
from executor.model.fingerprint import provider_key
from executor.model.operation import Attempt, Operation, Policy
from executor.model.transitions import IllegalTransition, Transmission
from flows.effect import ClientKey

KEY = ClientKey(
    header="Idempotency-Key",
    field=None,
    scope="account",
    lifetime_s=3600,
    attempts=2,
    same_fields=("title",),
    margin_s=0,
)


def proposed(book: Book, policy: Policy) -> Operation:
    wanted = intent(new_id("task"), new_id("title"))
    key = provider_key(wanted.identity)
    return book.ledger.propose(wanted, flow=FLOW, policy=policy, by=PROPOSER, provider_key=key).operation


def test_what_waits_does_not_hide_what_is_due(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "PAGE", 2)
    for number in range(5):
        one = book.approved(f"t{number}", f"Title {number}")
        book.ledger.wait(one.id, by=EXECUTOR, halt="halt:sign_in_needed", seconds=None, why="waits")
    free = book.approved("free", "Free")
    other = book.approved("other", "Other", account="bob")
    assert {one.operation.id for one in book.ledger.due((FLOW,), limit=9)} == {free.id, other.id}
    assert len(book.ledger.due((FLOW,), limit=1)) == 1


def _step(book: Book, operation: str, step: str, key: ClientKey | None) -> None:
    found = book.ledger.operation(operation)
    attempt = found.attempts[-1].id if found.attempts else "at_none"
    match step:
        case "approve":
            book.ledger.approve(
                operation, by=PERSON, flow=FLOW, fingerprint=found.fingerprint, valid_for_s=600, attempts=5, key=key
            )
        case "revoke":
            book.ledger.revoke(operation, by=PERSON, why="no")
        case "claim":
            book.claim(found, book.lease(found), key=key)
        case "release":
            book.ledger.release(attempt, by=EXECUTOR, data={"from_page_only": []})
        case "nothing":
            book.ledger.nothing_written(attempt, by=EXECUTOR, why="")
        case "close":
            book.ledger.close(attempt, by=EXECUTOR, reason="done", why="", judgement=None)
        case "settle":
            book.ledger.settle(attempt, by=EXECUTOR, why="", judgement=None)


@pytest.mark.parametrize("policy", [Policy.ABSOLUTE, Policy.REAUTHORIZE, Policy.IDEMPOTENT])
def test_no_sequence_of_permissions_makes_another_release(policy: Policy, tmp_path: Path) -> None:
    """After every way to use the release up, every short sequence of what people and runs may do. By rules that no
    database decides, so on one."""
    book = Book(open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}"))
    for used in (("release", "close"), ("release", "settle"), ("release", "nothing", "close")):
        operation = proposed(book, policy).id
        for step in ("approve", "claim", *used):
            _step(book, operation, step, KEY)
        for then in itertools.product(("approve", "revoke", "claim", "release"), repeat=2):
            for step in ("approve", *then, "claim", "release", "close"):
                try:
                    _step(book, operation, step, KEY)
                except (LedgerError, IllegalTransition):
                    continue
        done = book.ledger.operation(operation)
        sent = [one for one in done.attempts if one.transmission is not Transmission.NONE_PROVEN]
        if policy is Policy.IDEMPOTENT:
            assert done.releases <= KEY.attempts, "the key was sent more often than the site honours it"
        elif policy is Policy.ABSOLUTE:
            assert done.releases == 1
        else:
            assert len(sent) <= 1
    book.sound()
    book.ledger.close_connections()


def test_a_policy_that_the_flow_had_once_needs_the_key_that_it_had(book: Book) -> None:
    """Proposed as `idempotent`; the flow that runs now has no key, or another one."""
    operation = proposed(book, Policy.IDEMPOTENT)
    book.approve(operation, attempts=5)
    lease = book.lease(operation)
    first = book.claim(operation, lease, key=None)
    assert isinstance(first, Attempt)
    assert isinstance(book.ledger.release(first.id, by=EXECUTOR, data={"from_page_only": []}), Attempt)
    book.close(first)
    for key in (None, KEY, replace(KEY, lifetime_s=9)):
        assert isinstance(book.claim(operation, lease, key=key), Refused)
    assert book.ledger.operation(operation.id).releases == 1
    book.sound()
