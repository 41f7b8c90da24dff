"""The opening handshake of a declared WebSocket (RFC 6455 sections 4.1 and 4.2), read strictly on both sides.

Extensions are never passed on: what goes over the connection
must stay readable.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

import h11

from executor.gate.framing import Head, forwarded, relayed
from executor.gate.limits import Limits
from executor.gate.stream import ByteStream
from flows.effect import WebSocket
from flows.wire import OutgoingRequest

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class HandshakeFailed(Exception):
    """The site did not open the WebSocket as it should. The message never quotes its answer (A11)."""


def fault(request: OutgoingRequest, declared: WebSocket) -> str | None:
    """What is wrong with the page's side; None when it may be passed on."""
    if request.header_values("upgrade") != ("websocket",):
        return "Upgrade is not websocket"
    if "upgrade" not in _listed(request.header_values("connection")):
        return "Connection does not say upgrade"
    if request.header_values("sec-websocket-version") != ("13",):
        return "the version is not 13"
    if len(request.header_values("origin")) != 1:
        return "Origin is missing or repeated"
    keys = request.header_values("sec-websocket-key")
    try:
        if len(keys) != 1 or len(base64.b64decode(keys[0], validate=True)) != 16:
            return "the key is not one of 16 bytes"
    except binascii.Error:
        return "the key is not one of 16 bytes"
    offered = offered_protocols(request)
    if not all(_TOKEN.fullmatch(one) for one in offered) or len(set(offered)) != len(offered):
        return "the protocols offered cannot be read"
    if not set(offered) <= set(declared.protocols):
        return "a protocol is offered that is not declared"
    return None


def offered_protocols(request: OutgoingRequest) -> tuple[str, ...]:
    values = request.header_values("sec-websocket-protocol")
    return tuple(part.strip() for value in values for part in value.split(","))


def passed_on(head: Head) -> list[tuple[bytes, bytes]]:
    """The headers that go to the site: the page's own, without an offer of extensions."""
    kept = [
        (name, value)
        for name, value in forwarded(head, body_size=0, effect=False)
        if name.lower() != b"sec-websocket-extensions"
    ]
    return [*kept, (b"Connection", b"Upgrade"), (b"Upgrade", b"websocket")]


@dataclass(frozen=True)
class Opened:
    """The site's answer as it goes on to the browser, and the first bytes of frames that came with it."""

    head: bytes
    rest: bytes


async def ask(stream: ByteStream, request: OutgoingRequest, head: Head, limits: Limits) -> Opened:
    """Send the handshake, and read what the site says to it. Raises `HandshakeFailed`, TimeoutError, and what the
    stream raises."""
    reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=limits.head_bytes)
    asked = reader.send(h11.Request(method=request.method, target=request.target, headers=passed_on(head))) or b""
    stream.write(asked + (reader.send(h11.EndOfMessage()) or b""))
    async with asyncio.timeout(limits.head_s):
        return await _answered(reader, stream, request)


async def _answered(reader: h11.Connection, stream: ByteStream, request: OutgoingRequest) -> Opened:
    while True:
        try:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                reader.receive_data(await stream.read())
                continue
        except h11.RemoteProtocolError as error:
            raise HandshakeFailed("what came is not an answer of HTTP/1.1") from error
        if isinstance(event, h11.InformationalResponse) and event.status_code == 101:
            headers = [(bytes(name), bytes(value)) for name, value in event.headers]
            if wrong := _wrong(headers, request):
                raise HandshakeFailed(wrong)
            return Opened(_as_head(headers), reader.trailing_data[0])
        if isinstance(event, h11.Response):
            raise HandshakeFailed(f"the site answered {event.status_code} to the handshake")
        if not isinstance(event, h11.InformationalResponse):
            raise HandshakeFailed("the connection was closed without an answer")


def accept(key: str) -> str:
    """What the site must answer to a key (RFC 6455 section 4.2.2)."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode("ascii"), usedforsecurity=False).digest()).decode("ascii")


def _wrong(headers: Iterable[tuple[bytes, bytes]], request: OutgoingRequest) -> str | None:
    fields = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]

    def values(wanted: str) -> list[str]:
        return [value for name, value in fields if name == wanted]

    if [value.lower() for value in values("upgrade")] != ["websocket"]:
        return "the site's Upgrade is not websocket"
    if "upgrade" not in _listed(values("connection")):
        return "the site's Connection does not say upgrade"
    if values("sec-websocket-accept") != [accept(request.header("sec-websocket-key"))]:
        return "the site's answer to the key is wrong"
    if values("sec-websocket-extensions"):
        return "the site uses an extension that was not offered"
    chosen = values("sec-websocket-protocol")
    if len(chosen) > 1 or not set(chosen) <= set(offered_protocols(request)):
        return "the site chose a protocol that was not offered"
    return None


def _as_head(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    lines = [b"HTTP/1.1 101 Switching Protocols", b"upgrade: websocket", b"connection: Upgrade"]
    lines += [b"%b: %b" % field for field in relayed(headers)]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def _listed(values: Iterable[str]) -> set[str]:
    return {part.strip().lower() for value in values for part in value.split(",")}
