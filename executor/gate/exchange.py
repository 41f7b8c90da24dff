"""One request and its answer: spool, decide, carry, relay.

Everything that waits comes before the decision or is followed by a check that the decision still holds; between that
check and the first byte there is no await. Nothing is sent a second time but a subresource GET (see `_read`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace

from executor.gate import websocket_handshake as handshake
from executor.gate.answers import probe_answer, refusal
from executor.gate.browser_leg import BodyFault, BrowserGone, BrowserLeg
from executor.gate.candidate import EffectCandidate
from executor.gate.dialling import Site
from executor.gate.framing import Head, forwarded
from executor.gate.port import ConnectFailed, ConnectStage, Hang, Refuse, Relay
from executor.gate.relay import RelayedAnswer, relay_whole
from executor.gate.rules import SUBRESOURCES, Decision, Kind, Phase, Reason, destination
from executor.gate.spool import Spool, SpoolFull
from executor.gate.state import Carried, GateState, InFlight
from executor.gate.stream import StreamLost
from executor.gate.upstream import Answering, UpstreamLost
from executor.gate.websocket_handshake import HandshakeFailed
from executor.gate.websocket_relay import WebSocketRelay
from flows.wire import Form, LargeBody, OutgoingRequest, UnreadableBody

_log = logging.getLogger(__name__)

_STREAMS = ("text/event-stream", "multipart/x-mixed-replace", "application/x-ndjson")


class _Superseded(Exception):
    """The decision no longer holds and no byte had left: decide again."""


class Exchange:
    """Carries one request. `run` gives back whether the browser's connection may carry another one."""

    def __init__(self, state: GateState, browser: BrowserLeg, head: Head, request: OutgoingRequest) -> None:
        self._state = state
        self._browser = browser
        self._head = head
        self._request = request
        self._limits = state.limits
        self._flight = InFlight(request)
        self._spool = Spool(memory_bytes=self._limits.spool_memory_bytes, total_bytes=self._limits.body_bytes)
        self._spool_is_ours = True
        self._sequence: int | None = None
        self._resent = False

    async def run(self) -> bool:
        self._state.in_flight.add(self._flight)
        self._state.changed()
        try:
            try:
                async with asyncio.timeout(self._limits.body_s):
                    await self._receive_body()
            except SpoolFull as error:
                return self._refuse_unread(Reason.BODY_UNREADABLE, str(error))
            except TimeoutError:
                return self._refuse_unread(Reason.BODY_UNREADABLE, "the body did not come to its end in time")
            except BodyFault as error:
                return self._refuse_unread(Reason.SMUGGLING, str(error))
            body = await self._spool.bytes_up_to(self._limits.readable_bytes)
            large = await self._large_body() if body is None else None
            self._request = replace(self._request, body=body or b"", body_known=body is not None, large=large)
            while True:
                try:
                    return await self._decided()
                except _Superseded:
                    continue
        finally:
            if self._spool_is_ours:
                self._spool.close()
            self._state.in_flight.discard(self._flight)
            self._state.changed()

    # The request's body

    async def _receive_body(self) -> None:
        if self._head.content_length > self._limits.body_bytes:
            raise SpoolFull(f"the body is larger than {self._limits.body_bytes} bytes")
        while piece := await self._browser.piece():
            await self._spool.write(piece)
        await self._spool.end()

    async def _large_body(self) -> LargeBody:
        """What the rules can know of a body that is too large to hold: a form is read from the spool, in pieces."""
        form: Form | None = None
        try:
            reader = self._request.multipart()
            async for piece in self._spool.pieces():
                await asyncio.to_thread(reader.feed, piece)
            form = reader.close()
        except UnreadableBody:
            pass  # then nothing is known of it but its size and digest, and what needs more refuses it
        return LargeBody(self._spool.size, self._spool.sha256, form)

    # The decision

    async def _decided(self) -> bool:
        state, request = self._state, self._request
        generation = state.generation
        decision = state.decide(request)
        self._flight.arriving = False
        self._flight.writing = decision.kind in (Kind.SUPPORTING, Kind.TRAILING, Kind.LOGIN, Kind.WATCHED)
        self._flight.saving = decision.passes and decision.write is not None and decision.write.material is not None
        self._record(decision)
        try:
            if decision.kind is Kind.EFFECT:
                return await self._through_door(generation)
            if decision.kind is Kind.PROBE:
                return self._answer_probe()
            if decision.kind is Kind.REFUSED:
                assert decision.reason is not None
                return self._answer_refused(decision.reason)
            if decision.kind is Kind.SAFE:
                return await self._read(generation, decision)
            if decision.kind is Kind.WEBSOCKET:
                return await self._websocket(generation, decision)
            return await self._write(generation, decision)
        except ConnectFailed as error:
            reason = Reason.TLS_FAILED if error.stage is ConnectStage.TLS else Reason.HOST_UNREACHABLE
            return self._answer_refused(reason, str(error))

    def _record(self, decision: Decision) -> None:
        state, request = self._state, self._request
        if self._sequence is not None:
            state.log.decided_again(self._sequence, state.phase, decision)
        elif decision.kind is not Kind.SAFE or destination(request) == "document" or state.phase is Phase.WATCH:
            self._sequence = state.log.record(
                state.phase,
                request,
                decision,
                body_size=self._spool.size,
                body_sha256=self._spool.sha256 if self._spool.size else "",
            )
        state.changed()

    # Answers of the gate's own

    def _answer_refused(self, reason: Reason, note: str = "") -> bool:
        own = refusal(reason, self._request)
        if self._sequence is None:
            self._sequence = self._state.log.record(
                self._state.phase, self._request, Decision(Kind.SAFE), note="was not logged while it passed"
            )
        self._state.log.refused(self._sequence, reason, note)
        self._state.log.answered(self._sequence, own.status, complete=True, by_gate=True)
        self._browser.answer(own)
        return self._browser.keeps_alive

    def _refuse_unread(self, reason: Reason, note: str) -> bool:
        """The body was not read to its end, so the connection cannot go on."""
        self._record(Decision(Kind.REFUSED, reason))
        assert self._sequence is not None
        self._state.log.note(self._sequence, note)
        own = refusal(reason, self._request)
        self._state.log.answered(self._sequence, own.status, complete=True, by_gate=True)
        self._browser.answer(own, unread=True)
        return False

    def _answer_probe(self) -> bool:
        text = self._state.proof.take(self._request)
        assert text is not None
        assert self._sequence is not None
        self._state.log.answered(self._sequence, 200, complete=True, by_gate=True)
        self._browser.answer(probe_answer(text, self._request))
        return self._browser.keeps_alive

    # The effect

    async def _through_door(self, generation: int) -> bool:
        state = self._state
        assert self._sequence is not None
        if state.door is None:
            return self._answer_refused(Reason.EFFECT_CLOSED, "the gate is armed without a door")
        candidate = EffectCandidate(
            request=self._request,
            head=self._head,
            spool=self._spool,
            sequence=self._sequence,
            pool=state.pool,
            log=state.log,
            answer_bytes=self._limits.answer_bytes,
            still_holds=lambda: state.generation == generation,
        )
        self._spool_is_ours = False
        outcome = await asyncio.shield(state.open_door(state.door, candidate))
        match outcome:
            case Relay(answer):
                relay_whole(self._browser, answer, self._request.method)
                await self._browser.drain()
                return self._browser.keeps_alive and answer.complete
            case Refuse(reason):
                return self._answer_refused(reason)
            case Hang():
                await self._hang()
                return False

    async def _hang(self) -> None:
        """Neither an answer nor an error until the gate lets go, or the browser does."""
        gone = asyncio.Event()
        self._browser.on_gone.append(gone.set)
        waits = [asyncio.ensure_future(event.wait()) for event in (self._state.released_hangs, gone)]
        try:
            if not self._browser.is_gone:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            self._browser.abort()

    # Everything else that passes

    async def _write(self, generation: int, decision: Decision) -> bool:
        """A declared write: a connection of its own, sent once, whatever becomes of it."""
        state, request, write = self._state, self._request, decision.write
        assert self._sequence is not None
        if self._flight.saving and state.content_closed:
            return self._answer_refused(Reason.CONTENT_CLOSED)
        upstream = await state.pool.fresh(self._site)
        sent = whole = False
        try:
            if write is not None and state.before_write is not None and state.phase in (Phase.ARMED, Phase.SHUT):
                if not state.holds(generation, decision):
                    raise _Superseded
                try:
                    async with asyncio.timeout(self._limits.before_write_s):
                        await state.before_write(request, write)
                except Exception as error:  # noqa: BLE001  whatever it raises, the write is not recorded: refuse
                    _log.warning("a supporting write was not recorded and is refused: %s", type(error).__name__)
                    return self._answer_refused(Reason.LEDGER_REFUSED, type(error).__name__)
            begun = upstream.begin_write(request.method, request.target, self._forwarded())
            pieces = self._spool.pieces()
            first = await anext(pieces, b"")
            if not state.holds(generation, decision):
                raise _Superseded
            if upstream.stream.has_input or upstream.stream.is_closing:
                # It would be read as the answer to what was not asked yet.
                return self._answer_refused(Reason.UPSTREAM_FAILED, "the site spoke or closed before the write")
            if self._flight.saving:
                if state.content_closed:
                    return self._answer_refused(Reason.CONTENT_CLOSED)
                state.doubtful[self._sequence] = None
            if decision.kind is Kind.READ:
                if state.decide(request).kind is not Kind.READ:
                    raise _Superseded  # others have used the budget while this one was connecting
                state.passed_read(request, declared=True)
            left_at = time.monotonic()
            state.log.leaving(self._sequence)
            sent = True
            upstream.stream.write(begun + upstream.body(first) if first else begun)
            async for piece in pieces:
                await upstream.sent()
                upstream.stream.write(upstream.body(piece))
            upstream.stream.write(upstream.end())
            await upstream.sent()
            state.log.left(self._sequence)
            keep = write is not None and (write.material is not None or write.item is not None)
            answer = await self._relay(upstream, follow=True, keep_bytes=self._limits.carried_bytes if keep else 0)
            if answer.complete:
                whole = True
                upstream.answered()
                if self._flight.saving:
                    state.doubtful[self._sequence] = time.monotonic()
        except (UpstreamLost, ConnectionError) as error:
            if isinstance(error, BrowserGone):
                raise
            return self._answer_refused(Reason.UPSTREAM_FAILED, str(error))
        finally:
            if whole or not sent:
                upstream.stream.close()
            else:
                # What the site has not taken by now never leaves.
                late = upstream.stream.may_still_send
                upstream.stream.abort()
                if late or state.log[self._sequence].left_until is None:
                    state.log.left(self._sequence)
        if keep and write is not None:
            self._carry(write_answer=answer, decision=decision, left_at=left_at)
        return answer.complete and self._browser.keeps_alive

    def _carry(self, *, write_answer: RelayedAnswer, decision: Decision, left_at: float) -> None:
        kept = write_answer.kept
        if (
            decision.write is None
            or self._sequence is None
            or kept is None
            or not kept.complete
            or not 200 <= kept.status < 400
            or not self._request.fully_read
        ):
            return
        self._state.carry(
            Carried(self._sequence, decision.write, self._request, kept, left_at, answered_at=time.monotonic())
        )

    async def _read(self, generation: int, decision: Decision) -> bool:
        """A safe request. Browsers re-send what dies on a reused connection; here only a subresource GET is, once."""
        state, request = self._state, self._request
        subresource = request.method == "GET" and destination(request) in SUBRESOURCES
        idle_s = self._limits.pool_idle_s if subresource else self._limits.pool_fetch_idle_s
        counted = False
        while True:
            site = await (
                state.pool.renewed(self._site) if self._resent else state.pool.for_read(self._site, max_idle_s=idle_s)
            )
            asked, clean = False, True
            try:
                await site.admitted()
                if not state.holds(generation, decision):
                    raise _Superseded
                if self._browser.is_gone:
                    raise BrowserGone("the browser gave the request up before it left")
                if not counted:
                    counted = True
                    state.passed_read(request)
                asked, clean = True, False
                site.ask(self._head, request)
                answer = await self._relay(site, follow=False, keep_bytes=0)
                clean = answer.complete
                return answer.complete and self._browser.keeps_alive
            except UpstreamLost as error:
                if self._browser.is_gone:
                    raise BrowserGone("the browser gave the request up") from error
                died_on_reuse = error.no_byte and (site.reused or error.unprocessed)
                # What had no stream yet when its connection ended was not sent, so that it is not sent again.
                may_repeat = (subresource and died_on_reuse) if asked else error.unprocessed
                if may_repeat and not (self._resent or self._flight.was_cut):
                    self._resent = True
                    continue
                return self._answer_refused(Reason.UPSTREAM_FAILED, str(error))
            finally:
                site.release(clean=clean)

    async def _websocket(self, generation: int, decision: Decision) -> bool:
        """A declared WebSocket: the handshake over a connection of its own, then messages until somebody ends it."""
        state, request, declared, page = self._state, self._request, decision.websocket, self._browser.bare()
        assert self._sequence is not None and declared is not None
        if page is None:
            return self._answer_refused(Reason.WEBSOCKET, "a WebSocket needs a connection of its own")
        if wrong := handshake.fault(request, declared):
            return self._answer_refused(Reason.WEBSOCKET, wrong)
        upstream = await state.pool.fresh(self._site)
        try:
            if not self._opens_still(generation, decision):
                raise _Superseded
            opened = await handshake.ask(upstream.stream, request, self._head, self._limits)
        except (HandshakeFailed, StreamLost, TimeoutError) as error:
            upstream.stream.abort()
            return self._answer_refused(Reason.UPSTREAM_FAILED, str(error) or "the site did not answer in time")
        except BaseException:
            upstream.stream.abort()
            raise
        if not self._opens_still(generation, decision):
            upstream.stream.abort()
            return self._answer_refused(Reason.WEBSOCKET, "the phase changed during the handshake")
        relay = WebSocketRelay(
            page=page,
            site=upstream.stream,
            declared=declared,
            log=state.log,
            sequence=self._sequence,
            limits=self._limits,
        )
        self._flight.cut, self._flight.streams = relay.cut, lambda: True
        state.websockets.add(relay)
        try:
            state.log.answered(self._sequence, 101, complete=True)
            page.write(opened.head)
            await relay.run(opened.rest)
        finally:
            state.websockets.discard(relay)
            self._flight.cut = None
        return False

    def _opens_still(self, generation: int, decision: Decision) -> bool:
        return self._state.holds(generation, decision) and not self._state.websockets_closed

    async def _relay(self, upstream: Answering, *, follow: bool, keep_bytes: int) -> RelayedAnswer:
        """The site's answer on to the browser. With `follow` it is read to its end even when the browser has gone.
        Raises `UpstreamLost` only while nothing was given to the browser."""
        started = time.monotonic()
        answer = RelayedAnswer(self._browser, upstream, self._limits, follow=follow, keep_bytes=keep_bytes)

        def gone() -> None:
            if not follow:
                upstream.abort()

        def streams() -> bool:
            old = time.monotonic() - started > self._limits.stream_after_s
            return not follow and (old or answer.content_type in _STREAMS)

        self._flight.cut, self._flight.streams = upstream.abort, streams
        answer.was_cut = lambda: self._flight.was_cut
        self._browser.on_gone.append(gone)
        try:
            await answer.run()
        finally:
            self._flight.cut = None
            if gone in self._browser.on_gone:
                self._browser.on_gone.remove(gone)
            if self._sequence is not None and answer.status is not None:
                self._state.log.answered(self._sequence, answer.status, complete=answer.complete)
        return answer

    @property
    def _site(self) -> Site:
        return Site(self._request.scheme, self._request.host, self._request.port)

    def _forwarded(self) -> list[tuple[bytes, bytes]]:
        return forwarded(self._head, body_size=self._spool.size, effect=False)
