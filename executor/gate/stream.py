"""A byte stream over one asyncio transport: read what came, write with back-pressure, know what happened.

asyncio's own streams hide whether anything had come when a connection died, and copy every byte twice. Nothing here
knows HTTP.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
import termios
from collections import deque
from collections.abc import Callable

_HIGH_WATER = 512 * 1024
"""Bytes buffered before the transport is told to stop reading."""
_TCP_INFO = struct.Struct("=68xI")
"""Of `struct tcp_info` (linux/tcp.h) as far as tcpi_rtt."""


class StreamLost(ConnectionError):
    """The other side, or the system, ended the connection with an error."""


class ByteStream(asyncio.Protocol):
    """One reader and one writer at a time. `received` counts bytes of the whole life of the connection."""

    def __init__(self) -> None:
        self.received = 0
        self.on_closed: list[Callable[[], None]] = []
        """Each is called once when the connection is gone, whoever ended it."""
        self.on_writable: Callable[[], None] | None = None
        """Called when `is_full` ends, for one who does not wait in `drain`."""
        self._transport: asyncio.Transport | None = None
        self._pieces: deque[bytes] = deque()
        self._buffered = 0
        self._ended = False
        self._lost = False
        self._error: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._writing_paused = False
        self._reading_paused = False

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += len(data)
        self._pieces.append(data)
        self._buffered += len(data)
        if self._buffered > _HIGH_WATER and not self._reading_paused and self._transport is not None:
            self._reading_paused = True
            self._transport.pause_reading()
        _wake(self._reader)

    def eof_received(self) -> bool | None:
        self._ended = True
        _wake(self._reader)
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended = True
        self._lost = True
        self._error = exc
        _wake(self._reader)
        _wake(self._writer)
        _wake(self._closed)
        for told in self.on_closed:
            told()
        self.on_closed = []

    def pause_writing(self) -> None:
        self._writing_paused = True

    def resume_writing(self) -> None:
        self._writing_paused = False
        _wake(self._writer)
        if self.on_writable is not None:
            self.on_writable()

    # For whoever holds the stream

    def adopt(self, transport: asyncio.Transport) -> None:
        """Go on over another transport: TLS was started on the connection."""
        self._transport = transport

    @property
    def transport(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport

    @property
    def is_closing(self) -> bool:
        return self._ended or self._transport is None or self._transport.is_closing()

    @property
    def is_full(self) -> bool:
        """Whether the transport holds so much that nothing more should be handed to it."""
        return self._writing_paused and not self._lost

    @property
    def round_trip_s(self) -> float | None:
        """What the system's TCP measured, in the handshake if nothing else was sent; None where the system does not
        say (Linux does). A busy event loop does not lengthen it, as it would a time taken here."""
        if not sys.platform.startswith("linux") or self._lost:
            return None
        told = self.transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO.size)
        microseconds: int = _TCP_INFO.unpack(told)[0]
        return microseconds / 1_000_000

    @property
    def has_input(self) -> bool:
        """Whether bytes wait that nobody has read: on an idle connection, a sign that it must not be used."""
        return bool(self._pieces)

    def end_unsent(self, end: bool) -> None:
        """What closing the connection, or the end of the process, does with bytes that the other side has not
        acknowledged: with `end` the system drops them, where by default it goes on sending them for minutes."""
        if not self._lost:
            linger = struct.pack("ii", 1 if end else 0, 0)
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    @property
    def may_still_send(self) -> bool:
        """Whether bytes that were handed over have not been acknowledged by the other side's system: then they may
        have left at any moment until now. True also once the connection is gone, and where the system cannot say."""
        if self._lost or self.transport.get_write_buffer_size():
            return True
        try:
            descriptor = self.transport.get_extra_info("socket").fileno()
            waiting: int = struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))[0]
        except OSError:
            return True
        return waiting > 0

    async def read(self) -> bytes:
        """The bytes that came since, at least one; empty at the end. Raises `StreamLost`."""
        while not self._pieces:
            if self._ended:
                if self._error is not None:
                    raise StreamLost(str(self._error) or type(self._error).__name__) from self._error
                return b""
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        data = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._buffered = 0
        if self._reading_paused and not self._lost:
            self._reading_paused = False
            self.transport.resume_reading()
        return data

    def unread(self, data: bytes) -> None:
        """Put bytes back in front: they were read, and belong to what comes next."""
        if data:
            self._pieces.appendleft(data)
            self._buffered += len(data)

    def write(self, data: bytes) -> None:
        """Hand bytes to the transport; dropped, as asyncio does, once the connection is gone."""
        if not self._lost:
            self.transport.write(data)

    async def drain(self) -> None:
        """Wait until the transport takes more. Raises `StreamLost` when the connection is gone."""
        while self._writing_paused and not self._lost:
            self._writer = asyncio.get_running_loop().create_future()
            try:
                await self._writer
            finally:
                self._writer = None
        if self._lost:
            raise StreamLost(str(self._error or "the connection is closed")) from self._error

    def close(self) -> None:
        """Send what is buffered, then close."""
        if self._transport is not None and not self._lost:
            self._transport.close()

    def abort(self) -> None:
        """Close at once, dropping what is buffered."""
        if self._transport is not None and not self._lost:
            self._transport.abort()

    async def wait_closed(self, timeout_s: float) -> None:
        """Until the connection is gone; aborted when that takes longer than `timeout_s`."""
        if self._transport is None:
            return
        await asyncio.wait([self._closed], timeout=timeout_s)
        if not self._closed.done():
            self.abort()
            await asyncio.wait([self._closed], timeout=timeout_s)


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
