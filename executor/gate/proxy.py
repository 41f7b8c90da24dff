"""The gate: the one place through which every byte of a browser context leaves.

One per context, on a port of its own, ended with it. It classifies by `rules`, carries, and hands what matches the
effect to the door; it has no opinion on whether the effect may leave.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Self

from executor.gate.certificates import CertificateAuthority
from executor.gate.connection import serve
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.listening import Listener
from executor.gate.pool import Pool
from executor.gate.port import EffectDoor
from executor.gate.rules import Phase, Rules, session_digest_of
from executor.gate.state import BeforeWrite, Carried, GateState
from executor.gate.wire_log import WireLog

_log = logging.getLogger(__name__)


class Gate:
    """A proxy for one browser context.

    `door` decides on the effect in phase *armed*. `before_write` is awaited before any byte of a supporting or
    trailing write leaves in the phases *armed* and *shut*; when it raises, the write is refused. All methods are for
    the event loop on which the gate was started.
    """

    def __init__(
        self,
        *,
        authority: CertificateAuthority,
        rules: Rules,
        phase: Phase,
        routes: Routes,
        door: EffectDoor | None,
        log: WireLog,
        before_write: BeforeWrite | None,
        limits: Limits,
    ) -> None:
        self._state = GateState(
            authority=authority,
            rules=rules,
            phase=phase,
            pool=Pool(routes, limits),
            door=door,
            log=log,
            before_write=before_write,
            limits=limits,
        )
        self._listener = Listener(
            lambda connection: serve(self._state, connection), connections=limits.connections, ports=limits.ports
        )

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._listener.start()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Take nothing new, wait for what the door began (never cancelled before `door_grace_s`), end the rest."""
        state = self._state
        if state.closing:
            return
        state.closing = True
        self._listener.stop()
        if state.doors and not await state.until(lambda: not state.doors, state.limits.door_grace_s):
            _log.error("the door did not end within %s s and is cancelled", state.limits.door_grace_s)
            for task in state.doors:
                task.cancel()
            await asyncio.gather(*state.doors, return_exceptions=True)
        state.enter(Phase.CLOSED, None, None)
        state.released_hangs.set()
        await self._listener.close()
        await state.pool.close()

    @property
    def address(self) -> str:
        """For the context's proxy setting: `http://127.0.0.1:PORT`."""
        return self._listener.address

    @property
    def phase(self) -> Phase:
        return self._state.phase

    @property
    def rules(self) -> Rules:
        return self._state.rules

    @property
    def log(self) -> WireLog:
        return self._state.log

    def enter(self, phase: Phase, *, rules: Rules | None = None, door: EffectDoor | None = None) -> None:
        """Change the phase, now. `rules` and `door` stay as they are when None. Streams of the earlier phase are cut,
        answers to writes that left may end, and whatever had not left is decided again; an effect that the door holds
        and has not written fails as proven unwritten. The budget of reads and the trailing window start anew."""
        self._state.enter(phase, rules, door)

    async def close_websockets(self) -> None:
        """Close the WebSockets that are open, politely, and open none any more, whatever phase comes. When this
        returns, nothing leaves over any of them; a page that wants to connect again is refused and recorded."""
        await self._state.close_websockets()

    # The effect

    @property
    def candidates(self) -> int:
        """Candidates for the effect in flight: with the door, or still arriving with a head that could be one."""
        return self._state.candidates

    @property
    def candidate_seen(self) -> asyncio.Event:
        """Set when a request was decided to be the effect; cleared on entering phase *armed*."""
        return self._state.candidate_seen

    async def quiet(self, timeout_s: float) -> bool:
        """Wait until no candidate, no write and no undecided request is in flight. Reads do not count: some never
        end. False when the time passed first."""
        return await self._state.until(lambda: self._state.is_quiet, timeout_s)

    async def without_candidates(self, timeout_s: float) -> bool:
        """Wait until no candidate is in flight; False when the time passed first."""
        return await self._state.until(lambda: self._state.candidates == 0, timeout_s)

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until `condition`, a function of this gate's own properties, holds; it is asked at every change of
        what is in flight. False when the time passed first."""
        return await self._state.until(condition, timeout_s)

    def let_go(self) -> None:
        """End the requests that hang, and those that would, until the phase *armed* is entered again."""
        self._state.released_hangs.set()

    def open_trailing(self, seconds: float) -> None:
        """Let trailing writes pass for so long, counted from now, while the phase is *shut*."""
        self._state.open_trailing(seconds)

    @property
    def carried(self) -> tuple[Carried, ...]:
        """Successful supporting writes that declare `material` or `item`, in the order in which they were made."""
        return tuple(self._state.carried)

    @property
    def doubtful(self) -> tuple[float | None, ...]:
        """Writes with content that left, and that the site may or may not have applied: one entry each, the monotonic
        time of a whole answer that was not a success (or was not kept), None where no whole answer came."""
        return tuple(self._state.doubtful.values())

    @property
    def saves(self) -> int:
        """Writes with content that are under way: let through, and not answered yet."""
        return self._state.saves

    @property
    def carried_dropped(self) -> int:
        """How many of them were dropped for want of memory, the oldest first."""
        return self._state.carried_dropped

    # The session and the path

    def session_digest(self, origin: str, patterns: Iterable[str]) -> str | None:
        """Digest of the session cookies on the last document request to `origin` that passed (see
        `rules.session_digest_of`); None when there was none, or no cookie matches."""
        document = self._state.last_document(origin)
        return None if document is None else session_digest_of(document, patterns)

    def expect_probe(self, origin: str) -> str:
        """A one-time address on `origin` for the page to fetch; the gate answers it and nothing reaches the site."""
        return self._state.proof.expect(origin)

    def probe_answer(self, url: str) -> str | None:
        """The text that the page must get at such an address; None once it was fetched."""
        return self._state.proof.answer_to(url)

    def proved(self, origin: str) -> bool:
        """Whether a probe on `origin` came through this gate."""
        return self._state.proof.proved(origin)
