"""What a worker and recovery must not do beside others: begin what waits, tell an end that is another's, wait for no
time at all, and begin again for ever what takes its process down."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from desk import PERSON
from release_kit import Got, bench

from executor.ledger.sql import open_ledger
from executor.ledger.thread import AsyncLedger, LedgerThread
from executor.model.operation import Actor, ActorKind, Attempt, FlowBinding, Intent, Operation, Policy
from executor.model.transitions import Dispatch
from executor.one_shot import recovery
from executor.one_shot.recovery import RUN_ENDED, RUN_STARTED, finish_lost_runs, settle_open_attempts
from executor.one_shot.steps import go_through
from executor.one_shot.waits import wait_of_a_lost_run
from executor.settings import Settings
from executor.worker import LONGEST_PAUSE_S, Worker

FLOW = FlowBinding(name="news", version="1", code_digest="c0de")
RUN = Actor(ActorKind.EXECUTOR, "run_1")


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


async def authorized(ledger: AsyncLedger, task: str = "task") -> Operation:
    title = {"title": task}
    intent = Intent(
        task=task, action="publish", destination="https://news.example/", account="ann", flow=FLOW.name,
        payload=title, material=title, common=title,
    )  # fmt: skip
    proposed = await ledger.propose(intent, flow=FLOW, policy=Policy.ABSOLUTE, by=PERSON, provider_key=None)
    operation = proposed.operation
    await ledger.approve(
        operation.id, by=PERSON, flow=FLOW, fingerprint=operation.fingerprint, valid_for_s=600, attempts=1,
        meant=False, key=None, why="",
    )  # fmt: skip
    return await ledger.operation(operation.id)


async def due(ledger: AsyncLedger) -> list[str]:
    return [one.operation.id for one in await ledger.due([FLOW], limit=9, without=())]


async def lost_run(ledger: AsyncLedger, operation: Operation, run: str) -> None:
    """A run that began, and whose process was gone before it came to its claim."""
    by = Actor(ActorKind.EXECUTOR, run)
    await ledger.note(operation.id, kind=RUN_STARTED, by=by, why="asked for", data={"run": run})


async def test_what_takes_its_process_down_is_not_begun_again_without_an_end(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, halts_per_task=2, halt_wait_s=3600, longest_halt_wait_s=3600)
    thread = LedgerThread(open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}"))
    ledger = AsyncLedger(thread)
    try:
        operation = await authorized(ledger)
        assert not await wait_of_a_lost_run(ledger, settings, operation, by=RUN), "it was never begun"
        seen = []
        for number in range(3):
            await lost_run(ledger, operation, f"run_{number}")
            assert await wait_of_a_lost_run(ledger, settings, operation, by=RUN)
            assert not await wait_of_a_lost_run(ledger, settings, operation, by=RUN), "counted once"
            assert await due(ledger) == []
            (waiting,) = await ledger.waiting()
            assert waiting.halt == "not_sent:process_lost"
            seen.append(waiting.until is not None)
        assert seen == [True, True, False], "then it is a person's, whoever restarts the worker"
        await ledger.resume(operation.id, by=PERSON, why="more memory")
        assert not await wait_of_a_lost_run(ledger, settings, operation, by=RUN)
        assert await due(ledger) == [operation.id]

        await lost_run(ledger, operation, "run_9")
        await ledger.note(operation.id, kind=RUN_ENDED, by=RUN, why="", data={"run": "run_9"})
        assert not await wait_of_a_lost_run(ledger, settings, operation, by=RUN), "a run that told its end is not lost"
    finally:
        await thread.aclose()


async def test_what_waits_is_due_to_nobody_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait is in the record before the account is free."""
    async with bench(tmp_path) as one:
        operation = await one.ledger.operation(one.operation.id)
        assert operation.state.dispatch is Dispatch.STARTED
        order: list[str] = []

        async def wait(run: Any, ending: Any) -> None:
            order.append("wait")

        async def surrender(lease: Any) -> None:
            order.append("surrender")

        monkeypatch.setattr("executor.one_shot.steps.record_wait", wait)
        monkeypatch.setattr(one.ledger, "surrender", surrender)
        ending = await go_through(one.run)  # it was dispatched: refused at its first step
        assert ending.coded_reason() is not None
        assert order == ["wait", "surrender"]


async def test_an_end_that_is_recorded_meanwhile_is_not_told_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run ends, and lets its account go, after recovery has read its history and before it has the account."""
    async with bench(tmp_path) as one:
        assert await one.publish() == Got(302)
        await one.judged()
        assert one.run.lease is not None
        held, own = one.run.lease, one.ledger.lease

        async def lease(*given: Any, **more: Any) -> Any:
            monkeypatch.setattr(one.ledger, "lease", own)
            await one.ledger.note(one.operation.id, kind=RUN_ENDED, by=RUN, why="went through", data={"run": "run_1"})
            await one.ledger.surrender(held)
            return await own(*given, **more)

        monkeypatch.setattr(one.ledger, "lease", lease)
        receipts = one.services.settings.receipts_folder
        await finish_lost_runs(one.ledger, receipts, by=PERSON)
        events = await one.ledger.events(one.operation.id)
        assert [event.why for event in events if event.kind == RUN_ENDED] == ["went through"]
        await own(one.operation.account_key, holder="the next", ttl_s=60)  # the account is free again


async def test_several_recoveries_tell_one_end(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        assert await one.publish() == Got(302)
        await one.judged()
        assert one.run.lease is not None
        await one.ledger.surrender(one.run.lease)
        receipts = one.services.settings.receipts_folder
        await asyncio.gather(*(finish_lost_runs(one.ledger, receipts, by=PERSON) for _ in range(6)))
        assert (await one.kinds()).count(RUN_ENDED) == 1


async def test_what_another_recovery_has_settled_sets_no_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with bench(tmp_path) as one:
        assert await one.publish() == Got(302)
        (stale,) = await one.ledger.open_attempts(expired_only=False)
        await one.judged()

        async def open_attempts(*, expired_only: bool) -> Sequence[Attempt]:
            return [stale]

        monkeypatch.setattr(one.ledger, "open_attempts", open_attempts)
        monkeypatch.setattr(recovery, "_reading", lambda answer: None)  # as where nothing conclusive was read
        assert await settle_open_attempts(one.ledger, by=PERSON) == []
        assert await one.ledger.stops() == [], "it says of a published item that it is unknown"


@pytest.mark.parametrize("troubles", [1, 40, 2_000, 10**6])
async def test_trouble_that_lasts_does_not_end_the_worker(troubles: int, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(
        cast(Any, SimpleNamespace()), by=PERSON, flows=(), contexts=2, poll_s=2.0, recover_s=30, tell=lambda _: None
    )
    worker._troubles = troubles
    waited: list[float] = []

    async def wait(tasks: Any, *, timeout: float, return_when: str) -> None:
        waited.append(timeout)

    monkeypatch.setattr(asyncio, "wait", wait)
    await worker._something_happens(float("inf"))
    assert waited == [min(2.0 * 2 ** min(troubles, 30), LONGEST_PAUSE_S)]
