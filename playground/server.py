"""The listener: asyncio and h11 on a plain and a TLS port, one record of every request, faults on the socket.

Serves HTTP/1.1 with keep-alive on loopback only. It decides nothing about the site: the app plans, the fault
queue may interfere, and the plan is run at the point that the fault leaves to it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import itertools
import socket
import ssl
import struct
from dataclasses import replace
from email.utils import formatdate
from http import HTTPStatus

import h11

from playground import faults, hazards, sockets
from playground.app import App
from playground.faults import Shorten
from playground.http2 import Http2Connection, Http2Stream
from playground.messages import Plan, Request, Response, plain
from playground.truth import Truth

MAX_BODY_BYTES = 64 * 1024 * 1024
_WEBSOCKET_KEY = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"  # RFC 6455 section 1.3
_SURPLUS_BYTES = 512


class Server:
    """Both listeners over one record. Use `start`, then `close`."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._app = App(truth)
        self._numbers = itertools.count(truth.last_connection() + 1)
        self._listeners: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self, port: int = 0, *, tls: ssl.SSLContext | None = None) -> int:
        """Listen on 127.0.0.1 (0: any free port) and return the port. Raises OSError when it is taken."""
        scheme = "http" if tls is None else "https"

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(reader, writer, scheme)

        listener = await asyncio.start_server(accept, "127.0.0.1", port, ssl=tls)
        self._listeners.append(listener)
        return int(listener.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and end every connection."""
        for listener in self._listeners:
            listener.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scheme: str) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if _agreed_on_http2(writer):
            await self._serve_http2(reader, writer)
            return
        connection = _Connection(reader, writer, scheme, next(self._numbers))
        try:
            await self._exchange_all(connection)
        except (ConnectionError, ssl.SSLError, h11.RemoteProtocolError, h11.LocalProtocolError):
            connection.reset()  # the client went away or does not speak HTTP; there is nobody to tell
        except asyncio.CancelledError:
            connection.reset()  # the server is stopping; a cancelled task of a listener must end quietly
        finally:
            connection.close()
            with contextlib.suppress(ConnectionError, ssl.SSLError, TimeoutError):
                async with asyncio.timeout(2):  # a peer may never acknowledge the end of its TLS session
                    await writer.wait_closed()

    async def _serve_http2(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Http2Connection(reader, writer, next(self._numbers), most_bytes=MAX_BODY_BYTES)

        async def serve(stream: Http2Stream, received: Request, number: int) -> None:
            request = self._app.identify(received)
            await self._carry_out(stream, request, number, self._app.plan(request))

        try:
            await connection.run(serve)
        except (ConnectionError, ssl.SSLError, asyncio.CancelledError):
            writer.transport.abort()  # the client went away, or the server is stopping
        finally:
            connection.close()

    async def _exchange_all(self, connection: _Connection) -> None:
        number = 0
        while (received := await connection.receive()) is not None:
            number += 1
            request = self._app.identify(received)
            if request.path == hazards.TARGETS + hazards.Hazard.WS and request.header("upgrade"):
                await self._websocket(connection, request, number)
                return
            if request.path == sockets.PRESENCE and request.header("upgrade"):
                await self._presence(connection, request, number)
                return
            plan = self._app.plan(request)
            await self._carry_out(connection, request, number, plan)
            if not connection.reusable():
                return

    async def _carry_out(
        self, connection: _Connection | Http2Stream, request: Request, number: int, plan: Plan
    ) -> None:
        admission = self._truth.admit(
            request,
            connection=connection.number,
            number=number,
            hazard=hazards.name_in(request.path),
            commit=plan.commit,
        )

        def run(*, queued: bool = False, pretend: bool = False, shorten: Shorten = Shorten.NOTHING) -> Response:
            response = plan.run(admission.seq, queued and not pretend)
            if pretend:
                self._truth.hold_back(admission.seq)
            if shorten is not Shorten.NOTHING:
                self._truth.shorten(admission.seq, title=shorten is Shorten.ALL)
            return response

        if admission.fault is None:
            await connection.answer(run())
        else:
            as_json = request.header("content-type").startswith("application/json")
            await faults.perform(admission.fault, admission.argument, connection, run, as_json=as_json)

    async def _websocket(self, connection: _Connection, request: Request, number: int) -> None:
        """Accept the WebSocket hazard, record the first frame as a write of its own, and end."""
        self._admit_websocket(connection, request, number)
        frame = await connection.first_frame(request)
        if frame:
            self._admit_websocket(connection, replace(request, method="WEBSOCKET", body=frame), number)

    async def _presence(self, connection: _Connection, request: Request, number: int) -> None:
        """The live composer's WebSocket, for those who are signed in."""

        def admit(one: Request) -> int:
            return self._truth.admit(one, connection=connection.number, number=number).seq

        admit(request)
        if request.account is None:
            await connection.answer(plain("Sign in first.", 403))
            return
        first = await connection.switch(request)
        await sockets.attend(connection, first, request, self._truth, admit)

    def _admit_websocket(self, connection: _Connection, request: Request, number: int) -> None:
        self._truth.admit(request, connection=connection.number, number=number, hazard=hazards.Hazard.WS)


def _agreed_on_http2(writer: asyncio.StreamWriter) -> bool:
    session = writer.get_extra_info("ssl_object")
    return session is not None and session.selected_alpn_protocol() == "h2"


class _Connection:
    """One accepted connection; acts as the `Wire` of faults."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, scheme: str, number: int) -> None:
        self.number = number
        self._reader = reader
        self._writer = writer
        self._scheme = scheme
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=64 * 1024)
        self._head = False
        self._ended = False

    async def receive(self) -> Request | None:
        """The next whole request, or None when the client has ended the connection."""
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = self._http.next_event()
            if event is h11.NEED_DATA:
                if self._http.they_are_waiting_for_100_continue:
                    await self._send(h11.InformationalResponse(status_code=100, headers=[], reason="Continue"))
                self._http.receive_data(await self._reader.read(64 * 1024))
            elif isinstance(event, h11.Request):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > MAX_BODY_BYTES:
                    raise h11.RemoteProtocolError("body too large", error_status_hint=413)
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                return self._request(head, bytes(body))
            else:
                return None

    def _request(self, head: h11.Request, body: bytes) -> Request:
        method = head.method.decode()
        self._head = method == "HEAD"
        return Request(
            method=method,
            target=head.target.decode("latin-1"),
            headers=tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers),
            body=body,
            scheme=self._scheme,
            version=head.http_version.decode(),
        )

    def reusable(self) -> bool:
        """Whether another request may follow; makes ready for it."""
        if self._ended or self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        return True

    async def answer(self, response: Response, *, close: bool = False) -> None:
        headers = self._headers(response, len(response.body))
        if close:
            headers.append(("Connection", "close"))
        parts: list[h11.Event] = [self._start(response, headers)]
        if response.body and not self._head:
            parts.append(h11.Data(data=response.body))
        await self._send(*parts, h11.EndOfMessage())
        if close:
            self.close()

    async def answer_in_part(self, response: Response) -> None:
        body = response.body or b"<!doctype html>"
        announced = len(body) + _SURPLUS_BYTES
        await self._send(
            self._start(response, self._headers(response, announced)), h11.Data(data=body[: len(body) // 2])
        )
        self.close()

    async def hold(self) -> None:
        while await self._reader.read(64 * 1024):
            pass  # what a client sends after the unanswered request is of no interest
        self.close()

    def reset(self) -> None:
        if not self._ended:
            self._ended = True
            sock = self._writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # already gone: as reset as it can be
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._writer.transport.abort()

    def close(self) -> None:
        if not self._ended:
            self._ended = True
            self._writer.close()

    async def first_frame(self, request: Request) -> bytes:
        """Switch to WebSocket, and return the first bytes that follow."""
        return await self.switch(request) or await self.read()

    async def switch(self, request: Request) -> bytes:
        """Switch to WebSocket (RFC 6455 section 4.2.2), and return what has come of it already."""
        key = request.header("sec-websocket-key").encode() + _WEBSOCKET_KEY
        accept = base64.b64encode(hashlib.sha1(key, usedforsecurity=False).digest()).decode()
        headers = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", accept)]
        await self._send(h11.InformationalResponse(status_code=101, headers=headers))
        already, _ = self._http.trailing_data
        return already

    async def read(self) -> bytes:
        return await self._reader.read(64 * 1024)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    @staticmethod
    def _headers(response: Response, length: int) -> list[tuple[str, str]]:
        headers = [("Date", formatdate(usegmt=True)), *response.headers]
        if response.status not in (204, 304):
            headers.append(("Content-Length", str(length)))
        return headers

    @staticmethod
    def _start(response: Response, headers: list[tuple[str, str]]) -> h11.Response:
        reason = HTTPStatus(response.status).phrase
        return h11.Response(status_code=response.status, headers=headers, reason=reason)

    async def _send(self, *events: h11.Event) -> None:
        data = b"".join(self._http.send(event) or b"" for event in events)
        self._writer.write(data)
        await self._writer.drain()
