"""`Worker`: runs what is authorized and due, several at once, one account at a time, until it is told to drain.

It decides nothing that the ledger decides: what is due, who acts as an account, whether a run may claim. Several
workers on one ledger know nothing of each other. A run goes through the same code as `interlock run`; nothing here
repeats a submit, and a run that halted is not begun again before the time that its record names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from executor.browser.finding import BrowserMissing
from executor.errors import Exit, InterlockError
from executor.ledger.ledger import LedgerError
from executor.model.ending import code
from executor.model.operation import Actor, Operation
from executor.model.waiting import WAITS
from executor.one_shot.last_step import ITSELF, Ended
from executor.service import Executor
from executor.settings import Settings

_log = logging.getLogger(__name__)

LONGEST_PAUSE_S = 60.0
"""After trouble of the worker's own (no browser, no ledger) the pause doubles up to this."""
_DOUBLES = 32
"""No pause doubles more often. Trouble may last for days, and a number that grew with it would be none in the end."""
_LOOKS_S = 2.0
"""Per view and round, beside the view's own deadline: opening a context and closing it."""


class Happening(StrEnum):
    """What a worker tells about itself."""

    READY = "ready"
    STARTED = "started"
    ENDED = "ended"
    WAITS = "waits"
    RECOVERED = "recovered"
    TROUBLE = "trouble"
    DEFECT = "defect"
    DRAINING = "draining"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """One line of a worker's progress. Nothing of a payload is in it (A11)."""

    what: Happening
    operation: str = ""
    flow: str = ""
    account: str = ""
    """The account with its site."""
    outcome: str = ""
    """Of an ended run: the outcome in the record."""
    exit: int | None = None
    reason: str = ""
    """The coded reason of a run that did not simply succeed."""
    until: str = ""
    """Of a wait: the time, or `a person`."""
    seconds: float | None = None
    """Of an ended run: how long it took."""
    detail: str = ""


@dataclass
class Tally:
    """What a worker has done, by exit code of the runs, and how many tasks of it failed."""

    runs: int = 0
    exits: dict[int, int] = field(default_factory=dict)
    defects: int = 0
    troubles: int = 0
    recovered: int = 0


