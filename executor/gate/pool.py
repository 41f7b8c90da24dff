"""The connections of one gate to the sites: fresh ones for whatever may change something, kept ones for reads.

A write goes over a connection of HTTP/1.1 that nothing else has used or will use, whatever else the site speaks: only
there is it known of every byte whether it left. Reads of a distant site that speaks HTTP/2 share one connection.
Never sends anything; who asks for a second try does it knowingly.
"""

from __future__ import annotations

import asyncio
import logging
import math
import ssl
import time
from collections.abc import Callable

from executor.gate.dialling import HTTP_1, HTTP_2, Routes, Site, dial
from executor.gate.http2_upstream import Http2Ask, Http2Upstream
from executor.gate.limits import Limits
from executor.gate.port import ConnectFailed, ConnectStage
from executor.gate.stream import ByteStream
from executor.gate.upstream import Ask, Http1Ask, Upstream

_log = logging.getLogger(__name__)

_NO_PROTOCOL = "alert no application protocol"
"""OpenSSL's words; its number for them has no name in Python before 3.12."""


class Pool:
    """A connection of HTTP/1.1 is handed out once and comes back only when it is clean."""

    def __init__(self, routes: Routes, limits: Limits) -> None:
        self.protocols = routes.learnt
        self._routes = routes
        self._limits = limits
        self._idle: dict[Site, list[Upstream]] = {}
        self._slots: dict[Site, asyncio.Semaphore] = {}
        self._shared: dict[Site, Http2Upstream] = {}
        self._dials: dict[Site, asyncio.Task[Ask]] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._open: set[ByteStream] = set()
        self._closed = False

    async def fresh(self, site: Site) -> Upstream:
        """A connection of HTTP/1.1 that nothing else has used. Raises `ConnectFailed`."""
        try:
            dialled = await dial(site, self._routes, self._limits)
        except ConnectFailed as error:
            cause = error.__cause__
            if isinstance(cause, ssl.SSLError) and _NO_PROTOCOL in str(cause):
                raise ConnectFailed(
                    f"{site.host}:{site.port} speaks no HTTP/1.1, and nothing else carries a write: it was not sent",
                    stage=error.stage,
                ) from error
            raise
        self._track(site, dialled.stream)
        return Upstream(dialled.stream, site, self._limits)

    async def for_read(self, site: Site, *, max_idle_s: float) -> Ask:
        """Something to ask with: on the shared connection, on one that was idle for `max_idle_s` at most, or on a
        fresh one. Raises `ConnectFailed`."""
        shared = self._usable(site)
        if shared is not None and shared.quiet_s > max_idle_s and not await shared.is_there():
            shared.close()
        return await self._next(site, max_idle_s=max_idle_s)

    async def renewed(self, site: Site) -> Ask:
        """The shared connection, which others have found alive since, or a fresh connection. Raises `ConnectFailed`."""
        return await self._next(site, max_idle_s=None)

    async def _next(self, site: Site, *, max_idle_s: float | None) -> Ask:
        while (shared := self._usable(site)) is None:
            if not self.protocols.speaks_http2(site.host, site.port):
                return await self._over_http1(site, max_idle_s)
            # The site will most likely speak HTTP/2 again: one connection for all who wait for it.
            dialling = self._dials.get(site)
            if dialling is None:
                dialling = self._dials[site] = asyncio.get_running_loop().create_task(self._dial(site))
                dialling.add_done_callback(lambda done: self._dialled(site, done))
                return await asyncio.shield(dialling)
            await asyncio.shield(dialling)
        return Http2Ask(shared)

    async def _over_http1(self, site: Site, max_idle_s: float | None) -> Ask:
        """Over an idle connection or a fresh one, on which the site may still turn out to speak HTTP/2. A browser of
        HTTP/1.1 opens six at most; one that was offered HTTP/2 would have a hundred of a site that no longer has it."""
        slots = self._slots.setdefault(site, asyncio.Semaphore(self._limits.http1_reads))
        await slots.acquire()
        ask: Ask | None = None
        try:
            idle = self._idle.get(site, []) if max_idle_s is not None else []
            while idle and ask is None:
                upstream = idle.pop()
                if upstream.reusable and time.monotonic() - upstream.idle_since <= (max_idle_s or 0.0):
                    ask = Http1Ask(upstream, self._give_back)
                else:
                    upstream.stream.close()
            if ask is None:
                shared = self._usable(site)
                ask = Http2Ask(shared) if shared is not None else await self._dial(site)
        finally:
            if isinstance(ask, Http1Ask):
                ask.on_release = slots.release
            else:
                slots.release()
        return ask

    def _dialled(self, site: Site, done: asyncio.Task[Ask]) -> None:
        self._dials.pop(site, None)
        if not done.cancelled():
            done.exception()  # whoever waits gets it; when nobody does any more it is no defect

    async def _dial(self, site: Site) -> Ask:
        dialled = await dial(site, self._routes, self._limits, alpn=self._offer)
        self._track(site, dialled.stream)
        speaks_http2 = dialled.protocol == HTTP_2[0]
        self.protocols.learn(site.host, site.port, http2=speaks_http2)
        if not speaks_http2:
            return Http1Ask(Upstream(dialled.stream, site, self._limits), self._give_back)
        shared = Http2Upstream(dialled.stream, site, self._limits)
        if (other := self._usable(site)) is not None:
            # Dialled at the same time, before anything was known of the site.
            dialled.stream.close()
            return Http2Ask(other)
        self._shared[site] = shared
        reading = asyncio.get_running_loop().create_task(shared.run())
        self._reading.add(reading)
        reading.add_done_callback(self._has_read)
        self._expire_later(lambda: self._expire_shared(shared))
        return Http2Ask(shared)

    def _has_read(self, reading: asyncio.Task[None]) -> None:
        self._reading.discard(reading)
        if not reading.cancelled() and (error := reading.exception()) is not None:
            _log.error("reading a connection to a site failed", exc_info=error)

    def _offer(self, round_trip_s: float | None) -> tuple[str, ...]:
        """A site whose distance is not known counts as far."""
        beyond_s = self._limits.http2_beyond_s
        near = round_trip_s is not None and round_trip_s < beyond_s
        return HTTP_1 if near or beyond_s == math.inf else HTTP_2

    def _usable(self, site: Site) -> Http2Upstream | None:
        shared = self._shared.get(site)
        if shared is not None and not shared.usable:
            del self._shared[site]
            return None
        return shared

    def _give_back(self, upstream: Upstream) -> None:
        idle = self._idle.setdefault(upstream.site, [])
        if self._closed or not upstream.reusable or len(idle) >= self._limits.pool_per_host:
            upstream.stream.close()
            return
        upstream.idle_since = time.monotonic()
        idle.append(upstream)
        self._expire_later(lambda: self._expire(upstream))

    async def close(self) -> None:
        """Close every connection that was opened here, and wait until they are gone."""
        self._closed = True
        self._idle.clear()
        for dialling in tuple(self._dials.values()):
            dialling.cancel()
        for shared in tuple(self._shared.values()):
            shared.close()
        streams = tuple(self._open)
        for stream in streams:
            stream.close()
        await asyncio.gather(*(stream.wait_closed(1.5) for stream in streams))
        await asyncio.gather(*self._reading, *self._dials.values(), return_exceptions=True)

    def _expire_later(self, expire: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(self._limits.pool_idle_s, expire)

    def _expire(self, upstream: Upstream) -> None:
        idle = self._idle.get(upstream.site, [])
        if upstream in idle and time.monotonic() - upstream.idle_since >= self._limits.pool_idle_s:
            idle.remove(upstream)
            upstream.stream.close()

    def _expire_shared(self, shared: Http2Upstream) -> None:
        if not shared.usable or self._closed:
            return
        if shared.quiet_s >= self._limits.pool_idle_s:
            shared.close()
        else:
            self._expire_later(lambda: self._expire_shared(shared))

    def _track(self, site: Site, stream: ByteStream) -> None:
        if self._closed:
            stream.abort()
            raise ConnectFailed(f"no connection to {site.host}: the gate is closed", stage=ConnectStage.CONNECT)
        self._open.add(stream)
        stream.on_closed.append(lambda: self._open.discard(stream))
