"""Records to test the model with: whole by default, one thing changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

from executor.model.operation import (
    Actor,
    ActorKind,
    Approval,
    Attempt,
    Disposition,
    FlowBinding,
    Intent,
    Operation,
    Policy,
)
from executor.model.transitions import Dispatch, Outcome, Permission, State, Transmission, illegal

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
PERSON = Actor(ActorKind.PERSON, "ada")
FLOW = FlowBinding(name="cms", version="1", code_digest="d" * 64)
READY = State(Permission.AUTHORIZED)


def intent(**changes: Any) -> Intent:
    whole = Intent(
        task="task-1",
        action="publish-post",
        destination="https://cms.example/blog",
        account="editor",
        flow="cms",
        payload={"title": "Hello", "body": "World", "note": "internal"},
        material={"title": "Hello", "body": "World"},
        common={"title": "Hello", "body": "World"},
    )
    return replace(whole, **changes)


def attempt(number: int = 1, transmission: Transmission = Transmission.NONE_PROVEN, **changes: Any) -> Attempt:
    whole = Attempt(
        id=f"att-{number}",
        operation="op-1",
        number=number,
        approval="apr-1",
        holder="worker-1",
        token=number,
        transmission=transmission,
        claimed_at=NOW,
    )
    return replace(whole, **changes)


def operation(state: State = READY, policy: Policy = Policy.ABSOLUTE, **changes: Any) -> Operation:
    meant: Intent = changes.pop("intent", intent())
    whole = Operation(
        id="op-1",
        intent=meant,
        fingerprint=meant.fingerprint,
        identity=meant.identity,
        policy=policy,
        provider_key=None,
        flow=FLOW,
        state=state,
        disposition=Disposition.OPEN,
        proposed_by=Actor(ActorKind.PROPOSER, "agent"),
        created_at=NOW - HOUR,
        version=3,
        head="h",
    )
    return replace(whole, **changes)


def approval(**changes: Any) -> Approval:
    meant = intent()
    whole = Approval(
        id="apr-1",
        operation="op-1",
        by=PERSON,
        at=NOW - HOUR,
        expires=NOW + HOUR,
        attempts=1,
        used=0,
        fingerprint=meant.fingerprint,
        account=meant.account,
        destination=meant.destination,
        action=meant.action,
        flow=FLOW,
    )
    return replace(whole, **changes)


def every_state() -> Iterator[State]:
    """Every combination of the four, legal or not."""
    for permission, dispatch, transmission, outcome in product(Permission, Dispatch, (None, *Transmission), Outcome):
        yield State(permission, dispatch, transmission, outcome)


def legal_states() -> list[State]:
    return [state for state in every_state() if not illegal(state)]
