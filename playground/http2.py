"""One connection that speaks HTTP/2 (RFC 9113): its streams, and the faults as they look there.

A fault that ends a connection in HTTP/1.1 ends the stream here where HTTP/2 has a word for it: a reset is RST_STREAM,
an end in good order is GOAWAY that counts the stream, so that nothing says that it was not processed. Decides nothing
about the site: whoever serves gets whole requests, and answers them through the stream.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from email.utils import formatdate

from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, RequestReceived, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import H2Error
from h2.settings import SettingCodes

from playground.messages import Request, Response

_WINDOW = 1024 * 1024
_SURPLUS_BYTES = 512

Serve = Callable[["Http2Stream", Request, int], Awaitable[None]]


class Http2Connection:
    """Reads until the client ends; every whole request is served in a task of its own."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, number: int, *, most_bytes: int
    ) -> None:
        self.number = number
        self.h2 = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
        self.moved = asyncio.Event()
        """Set whenever a window has grown or a stream has gone."""
        self._reader = reader
        self._writer = writer
        self._most_bytes = most_bytes
        self._streams: dict[int, Http2Stream] = {}
        self._requests = 0

    async def run(self, serve: Serve) -> None:
        """Raises what reading and writing raise, and what a defect in serving raises."""
        self.h2.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW})
        self.h2.initiate_connection()
        self.h2.increment_flow_control_window(_WINDOW)
        serving: set[asyncio.Task[None]] = set()
        try:
            await self.send()
            while data := await self._reader.read(64 * 1024):
                for event in self.h2.receive_data(data):
                    self._take(event, serve, serving)
                await self.send()
        except H2Error:
            await self.send()  # the library has put its GOAWAY there
        except BaseException:
            for task in serving:
                task.cancel()
            raise
        finally:
            for stream in self._streams.values():
                stream.gone = True
            self.wake()
            await asyncio.gather(*serving, return_exceptions=True)
        for task in serving:
            task.result()

    def _take(self, event: object, serve: Serve, serving: set[asyncio.Task[None]]) -> None:
        match event:
            case RequestReceived(stream_id=int() as name, headers=headers):
                self._streams[name] = Http2Stream(self, name, [(str(key), str(value)) for key, value in headers or ()])
            case DataReceived(stream_id=int() as name, data=data, flow_controlled_length=int() as length):
                self.h2.acknowledge_received_data(length, name)
                self._streams[name].body += data or b""
                if len(self._streams[name].body) > self._most_bytes:
                    self.h2.close_connection(ErrorCodes.ENHANCE_YOUR_CALM)
            case StreamEnded(stream_id=int() as name):
                self._requests += 1
                stream = self._streams[name]
                serving.add(asyncio.create_task(self._serve(serve, stream, self._requests)))
            case StreamReset(stream_id=int() as name):
                self._streams[name].gone = True
                self.wake()
            case WindowUpdated():
                self.wake()
            case _:
                pass  # settings and pings are the library's

    async def _serve(self, serve: Serve, stream: Http2Stream, number: int) -> None:
        with contextlib.suppress(ConnectionError, H2Error):  # the client went away while it was answered
            await serve(stream, stream.request(), number)

    def wake(self) -> None:
        self.moved.set()
        self.moved.clear()

    def flush(self) -> None:
        """Hand over what the library has to say, without waiting."""
        self._writer.write(self.h2.data_to_send())

    async def send(self) -> None:
        self.flush()
        await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class Http2Stream:
    """One request and its answer; acts as the `Wire` of faults."""

    def __init__(self, connection: Http2Connection, name: int, headers: list[tuple[str, str]]) -> None:
        self.body = bytearray()
        self.gone = False
        self._connection = connection
        self._name = name
        self._headers = headers
        self._head = False

    @property
    def number(self) -> int:
        return self._connection.number

    def request(self) -> Request:
        pseudo = {name: value for name, value in self._headers if name.startswith(":")}
        fields = [(name, value) for name, value in self._headers if not name.startswith(":")]
        self._head = pseudo[":method"] == "HEAD"
        # Cookies may come in several fields (RFC 9113 section 8.2.3).
        cookie = "; ".join(value for name, value in fields if name == "cookie")
        rest = [(name, value) for name, value in fields if name not in ("cookie", "host")]
        return Request(
            method=pseudo[":method"],
            target=pseudo[":path"],
            headers=(("host", pseudo.get(":authority", "")), *rest, *((("cookie", cookie),) if cookie else ())),
            body=bytes(self.body),
            scheme="https",
            version="2",
        )

    async def answer(self, response: Response, *, close: bool = False) -> None:
        body = b"" if self._head else response.body
        self._begin(response, len(response.body), end=not body)
        await self._connection.send()
        await self._send(body, end=True)
        if close:
            self._go_away()
            await self._connection.send()

    async def answer_in_part(self, response: Response) -> None:
        body = response.body or b"<!doctype html>"
        self._begin(response, len(body) + _SURPLUS_BYTES, end=False)
        await self._send(body[: len(body) // 2], end=False)
        self._connection.h2.reset_stream(self._name, ErrorCodes.INTERNAL_ERROR)
        await self._connection.send()

    async def hold(self) -> None:
        while not self.gone:
            await self._connection.moved.wait()

    def reset(self) -> None:
        self._connection.h2.reset_stream(self._name, ErrorCodes.INTERNAL_ERROR)
        self._connection.flush()

    def close(self) -> None:
        self._go_away()
        self._connection.flush()
        self._connection.close()

    def _go_away(self) -> None:
        self._connection.h2.close_connection(last_stream_id=self._name)

    def _begin(self, response: Response, length: int, *, end: bool) -> None:
        headers = [(":status", str(response.status)), ("date", formatdate(usegmt=True))]
        headers += [(name.lower(), value) for name, value in response.headers]
        if response.status not in (204, 304):
            headers.append(("content-length", str(length)))
        self._connection.h2.send_headers(self._name, headers, end_stream=end)

    async def _send(self, body: bytes, *, end: bool) -> None:
        h2 = self._connection.h2
        while body:
            while not (room := min(h2.local_flow_control_window(self._name), h2.max_outbound_frame_size)):
                await self._connection.moved.wait()
                if self.gone:
                    raise ConnectionResetError("the client gave the stream up")
            piece, body = body[:room], body[room:]
            h2.send_data(self._name, piece, end_stream=end and not body)
            await self._connection.send()
