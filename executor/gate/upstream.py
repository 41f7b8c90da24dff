"""Asking a site: what an answer is on its way, and one request and its answer over a connection of HTTP/1.1.

Knows nothing of phases or rules. Never sends anything twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import h11

from executor.gate.dialling import Site
from executor.gate.framing import Head, forwarded
from executor.gate.limits import Limits
from executor.gate.stream import ByteStream, StreamLost
from flows.wire import OutgoingRequest


class UpstreamLost(ConnectionError):
    """The connection ended, or what came is not HTTP. `no_byte` is true when not one byte of an answer had come,
    `unprocessed` when the site said that it did nothing with the request."""

    def __init__(self, message: str, *, no_byte: bool, unprocessed: bool = False) -> None:
        super().__init__(message)
        self.no_byte = no_byte
        self.unprocessed = unprocessed


@dataclass(frozen=True)
class AnswerHead:
    """Status, reason phrase and headers (names in lower case) of a final answer. `length` is the announced length of
    the body; None where it is chunked or ends with the connection. `sound` is false when the framing is ambiguous or
    the end of the body is the end of the connection, which a cut answer has too."""

    status: int
    reason: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    length: int | None
    bodiless: bool
    sound: bool

    def header(self, name: bytes) -> bytes:
        return b", ".join(value for key, value in self.headers if key == name)


class Answering(Protocol):
    """An answer on its way."""

    async def head(self) -> AnswerHead:
        """The head of the final answer, 1xx skipped. Raises `UpstreamLost`. Waits without a deadline of its own."""

    def ready(self) -> tuple[bytes, bool]:
        """The part of the body that is here already, and whether it is the end. Raises `UpstreamLost`."""

    async def more(self) -> None:
        """Wait for bytes of the body. Raises `UpstreamLost`."""

    def abort(self) -> None:
        """Let nothing more come: the answer is lost from here on."""


class Ask(Answering, Protocol):
    """One read, over whichever version the site speaks."""

    @property
    def reused(self) -> bool:
        """Whether others were answered on the same connection before, so that its death says nothing of this one."""

    async def admitted(self) -> None:
        """Wait until the site takes another request. Raises `UpstreamLost`."""

    def ask(self, head: Head, request: OutgoingRequest) -> None:
        """Send it, in the step in which `admitted` came back."""

    def release(self, *, clean: bool) -> None:
        """It is over; `clean` when the answer came whole, or nothing was asked."""


class Upstream:
    """One connection with h11's client side on it, one request at a time. Implements `Answering`."""

    def __init__(self, stream: ByteStream, site: Site, limits: Limits) -> None:
        self.stream = stream
        self.site = site
        self.idle_since = 0.0
        self.used = False
        self._limits = limits
        self._h11 = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_bytes)
        self._received_before = 0
        self._asked_head = False

    def begin_write(self, method: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """`begin`, for a request that may change something: whatever ends the connection before `answered` is told,
        nothing of the request leaves afterwards."""
        self.stream.end_unsent(True)
        return self.begin(method, target, headers)

    def answered(self) -> None:
        """A whole answer came: the connection may end politely."""
        self.stream.end_unsent(False)

    async def sent(self) -> None:
        """Wait until the site has taken so much that more may follow. Raises `StreamLost`, for a site that takes
        nothing in the limits' time too."""
        try:
            async with asyncio.timeout(self._limits.upstream_write_stall_s):
                await self.stream.drain()
        except TimeoutError as error:
            raise StreamLost("the site took nothing of the request for too long") from error

    def begin(self, method: str, target: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
        """The bytes of the request's head; nothing is written."""
        if self.used:
            self._h11.start_next_cycle()
        self.used = True
        self._asked_head = method == "HEAD"
        self._received_before = self.stream.received
        return self._h11.send(h11.Request(method=method, target=target, headers=list(headers))) or b""

    def body(self, data: bytes) -> bytes:
        return self._h11.send(h11.Data(data=data)) or b""

    def end(self) -> bytes:
        return self._h11.send(h11.EndOfMessage()) or b""

    def abort(self) -> None:
        self.stream.abort()

    async def head(self) -> AnswerHead:
        while True:
            event = self._next_event()
            if event is h11.NEED_DATA:
                await self._receive()
            elif isinstance(event, h11.Response):
                return self._answer_head(event)
            elif not isinstance(event, h11.InformationalResponse):
                raise self._lost("the connection was closed without an answer")

    def ready(self) -> tuple[bytes, bool]:
        pieces: list[bytes] = []
        while True:
            event = self._next_event()
            if isinstance(event, h11.Data):
                pieces.append(bytes(event.data))
            elif event is h11.NEED_DATA:
                return b"".join(pieces), False
            elif isinstance(event, h11.EndOfMessage):
                return b"".join(pieces), True
            else:
                raise self._lost("the answer was cut")

    async def more(self) -> None:
        await self._receive()

    @property
    def reusable(self) -> bool:
        return (
            self._h11.our_state is h11.DONE
            and self._h11.their_state is h11.DONE
            and not self._h11.trailing_data[0]
            and not self.stream.has_input
            and not self.stream.is_closing
        )

    def _next_event(self) -> object:
        try:
            return self._h11.next_event()
        except h11.RemoteProtocolError as error:
            # Not in h11's own words: they hold the line, and that may be a cookie or the page (A11).
            raise self._lost("what came is not an answer of HTTP/1.1") from error

    async def _receive(self) -> None:
        try:
            self._h11.receive_data(await self.stream.read())
        except StreamLost as error:
            raise self._lost(str(error)) from error

    def _lost(self, message: str) -> UpstreamLost:
        return UpstreamLost(f"{self.site.host}: {message}", no_byte=self.stream.received == self._received_before)

    def _answer_head(self, event: h11.Response) -> AnswerHead:
        headers = tuple((bytes(name), bytes(value)) for name, value in event.headers)
        lengths = {value for name, value in headers if name == b"content-length"}
        chunked = any(name == b"transfer-encoding" for name, _ in headers)
        # h11 has no public word for this: it answers a HEAD, a 204 and a 304 with an empty body whatever they say.
        bodiless = event.status_code in (204, 304) or self._asked_head
        length = int(next(iter(lengths))) if len(lengths) == 1 and not chunked else None
        sound = bodiless or length is not None or (chunked and not lengths)
        return AnswerHead(event.status_code, bytes(event.reason), headers, length, bodiless, sound)


class Http1Ask:
    """One read over a connection of HTTP/1.1. Implements `Ask`; `give_back` gets the connection when it is clean."""

    def __init__(self, upstream: Upstream, give_back: Callable[[Upstream], None]) -> None:
        self.reused = upstream.used
        self.on_release: Callable[[], None] | None = None
        """Called once, when it is over."""
        self._upstream = upstream
        self._give_back = give_back

    async def admitted(self) -> None:
        """It is the only one here."""

    def ask(self, head: Head, request: OutgoingRequest) -> None:
        upstream = self._upstream
        begun = upstream.begin(request.method, request.target, forwarded(head, body_size=0, effect=False))
        upstream.stream.write(begun + upstream.end())

    async def head(self) -> AnswerHead:
        return await self._upstream.head()

    def ready(self) -> tuple[bytes, bool]:
        return self._upstream.ready()

    async def more(self) -> None:
        await self._upstream.more()

    def abort(self) -> None:
        self._upstream.abort()

    def release(self, *, clean: bool) -> None:
        if clean:
            self._give_back(self._upstream)
        else:
            self._upstream.stream.close()
        if self.on_release is not None:
            self.on_release()
            self.on_release = None
