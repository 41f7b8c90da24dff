"""The ledger beside an event loop: a cancelled caller cancels nothing, leaving drains."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from ledger_kit import EXECUTOR, FLOW, PROPOSER, Book, intent

from executor.ledger.ledger import Ledger, LedgerUnavailable, NoSuchOperation
from executor.ledger.sql import SqlLedger, open_ledger
from executor.ledger.thread import AsyncLedger, LedgerThread
from executor.model.admission import Refusal, Refused
from executor.model.operation import Attempt, Policy


@pytest.fixture
async def thread(url: str) -> AsyncIterator[LedgerThread]:
    made = LedgerThread(open_ledger(url))
    yield made
    await made.aclose()


def propose(ledger: AsyncLedger, task: str) -> asyncio.Task[Any]:
    return asyncio.create_task(ledger.propose(intent(task), flow=FLOW, policy=Policy.ABSOLUTE, by=PROPOSER))


async def cancelled_while_it_waits(task: asyncio.Task[Any]) -> None:
    await asyncio.sleep(0)  # let it ask
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_every_method_of_the_ledger_has_its_coroutine_with_the_same_signature() -> None:
    names = {name for name in vars(Ledger) if not name.startswith("_")} - {"close_connections"}
    for name in names:
        ours = getattr(AsyncLedger, name)
        assert inspect.iscoroutinefunction(ours), name
        assert inspect.signature(ours) == inspect.signature(getattr(Ledger, name)), name
        assert inspect.signature(getattr(SqlLedger, name)) == inspect.signature(getattr(Ledger, name)), name


async def test_calls_go_through_one_thread_in_order(thread: LedgerThread) -> None:
    ran: list[tuple[int, int]] = []

    def work(number: int) -> None:
        ran.append((number, threading.get_ident()))

    await asyncio.gather(*(thread.call(work, number) for number in range(50)))
    assert [number for number, _ in ran] == list(range(50))
    assert {ident for _, ident in ran} & {threading.get_ident()} == set()
    assert len({ident for _, ident in ran}) == 1


async def test_errors_come_back_to_the_caller(thread: LedgerThread) -> None:
    with pytest.raises(NoSuchOperation):
        await AsyncLedger(thread).operation("op_of_nobody")


async def test_a_cancelled_caller_cancels_neither_what_runs_nor_what_is_queued(thread: LedgerThread) -> None:
    ledger, hold, holding = AsyncLedger(thread), threading.Event(), threading.Event()

    def busy() -> str:
        holding.set()
        hold.wait()
        return "done"

    running = asyncio.create_task(thread.call(busy))
    await asyncio.to_thread(holding.wait)
    queued = propose(ledger, "queued")
    await cancelled_while_it_waits(queued)
    await cancelled_while_it_waits(running)
    hold.set()
    assert [operation.intent.task for operation in await ledger.operations()] == ["queued"]


async def test_an_error_without_a_caller_is_reported(thread: LedgerThread) -> None:
    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reported.append(context))
    hold = threading.Event()

    def fail() -> None:
        hold.wait()
        raise RuntimeError("lost")

    task = asyncio.create_task(thread.call(fail))
    await cancelled_while_it_waits(task)
    hold.set()
    await thread.call(int)
    del task
    gc.collect()
    assert [str(context["exception"]) for context in reported] == ["lost"]


async def test_closing_does_what_is_queued_and_takes_no_more(url: str) -> None:
    async with LedgerThread(open_ledger(url)) as ledger:
        tasks = [propose(ledger, f"t{number}") for number in range(20)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
    with pytest.raises(LedgerUnavailable):
        await ledger.now()
    await asyncio.gather(*tasks, return_exceptions=True)
    again = open_ledger(url)
    try:
        assert len(again.operations()) == 20
    finally:
        again.close_connections()


def test_leaving_the_program_waits_for_what_was_begun(tmp_path: Any) -> None:
    """No daemon: the interpreter ends only after the queue is empty, even when nobody closed the thread."""
    import subprocess
    import sys

    script = f"""
import asyncio, time
from executor.ledger.sql import open_ledger
from executor.ledger.thread import LedgerThread
ledger = open_ledger({str(tmp_path / "l.sqlite")!r})
async def main():
    task = asyncio.create_task(LedgerThread(ledger).call(lambda: (time.sleep(0.2), print("done", flush=True))))
    await asyncio.sleep(0)
    task.cancel()
asyncio.run(main())
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "done\n"


async def test_a_release_that_waited_too_long_for_its_turn_is_not_spent(thread: LedgerThread) -> None:
    """Behind a long queue, or behind another process: committed too late it would be unknown and nothing sent."""
    assert isinstance(thread.ledger, SqlLedger)
    operation, attempt = Book(thread.ledger).claimed()
    calls, held, free = AsyncLedger(thread), threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert free.wait(60)

    holding = asyncio.ensure_future(thread.call(hold))
    await asyncio.to_thread(held.wait, 60)
    limit = time.monotonic() + 0.05
    late = asyncio.ensure_future(calls.release(attempt.id, by=EXECUTOR, not_after=limit))
    await asyncio.sleep(0.1)
    assert time.monotonic() > limit
    free.set()
    await holding
    with pytest.raises(LedgerUnavailable, match="too late to write"):
        await late
    assert (await calls.operation(operation.id)).releases == 0
    assert isinstance(await calls.release(attempt.id, by=EXECUTOR, not_after=time.monotonic() + 60), Attempt)
    # A second one is refused for what it is, however late.
    again = await calls.release(attempt.id, by=EXECUTOR, not_after=time.monotonic() - 1)
    assert again == Refused(Refusal.ALREADY_RELEASED)
