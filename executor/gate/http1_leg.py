"""The browser's side of one exchange over HTTP/1.1: the body as its framing has it, the answer re-framed.

One at a time on a connection; decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import h11

from executor.gate.answers import OwnAnswer
from executor.gate.browser_leg import BodyFault, BrowserGone
from executor.gate.framing import Head, answer_head
from executor.gate.limits import Limits
from executor.gate.stream import ByteStream
from executor.gate.upstream import AnswerHead


class Http1Leg:
    """Implements `executor.gate.browser_leg.BrowserLeg`."""

    def __init__(self, stream: ByteStream, head: Head, limits: Limits) -> None:
        self._stream = stream
        self._head = head
        self._limits = limits
        self._missing = head.content_length
        self._chunks: h11.Connection | None = None
        self._pending = b""
        self._chunked = False
        if head.chunked:
            # h11 undoes the chunks; its own reading of the head is that of `parse_head` by then.
            self._chunks = h11.Connection(h11.SERVER)
            self._chunks.receive_data(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n")
            self._chunks.next_event()
        self._asks_first = head.expects_continue and (head.chunked or head.content_length > 0)

    @property
    def on_gone(self) -> list[Callable[[], None]]:
        return self._stream.on_closed

    @property
    def is_gone(self) -> bool:
        return self._stream.is_closing

    @property
    def keeps_alive(self) -> bool:
        return self._head.keeps_alive

    async def piece(self) -> bytes:
        if self._asks_first:
            self._asks_first = False
            self._stream.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        if self._chunks is not None:
            return await self._chunk(self._chunks)
        if not self._missing:
            return b""
        data = await self._receive()
        if len(data) > self._missing:
            self._stream.unread(data[self._missing :])
            data = data[: self._missing]
        self._missing -= len(data)
        return data

    async def _chunk(self, reader: h11.Connection) -> bytes:
        try:
            while True:
                event = reader.next_event()
                if event is h11.NEED_DATA:
                    reader.receive_data(await self._receive())
                elif isinstance(event, h11.Data):
                    if event.data:
                        return bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self._stream.unread(reader.trailing_data[0])
                    self._chunks = None
                    return b""
        except h11.RemoteProtocolError as error:
            raise BodyFault("the body is not chunked as RFC 9112 has it") from error

    async def _receive(self) -> bytes:
        async with asyncio.timeout(self._limits.body_stall_s):
            data = await self._stream.read()
        if not data:
            raise BrowserGone("the browser closed the connection in the middle of a body")
        return data

    def answer(self, own: OwnAnswer, *, unread: bool = False) -> None:
        self._stream.write(own.over_http1(close=unread or not self.keeps_alive))

    def begin(self, head: AnswerHead) -> None:
        self._chunked = head.length is None and not head.bodiless
        self._pending = answer_head(head.status, head.reason, head.headers, length=head.length, bodiless=head.bodiless)

    def give(self, data: bytes, *, ended: bool) -> None:
        if self._chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"0\r\n\r\n" if ended else b"")
        if self._pending or data:
            self._stream.write(self._pending + data)
            self._pending = b""

    async def drain(self) -> None:
        await self._stream.drain()

    def bare(self) -> ByteStream:
        return self._stream

    def cut(self) -> None:
        self._stream.close()

    def abort(self) -> None:
        self._stream.abort()
