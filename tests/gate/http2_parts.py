"""A site that speaks HTTP/2 and keeps its own record, and a browser's connection to the gate that does, by hand. Both
may send what no sound implementation would."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

import h11
from gate_origin import Got
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import (
    ConnectionTerminated,
    DataReceived,
    RequestReceived,
    ResponseReceived,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes, Settings

WAIT_S = 20.0
OK_1 = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
Fields = Sequence[tuple[bytes, bytes]]


def lenient(*, client: bool) -> H2Connection:
    """Sends whatever it is given."""
    return H2Connection(
        H2Configuration(
            client_side=client,
            header_encoding=None,
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
            validate_inbound_headers=not client,
        )
    )


@dataclass(frozen=True)
class Came:
    """One whole request. `connection` counts from 1, `stream` is 0 over HTTP/1.1."""

    method: str
    path: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    protocol: str
    connection: int
    stream: int = 0

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


@dataclass
class Line:
    """One connection of the site, and one request on it, for a behaviour to misuse."""

    protocol: H2Connection
    writer: asyncio.StreamWriter
    came: Came
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when anything came on the connection."""

    def head(self, *extra: tuple[bytes, bytes], status: bytes = b"200", end: bool = False) -> None:
        self.protocol.send_headers(self.came.stream, [(b":status", status), *extra], end_stream=end)
        self.flush()

    def data(self, data: bytes, *, end: bool = False) -> None:
        self.protocol.send_data(self.came.stream, data, end_stream=end)
        self.flush()

    def answer(self, body: bytes = b"ok", *extra: tuple[bytes, bytes]) -> None:
        self.head((b"content-type", b"text/plain"), *extra, end=self.came.method == "HEAD")
        if self.came.method != "HEAD":
            self.data(body, end=True)

    def reset(self, code: ErrorCodes) -> None:
        self.protocol.reset_stream(self.came.stream, code)
        self.flush()

    def go_away(self, last: int) -> None:
        """GOAWAY after which the connection goes on: h2 has no word for it."""
        self.raw(b"\0\0\x08\x07\0\0\0\0\0" + last.to_bytes(4, "big") + b"\0\0\0\0")

    def raw(self, data: bytes) -> None:
        self.flush()
        self.writer.write(data)

    def flush(self) -> None:
        self.writer.write(self.protocol.data_to_send())

    async def send_all(self, size: int) -> None:
        """A body of so many bytes, as the windows allow, and its end."""
        piece = b"x" * 16384
        while size:
            self.changed.clear()
            room = min(size, self.protocol.local_flow_control_window(self.came.stream), len(piece))
            if room <= 0:
                await self.changed.wait()
                continue
            size -= room
            self.data(piece[:room], end=not size)
            await self.writer.drain()


Behaviour = Callable[[Line], Awaitable[None] | None]


class Http2Origin:
    """Listens on 127.0.0.1 while it is entered. `behaviours` by path; everything else is answered "ok". Over HTTP/1.1
    every request is answered "ok", but for paths in `silent`, where the connection ends instead."""

    def __init__(self, context: ssl.SSLContext, alpn: Sequence[str] = ("h2", "http/1.1"), streams: int = 100) -> None:
        context.set_alpn_protocols(list(alpn))
        self.host = "127.0.0.1"
        self._context = context
        self._alpn = alpn
        self._streams = streams
        self.seen: list[Came] = []
        self.behaviours: dict[str, Behaviour] = {}
        self.silent: set[str] = set()
        self.connections = 0
        self.ended = 0
        """Connections that the gate, or the site, has ended."""
        self.given_up: list[str] = []
        """Paths of the streams that the gate reset."""
        self.lines: list[asyncio.StreamWriter] = []
        self._changed = asyncio.Condition()
        self._tasks: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.url = f"https://127.0.0.1:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for line in self.lines:
            line.transport.abort()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(condition)

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.seen]

    async def _note(self, came: Came | None = None) -> None:
        async with self._changed:
            if came is not None:
                self.seen.append(came)
            self._changed.notify_all()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.lines.append(writer)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        try:
            speaks = self._http2 if agreed == "h2" or "http/1.1" not in self._alpn else self._http1
            with suppress(OSError, ProtocolError):
                await speaks(reader, writer, self.connections)
            self.ended += 1
            await self._note()
        finally:
            writer.close()
            with suppress(OSError, ssl.SSLError):
                await writer.wait_closed()

    async def _http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        protocol = lenient(client=False)
        protocol.local_settings = Settings(
            client=False, initial_values={SettingCodes.MAX_CONCURRENT_STREAMS: self._streams}
        )
        protocol.initiate_connection()
        writer.write(protocol.data_to_send())
        heads: dict[int, Came] = {}
        changed = asyncio.Event()
        while data := await reader.read(1 << 16):
            events = protocol.receive_data(data)
            changed.set()
            for event in events:
                if isinstance(event, RequestReceived):
                    fields = tuple((name.decode(), value.decode("latin-1")) for name, value in event.headers)
                    pseudo = dict(fields)
                    heads[event.stream_id] = Came(
                        pseudo[":method"], pseudo[":path"], fields, b"", "h2", number, event.stream_id
                    )
                elif isinstance(event, StreamReset):
                    self.given_up.append(heads[event.stream_id].path)
                    await self._note()
                elif isinstance(event, StreamEnded):
                    came = heads[event.stream_id]
                    await self._note(came)
                    line = Line(protocol, writer, came, changed)
                    done = self.behaviours.get(came.path, Line.answer)(line)
                    if done is not None:
                        task = asyncio.ensure_future(done)
                        self._tasks.add(task)
                        task.add_done_callback(self._tasks.discard)
            writer.write(protocol.data_to_send())
            await writer.drain()

    async def _http1(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int) -> None:
        protocol = h11.Connection(h11.SERVER)
        head: h11.Request | None = None
        body = b""
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(1 << 16))
            elif isinstance(event, h11.Request):
                head, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
                came = Came(head.method.decode(), head.target.decode(), headers, body, "http/1.1", number)
                await self._note(came)
                if came.path in self.silent:
                    return
                writer.write(OK_1)
                protocol.send(h11.Response(status_code=200, headers=[("Content-Length", "0")]))
                protocol.send(h11.EndOfMessage())
                if protocol.our_state is not h11.DONE:
                    return
                protocol.start_next_cycle()
            else:
                return


