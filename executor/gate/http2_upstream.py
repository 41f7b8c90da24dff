"""One connection to a site over HTTP/2, shared by the reads that go there. Writes never do (see `executor.gate.pool`).

Sends nothing twice; says of a request that got no answer whether the site did nothing with it.
"""

from __future__ import annotations

import asyncio
import time

from h2.errors import ErrorCodes

from executor.gate.dialling import Site
from executor.gate.framing import Head
from executor.gate.http2_heads import BadAnswer, read_answer, request_fields
from executor.gate.http2_stream import Http2Stream
from executor.gate.http2_wire import Http2Connection
from executor.gate.limits import Limits
from executor.gate.stream import ByteStream
from executor.gate.upstream import AnswerHead, UpstreamLost
from flows.wire import OutgoingRequest


class Http2Ask:
    """One read on the shared connection. Implements `executor.gate.upstream.Ask`."""

    def __init__(self, shared: Http2Upstream) -> None:
        self._shared = shared
        self._stream: Http2Stream | None = None
        self._asked_head = False
        self._missing: int | None = None
        self.reused = shared.served > 0

    async def admitted(self) -> None:
        try:
            taken = await self._shared.admits()
        except TimeoutError as error:
            raise UpstreamLost(f"{self._host}: the site takes no more requests", no_byte=True) from error
        if not taken:
            raise UpstreamLost(f"{self._host}: the connection ended before the request", no_byte=True, unprocessed=True)

    def ask(self, head: Head, request: OutgoingRequest) -> None:
        self._asked_head = request.method == "HEAD"
        self._stream = self._shared.open(head, request)

    async def head(self) -> AnswerHead:
        assert self._stream is not None
        while self._stream.head is None:
            if self._stream.lost is not None or self._stream.ended:
                raise self._lost(self._stream.lost or "the request was ended without an answer")
            await self._stream.event()
        try:
            found = read_answer(self._stream.head, asked_head=self._asked_head)
        except BadAnswer as error:
            raise self._lost(f"what came is not an answer of HTTP/2: {error}") from error
        self._shared.served += 1
        self._missing = 0 if found.bodiless else found.length
        return found

    def ready(self) -> tuple[bytes, bool]:
        stream = self._stream
        assert stream is not None
        # In this order: what comes together with the end belongs before it.
        data, ended, lost = stream.take(), stream.ended, stream.lost
        if self._missing is not None:
            self._missing -= len(data)
            if self._missing < 0 or (ended and self._missing):
                raise self._lost("the answer has another length than it says")
        if not data and not ended and lost is not None:
            raise self._lost(lost)
        return data, ended

    async def more(self) -> None:
        assert self._stream is not None
        await self._stream.more()

    def abort(self) -> None:
        if self._stream is not None:
            self._shared.give_up(self._stream)

    def release(self, *, clean: bool) -> None:
        """It is over. What is left of the answer is not wanted."""
        if self._stream is not None and not self._stream.ended:
            self._shared.give_up(self._stream)

    @property
    def _host(self) -> str:
        return self._shared.site.host

    def _lost(self, why: str) -> UpstreamLost:
        stream = self._stream
        assert stream is not None
        return UpstreamLost(f"{self._host}: {why}", no_byte=not stream.heard, unprocessed=stream.unprocessed)


class Http2Upstream:
    """The shared connection. `run` reads until it ends and must be running."""

    def __init__(self, carrier: ByteStream, site: Site, limits: Limits) -> None:
        self.site = site
        self.served = 0
        """Answers that came over it."""
        self._limits = limits
        self._connection = Http2Connection(carrier, limits)
        self._connection.on_change = self._changed
        self._quiet_since = time.monotonic()
        self._waiting: set[asyncio.Future[None]] = set()

    async def run(self) -> None:
        await self._connection.run()

    @property
    def usable(self) -> bool:
        """Whether another request may be tried on it."""
        return not self._connection.draining

    @property
    def quiet_s(self) -> float:
        """How long nothing has been under way; 0 while something is."""
        return 0.0 if self._connection.streams or not self.served else time.monotonic() - self._quiet_since

    async def is_there(self) -> bool:
        """Ask the site's end whether it still is. One round trip; an idle connection may be dead without a sign."""
        return await self._connection.answers_ping(self._limits.http2_ping_s)

    async def admits(self) -> bool:
        """Wait until another stream may begin; False when the connection takes none any more. Raises TimeoutError."""
        async with asyncio.timeout(self._limits.upstream_head_s):
            while self.usable and not self._connection.room:
                waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.add(waiter)
                try:
                    await waiter
                finally:
                    self._waiting.discard(waiter)
        return self.usable

    def open(self, head: Head, request: OutgoingRequest) -> Http2Stream:
        """Begin a stream, in the step in which `admits` came back."""
        return self._connection.open(request_fields(head, request))

    def give_up(self, stream: Http2Stream) -> None:
        self._connection.reset(stream, ErrorCodes.CANCEL, "the gate gave the request up")

    def close(self) -> None:
        self._connection.close()

    def _changed(self) -> None:
        connection = self._connection
        if not connection.streams:
            self._quiet_since = time.monotonic()
            if connection.draining and connection.lost is None:
                # In a turn of its own: this may be called from within the connection's reading.
                asyncio.get_running_loop().call_soon(connection.close)
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)
