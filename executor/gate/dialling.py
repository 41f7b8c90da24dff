"""Opening a connection to a site: address, connection, TLS, and which protocol the two sides agreed on.

Nothing of a request is written here, so whatever fails here is a proof that nothing left.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass

from executor.gate.certificates import UpstreamTrust
from executor.gate.limits import Limits
from executor.gate.port import ConnectFailed, ConnectStage
from executor.gate.stream import ByteStream

HTTP_1 = ("http/1.1",)
"""What is offered in the handshake unless the caller can do more (RFC 7301)."""


@dataclass(frozen=True)
class Site:
    """Where a connection leads."""

    scheme: str
    host: str
    port: int


@dataclass(frozen=True)
class Dialled:
    """An open connection. `protocol` is one of those offered; "http/1.1" without TLS, and where the site chose none."""

    stream: ByteStream
    protocol: str


async def dial(site: Site, trust: UpstreamTrust, limits: Limits, *, alpn: tuple[str, ...] = HTTP_1) -> Dialled:
    """Open a connection, TLS finished where the scheme asks for it, nothing written. `alpn`: the protocols offered, the
    preferred one first. Raises `ConnectFailed`."""
    loop = asyncio.get_running_loop()
    stage = ConnectStage.CONNECT
    transport: asyncio.Transport | None = None
    protocol: str | None = None
    try:
        async with asyncio.timeout(limits.connect_s):
            transport, stream = await loop.create_connection(
                ByteStream, site.host, site.port, happy_eyeballs_delay=0.25
            )
        if site.scheme == "https":
            stage = ConnectStage.TLS
            secured = await loop.start_tls(
                transport,
                stream,
                trust.context_offering(alpn),
                server_hostname=site.host,
                ssl_handshake_timeout=limits.tls_s,
                ssl_shutdown_timeout=1.0,
            )
            if secured is None:
                raise ConnectionAbortedError("the connection was closed during the handshake")
            stream.adopt(secured)
            protocol = secured.get_extra_info("ssl_object").selected_alpn_protocol()
    except socket.gaierror as error:
        raise _failed(site, ConnectStage.RESOLVE, error) from error
    except (OSError, ssl.SSLError, TimeoutError) as error:
        if transport is not None:
            transport.abort()
        raise _failed(site, stage, error) from error
    except asyncio.CancelledError:
        if transport is not None:
            transport.abort()
        raise
    return Dialled(stream, protocol or HTTP_1[0])


def _failed(site: Site, stage: ConnectStage, error: BaseException) -> ConnectFailed:
    what = str(error) or "no answer in time"
    return ConnectFailed(f"no connection to {site.host}:{site.port} ({stage}): {what}", stage=stage)
