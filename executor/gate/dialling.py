"""Opening a connection to a site: which way it goes, through which proxy, under which certificates, and which protocol
the two sides agreed on.

Nothing of a request is written here, so whatever fails here is a proof that nothing left.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network

from executor.gate.certificates import UpstreamTrust
from executor.gate.limits import Limits
from executor.gate.port import ConnectFailed, ConnectStage
from executor.gate.site_protocols import SiteProtocols
from executor.gate.stream import ByteStream
from flows.wire import origin_of

HTTP_1 = ("http/1.1",)
"""What is offered in the handshake (RFC 7301) unless the caller can do more."""
HTTP_2 = ("h2", "http/1.1")

Offer = Callable[[float | None], tuple[str, ...]]
"""What to offer at a round trip of so many seconds, told before the handshake; None where it is not known."""

_PROXY_HEAD_BYTES = 64 * 1024
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([0-9]{3})(?: [^\r\n]*)?")
_ACCEPTED_AT_LEAST_S = 0.05
_ACCEPTED_AT_MOST_S = 2.0


@dataclass(frozen=True)
class Site:
    """Where a connection leads."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True)
class Proxy:
    """A proxy between this machine and the sites. It is asked for a tunnel (CONNECT, RFC 9110 section 9.3.6) for plain
    http as well: one that forwards requests could read them, keep connections for several of them, and send one again.
    `authorization` is the value of Proxy-Authorization; `trust` is for a proxy that is itself reached over TLS."""

    scheme: str
    host: str
    port: int
    trust: UpstreamTrust
    authorization: str = field(default="", repr=False)

    def __str__(self) -> str:
        return _authority(self.host, self.port)


@dataclass(frozen=True)
class Route:
    """How a site is reached. `direct` lists the hosts that `proxy` is not asked for: a name, a name that begins with a
    dot (everything below it), an address, a network ("10.0.0.0/8"), each with `:port` where only that one is meant, or
    "*"."""

    trust: UpstreamTrust
    proxy: Proxy | None = None
    direct: tuple[str, ...] = ()

    def proxy_for(self, site: Site) -> Proxy | None:
        return None if any(_names(pattern, site) for pattern in self.direct) else self.proxy


@dataclass(frozen=True)
class Routes:
    """The way to every site: its own by origin, or the common one. A page talks to more hosts than its own, and each
    is reached in the way that is set for it."""

    common: Route
    sites: Mapping[str, Route] = field(default_factory=dict)
    learnt: SiteProtocols = field(default_factory=SiteProtocols, compare=False)

    @classmethod
    def straight(cls, trust: UpstreamTrust) -> Routes:
        """No proxy, and the same trust for all."""
        return cls(Route(trust))

    def to(self, site: Site) -> Route:
        return self.sites.get(origin_of(site.scheme, site.host, site.port), self.common)


@dataclass(frozen=True)
class Dialled:
    """An open connection. `protocol` is one of those offered; "http/1.1" without TLS, and where the site chose none."""

    stream: ByteStream
    protocol: str


async def dial(site: Site, routes: Routes, limits: Limits, *, alpn: tuple[str, ...] | Offer = HTTP_1) -> Dialled:
    """Open a connection, TLS finished where the scheme asks for it, nothing of a request written. `alpn`: the protocols
    offered, the preferred one first, or how to choose them. Raises `ConnectFailed`."""
    dialling = _Dialling(site, routes.to(site), limits)
    try:
        return await dialling.open(alpn)
    except (OSError, ssl.SSLError, TimeoutError) as error:
        dialling.abort()
        direct = dialling.stage is ConnectStage.CONNECT
        stage = ConnectStage.RESOLVE if direct and isinstance(error, socket.gaierror) else dialling.stage
        said = str(error) or "no answer in time"
        raise ConnectFailed(
            f"no connection to {site.host}:{site.port} ({stage}): {dialling.whose}{said}", stage=stage
        ) from error
    except BaseException:
        dialling.abort()
        raise


