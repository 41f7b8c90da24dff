"""What can be shown about a provider's key, from records: one whole record, one thing changed at a time (B3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from model_builders import FLOW, NOW, attempt, operation

from executor.model.fingerprint import provider_key
from executor.model.key import first_baseline, key_facts, rejected_by_absence, terms
from executor.model.operation import Actor, EventRecord, FlowBinding, Operation, Policy
from executor.model.retry import KeyFacts, RetryReason
from executor.model.transitions import Dispatch, Outcome, Permission, State, Transmission
from flows.effect import ClientKey

KEY = ClientKey(
    header="Idempotency-Key",
    field=None,
    scope="account",
    lifetime_s=3600,
    attempts=3,
    same_fields=("title", "body"),
    margin_s=60,
)
UNKNOWN = State(Permission.AUTHORIZED, Dispatch.COMPLETED, Transmission.POSSIBLE, Outcome.UNKNOWN)
SENT = attempt(1, Transmission.POSSIBLE, released_at=NOW, closed_at=NOW)
NOT_SENT = attempt(1, closed_at=NOW)
LATER = NOW + timedelta(minutes=1)


def record(*attempts: Any, **changes: Any) -> Operation:
    made = operation(UNKNOWN, Policy.IDEMPOTENT, attempts=attempts or (SENT,), **changes)
    return replace(made, provider_key=provider_key(made.identity)) if "provider_key" not in changes else made


def event(kind: str, **data: Any) -> EventRecord:
    return EventRecord(
        operation="op-1",
        sequence=1,
        at=NOW,
        actor=Actor.parse("executor:run"),
        kind=kind,
        why="",
        data=data,
        previous="",
        hash="",
    )


def flow_data(flow: FlowBinding = FLOW) -> dict[str, str]:
    return {"name": flow.name, "version": flow.version, "code_digest": flow.code_digest}


def history(
    key: Mapping[str, Any] | None = None, *, flow: FlowBinding = FLOW, unseen: list[str] | None = None
) -> list[EventRecord]:
    return [
        event("approved", approval="apr-1", flow=flow_data(flow)),
        event("claimed", attempt="att-1", key=terms(record(), KEY) if key is None else key, baseline=["7"]),
        event("released", attempt="att-1", from_page_only=unseen or []),
    ]


def facts(made: Operation | None = None, events: list[EventRecord] | None = None, **changes: Any) -> KeyFacts:
    given: dict[str, Any] = {"key": KEY, "flow": FLOW, "now": LATER} | changes
    found = key_facts(made or record(), history() if events is None else events, **given)
    assert found is not None
    return found


def test_all_is_shown_of_a_whole_record() -> None:
    assert facts() == KeyFacts(
        honoured=True,
        same_terms=True,
        alone=True,
        same_fields=True,
        inside_lifetime=True,
        attempts_left=2,
        until=NOW + timedelta(seconds=3540),
    )


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        (RetryReason.KEY_NOT_HONOURED, lambda: facts(record(provider_key="il-another"))),
        (RetryReason.KEY_TERMS_CHANGED, lambda: facts(flow=replace(FLOW, code_digest="e" * 64))),
        (RetryReason.KEY_TERMS_CHANGED, lambda: facts(key=replace(KEY, lifetime_s=7200))),
        (RetryReason.KEY_TERMS_CHANGED, lambda: facts(key=replace(KEY, same_fields=("title",)))),
        (RetryReason.KEY_TERMS_CHANGED, lambda: facts(events=history()[1:])),
        (RetryReason.KEY_TERMS_CHANGED, lambda: facts(events=[history()[0], history()[2]])),
        (RetryReason.KEY_NOT_ALONE, lambda: facts(record(replace(SENT, exposed=True)))),
        (RetryReason.KEY_NOT_ALONE, lambda: facts(record(replace(SENT, released_at=None, exposed=True)))),
        (RetryReason.KEY_FIELDS_NOT_SHOWN, lambda: facts(events=history(unseen=["body"]))),
        (RetryReason.KEY_FIELDS_NOT_SHOWN, lambda: facts(events=history()[:2])),
        (RetryReason.KEY_FIELDS_NOT_SHOWN, lambda: unknown_field()),
        (RetryReason.KEY_LIFETIME_OVER, lambda: facts(now=NOW + timedelta(seconds=3540))),
        (RetryReason.KEY_ATTEMPTS_SPENT, lambda: spent()),
    ],
)
def test_each_condition_by_itself(reason: RetryReason, found: Any) -> None:
    assert found().flaw is reason


def unknown_field() -> KeyFacts:
    """A field that the approved material does not have under this name cannot be compared."""
    key = replace(KEY, same_fields=("title", "slug"))
    return facts(events=history(terms(record(), key)), key=key)


def spent() -> KeyFacts:
    key = replace(KEY, attempts=1)
    return facts(events=history(terms(record(), key)), key=key)


def test_the_lifetime_counts_from_the_first_release_and_ends_before_the_providers() -> None:
    second = replace(SENT, id="att-2", number=2, released_at=NOW + timedelta(minutes=50))
    both = [*history(), event("claimed", attempt="att-2", key=terms(record(), KEY)), event("released", attempt="att-2")]
    found = facts(record(SENT, second), both, now=NOW + timedelta(seconds=3539))
    assert (found.inside_lifetime, found.until) == (True, NOW + timedelta(seconds=3540))
    assert found.attempts_left == 1


def test_of_an_attempt_that_was_not_sent_nothing_is_asked() -> None:
    found = facts(record(NOT_SENT), [event("claimed", attempt="att-1", key=None)], flow=replace(FLOW, version="2"))
    assert found.flaw is None
    assert found.until is None


def test_a_release_under_which_nothing_was_written_is_counted() -> None:
    written_nothing = replace(NOT_SENT, released_at=NOW)
    assert facts(record(written_nothing)).attempts_left == 2


def test_without_a_key_there_is_nothing_to_say() -> None:
    assert key_facts(record(), history(), key=None, flow=FLOW, now=NOW) is None
    assert key_facts(record(provider_key=None), history(), key=KEY, flow=FLOW, now=NOW) is None


@pytest.mark.parametrize(
    ("kinds", "found"),
    [
        ([], False),
        ([("seen_rejected", "absent_under_guarantee")], True),
        ([("seen_rejected", "not_applied_by_clause")], False),
        ([("seen_rejected", "absent_under_guarantee"), ("seen_unclear", "contradiction")], False),
    ],
)
def test_only_the_last_verdict_says_whether_absence_is_proven(kinds: list[tuple[str, str]], found: bool) -> None:
    assert rejected_by_absence([event(kind, reason=reason) for kind, reason in kinds]) is found


def test_the_baseline_is_the_one_before_anything_can_have_left() -> None:
    first, second = replace(NOT_SENT, id="att-0"), replace(SENT, id="att-2", number=3)
    events = [event("claimed", attempt="att-0", baseline=[]), *history()]
    events.append(event("claimed", attempt="att-2", baseline=["7", "8"]))
    assert first_baseline(record(first, SENT, second), events) == frozenset({"7"})
    assert first_baseline(record(first), events) is None
