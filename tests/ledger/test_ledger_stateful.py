"""Any sequence of calls, by any number of forgetful workers: the ledger against the transition tables (F5).

The machine keeps its own tally of what the ledger let happen and applies `executor.model.transitions` to its own copy
of each state; leases run out when it says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, from_outside, intent
from postgresql_server import Server
from sqlalchemy import create_engine, delete, update

from executor.ledger import tables
from executor.ledger.database import resolve
from executor.ledger.ids import new_id
from executor.ledger.ledger import AccountBusy, Judgement, LedgerError
from executor.ledger.sql import SqlLedger, open_ledger
from executor.model import transitions
from executor.model.admission import Refused
from executor.model.operation import Approval, Disposition, Lease, Operation, Policy
from executor.model.transitions import FRESH, AttemptFacts, Event, IllegalTransition, Outcome, State

T = TypeVar("T")

MEMORY = Path("/dev/shm")
"""Thousands of commits that nobody needs after the test: where it exists, they need not be synced to a disk."""

JUDGED = [Outcome.ACCEPTED, Outcome.SUCCEEDED, Outcome.REJECTED, Outcome.UNKNOWN]
POLICIES = st.sampled_from([Policy.ABSOLUTE, Policy.REAUTHORIZE, Policy.IDEMPOTENT])
STEPS = ["gesture", "release", "release", "answered", "expose", "nothing_written"]
HOLDERS = st.sampled_from(["a", "b"])
PICK = st.integers(0, 3)
ACCOUNT = "https://news.example|ann"
OUTCOMES = st.sampled_from([None, *JUDGED])


def judgement(outcome: Outcome | None) -> Judgement | None:
    return None if outcome is None else Judgement(outcome=outcome, reason="r", why="w")


def picked(things: list[T], pick: int) -> T:
    """One of them: 0 is the first, -1 the last, and no number is out of range."""
    return things[pick % len(things)] if pick >= 0 else things[-1 - (-1 - pick) % len(things)]


@cache
def empty_ledger() -> bytes:
    """A file with the schema in it: making it anew would take longer than a whole example."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "ledger.sqlite"
        open_ledger(file).close_connections()
        return file.read_bytes()


