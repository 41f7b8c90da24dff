"""A site that speaks HTTP/2 and HTTP/1.1 over TLS on one port, whichever is agreed upon (ALPN), and that can publish
and then end without an answer. Its record is the ground truth; it is in the test's own process.

Ends connections on purpose only; nothing here decides what a browser or a gate makes of it.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum, auto
from pathlib import Path
from typing import Self

import h11
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded

from playground import tls

PUBLISH = "/publish"
COMPOSER = """<!doctype html><title>Composer</title><link rel="icon" href="data:,">
<form method="post" action="/publish"><input name="title" value="Office closed"><button>Publish by form</button></form>
<button id="fetch">Publish by fetch</button><p role="status"></p>
<script>
document.getElementById('fetch').onclick = async () => {
  const answer = await fetch('/publish', {method: 'POST', body: new URLSearchParams({title: 'Office closed'})});
  document.querySelector('[role=status]').textContent = answer.ok ? 'Published' : 'Answered ' + answer.status;
};
</script>"""
PUBLISHED = """<!doctype html><title>Published</title><link rel="icon" href="data:,"><p role="status">Published</p>"""


class Ending(StrEnum):
    """What comes in the place of an answer once the publication is in the record. HTTP/1.1 has a nearest word for what
    only HTTP/2 can say."""

    RESET = auto()
    """The connection is reset (RST)."""
    CLOSE = auto()
    """The connection is closed in good order (close_notify, FIN)."""
    GOAWAY_WITHOUT_IT = auto()
    """GOAWAY that leaves this stream out, and the end of the connection: "not processed" (RFC 9113 section 6.8), which
    is not true. Over HTTP/1.1 as CLOSE."""
    GOAWAY_WITH_IT = auto()
    """GOAWAY that counts this stream among those that may have been processed, and the end of the connection. Nothing
    then says that a POST may be sent again (RFC 9110 section 9.2.2). Over HTTP/1.1 as CLOSE."""
    REFUSED_STREAM = auto()
    """RST_STREAM with REFUSED_STREAM: "not processed" (RFC 9113 section 8.7) of one stream; the connection stays.
    Over HTTP/1.1: 408, after which a client may repeat what it sent (RFC 9110 section 15.5.9)."""


@dataclass(frozen=True)
class Arrived:
    """One whole request. `protocol` is what was agreed upon in the handshake, `connection` counts from 1, and `index`
    says which request of its connection it was, from 0."""

    method: str
    path: str
    body: bytes
    protocol: str
    connection: int
    index: int

    @property
    def publishes(self) -> bool:
        return self.method == "POST" and self.path == PUBLISH


class Http2Site:
    """Listens on 127.0.0.1 while it is entered. `arrived` holds every whole request in the order of arrival; each POST
    to `PUBLISH` among them has published. The first `failures` of these get `ending` instead of an answer."""

    def __init__(self, folder: Path) -> None:
        files = tls.ensure(folder)
        self.ca = files.ca
        self.arrived: list[Arrived] = []
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(files.leaf, files.key)
        self._context.set_alpn_protocols(["h2", "http/1.1"])
        self._ending = Ending.CLOSE
        self._failures = 0
        self._connections = 0
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._context, ssl_shutdown_timeout=5.0
        )
        self.url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._serving.values():
            writer.transport.abort()
        # A defect of the site is a failure of the test.
        await asyncio.gather(*self._serving)
        await self._server.wait_closed()

    def fail(self, ending: Ending, *, times: int) -> None:
        """Forget what arrived, and leave the next publications without an answer. Connections stay as they are."""
        self.arrived.clear()
        self._ending, self._failures = ending, times

    @property
    def published(self) -> list[Arrived]:
        return [one for one in self.arrived if one.publishes]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[task] = writer
        self._connections += 1
        agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        speak = self._http2 if agreed == "h2" else self._http1
        try:
            await speak(reader, writer, self._connections)
        except OSError:
            pass  # The browser, the gate or the end of the test went first.
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    def _record(self, arrived: Arrived) -> Ending | None:
        """The ending that this request gets, or None where it is answered."""
        self.arrived.append(arrived)
        if not arrived.publishes or not self._failures:
            return None
        self._failures -= 1
        return self._ending

    async def _http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        protocol = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        protocol.initiate_connection()
        writer.write(protocol.data_to_send())
        heads: dict[int, dict[str, str]] = {}
        bodies: dict[int, bytes] = {}
        while data := await reader.read(1 << 16):
            for event in protocol.receive_data(data):
                if isinstance(event, RequestReceived):
                    heads[event.stream_id] = {str(name): str(value) for name, value in event.headers}
                    bodies[event.stream_id] = b""
                elif isinstance(event, DataReceived):
                    protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
                    bodies[event.stream_id] += event.data
                elif isinstance(event, StreamEnded):
                    stream = event.stream_id
                    method, path = heads[stream][":method"], heads[stream][":path"]
                    arrived = Arrived(method, path, bodies[stream], "h2", connection, stream // 2)
                    if self._answer_http2(protocol, stream, arrived, writer):
                        return
            writer.write(protocol.data_to_send())
            await writer.drain()

    def _answer_http2(
        self, protocol: H2Connection, stream: int, arrived: Arrived, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer, or not; whether the connection ends with it."""
        match self._record(arrived):
            case None:
                kind = ("content-type", "text/html; charset=utf-8")
                protocol.send_headers(stream, [(":status", "200"), kind])
                protocol.send_data(stream, _answer_to(arrived), end_stream=True)
                return False
            case Ending.REFUSED_STREAM:
                protocol.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
                return False
            case Ending.GOAWAY_WITHOUT_IT:
                protocol.close_connection(last_stream_id=max(0, stream - 2))
            case Ending.GOAWAY_WITH_IT:
                protocol.close_connection(last_stream_id=stream)
            case Ending.RESET:
                _reset(writer)
                return True
            case Ending.CLOSE:
                pass
        writer.write(protocol.data_to_send())
        return True

    async def _http1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int) -> None:
        protocol = h11.Connection(h11.SERVER)
        head: h11.Request | None = None
        body, index = b"", 0
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(1 << 16))
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                arrived = Arrived(head.method.decode(), head.target.decode(), body, "http/1.1", connection, index)
                index += 1
                if self._answer_http1(protocol, arrived, writer):
                    return
                await writer.drain()
            else:
                return

    def _answer_http1(self, protocol: h11.Connection, arrived: Arrived, writer: asyncio.StreamWriter) -> bool:
        """Answer, or not; whether the connection ends with it."""
        match self._record(arrived):
            case None:
                answer = _answer_to(arrived)
                headers = [("Content-Type", "text/html; charset=utf-8"), ("Content-Length", str(len(answer)))]
                for event in (
                    h11.Response(status_code=200, headers=headers),
                    h11.Data(data=answer),
                    h11.EndOfMessage(),
                ):
                    writer.write(protocol.send(event) or b"")
                if protocol.our_state is h11.DONE:
                    protocol.start_next_cycle()
                    return False
            case Ending.REFUSED_STREAM:
                writer.write(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            case Ending.RESET:
                _reset(writer)
            case Ending.CLOSE | Ending.GOAWAY_WITHOUT_IT | Ending.GOAWAY_WITH_IT:
                pass
        return True


def _answer_to(arrived: Arrived) -> bytes:
    return (COMPOSER if arrived.method == "GET" else PUBLISHED).encode()


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()
