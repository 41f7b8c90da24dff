"""One connection of the browser: who it is, CONNECT or plain, TLS or not, and the requests on it one after another.

What cannot be read strictly is answered and the connection closed; nothing of it goes on.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl

from executor.gate.answers import refusal, tunnel_refusal
from executor.gate.dialling import HTTP_1, HTTP_2
from executor.gate.exchange import Exchange
from executor.gate.framing import Authority, BadHead, outgoing, parse_authority, parse_head
from executor.gate.http1_leg import Http1Leg
from executor.gate.http2_leg import serve_http2
from executor.gate.peer import may_connect
from executor.gate.rules import Phase, Reason
from executor.gate.state import GateState
from executor.gate.stream import ByteStream

_log = logging.getLogger(__name__)

_END = b"\r\n\r\n"
_TLS_HANDSHAKE = 0x16
"""First byte of a TLS record that opens a handshake (RFC 8446 section 5.1)."""


async def serve(state: GateState, connection: socket.socket) -> None:
    """Serve one accepted socket to its end, and close it. Raises nothing but cancellation."""
    stream: ByteStream | None = None
    try:
        peer, own = connection.getpeername(), connection.getsockname()
        if not await asyncio.to_thread(may_connect, peer, own, state.limits.uids):
            _log.warning("a connection to the gate from another user's process was closed")
            return
        begun = await _begin(state, connection)
        if begun is None:
            return
        stream, tunnel, scheme = begun
        if tunnel is not None and scheme == "https" and _speaks_http2(stream):
            await serve_http2(state, stream, tunnel, lambda leg, *request: Exchange(state, leg, *request).run())
        else:
            await _serve_requests(state, stream, tunnel, scheme)
    except (OSError, ssl.SSLError, TimeoutError) as error:
        # The browser went away or does not speak what it should: its own connection ends, and nothing else.
        _log.debug("a browser connection ended: %s", error)
    finally:
        if stream is None:
            connection.close()
        else:
            stream.close()
            try:
                await stream.wait_closed(2.0)
            finally:
                stream.abort()


async def _begin(state: GateState, connection: socket.socket) -> tuple[ByteStream, Authority | None, str] | None:
    """Read as much as tells a CONNECT from a plain request, on the bare socket: TLS must start on a socket of which
    nothing of the handshake was read."""
    loop = asyncio.get_running_loop()
    begun = b""
    async with asyncio.timeout(state.limits.idle_s):
        begun = await loop.sock_recv(connection, 65536)
    async with asyncio.timeout(state.limits.head_s):
        while begun and b"CONNECT ".startswith(begun[:8]) and _END not in begun:
            more = await loop.sock_recv(connection, 65536)
            if not more or len(begun) > state.limits.head_bytes:
                return None
            begun += more
    if not begun:
        return None
    if not begun.startswith(b"CONNECT "):
        stream = ByteStream()
        await loop.connect_accepted_socket(lambda: stream, connection)
        stream.unread(begun)
        return stream, None, "http"
    tunnel = await _take_tunnel(state, connection, begun)
    if tunnel is None:
        return None
    stream = ByteStream()
    if await _first_byte(connection, state.limits.idle_s) != _TLS_HANDSHAKE:
        await loop.connect_accepted_socket(lambda: stream, connection)
        return stream, tunnel, "http"
    known = state.pool.protocols.speaks_http2(tunnel.host, tunnel.port)
    context = await state.authority.context_for(tunnel.host, HTTP_2 if known else HTTP_1)
    try:
        await loop.connect_accepted_socket(
            lambda: stream,
            connection,
            ssl=context,
            ssl_handshake_timeout=state.limits.tls_s,
            ssl_shutdown_timeout=1.0,
        )
    except ssl.SSLError as error:
        note = f"the browser's handshake failed: {error.reason or error}"
        state.log.record_refused_head(state.phase, "CONNECT", tunnel.shown, Reason.TLS_FAILED, note)
        raise
    return stream, tunnel, "https"


def _speaks_http2(stream: ByteStream) -> bool:
    session: ssl.SSLObject = stream.transport.get_extra_info("ssl_object")
    return session.selected_alpn_protocol() == HTTP_2[0]


async def _take_tunnel(state: GateState, connection: socket.socket, begun: bytes) -> Authority | None:
    """Answer a CONNECT. The head must be all that came: a client that goes on before the answer is no browser."""
    loop = asyncio.get_running_loop()
    raw, _, extra = begun.partition(_END)
    method, target = "CONNECT", ""
    try:
        head = parse_head(raw + _END)
        target = head.target
        authority = parse_authority(target, None)
        if authority is None:
            raise BadHead(Reason.MALFORMED_TARGET, "CONNECT does not name host and port", target=target)
        if extra or head.chunked or head.content_length:
            raise BadHead(Reason.SMUGGLING, "bytes after the head of CONNECT", target=target)
        if [parse_authority(host, authority.port) for host in head.values("host")] != [authority]:
            raise BadHead(Reason.HOST_MISMATCH, "Host differs from the target of CONNECT", target=target)
        if state.closing or state.phase is Phase.CLOSED:
            raise BadHead(Reason.PHASE_CLOSED, "the gate is closed", target=target)
    except BadHead as bad:
        state.log.record_refused_head(state.phase, method, bad.target, bad.reason, str(bad))
        await loop.sock_sendall(connection, tunnel_refusal(bad.reason))
        return None
    await loop.sock_sendall(connection, b"HTTP/1.1 200 Connection established\r\n\r\n")
    return authority


async def _first_byte(connection: socket.socket, timeout_s: float) -> int:
    """The first byte inside the tunnel, left where it is. Raises `ConnectionError` when the tunnel ends before it."""
    loop = asyncio.get_running_loop()
    readable: asyncio.Future[None] = loop.create_future()

    def came() -> None:
        if not readable.done():
            readable.set_result(None)

    loop.add_reader(connection.fileno(), came)
    try:
        async with asyncio.timeout(timeout_s):
            await readable
    finally:
        loop.remove_reader(connection.fileno())
    first = connection.recv(1, socket.MSG_PEEK)
    if not first:
        raise ConnectionAbortedError("the tunnel was closed before a byte came")
    return first[0]


async def _serve_requests(state: GateState, stream: ByteStream, tunnel: Authority | None, scheme: str) -> None:
    while True:
        raw = await _read_head(state, stream)
        if raw is None:
            return
        try:
            head = parse_head(raw)
            request = outgoing(head, tunnel, scheme)
        except BadHead as bad:
            _refuse_head(state, stream, bad, tunnel)
            return
        if not await Exchange(state, Http1Leg(stream, head, state.limits), head, request).run():
            return


async def _read_head(state: GateState, stream: ByteStream) -> bytes | None:
    """The next head with its empty line; None when the browser closed the connection or was too slow or too long."""
    async with asyncio.timeout(state.limits.idle_s):
        data = await stream.read()
    end = data.find(_END)
    try:
        if end < 0:
            async with asyncio.timeout(state.limits.head_s):
                while data and end < 0 and len(data) <= state.limits.head_bytes:
                    more = await stream.read()
                    data = data + more if more else b""
                    end = data.find(_END)
    except TimeoutError:
        bad = BadHead(Reason.SMUGGLING, "the head did not come to its end in time")
        _refuse_head(state, stream, bad, None)
        return None
    if not data:
        return None
    if end < 0 or end > state.limits.head_bytes:
        _refuse_head(state, stream, BadHead(Reason.SMUGGLING, "the head is too long"), None)
        return None
    stream.unread(data[end + 4 :])
    return data[: end + 4]


def _refuse_head(state: GateState, stream: ByteStream, bad: BadHead, tunnel: Authority | None) -> None:
    url = tunnel.shown + bad.target if tunnel else bad.target
    sequence = state.log.record_refused_head(state.phase, bad.method, url, bad.reason, str(bad))
    own = refusal(bad.reason, None)
    state.log.answered(sequence, own.status, complete=True, by_gate=True)
    stream.write(own.over_http1(close=True))
