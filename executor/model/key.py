"""What can be shown about a provider's idempotency key (B3): the one place where it is worked out, from the record and
the contract. Pure: the time is given by the ledger, the contract by the flow that would run.

The key itself follows from the intent's identity (`executor.model.fingerprint.provider_key`), so every attempt of an
operation carries the same one. Its lifetime is counted from the first release, by the ledger's clock: the provider
cannot have seen it earlier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from executor.model.fingerprint import NotCanonical, canonical, provider_key
from executor.model.operation import Attempt, EventRecord, FlowBinding, Operation
from executor.model.retry import KeyFacts
from executor.model.transitions import Event, Outcome, Transmission
from executor.model.verdict import VerdictReason
from flows.effect import ClientKey


def terms(operation: Operation, key: ClientKey | None) -> Mapping[str, Any] | None:
    """The key of an operation with the terms under which it counts (A2), as an event keeps them. They are in the
    flow's code too, but a record has to speak for itself when that code is gone."""
    if key is None or operation.provider_key is None:
        return None
    return {
        "key": operation.provider_key,
        "header": key.header,
        "field": key.field,
        "scope": key.scope,
        "lifetime_s": key.lifetime_s,
        "margin_s": key.margin_s,
        "attempts": key.attempts,
        "same_fields": list(key.same_fields),
    }


def may_have_been_sent(operation: Operation) -> tuple[Attempt, ...]:
    """The closed attempts whose effect request, or another write that could cause the effect, may have left."""
    return tuple(
        one
        for one in operation.attempts
        if one.closed_at is not None and one.transmission is not Transmission.NONE_PROVEN
    )


def key_facts(
    operation: Operation, events: Sequence[EventRecord], *, key: ClientKey | None, flow: FlowBinding, now: datetime
) -> KeyFacts | None:
    """What holds right now for a further attempt by the code of `flow`, whose contract has `key`. None where there is
    no key to speak of: the contract has none, or the operation was proposed without one."""
    own = terms(operation, key)
    if key is None or own is None:
        return None
    said = _Said(events)
    sent = may_have_been_sent(operation)
    until = _until(sent, key)
    return KeyFacts(
        honoured=operation.provider_key == provider_key(operation.identity),
        same_terms=all(said.flow(one) == flow and _same(said.terms(one), own) for one in sent),
        alone=all(one.released_at is not None and not one.exposed for one in sent),
        same_fields=all(name in operation.intent.material for name in key.same_fields)
        and all(said.shown(one, key.same_fields) for one in sent),
        inside_lifetime=until is None or now < until,
        attempts_left=key.attempts - operation.releases,
        until=until,
    )


def rejected_by_absence(events: Sequence[EventRecord]) -> bool:
    """Whether the last verdict of a history is a rejection by proven absence (D6)."""
    last = next((event for event in reversed(events) if event.kind.startswith("seen_")), None)
    return (
        last is not None
        and last.kind == f"seen_{Outcome.REJECTED.value}"
        and last.data.get("reason") == VerdictReason.ABSENT_UNDER_GUARANTEE.value
    )


def first_baseline(operation: Operation, events: Sequence[EventRecord]) -> frozenset[str] | None:
    """The ids that were there before anything of this operation can have left: those that the first attempt read that
    may have been sent. None where they were not read."""
    sent = may_have_been_sent(operation)
    ids = _Said(events).claimed.get(sent[0].id, {}).get("baseline") if sent else None
    return None if ids is None else frozenset(ids)


class _Said:
    """What a history says about attempts and their approvals."""

    def __init__(self, events: Sequence[EventRecord]) -> None:
        self.claimed = _by("attempt", events, Event.CLAIMED)
        self._released = _by("attempt", events, Event.RELEASED)
        self._approved = _by("approval", events, Event.APPROVED, Event.REOPENED)

    def flow(self, attempt: Attempt) -> FlowBinding | None:
        """The code that the attempt ran with: the one that its approval bound."""
        approved = self._approved.get(attempt.approval)
        return None if approved is None else FlowBinding(**approved["flow"])

    def terms(self, attempt: Attempt) -> object:
        return self.claimed.get(attempt.id, {}).get("key")

    def shown(self, attempt: Attempt, fields: Sequence[str]) -> bool:
        """Whether the wire showed these fields as approved in the attempt's request. What only the page showed may have
        left as something else."""
        unseen = self._released.get(attempt.id, {}).get("from_page_only")
        return unseen is not None and not set(fields) & set(unseen)


def _by(name: str, events: Sequence[EventRecord], *kinds: Event) -> dict[str, Mapping[str, Any]]:
    return {str(event.data[name]): event.data for event in events if event.kind in kinds and name in event.data}


def _until(sent: Sequence[Attempt], key: ClientKey) -> datetime | None:
    """From when on the key may no longer be sent; None while it never was."""
    releases = [one.released_at for one in sent if one.released_at is not None]
    return min(releases) + timedelta(seconds=key.lifetime_s - key.margin_s) if releases else None


def _same(recorded: object, own: Mapping[str, Any]) -> bool:
    try:
        return canonical(recorded) == canonical(own)
    except NotCanonical:
        return False
