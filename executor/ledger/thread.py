"""The ledger beside an event loop: one thread that all calls of a process go through, in the order in which they came.

A cancelled caller never cancels a call: what was asked for runs to its end and is committed or not, as if nobody had
looked away. Whoever is cancelled around a commit reads the record again before acting on it. Nothing of the ledger runs
on the event loop itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from executor.ledger.ledger import (
    Due,
    Judgement,
    Ledger,
    LedgerIdentity,
    LedgerUnavailable,
    Proposed,
    Verification,
    Waiting,
)
from executor.model.admission import Refused, Snapshot
from executor.model.operation import (
    Actor,
    Approval,
    Attempt,
    Disposition,
    EventRecord,
    FlowBinding,
    Intent,
    Lease,
    Operation,
    Policy,
    Stop,
)
from flows.effect import ClientKey

P = ParamSpec("P")
T = TypeVar("T")


class LedgerThread:
    """One thread with a queue. It is no daemon: leaving the program waits for what was begun."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="ledger")
        self._closed = False

    async def call(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `work` on the thread after everything that was asked for before. Raises what it raises, and
        `LedgerUnavailable` after `aclose`. When the caller is cancelled the work goes on; an error that then finds no
        caller is reported by the event loop."""
        if self._closed:
            raise LedgerUnavailable("the ledger's thread has ended; nothing was done.")
        begun = asyncio.wrap_future(self._thread.submit(partial(work, *args, **kwargs)))
        return await asyncio.shield(begun)  # cancelling the future would take queued work out of the queue

    async def aclose(self) -> None:
        """Do what is queued, then close the ledger's connections and end the thread. May be called twice."""
        if self._closed:
            return
        self._closed = True
        last = asyncio.wrap_future(self._thread.submit(self.ledger.close_connections))
        try:
            await asyncio.shield(last)
        finally:
            self._thread.shutdown(wait=last.done())  # never block the loop behind a queue

    async def __aenter__(self) -> AsyncLedger:
        return AsyncLedger(self)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


class AsyncLedger:
    """`executor.ledger.ledger.Ledger` for coroutines: the same methods, each run on the ledger's thread."""

    def __init__(self, thread: LedgerThread) -> None:
        self._thread = thread
        self._ledger = thread.ledger

    # -- operations ---------------------------------------------------------------------------------------------------
    async def propose(
        self, intent: Intent, *, flow: FlowBinding, policy: Policy, by: Actor, provider_key: str | None = None
    ) -> Proposed:
        return await self._thread.call(
            self._ledger.propose, intent, flow=flow, policy=policy, by=by, provider_key=provider_key
        )

    async def operation(self, operation: str) -> Operation:
        return await self._thread.call(self._ledger.operation, operation)

    async def operations(self, *, unresolved_only: bool = False, limit: int = 200) -> Sequence[Operation]:
        return await self._thread.call(self._ledger.operations, unresolved_only=unresolved_only, limit=limit)

    async def events(self, operation: str) -> Sequence[EventRecord]:
        return await self._thread.call(self._ledger.events, operation)

    async def note(
        self,
        operation: str,
        *,
        kind: str,
        by: Actor,
        why: str,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Operation:
        return await self._thread.call(
            self._ledger.note, operation, kind=kind, by=by, why=why, data=data, evidence=evidence
        )

    async def dispose(
        self, operation: str, disposition: Disposition, *, by: Actor, why: str, version: int
    ) -> Operation:
        return await self._thread.call(self._ledger.dispose, operation, disposition, by=by, why=why, version=version)

    # -- permission ---------------------------------------------------------------------------------------------------
    async def approve(
        self,
        operation: str,
        *,
        by: Actor,
        flow: FlowBinding,
        fingerprint: str,
        valid_for_s: float,
        attempts: int = 1,
        meant: bool = False,
        key: ClientKey | None = None,
        why: str = "",
    ) -> Approval:
        return await self._thread.call(
            self._ledger.approve,
            operation,
            by=by,
            flow=flow,
            fingerprint=fingerprint,
            valid_for_s=valid_for_s,
            attempts=attempts,
            meant=meant,
            key=key,
            why=why,
        )

    async def revoke(self, operation: str, *, by: Actor, why: str) -> Operation:
        return await self._thread.call(self._ledger.revoke, operation, by=by, why=why)

    # -- order and stops ----------------------------------------------------------------------------------------------
    async def lease(self, account_key: str, *, holder: str, ttl_s: float) -> Lease:
        return await self._thread.call(self._ledger.lease, account_key, holder=holder, ttl_s=ttl_s)

    async def renew(self, lease: Lease, *, ttl_s: float) -> Lease:
        return await self._thread.call(self._ledger.renew, lease, ttl_s=ttl_s)

    async def surrender(self, lease: Lease) -> None:
        await self._thread.call(self._ledger.surrender, lease)

    async def stop(
        self, *, by: Actor, why: str, flow: str | None = None, account_key: str | None = None, once: bool = False
    ) -> Stop:
        return await self._thread.call(self._ledger.stop, by=by, why=why, flow=flow, account_key=account_key, once=once)

    async def lift(self, stop: str, *, by: Actor, why: str) -> Stop:
        return await self._thread.call(self._ledger.lift, stop, by=by, why=why)

    async def stops(self, *, in_force_only: bool = True) -> Sequence[Stop]:
        return await self._thread.call(self._ledger.stops, in_force_only=in_force_only)

    # -- what may run -------------------------------------------------------------------------------------------------
    async def due(self, flows: Collection[FlowBinding], *, limit: int, without: Collection[str] = ()) -> Sequence[Due]:
        return await self._thread.call(self._ledger.due, flows, limit=limit, without=without)

    async def wait(self, operation: str, *, by: Actor, halt: str, seconds: float | None, why: str) -> Operation:
        return await self._thread.call(self._ledger.wait, operation, by=by, halt=halt, seconds=seconds, why=why)

    async def resume(self, operation: str, *, by: Actor, why: str) -> Operation:
        return await self._thread.call(self._ledger.resume, operation, by=by, why=why)

    async def halts(self, task: str) -> int:
        return await self._thread.call(self._ledger.halts, task)

    async def waiting(self) -> Sequence[Waiting]:
        return await self._thread.call(self._ledger.waiting)

    # -- one attempt --------------------------------------------------------------------------------------------------
    async def admission(self, operation: str, flow: FlowBinding, *, key: ClientKey | None = None) -> Snapshot:
        return await self._thread.call(self._ledger.admission, operation, flow, key=key)

    async def claim(
        self,
        operation: str,
        *,
        attempt: str,
        lease: Lease,
        flow: FlowBinding,
        by: Actor,
        key: ClientKey | None = None,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Attempt | Refused:
        return await self._thread.call(
            self._ledger.claim,
            operation,
            attempt=attempt,
            lease=lease,
            flow=flow,
            by=by,
            key=key,
            data=data,
            evidence=evidence,
        )

    async def gesture(self, attempt: str, *, by: Actor) -> Attempt:
        return await self._thread.call(self._ledger.gesture, attempt, by=by)

    async def expose(self, attempt: str, *, by: Actor, write: str, url: str) -> Attempt:
        return await self._thread.call(self._ledger.expose, attempt, by=by, write=write, url=url)

    async def release(
        self, attempt: str, *, by: Actor, data: Mapping[str, Any] | None = None, not_after: float | None = None
    ) -> Attempt | Refused:
        return await self._thread.call(self._ledger.release, attempt, by=by, data=data, not_after=not_after)

    async def nothing_written(self, attempt: str, *, by: Actor, why: str) -> Attempt:
        return await self._thread.call(self._ledger.nothing_written, attempt, by=by, why=why)

    async def answered(
        self, attempt: str, *, by: Actor, data: Mapping[str, Any], evidence: Sequence[str] = ()
    ) -> Attempt:
        return await self._thread.call(self._ledger.answered, attempt, by=by, data=data, evidence=evidence)

    async def close(
        self,
        attempt: str,
        *,
        by: Actor,
        reason: str,
        why: str,
        judgement: Judgement | None = None,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Operation:
        return await self._thread.call(
            self._ledger.close,
            attempt,
            by=by,
            reason=reason,
            why=why,
            judgement=judgement,
            data=data,
            evidence=evidence,
        )

    async def judge(self, operation: str, judgement: Judgement, *, by: Actor) -> Operation:
        return await self._thread.call(self._ledger.judge, operation, judgement, by=by)

    # -- recovery -----------------------------------------------------------------------------------------------------
    async def open_attempts(self, *, expired_only: bool = True) -> Sequence[Attempt]:
        return await self._thread.call(self._ledger.open_attempts, expired_only=expired_only)

    async def settle(self, attempt: str, *, by: Actor, why: str, judgement: Judgement | None = None) -> Operation:
        return await self._thread.call(self._ledger.settle, attempt, by=by, why=why, judgement=judgement)

    # -- the ledger itself --------------------------------------------------------------------------------------------
    async def identity(self) -> LedgerIdentity:
        return await self._thread.call(self._ledger.identity)

    async def verify_all(self) -> Verification:
        return await self._thread.call(self._ledger.verify_all)

    async def accept_as_it_is(self, *, by: Actor, why: str) -> None:
        await self._thread.call(self._ledger.accept_as_it_is, by=by, why=why)

    async def now(self) -> datetime:
        return await self._thread.call(self._ledger.now)