class Worker:
    """Create it inside an open `Executor`, call `work`, and `drain` to end it. For one event loop, used once.

    `flows` are names as in the record; all of them must be loadable (`Executor.due` raises `BadInput`).
    """

    def __init__(
        self,
        executor: Executor,
        *,
        by: Actor,
        flows: Sequence[str],
        contexts: int,
        poll_s: float,
        recover_s: float,
        tell: Callable[[Progress], None],
    ) -> None:
        self.tally = Tally()
        self.draining = asyncio.Event()
        self._executor, self._by, self._flows = executor, by, tuple(flows)
        self._contexts, self._poll_s, self._recover_s = contexts, poll_s, recover_s
        self._tell = tell
        self._running: dict[asyncio.Task[None], str] = {}
        self._given_up: set[str] = set()
        """Operations whose run ended in a defect here: whatever it was, this worker does not meet it twice."""
        self._troubles = 0

    def drain(self) -> None:
        """Begin nothing more; runs that have claimed go through, the others halt. May be called again, and by a signal
        handler of the event loop."""
        if not self.draining.is_set():
            self.draining.set()
            self._say(Progress(what=Happening.DRAINING, detail=f"runs under way: {len(self._running)}"))

    async def work(self, *, once: bool = False) -> Tally:
        """Run what is due until `drain`; with `once` until nothing is due and nothing runs here. Returns after the last
        run has written its receipt."""
        self._say(Progress(what=Happening.READY, detail=f"{self._contexts} at once; flows: {', '.join(self._flows)}"))
        self._recovered(self._executor.recovered)
        recovering = time.monotonic() + self._recover_s
        try:
            while not self.draining.is_set():
                if time.monotonic() >= recovering:
                    await self._recover()
                    recovering = time.monotonic() + self._recover_s
                if once and self._troubles and not self._running:
                    break
                alone = not self._running  # before it is asked: accounts that are busy here are left out of the answer
                begun = await self._begin_what_is_due()
                if once and begun == 0 and alone:
                    break
                await self._something_happens(recovering)
        finally:
            while self._running:
                await asyncio.wait(self._running)
        self._say(Progress(what=Happening.DONE, detail=f"runs: {self.tally.runs}"))
        return self.tally

    async def _begin_what_is_due(self) -> int | None:
        """How many runs were begun; None where the ledger could not be asked."""
        free = self._contexts - len(self._running)
        if free <= 0:
            return 0
        busy = {*self._running.values(), *self._given_up}
        try:
            found = await self._executor.due(self._flows, limit=free, without=busy)
        except LedgerError as error:
            self._trouble(str(error))
            return None
        if self.draining.is_set():
            return 0
        for one in found:
            task = asyncio.ensure_future(self._run(one.operation))
            self._running[task] = one.operation.account_key
            task.add_done_callback(self._running.pop)
        return len(found)

    async def _something_happens(self, recovering: float) -> None:
        """Until a run ends, the worker is drained, or it is time to ask again. After trouble it is asked later."""
        doubled = self._poll_s * 2 ** min(self._troubles, _DOUBLES)
        pause = min(doubled, max(LONGEST_PAUSE_S, self._poll_s))
        patience = min(pause, max(0.0, recovering - time.monotonic()))
        drained = asyncio.ensure_future(self.draining.wait())
        try:
            waits_for = {drained} if self._troubles else {drained, *self._running}
            await asyncio.wait(waits_for, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()

    async def _run(self, operation: Operation) -> None:
        """One run to its receipt. Whatever goes wrong in it is its own: the other runs go on."""
        begun = time.monotonic()
        self._of(Happening.STARTED, operation)
        try:
            ended = await self._executor.run_if_free(operation.id, by=self._by, draining=self.draining)
        except (LedgerError, InterlockError, BrowserMissing) as error:
            self._of(Happening.TROUBLE, operation, detail=str(error))
            self._troubles += 1
            self.tally.troubles += 1
            return
        except Exception as error:  # noqa: BLE001  a defect ends one run, and not the others that are under way
            # Where, and no words: they may hold what was to be published (A11).
            place = "".join(traceback.format_tb(error.__traceback__))
            _log.error("the run of %s ended in a defect: %s\n%s", operation.id, type(error).__name__, place)
            self.tally.defects += 1
            self._given_up.add(operation.id)
            self._of(
                Happening.DEFECT,
                operation,
                detail=f"{type(error).__name__}; this worker does not begin it again. Look at the record.",
            )
            return
        self._troubles = 0
        if ended is None:
            self._of(Happening.ENDED, operation, detail="nothing was done: another run was faster, or it waits")
            return
        self.tally.runs += 1
        self.tally.exits[int(ended.exit)] = self.tally.exits.get(int(ended.exit), 0) + 1
        await self._ended(ended, time.monotonic() - begun)

    async def _ended(self, ended: Ended, seconds: float) -> None:
        reason = ended.ending.coded_reason() if ended.ending is not None else None
        self._of(
            Happening.ENDED,
            ended.operation,
            outcome=ended.operation.state.outcome.value,
            exit=int(ended.exit),
            reason=code(reason) if reason is not None else "",
            seconds=round(seconds, 1),
            detail=ended.receipt_problem,
        )
        if ended.exit in (Exit.SUCCEEDED, Exit.ACCEPTED):
            return
        with contextlib.suppress(LedgerError):  # only to be shown; the record has it
            events = await self._executor.ledger.events(ended.operation.id)
            if (last := next((one for one in reversed(events) if one.kind == WAITS), None)) is not None:
                until = last.data.get("until") or "a person"
                self._of(Happening.WAITS, ended.operation, until=str(until), detail=last.why)

    async def _recover(self) -> None:
        try:
            recovered = await self._executor.recover(by=ITSELF)
        except (LedgerError, InterlockError) as error:
            self._trouble(str(error))
            return
        self._recovered(recovered)

    def _recovered(self, operations: Sequence[Operation]) -> None:
        for operation in operations:
            self.tally.recovered += 1
            self._of(Happening.RECOVERED, operation, outcome=operation.state.outcome.value)

    def _trouble(self, said: str) -> None:
        self._troubles += 1
        self.tally.troubles += 1
        self._say(Progress(what=Happening.TROUBLE, detail=said))

    def _of(self, what: Happening, operation: Operation, **more: object) -> None:
        site, _, account = operation.account_key.partition("|")
        self._say(
            Progress(
                what=what,
                operation=operation.id,
                flow=operation.flow.name,
                account=f"{account} at {site}",
                **more,  # type: ignore[arg-type]  # fields of Progress
            )
        )

    def _say(self, progress: Progress) -> None:
        """The listener is the caller's, and often a terminal that may be gone: what it raises goes no further."""
        try:
            self._tell(progress)
        except Exception as error:  # noqa: BLE001  named above
            _log.warning("the listener failed at %s: %s", progress.what.value, type(error).__name__)


def longest_drain_s(settings: Settings) -> float:
    """The longest that a run past its claim may take by its own deadlines under these settings, where a flow has one
    view and names no longer times in its contract: what a service manager should wait before it kills."""
    window = settings.effect_window_s or 10.0
    answer = settings.answer_s or 60.0
    looks = sum(settings.verify_delays_s) + len(settings.verify_delays_s) * (
        settings.look_s + settings.evidence_s + _LOOKS_S
    )
    return (
        2 * settings.gesture_s
        + window
        + settings.body_s
        + settings.connect_s
        + settings.write_within_s
        + answer
        + 2 * settings.evidence_s
        + looks
    )
