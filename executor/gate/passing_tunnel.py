"""A proxy that lets a browser's own TLS through to one site, unread: what a plain browser would get, to compare with.

For `interlock doctor` alone, and for contexts whose scripts are off: it cannot see what passes, so nothing that can
write may use it. Other hosts, plain http and everything that is not CONNECT are refused.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace
from types import TracebackType
from typing import Self

from executor.gate.answers import tunnel_refusal
from executor.gate.dialling import Routes, Site, dial
from executor.gate.framing import Authority, BadHead, parse_authority, parse_head
from executor.gate.limits import Limits
from executor.gate.listening import Listener
from executor.gate.peer import may_connect
from executor.gate.port import ConnectFailed
from executor.gate.rules import Reason
from executor.gate.stream import ByteStream

_END = b"\r\n\r\n"
_PATIENCE_S = 30.0
_HEAD_BYTES = 64 * 1024


class PassingTunnel:
    """Carries bytes between the browser and `site`, by the route that the gate takes. `tunnels` counts."""

    def __init__(self, site: Site, routes: Routes, limits: Limits) -> None:
        self.tunnels = 0
        self._site = site
        # Only the way there: the browser does the handshake, so nothing is secured here.
        self._routes = Routes(routes.to(site))
        self._limits = limits
        self._listener = Listener(self._serve, connections=64, ports=limits.ports)

    async def __aenter__(self) -> Self:
        self._listener.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._listener.close()

    @property
    def address(self) -> str:
        return self._listener.address

    async def _serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        browser: ByteStream | None = None
        site: ByteStream | None = None
        try:
            if not await asyncio.to_thread(
                may_connect, connection.getpeername(), connection.getsockname(), self._limits.uids
            ):
                return
            async with asyncio.timeout(_PATIENCE_S):
                if not await self._asked_for_the_site(connection):
                    await loop.sock_sendall(connection, tunnel_refusal(Reason.UNLISTED_DOCUMENT))
                    return
                bare = replace(self._site, scheme="http")
                site = (await dial(bare, self._routes, self._limits)).stream
                await loop.sock_sendall(connection, b"HTTP/1.1 200 Connection established\r\n\r\n")
            self.tunnels += 1
            browser = ByteStream()
            await loop.connect_accepted_socket(lambda: browser, connection)
            async with asyncio.TaskGroup() as both:
                both.create_task(_carry(browser, site))
                both.create_task(_carry(site, browser))
        except* (OSError, TimeoutError, ConnectFailed):
            pass  # One side ended it; the page then does not load, and that is what is reported.
        finally:
            for stream in (browser, site):
                if stream is not None:
                    stream.abort()
            if browser is None:
                connection.close()

    async def _asked_for_the_site(self, connection: socket.socket) -> bool:
        loop = asyncio.get_running_loop()
        asked = b""
        while _END not in asked and len(asked) < _HEAD_BYTES:
            data = await loop.sock_recv(connection, 65536)
            if not data:
                return False
            asked += data
        try:
            head = parse_head(asked)
            wanted = parse_authority(head.target, None) if head.method == "CONNECT" else None
        except BadHead:
            return False
        return wanted == Authority(self._site.host, self._site.port)


async def _carry(source: ByteStream, target: ByteStream) -> None:
    while data := await source.read():
        target.write(data)
        await target.drain()
    target.close()
