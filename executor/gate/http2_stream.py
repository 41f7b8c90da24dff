"""One stream of an HTTP/2 connection: what came and was not taken, what waits to be sent, and how it ends.

It lives from its head to the moment when both sides have ended it, or until it is *lost*: reset by one side, or gone
with its connection. Sends nothing by itself; the connection does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from executor.gate.stream import StreamLost

ENOUGH = 128 * 1024
"""Bytes of one stream that wait to be sent before whoever gives them has to wait."""

Fields = Sequence[tuple[bytes, bytes]]


class Connection(Protocol):
    """What a stream needs of its connection."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more should be handed over to be sent."""

    def pump(self, stream: Http2Stream) -> None:
        """Send what the windows let go of it."""

    def give_window(self, stream: Http2Stream, size: int) -> bool:
        """Let the other side send so much more; False while that is too little to say."""


class Http2Stream:
    """One request and its answer, on either side. `lost` says why nothing more comes or goes."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.number = number
        self.head: Fields | None = None
        """The head of the final answer, on the site's side."""
        self.heard = False
        """Whether anything came for it."""
        self.ended = False
        """The other side has ended its half."""
        self.lost: str | None = None
        self.unprocessed = False
        """The other side said that it did nothing with it (RFC 9113 sections 6.8 and 8.7)."""
        self.on_lost: list[Callable[[], None]] = []
        self.waiting = bytearray()
        """To be sent."""
        self.ending = False
        """Our half ends with what waits."""
        self.sent_end = False
        self._connection = connection
        self._came: deque[bytes] = deque()
        self._owed = 0
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None

    # What came

    def came(self, data: bytes, counted: int) -> None:
        """`counted` is what the piece takes of the window: its padding too."""
        self.heard = True
        if data:
            self._came.append(data)
        self._owed += counted
        self.wake_reader()

    def take(self) -> bytes:
        """The bytes that came since; empty when there are none. The other side may send as many more."""
        data = self._came.popleft() if len(self._came) == 1 else b"".join(self._came)
        self._came.clear()
        if self._owed and self._connection.give_window(self, self._owed):
            self._owed = 0
        return data

    async def more(self) -> None:
        """Wait until something came, the other half ended, or the stream is lost."""
        if not (self._came or self.ended or self.lost):
            await self.event()

    async def event(self) -> None:
        """Wait for the next thing that happens to the stream."""
        self._reader = asyncio.get_running_loop().create_future()
        try:
            await self._reader
        finally:
            self._reader = None

    def wake_reader(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # What goes

    def send(self, data: bytes, *, end: bool) -> None:
        """Let bytes wait for the window and the transport. Nothing happens on a stream that is lost."""
        if self.lost is None and not self.ending:
            self.waiting += data
            self.ending = end
            self._connection.pump(self)

    async def drained(self) -> None:
        """Wait until so much has gone that more may be given, or all has. Raises `StreamLost`."""
        while self.lost is None and not self.sent_end and (len(self.waiting) > ENOUGH or self._connection.is_full):
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self.lost is not None:
            raise StreamLost(self.lost)

    def wake_writer(self) -> None:
        if self._writer is not None and not self._writer.done():
            self._writer.set_result(None)

    def lose(self, why: str, *, unprocessed: bool = False) -> None:
        if self.lost is not None:
            return
        self.lost, self.unprocessed = why, unprocessed
        self.waiting.clear()
        self.wake_reader()
        self.wake_writer()
        for told in self.on_lost:
            told()
        self.on_lost = []
