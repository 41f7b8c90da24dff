"""The browser's side over HTTP/2: a connection of many requests, each an exchange of its own.

What cannot be read strictly is answered or ends the connection, and is in the wire log either way; nothing of it goes
on. What one request does, hanging included, is no business of the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from h2.errors import ErrorCodes

from executor.gate.answers import OwnAnswer, refusal
from executor.gate.browser_leg import BodyFault, BrowserGone, BrowserLeg
from executor.gate.framing import Authority, BadHead, Head
from executor.gate.http2_heads import answer_fields, read_request
from executor.gate.http2_stream import Fields, Http2Stream
from executor.gate.http2_wire import Http2Connection
from executor.gate.limits import Limits
from executor.gate.rules import Reason
from executor.gate.state import GateState
from executor.gate.stream import ByteStream
from executor.gate.upstream import AnswerHead
from flows.wire import OutgoingRequest

_log = logging.getLogger(__name__)

Carry = Callable[[BrowserLeg, Head, OutgoingRequest], Awaitable[object]]
"""Takes one request through decision and answer."""


class Http2Leg:
    """Implements `executor.gate.browser_leg.BrowserLeg` over one stream."""

    keeps_alive = True

    def __init__(self, connection: Http2Connection, stream: Http2Stream, head: Head | None, limits: Limits) -> None:
        self._connection = connection
        self._stream = stream
        self._limits = limits
        self._missing = head.content_length if head is not None and head.values("content-length") else None
        self._asks_first = head is not None and head.expects_continue
        self._pending: Fields | None = None

    @property
    def on_gone(self) -> list[Callable[[], None]]:
        return self._stream.on_lost

    @property
    def is_gone(self) -> bool:
        return self._stream.lost is not None

    async def piece(self) -> bytes:
        stream = self._stream
        if self._asks_first:
            self._asks_first = False
            if not stream.ended:
                self._connection.head(stream, [(b":status", b"100")], end=False)
        data = stream.take()
        while not data:
            if stream.lost is not None:
                raise BrowserGone("the browser gave the request up in the middle of its body")
            if stream.ended:
                if self._missing:
                    raise BodyFault("the body is shorter than Content-Length says")
                return b""
            async with asyncio.timeout(self._limits.body_stall_s):
                await stream.more()
            data = stream.take()
        if self._missing is not None:
            self._missing -= len(data)
            if self._missing < 0:
                raise BodyFault("the body is longer than Content-Length says")
        return data

    def answer(self, own: OwnAnswer, *, unread: bool = False) -> None:
        fields = answer_fields(own.status, own.headers, length=own.length)
        fields.append((b"x-interlock", own.word))
        self._connection.head(self._stream, fields, end=not own.body)
        self._stream.send(own.body, end=True)
        if unread and self._stream.sent_end:
            # The answer is whole, and the rest of the body is not wanted (RFC 9113 section 8.1).
            self._connection.reset(self._stream, ErrorCodes.NO_ERROR, "refused")

    def begin(self, head: AnswerHead) -> None:
        self._pending = answer_fields(head.status, head.headers, length=head.length)

    def give(self, data: bytes, *, ended: bool) -> None:
        if self._pending is not None:
            self._connection.head(self._stream, self._pending, end=ended and not data)
            self._pending = None
        if data or ended:
            self._stream.send(data, end=ended)

    async def drain(self) -> None:
        if not self._stream.sent_end:
            await self._stream.drained()

    def bare(self) -> None:
        return None

    def cut(self) -> None:
        self._connection.reset(self._stream, ErrorCodes.INTERNAL_ERROR, "the answer was cut")

    def abort(self) -> None:
        self._connection.reset(self._stream, ErrorCodes.CANCEL, "ended without an answer")


async def serve_http2(state: GateState, carrier: ByteStream, tunnel: Authority, carry: Carry) -> None:
    """Serve a connection of the browser's to its end, and what it began to its own. Raises nothing but cancellation."""
    serving = _Serving(state, carrier, tunnel, carry)
    try:
        await serving.run()
    finally:
        await serving.end()


class _Serving:
    def __init__(self, state: GateState, carrier: ByteStream, tunnel: Authority, carry: Carry) -> None:
        self._state = state
        self._tunnel = tunnel
        self._carry = carry
        self._exchanges: set[asyncio.Task[None]] = set()
        self._connection = Http2Connection(carrier, state.limits, on_request=self._begin)

    async def run(self) -> None:
        connection = self._connection
        await connection.run()
        if connection.broke_rules:
            note = f"the connection was ended: {connection.lost}"
            self._state.log.record_refused_head(self._state.phase, "", self._tunnel.shown, Reason.SMUGGLING, note)
        if self._exchanges:
            await asyncio.wait(self._exchanges)

    async def end(self) -> None:
        for exchange in self._exchanges:
            exchange.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    def _begin(self, stream: Http2Stream, fields: Fields) -> None:
        state, connection = self._state, self._connection
        if len(self._exchanges) >= state.limits.http2_streams:
            # Those that the browser has given up count until they have ended: nothing was done for this one.
            connection.reset(stream, ErrorCodes.REFUSED_STREAM, "too many requests at once")
            return
        try:
            head, request = read_request(fields, self._tunnel)
        except BadHead as bad:
            sequence = state.log.record_refused_head(
                state.phase, bad.method, self._tunnel.shown + bad.target, bad.reason, str(bad)
            )
            own = refusal(bad.reason, None)
            state.log.answered(sequence, own.status, complete=True, by_gate=True)
            Http2Leg(connection, stream, None, state.limits).answer(own, unread=True)
            return
        leg = Http2Leg(connection, stream, head, state.limits)
        exchange = asyncio.get_running_loop().create_task(self._exchange(leg, stream, head, request))
        self._exchanges.add(exchange)
        exchange.add_done_callback(self._exchanges.discard)

    async def _exchange(self, leg: Http2Leg, stream: Http2Stream, head: Head, request: OutgoingRequest) -> None:
        try:
            await self._carry(leg, head, request)
        except OSError as error:
            _log.debug("a request of the browser's ended: %s", error)
        except Exception:  # noqa: BLE001  one request's defect must not end the others, and is logged
            _log.exception("carrying a request failed")
        finally:
            if not stream.ending:
                leg.abort()
