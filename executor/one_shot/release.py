"""The critical section: whether the one effect request leaves, and letting it (step 11 and the wire part of step 12).

This is the only module that calls `Ledger.release`. Its order is the product's promise:

1. The budget is taken synchronously, before any await. A refusal does not give it back.
2. What the request carries is compared with what was approved; a difference refuses, nothing has left.
3. A fresh connection is made and its TLS finished. A dead host is known here, before anything is committed.
4. `released` is committed by one conditional update (attempt live, token current, approval and deadline valid, no
   stop). When the result of the commit is not known, nothing is written.
5. The request is written, once, within a short limit by the monotonic clock, counted from before the commit. A release
   that had to wait so long for its turn in the ledger is not committed.
6. The answer is read here, whatever becomes of the browser.

From 3 to the end of 5 nothing can cancel it: it runs as its own task, and `settled` waits for it. What race remains:
a process that is paused between its last look at the clock and the first system call of the write may write late; the
limit bounds only what it can see.

It may not read pages, judge outcomes, or try anything twice.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from executor.gate.port import Candidate, ConnectFailed, Connection, Hang, Refuse, Relay, WriteFailed
from executor.gate.rules import Reason as GateReason
from executor.ledger.ledger import CommitUncertain, LedgerError
from executor.ledger.thread import AsyncLedger
from executor.model.admission import Refusal, Refused
from executor.model.operation import Actor
from executor.model.reasons import NotSent, Unsure
from executor.model.transitions import IllegalTransition
from executor.model.verdict import Reading
from flows.effect import Meaning
from flows.wire import Answer, OutgoingRequest


@dataclass(frozen=True)
class Mismatch:
    """What the request carries is not what was approved. `fields` are names only, never values."""

    reason: NotSent
    fields: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What one release is bound to. `ready` waits, within a bound, until what `check` reads is complete; `check`
    compares the request (None: it is as approved), `describe` gives the record of it that goes into the ledger, `read`
    is the contract's reading. Times in seconds."""

    attempt: str
    actor: Actor
    ready: Callable[[], Awaitable[None]]
    check: Callable[[OutgoingRequest], Mismatch | None]
    describe: Callable[[OutgoingRequest], Mapping[str, Any]]
    read: Callable[[OutgoingRequest, Answer], Meaning]
    connect_s: float
    write_within_s: float
    answer_s: float


@dataclass
class Account:
    """What happened at the door so far. Written by `Release` alone."""

    request: OutgoingRequest | None = None
    not_sent: NotSent | None = None
    unsure: Unsure | None = None
    detail: str = ""
    released_at: datetime | None = None
    written_monotonic: float | None = None
    """When the last moment at which the effect could have left is known to have passed."""
    answer: Answer | None = None
    reading: Reading | None = None


