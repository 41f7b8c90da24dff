"""One candidate for the effect: the spooled request, and the connection of its own by which it may leave.

Implements `executor.gate.port`. Whether and when it leaves is the door's decision; here it is written at most once,
and only while the phase in which it was decided still holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from executor.gate.dialling import Site
from executor.gate.framing import Head, forwarded
from executor.gate.pool import Pool
from executor.gate.port import ConnectFailed, ConnectStage, WriteFailed
from executor.gate.spool import Spool
from executor.gate.stream import StreamLost
from executor.gate.upstream import AnswerHead, Upstream, UpstreamLost
from executor.gate.wire_log import WireLog
from flows.wire import Answer, OutgoingRequest

_log = logging.getLogger(__name__)


class EffectCandidate:
    """Made by the gate when a request was decided to be the effect. `still_holds` says whether the phase of that
    decision still holds; asked in the same step in which the first byte would be handed over."""

    def __init__(
        self,
        *,
        request: OutgoingRequest,
        head: Head,
        spool: Spool,
        sequence: int,
        pool: Pool,
        log: WireLog,
        answer_bytes: int,
        still_holds: Callable[[], bool],
    ) -> None:
        self._request = request
        self._sequence = sequence
        self._pool = pool
        self._connections: list[EffectConnection] = []
        self.head = head
        self.spool = spool
        self.log = log
        self.answer_bytes = answer_bytes
        self.still_holds = still_holds
        self.write_began = False

    @property
    def request(self) -> OutgoingRequest:
        return self._request

    @property
    def sequence(self) -> int:
        return self._sequence

    async def connect(self) -> EffectConnection:
        if self.write_began:
            raise ConnectFailed("this candidate was already written", stage=ConnectStage.CONNECT)
        request = self._request
        upstream = await self._pool.fresh(Site(request.scheme, request.host, request.port))
        connection = EffectConnection(self, upstream)
        self._connections.append(connection)
        return connection

    def close(self) -> None:
        """Close whatever the door left open."""
        for connection in self._connections:
            connection.close()
        self.spool.close()


class EffectConnection:
    def __init__(self, candidate: EffectCandidate, upstream: Upstream) -> None:
        self._candidate = candidate
        self._upstream = upstream
        self._wrote = False
        self._answered = False

    async def write(self) -> None:
        candidate, upstream, stream = self._candidate, self._upstream, self._upstream.stream
        spool = candidate.spool
        headers = forwarded(candidate.head, body_size=spool.size, effect=True)
        # All the waiting (the spool's disk) comes before the check; from the check to the first byte there is none.
        first, rest = b"", spool.pieces()
        try:
            first = await anext(rest, b"")
        except OSError as error:
            raise WriteFailed(f"the spooled body cannot be read: {error}", nothing_written=True) from error
        if candidate.write_began:
            raise WriteFailed("this candidate was already written", nothing_written=False)
        if not candidate.still_holds():
            raise WriteFailed("the gate's phase changed before the effect was written", nothing_written=True)
        if stream.is_closing:
            raise WriteFailed("the site closed the connection before the effect was written", nothing_written=True)
        if stream.has_input:
            raise WriteFailed("the site answered before the effect was written", nothing_written=True)
        message = upstream.begin_write(candidate.request.method, candidate.request.target, headers)
        if first:
            message += upstream.body(first)
        whole = len(first) == spool.size
        if whole:
            message += upstream.end()
        candidate.write_began = self._wrote = True
        candidate.log.leaving(candidate.sequence)
        stream.write(message)
        try:
            await upstream.sent()
            if not whole:
                async for piece in rest:
                    stream.write(upstream.body(piece))
                    await upstream.sent()
                stream.write(upstream.end())
                await upstream.sent()
        except (StreamLost, OSError) as error:
            raise WriteFailed(f"writing the effect failed: {error}", nothing_written=False) from error
        finally:
            candidate.log.left(candidate.sequence)

    async def read_answer(self, deadline_s: float) -> Answer | None:
        head: AnswerHead | None = None
        body = bytearray()
        complete = False
        try:
            async with asyncio.timeout(deadline_s):
                head = await self._upstream.head()
                complete = await self._read_body(body) and head.sound
            if complete:
                self._answered = True
                self._upstream.answered()
        except (UpstreamLost, TimeoutError) as error:
            self._candidate.log.note(self._candidate.sequence, f"answer: {str(error) or 'the deadline passed'}")
        if head is None:
            return None
        headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
        self._candidate.log.answered(self._candidate.sequence, head.status, complete=complete)
        return Answer(head.status, headers, bytes(body), complete)

    async def _read_body(self, body: bytearray) -> bool:
        """Whether the body came to its end within the limit; what came is in `body` either way."""
        while True:
            data, ended = self._upstream.ready()
            body += data
            if len(body) > self._candidate.answer_bytes:
                del body[self._candidate.answer_bytes :]
                self._candidate.log.note(self._candidate.sequence, "answer: larger than what is kept")
                return False
            if ended:
                return True
            await self._upstream.more()

    def close(self) -> None:
        """Without a whole answer, what the site has not taken is dropped: nothing leaves after this returns."""
        stream, candidate = self._upstream.stream, self._candidate
        if not self._wrote or self._answered:
            stream.close()
            return
        self._wrote = False
        late = stream.may_still_send
        stream.abort()
        if late:
            candidate.log.left(candidate.sequence)
