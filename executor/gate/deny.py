"""The process-wide proxy that refuses everything (C10): what the browser sends outside of every context ends here.

Reads one head to learn the host, answers 403, and never opens a connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from types import TracebackType
from typing import Self

from executor.gate.framing import BadHead, parse_authority, parse_head
from executor.gate.listening import Listener

_ANSWER = (
    b"HTTP/1.1 403 Forbidden\r\nX-Interlock: outside_every_context\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)
_PATIENCE_S = 5.0
_HEAD_BYTES = 64 * 1024


class DenyListener:
    """`hosts` counts the attempts by host and port; "?" stands for what is not a proxy request."""

    def __init__(self) -> None:
        self.hosts: Counter[str] = Counter()
        self._listener = Listener(self._serve, connections=64)

    @property
    def address(self) -> str:
        return self._listener.address

    @property
    def attempts(self) -> int:
        return self.hosts.total()

    async def start(self) -> None:
        self._listener.start()

    async def close(self) -> None:
        await self._listener.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        head = b""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                while b"\r\n\r\n" not in head and len(head) < _HEAD_BYTES:
                    data = await loop.sock_recv(connection, 65536)
                    if not data:
                        break
                    head += data
                if head:
                    self.hosts[_host(head)] += 1
                    await loop.sock_sendall(connection, _ANSWER)
        except (OSError, TimeoutError):
            # It is refused either way; what it had said counts.
            if head and b"\r\n\r\n" not in head:
                self.hosts["?"] += 1
        finally:
            connection.close()


def _host(head: bytes) -> str:
    try:
        target = parse_head(head.partition(b"\r\n\r\n")[0] + b"\r\n\r\n").target
    except BadHead:
        return "?"
    place = target.partition("://")[2].partition("/")[0] if "://" in target else target
    found = parse_authority(place, 80)
    return f"{found.host}:{found.port}" if found else "?"