class _Dialling:
    """One connection while it is being made. `stage` is the stage that is under way."""

    def __init__(self, site: Site, route: Route, limits: Limits) -> None:
        self.stage = ConnectStage.CONNECT
        self.whose = ""
        self._site = site
        self._route = route
        self._limits = limits
        self._transport: asyncio.Transport | None = None
        self._tunnel_took_s = 0.0

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def open(self, alpn: tuple[str, ...] | Offer) -> Dialled:
        site, route = self._site, self._route
        proxy = route.proxy_for(site)
        if proxy is None:
            stream = await self._reach(site.host, site.port)
        else:
            self.stage, self.whose = ConnectStage.PROXY, f"proxy {proxy}: "
            stream = await self._tunnel(proxy)
        if site.scheme != "https":
            return Dialled(stream, HTTP_1[0])
        self.stage, self.whose = ConnectStage.TLS, ""
        offered = alpn(self._round_trip_s(stream)) if callable(alpn) else alpn
        started = time.monotonic()
        session = await self._secure(stream, route.trust.context_offering(offered), site.host)
        if route.trust.presents_certificate:
            await self._certificate_taken(stream, session, took_s=time.monotonic() - started)
        return Dialled(stream, session.selected_alpn_protocol() or HTTP_1[0])

    async def _reach(self, host: str, port: int) -> ByteStream:
        async with asyncio.timeout(self._limits.connect_s):
            self._transport, stream = await asyncio.get_running_loop().create_connection(
                ByteStream, host, port, happy_eyeballs_delay=0.25
            )
        return stream

    def _round_trip_s(self, stream: ByteStream) -> float | None:
        """To the site. Behind a proxy it is what the proxy took to reach the site, at least."""
        measured = stream.round_trip_s
        return None if measured is None else max(measured, self._tunnel_took_s)

    async def _secure(self, stream: ByteStream, context: ssl.SSLContext, name: str) -> ssl.SSLObject:
        assert self._transport is not None
        secured = await asyncio.get_running_loop().start_tls(
            self._transport,
            stream,
            context,
            server_hostname=name,
            ssl_handshake_timeout=self._limits.tls_s,
            ssl_shutdown_timeout=1.0,
        )
        if secured is None:
            raise ConnectionAbortedError("the connection was closed during the handshake")
        self._transport = secured
        stream.adopt(secured)
        session: ssl.SSLObject = secured.get_extra_info("ssl_object")
        return session

    async def _tunnel(self, proxy: Proxy) -> ByteStream:
        stream = await self._reach(proxy.host, proxy.port)
        if proxy.scheme == "https":
            await self._secure(stream, proxy.trust.context_offering(HTTP_1), proxy.host)
        place = _authority(self._site.host, self._site.port)
        credentials = f"Proxy-Authorization: {proxy.authorization}\r\n" if proxy.authorization else ""
        stream.write(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{credentials}\r\n".encode("ascii"))
        asked = time.monotonic()
        async with asyncio.timeout(self._limits.proxy_s):
            status = await _status(stream)
        self._tunnel_took_s = time.monotonic() - asked
        if not 200 <= status < 300:
            raise ConnectionRefusedError(_REFUSALS.get(status, "it gave no tunnel") + f" (status {status})")
        if stream.has_input:
            # Neither TLS nor HTTP lets the site speak first: these bytes are the proxy's.
            raise ConnectionRefusedError("bytes came after its answer")
        return stream

    async def _certificate_taken(self, stream: ByteStream, session: ssl.SSLObject, *, took_s: float) -> None:
        """Under TLS 1.3 the handshake is over before the site has looked at our certificate (RFC 8446 section 4.4.2.4):
        its refusal would come after the request. One more round trip shows it; a session ticket says earlier that all
        is well."""
        if session.version() != "TLSv1.3":
            return
        until = time.monotonic() + min(max(2 * took_s, _ACCEPTED_AT_LEAST_S), _ACCEPTED_AT_MOST_S)
        while time.monotonic() < until and not stream.is_closing:
            ticket = session.session
            if ticket is not None and ticket.has_ticket:
                return
            await asyncio.sleep(0.005)
        if stream.is_closing:
            raise ConnectionAbortedError("the site did not take the client certificate")


_REFUSALS = {
    403: "it does not allow this host",
    407: "it wants a user name and a password, or does not take those it was given",
    502: "it did not reach the site",
    503: "it is not available",
    504: "the site did not answer it in time",
}


async def _status(stream: ByteStream) -> int:
    """The status of the proxy's answer, 1xx skipped; what follows its head is left in the stream. Raises OSError."""
    data = b""
    while True:
        while b"\r\n\r\n" not in data:
            more = await stream.read()
            if not more:
                raise ConnectionAbortedError("it closed the connection without an answer")
            data += more
            if len(data) > _PROXY_HEAD_BYTES:
                raise ConnectionRefusedError("its answer has no end")
        head, _, data = data.partition(b"\r\n\r\n")
        line = _STATUS_LINE.fullmatch(head.partition(b"\r\n")[0])
        if line is None:
            raise ConnectionRefusedError("it does not speak HTTP")
        if not line[1].startswith(b"1"):
            stream.unread(data)
            return int(line[1])


def _authority(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _names(pattern: str, site: Site) -> bool:
    """Whether an entry of `Route.direct` names the site."""
    whole = re.fullmatch(r"(?:\[(?P<v6>[^\]]+)\]|(?P<host>[^:]+)):(?P<port>[0-9]+)", pattern)
    if whole is not None and int(whole["port"]) != site.port:
        return False
    wanted = (whole["v6"] or whole["host"] if whole is not None else pattern).strip("[]").lower()
    host = site.host.rstrip(".")
    try:
        return ip_address(host) in ip_network(wanted, strict=False)
    except ValueError:
        return wanted == "*" or host == wanted or (wanted.startswith(".") and host.endswith(wanted))
