"""A site that speaks WebSocket and keeps its own record of what arrived, and a page's side of one through a gate."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

import h11
from gate_origin import Client
from threaded_listener import ThreadedListener
from wsproto.connection import CLIENT, SERVER, Connection
from wsproto.events import BytesMessage, CloseConnection, Ping, Pong, TextMessage

from executor.gate.websocket_handshake import accept

Head = list[tuple[bytes, bytes]]


def good(key: str) -> bytes:
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: " + accept(key).encode() + b"\r\n\r\n"
    )


@dataclass
class WebSocketSite(ThreadedListener):
    """Listens on 127.0.0.1. `arrived` is the ground truth: whole messages of pages, in order; `closes` the goodbyes
    (0: the connection ended without one)."""

    tls: ssl.SSLContext | None = None
    answer: Callable[[str], bytes] = good
    greeting: tuple[str, ...] = ()
    echo: bool = False
    asleep: bool = False
    """Read nothing after the handshake until `wake`."""
    handshakes: list[Head] = field(default_factory=list)
    arrived: list[str | bytes] = field(default_factory=list)
    pongs: int = 0
    closes: list[int] = field(default_factory=list)
    resets: int = 0

    def __enter__(self) -> Self:
        self.wake = threading.Event()
        self._changed = threading.Condition()
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        self.wake.set()
        super().__exit__()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def until(self, condition: Callable[[], bool]) -> None:
        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(condition, 10)

        await asyncio.to_thread(wait)

    def _tell(self, change: Callable[[], object]) -> None:
        with self._changed:
            change()
            self._changed.notify_all()

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            if self.tls:
                connection = self.tls.wrap_socket(plain, server_side=True)
                self._open.append(connection)
            self._speak(connection)
        except ConnectionResetError:
            self._tell(lambda: setattr(self, "resets", self.resets + 1))
        except (OSError, ssl.SSLError):
            pass
        finally:
            connection.close()

    def _speak(self, connection: socket.socket) -> None:
        reader = h11.Connection(h11.SERVER)
        while not isinstance(event := reader.next_event(), h11.Request):
            if event is not h11.NEED_DATA:
                return
            reader.receive_data(connection.recv(1 << 16))
        self._tell(lambda: self.handshakes.append(event.headers.raw_items()))
        key = dict(event.headers)[b"sec-websocket-key"].decode()
        frames = Connection(SERVER)
        answer = self.answer(key) + b"".join(frames.send(TextMessage(one)) for one in self.greeting)
        connection.sendall(answer)
        if self.asleep:
            self.wake.wait(10)
        while data := connection.recv(1 << 16):
            frames.receive_data(data)
            for event in frames.events():
                if isinstance(event, TextMessage | BytesMessage):
                    self._tell(
                        lambda one=event: self.arrived.append(
                            one.data if isinstance(one, TextMessage) else bytes(one.data)
                        )
                    )
                    if self.echo:
                        connection.sendall(frames.send(event))
                elif isinstance(event, Pong):
                    self._tell(lambda: setattr(self, "pongs", self.pongs + 1))
                elif isinstance(event, Ping):
                    connection.sendall(frames.send(event.response()))
                elif isinstance(event, CloseConnection):
                    connection.sendall(frames.send(event.response()))
                    self._tell(lambda one=event: self.closes.append(one.code))
                    return
        self._tell(lambda: self.closes.append(0))


@dataclass
class Page:
    """The page's side of an open WebSocket."""

    client: Client
    head: bytes
    frames: Connection

    @classmethod
    async def open(
        cls, client: Client, target: str = "/presence", *, lines: tuple[str, ...] | None = None, **more: str
    ) -> Page:
        """Shake hands. Raises ConnectionError with the gate's head when there is no 101."""
        key = base64.b64encode(os.urandom(16)).decode()
        fields = {
            "Host": client.host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Origin": "http://page.example",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits",
            **{name.replace("_", "-"): value for name, value in more.items()},
        }
        shown = [f"{name}: {value}" for name, value in fields.items() if value]
        head = "\r\n".join([f"GET {target} HTTP/1.1", *shown, *(lines or ())]) + "\r\n\r\n"
        await client.send(head.encode())
        answer = await client.reader.readuntil(b"\r\n\r\n")
        if not answer.startswith(b"HTTP/1.1 101 "):
            raise ConnectionError(answer.decode())
        return cls(client, answer, Connection(CLIENT))

    async def say(self, message: str | bytes) -> None:
        await self.client.send(self.frame(message))

    def frame(self, message: str | bytes, *, last: bool = True) -> bytes:
        if isinstance(message, str):
            return self.frames.send(TextMessage(message, message_finished=last))
        return self.frames.send(BytesMessage(message, message_finished=last))

    async def hear(self) -> str | bytes | int:
        """The next message, or the code of the goodbye."""
        while True:
            for event in self.frames.events():
                if isinstance(event, CloseConnection):
                    return event.code
                if isinstance(event, TextMessage | BytesMessage):
                    return event.data if isinstance(event, TextMessage) else bytes(event.data)
            data = await asyncio.wait_for(self.client.reader.read(1 << 16), 10)
            self.frames.receive_data(data or None)