class Workers(RuleBasedStateMachine):
    def place(self) -> str:
        """The URL of an empty ledger."""
        self.folder = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        (self.folder / "ledger.sqlite").write_bytes(empty_ledger())
        return f"sqlite:///{self.folder / 'ledger.sqlite'}"

    def remove(self) -> None:
        shutil.rmtree(self.folder)

    @initialize(policies=st.tuples(POLICIES, POLICIES))
    def open(self, policies: tuple[Policy, Policy]) -> None:
        url = self.place()
        self.ledger: SqlLedger = open_ledger(url)
        self.outside = create_engine(resolve(url))
        self.operations: list[str] = []
        self.leases: list[Lease] = []
        self.attempts: list[str] = []
        self.owner: dict[str, str] = {}
        self.facts: dict[str, AttemptFacts] = {}
        self.states: dict[str, State] = {}
        self.released: Counter[str] = Counter()
        for number, policy in enumerate(policies):
            self.propose(f"first{number}", f"first {number}", policy)
        self.start(0, "a")

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        flaws = self.ledger.verify_all().flaws
        self.ledger.close_connections()
        self.outside.dispose()
        self.remove()
        assert flaws == ()

    def tried(self, operation: str, call: Callable[[], Any]) -> Any:
        """The result, None when the ledger would not: then nothing may have changed."""
        before = self.ledger.operation(operation)
        try:
            result = call()
        except (LedgerError, IllegalTransition):
            result = None
        if result is None or isinstance(result, Refused):
            assert self.ledger.operation(operation) == before
            return None
        return result

    def moved(self, operation: str, event: Event, facts: AttemptFacts = FRESH) -> None:
        """What the ledger did must be what the tables say."""
        self.states[operation] = transitions.apply(self.states[operation], event, facts)

    @rule(task=st.sampled_from(["t1", "t2"]), title=st.sampled_from(["one", "two"]), policy=POLICIES)
    def propose(self, task: str, title: str, policy: Policy) -> None:
        made = self.ledger.propose(intent(task, title), flow=FLOW, policy=policy, by=PROPOSER)
        assert made.created is (made.operation.id not in self.states)
        if made.created:
            self.operations.append(made.operation.id)
            self.states[made.operation.id] = made.operation.state

    @rule(pick=PICK, meant=st.booleans())
    def approve(self, pick: int, meant: bool) -> None:
        shown = self.ledger.operation(picked(self.operations, pick))

        def call() -> Approval:
            return self.ledger.approve(
                shown.id, by=PERSON, flow=FLOW, fingerprint=shown.fingerprint, valid_for_s=600, meant=meant
            )

        if self.tried(shown.id, call):
            not_started = shown.state.dispatch is transitions.Dispatch.NOT_STARTED
            self.moved(shown.id, Event.APPROVED if not_started else Event.REOPENED)

    @rule(pick=PICK)
    def revoke(self, pick: int) -> None:
        operation = picked(self.operations, pick)
        if self.tried(operation, lambda: self.ledger.revoke(operation, by=PERSON, why="")):
            self.moved(operation, Event.APPROVAL_REVOKED)

    @rule(pick=PICK, disposition=st.sampled_from(Disposition))
    def decide_and_think_again(self, pick: int, disposition: Disposition) -> None:
        """No decision moves a state; one that closes holds the release while it lasts."""
        for decided in (disposition, Disposition.OPEN):
            shown = self.ledger.operation(picked(self.operations, pick))
            self.ledger.dispose(shown.id, decided, by=PERSON, why="", version=shown.version)
            if shown.attempt and decided in (Disposition.ABANDONED, Disposition.CLOSED):
                assert isinstance(self.ledger.release(shown.attempt.id, by=EXECUTOR), Refused)

    @rule()
    def leases_run_out(self) -> None:
        with self.outside.begin() as connection:
            connection.execute(update(tables.accounts).values(expires_us=1))

    @rule(pick=PICK, holder=HOLDERS, outcome=OUTCOMES, steps=st.lists(st.sampled_from(STEPS), max_size=4))
    def recover_and_run(self, pick: int, holder: str, outcome: Outcome | None, steps: list[str]) -> None:
        """A worker that settles what is open, claims, and goes on as far as it comes."""
        for attempt in self.ledger.open_attempts(expired_only=False):
            self.close(self.attempts[::-1].index(attempt.id), outcome, by_another=True)
            if self.ledger.open_attempts(expired_only=False):  # that judgement was not possible
                self.close(self.attempts[::-1].index(attempt.id), None, by_another=True)
        self.start(pick, holder)
        for step in steps:
            self.step(self.attempts[-1], step)

    @rule(pick=PICK, holder=HOLDERS)
    def start(self, pick: int, holder: str) -> None:
        """The steps of an ordinary run up to its claim, by a worker that takes over a lease that ran out."""
        self.approve(pick, meant=True)
        self.leases_run_out()
        try:
            self.leases.append(self.ledger.lease(ACCOUNT, holder=holder, ttl_s=600))
        except AccountBusy:
            assert self.ledger.open_attempts(expired_only=False)
        if self.leases:
            self.claim(pick, 0)

    @rule(pick=PICK, lease=PICK)
    def claim(self, pick: int, lease: int) -> None:
        if not self.leases:
            return
        operation, held = picked(self.operations, pick), picked(self.leases, -1 - lease)
        claimed = self.tried(
            operation,
            lambda: self.ledger.claim(operation, attempt=new_id("at"), lease=held, flow=FLOW, by=EXECUTOR),
        )
        if claimed is not None:
            assert held == self.leases[-1], "a stale token claimed"
            self.moved(operation, Event.CLAIMED)
            self.attempts.append(claimed.id)
            self.owner[claimed.id], self.facts[claimed.id] = operation, FRESH

    @rule(pick=PICK, steps=st.lists(st.sampled_from(STEPS), min_size=1, max_size=4))
    def act(self, pick: int, steps: list[str]) -> None:
        """A worker, current or stale, goes on with its attempt in whatever order."""
        for step in steps:
            self.step(picked(self.attempts, -1 - pick), step)

    def step(self, attempt: str, step: str) -> None:
        owner, facts = self.owner[attempt], self.facts[attempt]
        match step:
            case "gesture":
                self.tried(owner, lambda: self.ledger.gesture(attempt, by=EXECUTOR))
            case "expose":
                if self.tried(owner, lambda: self.ledger.expose(attempt, by=EXECUTOR, write="w", url="u")):
                    self.moved(owner, Event.EXPOSED, facts)
                    self.facts[attempt] = replace(facts, exposed=True)
            case "release":
                if self.tried(owner, lambda: self.ledger.release(attempt, by=EXECUTOR)):
                    self.moved(owner, Event.RELEASED, facts)
                    self.facts[attempt] = replace(facts, released=True)
                    self.released.update([attempt, owner])
            case "nothing_written":
                if self.tried(owner, lambda: self.ledger.nothing_written(attempt, by=EXECUTOR, why="")):
                    self.moved(owner, Event.NOTHING_WRITTEN, facts)
            case "answered":
                if self.tried(owner, lambda: self.ledger.answered(attempt, by=EXECUTOR, data={})):
                    self.moved(owner, Event.ANSWERED, facts)

    @rule(pick=PICK, outcome=OUTCOMES, by_another=st.booleans())
    def close(self, pick: int, outcome: Outcome | None, by_another: bool) -> None:
        attempt = picked(self.attempts, -1 - pick)

        def call() -> Operation:
            if by_another:
                return self.ledger.settle(attempt, by=EXECUTOR, why="", judgement=judgement(outcome))
            return self.ledger.close(attempt, by=EXECUTOR, reason="r", why="", judgement=judgement(outcome))

        owner = self.owner[attempt]
        if self.tried(owner, call):
            self.moved(owner, Event.CLOSED, self.facts[attempt])
            self._judged(owner, outcome)

    @rule(pick=PICK, outcome=st.sampled_from(JUDGED))
    def judge(self, pick: int, outcome: Outcome) -> None:
        operation, verdict = picked(self.operations, pick), judgement(outcome)
        assert verdict is not None
        if self.tried(operation, lambda: self.ledger.judge(operation, verdict, by=EXECUTOR)):
            self._judged(operation, outcome)

    def _judged(self, operation: str, outcome: Outcome | None) -> None:
        if outcome is not None:
            name = "unclear" if outcome is Outcome.UNKNOWN else outcome.value
            self.moved(operation, Event(f"seen_{name}"))

    @rule()
    def stop_and_lift(self) -> None:
        """While a stop is there, no attempt of anybody is released."""
        stop = self.ledger.stop(by=PERSON, why="")
        for attempt in self.ledger.open_attempts(expired_only=False):
            assert isinstance(self.ledger.release(attempt.id, by=EXECUTOR), Refused)
        self.ledger.lift(stop.id, by=PERSON, why="")

    @invariant()
    def every_promise_is_kept(self) -> None:
        if not hasattr(self, "ledger"):
            return
        shown = self.ledger.operations()
        assert {operation.id: operation.state for operation in shown} == self.states
        for operation in shown:
            assert self.released[operation.id] <= 1 or operation.policy is not Policy.ABSOLUTE
            assert self.released[operation.id] == operation.releases
        assert all(self.released[attempt] <= 1 for attempt in self.attempts)
        assert sum(a.closed_at is None for operation in shown for a in operation.attempts) <= 1


class WorkersOnPostgresql(Workers):
    url: ClassVar[str]

    def place(self) -> str:
        with from_outside(self.url) as engine, engine.begin() as connection:
            for table in reversed(tables.METADATA.sorted_tables):
                connection.execute(delete(table))
        return self.url

    def remove(self) -> None:
        """It is emptied for the next one."""


@pytest.fixture(scope="class")
def postgresql(server: Server) -> None:
    WorkersOnPostgresql.url = server.empty_database()
    open_ledger(WorkersOnPostgresql.url).close_connections()


TestWorkersOnPostgresql = pytest.mark.usefixtures("postgresql")(WorkersOnPostgresql.TestCase)
TestWorkersOnPostgresql.settings = settings(
    max_examples=8, stateful_step_count=25, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

TestWorkers = Workers.TestCase
TestWorkers.settings = settings(
    max_examples=30, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
