"""What the ledger's tests and their child processes share: people, flows, intents, and the usual steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from sqlalchemy import Engine, create_engine, event, make_url

from executor.ledger.ids import new_id
from executor.ledger.ledger import Judgement
from executor.ledger.sql import SqlLedger
from executor.model.admission import Refused
from executor.model.operation import Actor, Approval, Attempt, FlowBinding, Intent, Lease, Operation, Policy
from executor.model.transitions import Outcome

PERSON = Actor.parse("person:ann")
EXECUTOR = Actor.parse("executor:worker")
PROPOSER = Actor.parse("proposer:agent")
FLOW = FlowBinding(name="news", version="1", code_digest="c0de")

SUCCEEDED = Judgement(outcome=Outcome.SUCCEEDED, reason="created", why="201 with the item's id", evidence=("e1",))


def intent(task: str = "task", title: str = "Hello", **changes: Any) -> Intent:
    plain = Intent(
        task=task,
        action="publish",
        destination="https://news.example/",
        account="ann",
        flow=FLOW.name,
        payload={"title": title, "draft": False},
        material={"title": title},
        common={"title": title},
    )
    return replace(plain, **changes)


@contextmanager
def from_outside(url: str) -> Iterator[Engine]:
    """The database as somebody with all rights to it reaches it: past the ledger, and past its foreign keys."""
    where = make_url(url)
    if on_postgresql := where.get_backend_name() == "postgresql":
        where = where.set(drivername="postgresql+psycopg", username="postgres")
    engine = create_engine(where)
    if on_postgresql:
        event.listen(engine, "connect", lambda connection, _: _without_foreign_keys(connection))
    try:
        yield engine
    finally:
        engine.dispose()


def _without_foreign_keys(connection: Any) -> None:
    connection.execute("SET session_replication_role = replica")
    connection.commit()


@dataclass
class Book:
    """A ledger with the usual steps in one call each."""

    ledger: SqlLedger

    def proposed(
        self, task: str = "task", title: str = "Hello", *, policy: Policy = Policy.ABSOLUTE, **changes: Any
    ) -> Operation:
        return self.ledger.propose(intent(task, title, **changes), flow=FLOW, policy=policy, by=PROPOSER).operation

    def approve(self, operation: Operation, *, valid_for_s: float = 600, **more: Any) -> Approval:
        return self.ledger.approve(
            operation.id, by=PERSON, flow=FLOW, fingerprint=operation.fingerprint, valid_for_s=valid_for_s, **more
        )

    def approved(
        self, task: str = "task", title: str = "Hello", *, valid_for_s: float = 600, **changes: Any
    ) -> Operation:
        operation = self.proposed(task, title, **changes)
        self.approve(operation, valid_for_s=valid_for_s)
        return self.ledger.operation(operation.id)

    def lease(self, operation: Operation, *, holder: str = "worker", ttl_s: float = 600) -> Lease:
        return self.ledger.lease(operation.account_key, holder=holder, ttl_s=ttl_s)

    def claim(self, operation: Operation, lease: Lease, *, flow: FlowBinding = FLOW, **more: Any) -> Attempt | Refused:
        return self.ledger.claim(operation.id, attempt=new_id("at"), lease=lease, flow=flow, by=EXECUTOR, **more)

    def claimed(self, *args: Any, **changes: Any) -> tuple[Operation, Attempt]:
        operation = self.approved(*args, **changes)
        attempt = self.claim(operation, self.lease(operation))
        assert isinstance(attempt, Attempt), attempt
        return self.ledger.operation(operation.id), attempt

    def let_go(self, attempt: Attempt) -> Attempt | Refused:
        return self.ledger.release(attempt.id, by=EXECUTOR)

    def released(self, *args: Any, **changes: Any) -> tuple[Operation, Attempt]:
        operation, attempt = self.claimed(*args, **changes)
        let_go = self.let_go(attempt)
        assert isinstance(let_go, Attempt), let_go
        return self.ledger.operation(operation.id), let_go

    def close(self, attempt: Attempt, judgement: Judgement | None = None, *, reason: str = "done") -> Operation:
        return self.ledger.close(attempt.id, by=EXECUTOR, reason=reason, why="", judgement=judgement)

    def until(self, moment: datetime) -> None:
        """Wait for the database's clock, which is the one that decides."""
        while self.ledger.now() < moment:
            pass

    def lose_the_lease(self, operation: Operation, attempt: Attempt) -> None:
        """Let the lease of an attempt run out, however slow the machine is: shorten it, then wait for that."""
        key, held = operation.account_key, (attempt.holder, attempt.token)
        lease = Lease(account_key=key, holder=held[0], token=held[1], until=attempt.claimed_at)
        self.until(self.ledger.renew(lease, ttl_s=0.001).until)

    def kinds(self, operation: Operation) -> list[str]:
        return [event.kind for event in self.ledger.events(operation.id)]

    def sound(self) -> None:
        assert self.ledger.verify_all().flaws == ()
