"""A loopback listener that runs one task per connection and ends them all when it is closed."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence

_log = logging.getLogger(__name__)

_FULL = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Listener:
    """`serve` gets an accepted, non-blocking socket and closes it. At most `connections` are served at once. It listens
    at the first of `ports` that is free; 0 is any."""

    def __init__(
        self,
        serve: Callable[[socket.socket], Awaitable[None]],
        *,
        connections: int,
        ports: Sequence[int] = (0,),
    ) -> None:
        self._serve = serve
        self._ports = ports
        self._free = asyncio.Semaphore(connections)
        self._socket: socket.socket | None = None
        self._accepting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    @property
    def address(self) -> str:
        """Raises RuntimeError before `start`."""
        if not self._port:
            raise RuntimeError("the listener was not started")
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Raises OSError; with `errno.EADDRINUSE` when none of the ports is free."""
        if self._socket is not None or self._port:
            raise RuntimeError("a listener is started once")
        listening = self._listen()
        self._socket = listening
        self._port = listening.getsockname()[1]
        self._accepting = asyncio.get_running_loop().create_task(self._accept(listening))

    def _listen(self) -> socket.socket:
        for port in self._ports:
            listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            try:
                # A port of a range is used again while connections of its last use are still being forgotten. On
                # Linux two listeners at one port are refused all the same.
                if port and sys.platform == "linux":
                    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listening.setblocking(False)
                listening.bind(("127.0.0.1", port))
                listening.listen(256)
            except OSError as error:
                listening.close()
                if error.errno != errno.EADDRINUSE:
                    raise
            else:
                return listening
        raise OSError(errno.EADDRINUSE, f"every port for a gate is in use: {', '.join(map(str, self._ports))}")

    def stop(self) -> None:
        """Take no more connections; those that are served go on."""
        if self._accepting is not None:
            self._accepting.cancel()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    async def close(self) -> None:
        """Stop, cancel what is served, and wait until it has ended."""
        self.stop()
        tasks = [*self._tasks, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._free.acquire()
            try:
                connection, _ = await loop.sock_accept(listening)
            except OSError as error:
                self._free.release()
                if error.errno in _FULL:
                    _log.error("the listener cannot take a connection: %s", error)
                    await asyncio.sleep(0.2)
                    continue
                if error.errno in (errno.ECONNABORTED, errno.EINTR):
                    continue
                raise
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            task = loop.create_task(self._one(connection))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _one(self, connection: socket.socket) -> None:
        try:
            await self._serve(connection)
        except Exception:  # noqa: BLE001  one connection's defect must not end the others, and is logged
            _log.exception("serving a connection failed")
        finally:
            self._free.release()
