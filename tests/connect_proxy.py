"""A proxy as companies have them, with a record of every connection and of every byte that it carried."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

from threaded_listener import ThreadedListener


@dataclass
class Carried:
    """One connection to the proxy. `to_site` and `from_site` are what it could read of the tunnel."""

    target: str = ""
    headers: dict[str, str] = field(default_factory=dict)
    head: bytes = b""
    status: int = 0
    to_site: bytearray = field(default_factory=bytearray)
    from_site: bytearray = field(default_factory=bytearray)


Answer = Callable[[socket.socket, Carried], bool]
"""Answers a CONNECT; True where a tunnel is to follow."""


def tunnelling(connection: socket.socket, carried: Carried) -> bool:
    return say(200)(connection, carried)


def say(status: int, extra: bytes = b"") -> Answer:
    """Answer with this status; a tunnel follows a 2xx alone."""

    def answer(connection: socket.socket, carried: Carried) -> bool:
        carried.status = status
        connection.sendall(b"HTTP/1.1 %d Whatever\r\nVia: 1.1 proxy\r\n\r\n" % status + extra)
        return 200 <= status < 300

    return answer


def closing(connection: socket.socket, carried: Carried) -> bool:
    """Die between CONNECT and its answer."""
    return False


@dataclass
class ConnectProxy(ThreadedListener):
    """Listens on 127.0.0.1. Takes CONNECT and nothing else."""

    answer: Answer = tunnelling
    tls: ssl.SSLContext | None = None
    login: str = ""
    """The Proxy-Authorization that is asked for, if any."""
    log: list[Carried] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    @property
    def targets(self) -> list[str]:
        return [one.target for one in self.log]

    def _serve(self, plain: socket.socket) -> None:
        connection = plain
        try:
            if self.tls:
                connection = self.tls.wrap_socket(plain, server_side=True)
                self._open.append(connection)
            self._tunnel(connection)
        except (OSError, ssl.SSLError):
            pass
        finally:
            connection.close()

    def _tunnel(self, connection: socket.socket) -> None:
        carried = Carried()
        while b"\r\n\r\n" not in carried.head:
            data = connection.recv(1 << 16)
            if not data:
                return
            carried.head += data
        self.log.append(carried)
        line, *fields = carried.head.decode("latin-1").rstrip("\r\n").split("\r\n")
        carried.headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in fields)}
        method, carried.target, _ = line.split(" ")
        if self.login and carried.headers.get("proxy-authorization") != self.login:
            say(407)(connection, carried)
            return
        if method != "CONNECT":
            say(405)(connection, carried)
            return
        host, _, port = carried.target.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), 5) as site:
                self._open.append(site)
                site.settimeout(None)
                if self.answer(connection, carried):
                    back = self._start(_pump, site, connection, carried.from_site)
                    _pump(connection, site, carried.to_site)
                    back.join(5)
        except ConnectionRefusedError:
            say(502)(connection, carried)


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    """Carry bytes until the source ends, however it does; its end is passed on."""
    with contextlib.suppress(OSError, ssl.SSLError):
        while data := source.recv(1 << 16):
            kept += data
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_RDWR)
