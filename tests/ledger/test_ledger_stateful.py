"""Any sequence of calls, by any number of forgetful workers: the ledger against the transition tables (F5).

The machine keeps its own tally of what the ledger let happen and applies `executor.model.transitions` to its own copy
of each state; leases run out when it says so.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, multiple, rule
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, intent
from sqlalchemy import create_engine, update

from executor.ledger import tables
from executor.ledger.ids import new_id
from executor.ledger.ledger import Judgement, LedgerError
from executor.ledger.sql import SqlLedger, open_ledger
from executor.model import transitions
from executor.model.admission import Refused
from executor.model.operation import Attempt, Disposition, Lease, Operation, Policy
from executor.model.transitions import FRESH, AttemptFacts, Event, IllegalTransition, Outcome, State

JUDGED = [Outcome.ACCEPTED, Outcome.SUCCEEDED, Outcome.REJECTED, Outcome.UNKNOWN]
OUTCOMES = st.sampled_from([None, *JUDGED])


def judgement(outcome: Outcome | None) -> Judgement | None:
    return None if outcome is None else Judgement(outcome=outcome, reason="r", why="w")


class Workers(RuleBasedStateMachine):
    operations = Bundle("operations")
    leases = Bundle("leases")
    attempts = Bundle("attempts")

    @initialize()
    def open(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.url = f"sqlite:///{self.folder / 'ledger.sqlite'}"
        self.ledger: SqlLedger = open_ledger(self.url)
        self.outside = create_engine(self.url)
        self.released_by_attempt: Counter[str] = Counter()
        self.released_by_operation: Counter[str] = Counter()
        self.states: dict[str, State] = {}
        self.facts: dict[str, AttemptFacts] = {}
        self.owner: dict[str, str] = {}

    def teardown(self) -> None:
        if not hasattr(self, "ledger"):
            return
        flaws = self.ledger.verify_all().flaws
        self.ledger.close_connections()
        self.outside.dispose()
        shutil.rmtree(self.folder)
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

    @rule(
        target=operations,
        task=st.sampled_from(["t1", "t2"]),
        title=st.sampled_from(["one", "two"]),
        policy=st.sampled_from([Policy.ABSOLUTE, Policy.ABSOLUTE, Policy.REAUTHORIZE, Policy.IDEMPOTENT]),
    )
    def propose(self, task: str, title: str, policy: Policy) -> Any:
        made = self.ledger.propose(intent(task, title), flow=FLOW, policy=policy, by=PROPOSER)
        assert made.created is (made.operation.id not in self.states)
        self.states.setdefault(made.operation.id, made.operation.state)
        return made.operation.id if made.created else multiple()

    @rule(operation=operations, meant=st.booleans())
    def approve(self, operation: str, meant: bool) -> None:
        shown = self.ledger.operation(operation)
        call = lambda: self.ledger.approve(  # noqa: E731 - one call, passed on
            operation, by=PERSON, flow=FLOW, fingerprint=shown.fingerprint, valid_for_s=600, meant=meant
        )
        if self.tried(operation, call):
            not_started = shown.state.dispatch is transitions.Dispatch.NOT_STARTED
            self.moved(operation, Event.APPROVED if not_started else Event.REOPENED)

    @rule(operation=operations)
    def revoke(self, operation: str) -> None:
        if self.tried(operation, lambda: self.ledger.revoke(operation, by=PERSON, why="")):
            self.moved(operation, Event.APPROVAL_REVOKED)

    @rule(operation=operations, disposition=st.sampled_from(Disposition))
    def dispose(self, operation: str, disposition: Disposition) -> None:
        version = self.ledger.operation(operation).version
        self.ledger.dispose(operation, disposition, by=PERSON, why="", version=version)

    @rule(target=leases, holder=st.sampled_from(["a", "b"]))
    def lease(self, holder: str) -> Any:
        try:
            return self.ledger.lease("https://news.example|ann", holder=holder, ttl_s=600)
        except LedgerError:
            return multiple()

    @rule()
    def leases_run_out(self) -> None:
        with self.outside.begin() as connection:
            connection.execute(update(tables.accounts).values(expires_us=1))

    @rule(target=attempts, operation=operations, holder=st.sampled_from(["a", "b"]))
    def lease_and_claim(self, operation: str, holder: str) -> Any:
        lease = self.lease(holder)
        return self.claim(operation, lease) if isinstance(lease, Lease) else multiple()

    @rule(target=attempts, operation=operations, lease=consumes(leases))
    def claim(self, operation: str, lease: Lease) -> Any:
        claimed = self.tried(
            operation,
            lambda: self.ledger.claim(operation, attempt=new_id("at"), lease=lease, flow=FLOW, by=EXECUTOR),
        )
        if claimed is None:
            return multiple()
        self.moved(operation, Event.CLAIMED)
        self.owner[claimed.id], self.facts[claimed.id] = operation, FRESH
        return claimed.id

    @rule(attempt=attempts)
    def gesture(self, attempt: str) -> None:
        self.tried(self.owner[attempt], lambda: self.ledger.gesture(attempt, by=EXECUTOR))

    @rule(attempt=attempts)
    def expose(self, attempt: str) -> None:
        if self.tried(self.owner[attempt], lambda: self.ledger.expose(attempt, by=EXECUTOR, write="w", url="u")):
            self.moved(self.owner[attempt], Event.EXPOSED, self.facts[attempt])
            self.facts[attempt] = AttemptFacts(exposed=True, released=self.facts[attempt].released)

    @rule(attempt=attempts)
    def release(self, attempt: str) -> None:
        owner = self.owner[attempt]
        if isinstance(self.tried(owner, lambda: self.ledger.release(attempt, by=EXECUTOR)), Attempt):
            self.moved(owner, Event.RELEASED, self.facts[attempt])
            self.facts[attempt] = AttemptFacts(exposed=self.facts[attempt].exposed, released=True)
            self.released_by_attempt[attempt] += 1
            self.released_by_operation[owner] += 1

    @rule(attempt=attempts)
    def nothing_written(self, attempt: str) -> None:
        owner = self.owner[attempt]
        if self.tried(owner, lambda: self.ledger.nothing_written(attempt, by=EXECUTOR, why="")):
            self.moved(owner, Event.NOTHING_WRITTEN, self.facts[attempt])

    @rule(attempt=attempts)
    def answered(self, attempt: str) -> None:
        owner = self.owner[attempt]
        if self.tried(owner, lambda: self.ledger.answered(attempt, by=EXECUTOR, data={})):
            self.moved(owner, Event.ANSWERED, self.facts[attempt])

    @rule(attempt=attempts, outcome=OUTCOMES, by_another=st.booleans())
    def close(self, attempt: str, outcome: Outcome | None, by_another: bool) -> None:
        def call() -> Operation:
            if by_another:
                return self.ledger.settle(attempt, by=EXECUTOR, why="", judgement=judgement(outcome))
            return self.ledger.close(attempt, by=EXECUTOR, reason="r", why="", judgement=judgement(outcome))

        owner = self.owner[attempt]
        if self.tried(owner, call):
            self.moved(owner, Event.CLOSED, self.facts[attempt])
            self._judged(owner, outcome)

    @rule(operation=operations, outcome=st.sampled_from(JUDGED))
    def judge(self, operation: str, outcome: Outcome) -> None:
        verdict = judgement(outcome)
        assert verdict is not None
        if self.tried(operation, lambda: self.ledger.judge(operation, verdict, by=EXECUTOR)):
            self._judged(operation, outcome)

    def _judged(self, operation: str, outcome: Outcome | None) -> None:
        if outcome is not None:
            name = "unclear" if outcome is Outcome.UNKNOWN else outcome.value
            self.moved(operation, Event(f"seen_{name}"))

    @rule(operation=st.none() | operations)
    def stop_and_lift(self, operation: str | None) -> None:
        """While a stop is there, no attempt of anybody is released."""
        stop = self.ledger.stop(by=PERSON, why="")
        for attempt in self.ledger.open_attempts(expired_only=False):
            assert isinstance(self.ledger.release(attempt.id, by=EXECUTOR), Refused)
        self.ledger.lift(stop.id, by=PERSON, why="")

    @invariant()
    def nothing_was_released_twice(self) -> None:
        for attempt, count in getattr(self, "released_by_attempt", {}).items():
            assert count == 1, attempt
        for operation, count in getattr(self, "released_by_operation", {}).items():
            assert count == 1 or self.ledger.operation(operation).policy is not Policy.ABSOLUTE

    @invariant()
    def every_state_is_what_the_tables_say(self) -> None:
        if hasattr(self, "ledger"):
            assert {shown.id: shown.state for shown in self.ledger.operations()} == self.states

    @invariant()
    def one_attempt_at_most_is_open(self) -> None:
        if hasattr(self, "ledger"):
            assert len(self.ledger.open_attempts(expired_only=False)) <= 1


TestWorkers = Workers.TestCase
TestWorkers.settings = settings(
    max_examples=20, stateful_step_count=35, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
