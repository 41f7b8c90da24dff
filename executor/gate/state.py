"""The state of one gate: its phase and rules, what is in flight, what was carried, and the door's tasks.

Used on the event loop only. Every change of phase is synchronous; nothing here reads or writes a socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from executor.gate.candidate import EffectCandidate
from executor.gate.certificates import CertificateAuthority
from executor.gate.limits import Limits
from executor.gate.path_proof import PathProof
from executor.gate.pool import Pool
from executor.gate.port import EffectDoor, Hang, Refuse, Relay
from executor.gate.rules import (
    Decision,
    Kind,
    Phase,
    Reason,
    Rules,
    could_be_effect,
    counts_as_read,
    decide,
    destination,
    is_safe,
    refused_in_every_phase,
)
from executor.gate.websocket_relay import WebSocketRelay
from executor.gate.wire_log import WireLog
from flows.effect import Write
from flows.wire import Answer, OutgoingRequest

_log = logging.getLogger(__name__)

BeforeWrite = Callable[[OutgoingRequest, Write], Awaitable[None]]


@dataclass(frozen=True)
class Carried:
    """A supporting write that succeeded (2xx or 3xx, a whole answer) and may have carried content ahead of the
    effect. `sequence` is its number in the wire log, by which the list is ordered; `left_at` (its first byte) and
    `answered_at` are seconds of the monotonic clock, which tell whether the site may have applied two in either
    order."""

    sequence: int
    write: Write
    request: OutgoingRequest
    answer: Answer
    left_at: float = 0.0
    answered_at: float = 0.0

    @property
    def size(self) -> int:
        """Bytes in memory, about: of a large form the fields are held."""
        large = self.request.large
        fields = large.form.fields if large is not None and large.form is not None else ()
        return len(self.request.body) + sum(len(name) + len(value) for name, value in fields) + len(self.answer.body)


class InFlight:
    """One request between its head and the end of its answer, as far as others need to know it."""

    def __init__(self, request: OutgoingRequest) -> None:
        self.request = request
        self.arriving = True
        """Its body is still coming, or it is not decided yet."""
        self.writing = False
        """It is a write that passed."""
        self.saving = False
        """It is one that carries content."""
        self.cut: Callable[[], None] | None = None
        """Ends its answer, where that is a stream."""
        self.streams: Callable[[], bool] = bool
        self.was_cut = False


class GateState:
    def __init__(
        self,
        *,
        authority: CertificateAuthority,
        rules: Rules,
        phase: Phase,
        pool: Pool,
        door: EffectDoor | None,
        log: WireLog,
        before_write: BeforeWrite | None,
        limits: Limits,
    ) -> None:
        self.authority = authority
        self.rules = rules
        self.phase = phase
        self.pool = pool
        self.door = door
        self.log = log
        self.before_write = before_write
        self.limits = limits
        self.proof = PathProof()
        self.carried: list[Carried] = []
        self.carried_dropped = 0
        self.doubtful: dict[int, float | None] = {}
        """Writes with content that left and are not in `carried`, by sequence: when a whole answer came, None for those
        without one. The site may have applied any of them."""
        self.content_closed = False
        """A candidate has come in this phase: no write that carries content begins to leave any more."""
        self.generation = 0
        """Raised by every change of phase: a decision holds for its own generation only."""
        self.closing = False
        self.candidate_seen = asyncio.Event()
        self.released_hangs = asyncio.Event()
        self.in_flight: set[InFlight] = set()
        self.websockets: set[WebSocketRelay] = set()
        self.websockets_closed = False
        """No WebSocket is opened any more, declared or not, whatever phase comes."""
        self.doors: set[asyncio.Task[Relay | Refuse | Hang]] = set()
        self._documents: dict[str, OutgoingRequest] = {}
        self._reads = 0
        self._trailing_until = 0.0
        self._waiting: set[asyncio.Future[None]] = set()

    # Deciding

    def decide(self, request: OutgoingRequest) -> Decision:
        """The decision under the phase of this moment. Takes no await: what follows in the same step holds."""
        if self.closing:
            return Decision(Kind.REFUSED, Reason.PHASE_CLOSED)
        if PathProof.is_probe(request):
            return self._decide_probe(request)
        rules = replace(self.rules, websockets=()) if self.websockets_closed else self.rules
        return decide(self.phase, rules, request, reads_so_far=self._reads, trailing_open=self.trailing_open)

    def _decide_probe(self, request: OutgoingRequest) -> Decision:
        if self.phase is Phase.CLOSED:
            return Decision(Kind.REFUSED, Reason.PHASE_CLOSED)
        if reason := refused_in_every_phase(self.phase, self.rules, request):
            return Decision(Kind.REFUSED, reason)
        if not is_safe(request, self.rules.override_names) or self.proof.answer_to(request.url) is None:
            return Decision(Kind.REFUSED, Reason.PROBE_UNKNOWN)
        return Decision(Kind.PROBE)

    def holds(self, generation: int, decision: Decision) -> bool:
        """Whether a decision may still be acted on by handing over a first byte, in this very step."""
        return (
            generation == self.generation
            and not self.closing
            and (decision.kind is not Kind.TRAILING or self.trailing_open)
        )

    @property
    def trailing_open(self) -> bool:
        return asyncio.get_running_loop().time() < self._trailing_until

    def open_trailing(self, seconds: float) -> None:
        self._trailing_until = asyncio.get_running_loop().time() + seconds

    def passed_read(self, request: OutgoingRequest, *, declared: bool = False) -> None:
        """A safe request is about to be forwarded, or one that is declared as a read."""
        self.log.safe_reads[self.phase] += 1
        if declared or counts_as_read(request):
            self._reads += 1
        if destination(request) == "document":
            self._documents[request.origin] = request

    def last_document(self, origin: str) -> OutgoingRequest | None:
        return self._documents.get(origin)

    # Phases

    def enter(self, phase: Phase, rules: Rules | None, door: EffectDoor | None) -> None:
        self.generation += 1
        self.phase = phase
        if rules is not None:
            self.rules = rules
        if door is not None:
            self.door = door
        self._reads = 0
        self._trailing_until = 0.0
        self.content_closed = False
        if phase is Phase.ARMED:
            self.released_hangs.clear()
            self.candidate_seen.clear()
        for one in tuple(self.in_flight):
            if one.cut is not None and one.streams():
                one.was_cut = True
                one.cut()
        self.changed()

    async def close_websockets(self) -> None:
        """Open none any more, close those that are open, and wait until they are gone."""
        self.websockets_closed = True
        await asyncio.gather(*(one.close() for one in self.websockets))

    # What is in flight

    @property
    def candidates(self) -> int:
        arriving = 0
        if self.phase is Phase.ARMED:
            arriving = sum(1 for one in self.in_flight if one.arriving and could_be_effect(self.rules, one.request))
        return arriving + len(self.doors)

    @property
    def saves(self) -> int:
        """Writes with content that are under way."""
        return sum(1 for one in self.in_flight if one.saving)

    @property
    def is_quiet(self) -> bool:
        return not self.doors and not any(one.writing or one.arriving for one in self.in_flight)

    def changed(self) -> None:
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
        self._waiting.clear()

    async def until(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                while not condition():
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.add(waiter)
                    try:
                        await waiter
                    finally:
                        self._waiting.discard(waiter)
        except TimeoutError:
            return condition()
        return True

    def carry(self, carried: Carried) -> None:
        """Keep a supporting write for the release to read. Over the limit the oldest go, and are doubtful from then
        on: a missing one must not make material look approved."""
        self.doubtful.pop(carried.sequence, None)
        self.carried.append(carried)
        self.carried.sort(key=lambda one: one.sequence)
        while sum(one.size for one in self.carried) > self.limits.carried_total_bytes:
            dropped = self.carried.pop(0)
            self.carried_dropped += 1
            if dropped.write.material is not None:
                self.doubtful[dropped.sequence] = dropped.answered_at

    # The door

    def open_door(self, door: EffectDoor, candidate: EffectCandidate) -> asyncio.Task[Relay | Refuse | Hang]:
        """Start the door's work as a task of the gate's own, which no browser can cancel. Called in the step of the
        decision, so that candidates reach the door in the order in which they became whole."""
        task = asyncio.get_running_loop().create_task(self._through(door, candidate))
        self.doors.add(task)
        self.content_closed = True
        task.add_done_callback(self._door_done)
        self.candidate_seen.set()
        self.changed()
        return task

    async def _through(self, door: EffectDoor, candidate: EffectCandidate) -> Relay | Refuse | Hang:
        try:
            outcome = await door(candidate)
        except Exception as error:  # noqa: BLE001  whatever it raises, what left and what did not must be told apart
            _log.exception("the door failed on candidate %d", candidate.sequence)
            self.log.note(candidate.sequence, f"the door failed: {type(error).__name__}")
            outcome = Hang() if candidate.write_began else Refuse(Reason.DOOR_FAILED)
        finally:
            candidate.close()
        if isinstance(outcome, Refuse):
            self.log.refused(candidate.sequence, outcome.reason)
        return outcome

    def _door_done(self, task: asyncio.Task[Relay | Refuse | Hang]) -> None:
        self.doors.discard(task)
        self.changed()