@dataclass
class _Asked:
    headers: tuple[tuple[str, str], ...] = ()
    body: bytearray = field(default_factory=bytearray)
    ended: bool = False
    reset: int | None = None


class Http2Client:
    """A browser's connection to the gate, by hand, with HTTP/2 agreed upon."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, authority: str) -> None:
        self.writer = writer
        self.authority = authority
        self.protocol = lenient(client=True)
        self.asked: dict[int, _Asked] = {}
        self.closed = False
        self.ended_with: int | None = None
        """The code of the gate's GOAWAY."""
        self.takes = True
        """Whether what comes is taken, so that more may follow."""
        self._reader = reader
        self._changed = asyncio.Condition()
        self.protocol.initiate_connection()
        self.flush()
        self._reading = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, gate_address: str, url: str, authority_pem: bytes) -> Self:
        authority = url.partition("://")[2]
        host, port = gate_address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
        answer = await reader.readuntil(b"\r\n\r\n")
        if b" 200 " not in answer:
            writer.close()
            raise ConnectionError(answer.decode())
        context = ssl.create_default_context(cadata=authority_pem.decode())
        context.set_alpn_protocols(["h2", "http/1.1"])
        await writer.start_tls(context, server_hostname=authority.partition(":")[0])
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        return cls(reader, writer, authority)

    async def close(self) -> None:
        self.writer.transport.abort()
        await self._reading
        with suppress(OSError, ssl.SSLError):
            await self.writer.wait_closed()

    def flush(self) -> None:
        self.writer.write(self.protocol.data_to_send())

    def raw(self, data: bytes) -> None:
        self.flush()
        self.writer.write(data)

    def fields(self, method: str, path: str, *extra: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
        return [
            (b":method", method.encode()),
            (b":authority", self.authority.encode()),
            (b":scheme", b"https"),
            (b":path", path.encode()),
            *extra,
        ]

    def begin(self, fields: Fields, *, end: bool = True) -> int:
        stream = self.protocol.get_next_available_stream_id()
        self.asked[stream] = _Asked()
        self.protocol.send_headers(stream, fields, end_stream=end)
        self.flush()
        return stream

    async def send(self, stream: int, body: bytes, *, end: bool = True) -> None:
        """The body, as the windows allow."""
        while body:
            room = min(len(body), self.protocol.local_flow_control_window(stream), 16384)
            if room <= 0:
                await self.until(lambda: self._may_send(stream))
                assert not self.closed
                continue
            self.protocol.send_data(stream, body[:room], end_stream=end and room == len(body))
            body = body[room:]
            self.flush()
            await self.writer.drain()

    async def ask(
        self, method: str, path: str, body: bytes | None = None, *extra: tuple[bytes, bytes], dest: str = "empty"
    ) -> Got:
        more = ((b"content-length", b"%d" % len(body)),) if body is not None else ()
        fields = self.fields(method, path, (b"sec-fetch-dest", dest.encode()), *more, *extra)
        stream = self.begin(fields, end=not body)
        if body:
            await self.send(stream, body)
        return await self.answer(stream)

    def _may_send(self, stream: int) -> bool:
        over = self.closed or self.asked[stream].reset is not None
        return over or self.protocol.local_flow_control_window(stream) > 0

    async def answer(self, stream: int) -> Got:
        """Raises ConnectionError when the stream ended without a head."""
        asked = self.asked[stream]
        await self.until(lambda: asked.ended or asked.reset is not None or self.closed)
        if not asked.headers:
            raise ConnectionError(f"no answer (reset: {asked.reset})")
        headers = tuple((name, value) for name, value in asked.headers if name != ":status")
        return Got(int(dict(asked.headers)[":status"]), headers, bytes(asked.body), asked.ended)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S), self._changed:
            await self._changed.wait_for(condition)

    async def _read(self) -> None:
        with suppress(OSError, ssl.SSLError, ProtocolError):
            while data := await self._reader.read(1 << 16):
                for event in self.protocol.receive_data(data):
                    self._happened(event)
                self.flush()
                async with self._changed:
                    self._changed.notify_all()
        self.closed = True
        async with self._changed:
            self._changed.notify_all()

    def _happened(self, event: object) -> None:
        if isinstance(event, ResponseReceived):
            headers = tuple((name.decode(), value.decode("latin-1")) for name, value in event.headers)
            self.asked[event.stream_id].headers = headers
        elif isinstance(event, DataReceived):
            self.asked[event.stream_id].body += event.data
            if self.takes:
                self.protocol.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, StreamEnded):
            self.asked[event.stream_id].ended = True
        elif isinstance(event, StreamReset):
            self.asked[event.stream_id].reset = int(event.error_code)
        elif isinstance(event, ConnectionTerminated):
            self.ended_with = int(event.error_code)
        else:
            assert not isinstance(event, WindowUpdated) or event.delta