class Release:
    """The gate's door for one attempt. Called for every candidate; lets at most one through, ever."""

    def __init__(self, ledger: AsyncLedger, terms: Terms, report: Callable[[str], None]) -> None:
        self._ledger = ledger
        self._terms = terms
        self._report = report
        self._budget = 1
        self._section: asyncio.Task[Relay | Refuse | Hang] | None = None
        self.account = Account()
        self.taken = asyncio.Event()
        """Set when the budget has been taken by a candidate."""

    async def __call__(self, candidate: Candidate) -> Relay | Refuse | Hang:
        # 1. Between this test and the assignment there is no await, so no other candidate and no disarming.
        if self._budget < 1:
            return Refuse(GateReason.BUDGET_SPENT)
        self._budget = 0
        self.account.request = candidate.request
        self._section = asyncio.ensure_future(self._let_out(candidate))
        self.taken.set()
        return await asyncio.shield(self._section)

    def disarm(self) -> bool:
        """Close the door for good. True when nothing had taken the budget: then nothing has left and nothing will.
        False: a candidate is inside; wait for `settled`."""
        if self._budget < 1:
            return self._section is None
        self._budget = 0
        return True

    async def settled(self) -> None:
        """Wait until the section that took the budget has ended. Bounded by the terms' limits. A cancelled caller
        leaves the section running."""
        if self._section is not None:
            await asyncio.wait([self._section])

    async def _let_out(self, candidate: Candidate) -> Relay | Refuse | Hang:
        try:
            return await self._critical(candidate)
        except Exception as error:  # a defect here must end closed, and must be seen in the record
            if self.account.released_at is None and self.account.unsure is None:
                self.account.not_sent = self.account.not_sent or NotSent.DEFECT
            else:
                self.account.unsure = self.account.unsure or Unsure.WRITE_FAILED
            self.account.detail = type(error).__name__  # its text may hold payload (A11)
            raise

    async def _critical(self, candidate: Candidate) -> Relay | Refuse | Hang:
        terms, request = self._terms, candidate.request
        self._report("spooled")

        # 2. Compare.
        await terms.ready()
        if mismatch := terms.check(request):
            return self._refuse(
                mismatch.reason,
                _DIFFERS.get(mismatch.reason, GateReason.MATERIAL_DIFFERS),
                ", ".join(mismatch.fields),
            )
        self._report("compared")

        # 3. Connect.
        try:
            connection = await asyncio.wait_for(candidate.connect(), terms.connect_s)
        except ConnectFailed as error:
            return self._refuse(NotSent.HOST_UNREACHABLE, GateReason.HOST_UNREACHABLE, str(error))
        except TimeoutError:
            detail = f"no connection within {terms.connect_s:g} s"
            return self._refuse(NotSent.HOST_UNREACHABLE, GateReason.HOST_UNREACHABLE, detail)
        try:
            self._report("connected")
            return await self._commit_and_write(request, connection)
        finally:
            connection.close()

    async def _commit_and_write(self, request: OutgoingRequest, connection: Connection) -> Relay | Refuse | Hang:
        terms, account = self._terms, self.account

        # 4. Commit `released`.
        started = time.monotonic()
        try:
            committed = await self._ledger.release(
                terms.attempt,
                by=terms.actor,
                data=terms.describe(request),
                not_after=started + terms.write_within_s,
            )
        except CommitUncertain as error:
            account.unsure = Unsure.COMMIT_UNCERTAIN
            account.detail = str(error)
            return Refuse(GateReason.LEDGER_REFUSED)
        except LedgerError as error:
            return self._refuse(NotSent.LEDGER_FAILED, GateReason.LEDGER_REFUSED, str(error))
        if isinstance(committed, Refused):
            return self._refuse(
                _NOT_SENT.get(committed.reason, NotSent.LEDGER_REFUSED), GateReason.LEDGER_REFUSED, committed.sentence
            )
        account.released_at = committed.released_at
        self._report("released")

        # 5. Write. From here to the first byte there is no await.
        if time.monotonic() - started > terms.write_within_s:
            account.unsure = Unsure.TOO_LATE_TO_WRITE
            account.written_monotonic = time.monotonic()
            return Hang()
        try:
            await connection.write()
        except WriteFailed as error:
            account.written_monotonic = time.monotonic()
            account.detail = str(error)
            if error.nothing_written:
                return await self._nothing_written(str(error))
            account.unsure = Unsure.WRITE_FAILED
            return Hang()
        account.written_monotonic = time.monotonic()
        self._report("done")

        # 6. Read the answer.
        answer = await connection.read_answer(terms.answer_s)
        account.answer = answer
        if answer is None:
            account.unsure = Unsure.NO_ANSWER
            return Hang()
        if not answer.complete:
            account.unsure = Unsure.ANSWER_CUT
            return Hang()
        await self._record_answer(request, answer)
        return Relay(answer)

    async def _record_answer(self, request: OutgoingRequest, answer: Answer) -> None:
        account, terms = self.account, self._terms
        try:
            meaning = terms.read(request, answer)
            account.reading = Reading(says=meaning.says, clause=meaning.clause, item=meaning.item, url=meaning.url)
        except Exception as error:  # noqa: BLE001  a contract is a flow author's code: whatever it raises, nothing was read
            account.unsure = Unsure.CONTRACT_FAILED
            account.detail = f"{type(error).__name__} while reading the answer"
        data = {"status": answer.status, "complete": answer.complete, "reading": _as_data(account.reading)}
        try:
            await self._ledger.answered(terms.attempt, by=terms.actor, data=data)
        except LedgerError as error:
            # The record then says `possible`, which is less than is known and never more.
            account.detail = f"the answer could not be recorded: {error}"
        self._report("answered")

    async def _nothing_written(self, why: str) -> Refuse | Hang:
        try:
            await self._ledger.nothing_written(self._terms.attempt, by=self._terms.actor, why=why)
        except IllegalTransition as error:
            # Not one byte of the effect request left, but another write that could cause the effect did.
            self.account.unsure = Unsure.OTHER_WRITE_LEFT
            self.account.detail = f"{why}; {error}"
            return Hang()
        except LedgerError as error:
            self.account.unsure = Unsure.WRITE_FAILED
            self.account.detail = f"{why}; {error}"
            return Hang()
        return self._refuse(NotSent.NOTHING_WRITTEN, GateReason.UPSTREAM_FAILED, why)

    def _refuse(self, reason: NotSent, said: GateReason, detail: str) -> Refuse:
        self.account.not_sent = reason
        self.account.detail = detail
        return Refuse(said)


def _as_data(reading: Reading | None) -> Mapping[str, Any] | None:
    if reading is None:
        return None
    return {"says": reading.says.value, "clause": reading.clause, "item": reading.item, "url": reading.url}


_DIFFERS: Mapping[NotSent, GateReason] = {
    NotSent.SESSION_DIFFERS: GateReason.SESSION_DIFFERS,
    NotSent.KEY_DIFFERS: GateReason.KEY_DIFFERS,
}

_NOT_SENT: Mapping[Refusal, NotSent] = {
    Refusal.KEY_NOT_SAFE: NotSent.KEY_ENDED,
    Refusal.STOPPED: NotSent.STOPPED,
    Refusal.APPROVAL_REVOKED: NotSent.APPROVAL_ENDED,
    Refusal.APPROVAL_EXPIRED: NotSent.APPROVAL_ENDED,
    Refusal.NOT_AUTHORIZED: NotSent.APPROVAL_ENDED,
    Refusal.DEADLINE_PASSED: NotSent.DEADLINE_PASSED,
    Refusal.LEASE_LOST: NotSent.LEASE_LOST,
}
