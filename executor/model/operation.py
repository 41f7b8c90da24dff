"""The records that everything else speaks of: operation, approval, attempt, event. Frozen values, no I/O.

Times are aware datetimes in UTC. Digests are hexadecimal SHA-256. An operation is a projection of its events; the
ledger is the only writer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit

from executor.model import fingerprint
from executor.model.transitions import State, Transmission
from flows.effect import Policy as Policy


class Disposition(StrEnum):
    """What people have decided to do about an operation. Never changes the outcome or what may run (A9)."""

    OPEN = "open"
    WAIT = "wait"
    INVESTIGATE = "investigate"
    ABANDONED = "abandoned"
    CLOSED = "closed"


class ActorKind(StrEnum):
    PERSON = "person"
    PROPOSER = "proposer"
    EXECUTOR = "executor"


@dataclass(frozen=True, slots=True)
class Actor:
    """Who did something, as it was authenticated. Only a person may approve (B1)."""

    kind: ActorKind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.value}:{self.name}"

    @classmethod
    def parse(cls, text: str) -> Actor:
        kind, _, name = text.partition(":")
        return cls(ActorKind(kind), name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """What is to happen, resolved: destination and material in the flow's canonical form. `common` is the projection
    of the material that all flows with this action share. `after` names operations that must have succeeded first."""

    task: str
    action: str
    destination: str
    account: str
    flow: str
    payload: Mapping[str, Any]
    material: Mapping[str, Any]
    common: Mapping[str, Any]
    after: tuple[str, ...] = ()
    deadline: datetime | None = None

    @property
    def fingerprint(self) -> str:
        return fingerprint.fingerprint(self.material)

    @property
    def identity(self) -> str:
        return fingerprint.intent_identity(
            task=self.task,
            action=self.action,
            destination=self.destination,
            account=self.account,
            material_fingerprint=self.fingerprint,
        )

    @property
    def slot(self) -> str:
        return fingerprint.slot(task=self.task, action=self.action, destination=self.destination, account=self.account)

    @property
    def look_alike(self) -> str:
        return fingerprint.look_alike_key(
            action=self.action, destination=self.destination, account=self.account, common=self.common
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowBinding:
    """Exactly which code an approval is for (B1)."""

    name: str
    version: str
    code_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """Permission for one exact operation. `attempts` is how many claims it allows, `used` how many it has seen."""

    id: str
    operation: str
    by: Actor
    at: datetime
    expires: datetime
    attempts: int
    used: int
    fingerprint: str
    account: str
    destination: str
    action: str
    flow: FlowBinding
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One reserved submit. `token` is the fencing token under which it was claimed."""

    id: str
    operation: str
    number: int
    approval: str
    holder: str
    token: int
    transmission: Transmission
    claimed_at: datetime
    gesture_at: datetime | None = None
    exposed: bool = False
    released_at: datetime | None = None
    answered_at: datetime | None = None
    closed_at: datetime | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The durable record of one intent (A2)."""

    id: str
    intent: Intent
    fingerprint: str
    identity: str
    policy: Policy
    provider_key: str | None
    flow: FlowBinding
    state: State
    disposition: Disposition
    proposed_by: Actor
    created_at: datetime
    version: int
    """The number of events so far: what a person must name to change something they saw (E5)."""
    head: str
    """The hash of the last event."""
    meant: bool = False
    """A person said that this is meant although it looks like another operation (A4)."""
    approval: Approval | None = None
    attempts: tuple[Attempt, ...] = ()

    @property
    def account_key(self) -> str:
        """What is leased: one account at one destination."""
        return account_key(self.intent.destination, self.intent.account)

    @property
    def attempt(self) -> Attempt | None:
        """The latest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def releases(self) -> int:
        return sum(1 for attempt in self.attempts if attempt.released_at is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRecord:
    """One line of an operation's history (A8)."""

    operation: str
    sequence: int
    at: datetime
    actor: Actor
    kind: str
    why: str
    data: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    previous: str
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop:
    """A person's (or the circuit breaker's) order that nothing be claimed or released. `flow` and `account_key` None
    mean every one."""

    id: str
    flow: str | None
    account_key: str | None
    by: Actor
    at: datetime
    why: str
    lifted_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Order among runs of one account. `token` is the fencing token; `until` is by the ledger's clock. A lease never
    permits a retry."""

    account_key: str
    holder: str
    token: int
    until: datetime


def account_key(destination: str, account: str) -> str:
    """The name under which an account is leased: by site, not by place on it, since one login serves a whole site."""
    parts = urlsplit(destination)
    return f"{parts.scheme}://{parts.netloc}|{account}"
