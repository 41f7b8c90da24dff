"""The worker's own loop: a defect, trouble, a halt that waits for a person. In this process, on a real ledger."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from child import IDLE, SUCCEEDED, shape_of
from desk import PERSON, Desk

from executor.errors import NotReady
from executor.service import Executor
from executor.settings import Settings
from executor.worker import Happening, Progress, Worker, longest_drain_s
from playground.process import Playground


def worker(executor: Executor, heard: list[Progress], *, contexts: int = 2) -> Worker:
    return Worker(
        executor,
        by=PERSON,
        flows=("playground-form",),
        contexts=contexts,
        poll_s=0.05,
        recover_s=60,
        tell=heard.append,
    )


def of(heard: list[Progress], what: Happening) -> list[str]:
    return [one.operation for one in heard if one.what is what]


async def test_a_halt_that_a_person_must_mend_waits_for_one(desk: Desk) -> None:
    heard: list[Progress] = []
    async with desk.executor() as executor:
        signed_in = await desk.approved(executor, title="By the editor")
        stranger = await desk.approved(executor, title="By a stranger", account="anna")
        await worker(executor, heard).work(once=True)
        assert await shape_of(executor, signed_in.id) == SUCCEEDED
        assert await shape_of(executor, stranger.id) == IDLE
        (wait,) = [one for one in heard if one.what is Happening.WAITS]
        assert (wait.operation, wait.until) == (stranger.id, "a person")
        (waiting,) = await executor.ledger.waiting()
        assert (waiting.operation, waiting.halt) == (stranger.id, "halt:sign_in_needed")

        assert (await worker(executor, heard).work(once=True)).runs == 0, "it is begun no second time"
        desk.sign_in("anna")
        await executor.resume(stranger.id, by=PERSON, why="signed in")
        assert (await worker(executor, heard).work(once=True)).exits == {0: 1}
        assert desk.playground.truth.publish_count("By a stranger") == 1
    assert not any("stranger" in str(one) for one in heard)


async def test_a_defect_in_one_run_ends_no_other_and_is_not_met_twice(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Progress] = []
    async with desk.executor() as executor:
        wanted = [await desk.approved(executor, title=f"Number {number}") for number in range(3)]

        async def run(operation: str, **_: Any) -> None:
            if operation == wanted[0].id:
                raise KeyError("something that nobody thought of")
            await executor.revoke(operation, by=PERSON, why="done")  # in place of a run: it is not due any more

        monkeypatch.setattr(executor, "run_if_free", run)
        tally = await worker(executor, heard).work(once=True)
        assert tally.defects == 1
        assert of(heard, Happening.STARTED) == [one.id for one in wanted], "each once, in the order of the approvals"
        assert of(heard, Happening.DEFECT) == [wanted[0].id]
        assert "nobody thought of" not in str(heard)


async def test_trouble_of_its_own_makes_a_worker_wait_and_ends_one_that_runs_once(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[Progress] = []
    enough, tries = asyncio.Event(), 0
    async with desk.executor() as executor:
        await desk.approved(executor)

        async def run(operation: str, **_: Any) -> None:
            nonlocal tries
            tries += 1
            if tries == 4:
                enough.set()
            raise NotReady("There is no browser.")

        monkeypatch.setattr(executor, "run_if_free", run)
        assert (await worker(executor, heard).work(once=True)).troubles == 1
        lasting = worker(executor, heard)
        working = asyncio.ensure_future(lasting.work())
        await enough.wait()
        lasting.drain()
        lasting.drain()
        assert (await working).troubles == 3
        assert len(of(heard, Happening.DRAINING)) == 1


async def test_a_run_is_not_begun_as_an_account_that_somebody_acts_as(desk: Desk, playground: Playground) -> None:
    async with desk.executor() as executor:
        operation = await desk.approved(executor)
        before = await executor.events(operation.id)
        lease = await executor.ledger.lease(operation.account_key, holder="another", ttl_s=60)
        draining = asyncio.Event()
        assert await executor.run_if_free(operation.id, by=PERSON, draining=draining) is None
        await executor.ledger.surrender(lease)
        draining.set()
        assert await executor.run_if_free(operation.id, by=PERSON, draining=draining) is None
        assert await executor.events(operation.id) == before, "it left a trace"
        await executor.ledger.surrender(await executor.ledger.lease(operation.account_key, holder="third", ttl_s=60))


def test_what_is_documented_as_the_longest_drain_holds(tmp_path: Path) -> None:
    assert longest_drain_s(Settings(home=tmp_path)) < 600, "docs/operating.md and its unit say ten minutes"
