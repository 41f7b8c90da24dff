"""A site on a bare socket that keeps its own record of what arrived, and a client that speaks through a gate."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import h11
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

OK = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"


@dataclass(frozen=True)
class Arrived:
    """One whole request as the site read it. `connection` and `index` say over which connection, and as which on it."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    connection: int
    index: int

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)


Behaviour = Callable[[Arrived, "Line"], None]


class Line:
    """One connection of the site, for a behaviour to misuse."""

    def __init__(self, connection: socket.socket, stopping: threading.Event) -> None:
        self.socket = connection
        self.ended = False
        self.stopping = stopping

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def close(self) -> None:
        self.ended = True

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.ended = True


def answering(data: bytes) -> Behaviour:
    return lambda arrived, line: line.send(data)


def never_answering(arrived: Arrived, line: Line) -> None:
    """Hold the connection open until the test ends or the other side closes."""
    line.socket.settimeout(20)
    line.socket.recv(1)
    line.close()


@dataclass
class Origin:
    """Listens on 127.0.0.1. `seen` is the ground truth: whole requests, in order of arrival; `raw` every byte."""

    tls: ssl.SSLContext | None = None
    behaviour: Behaviour = field(default_factory=lambda: answering(OK))
    seen: list[Arrived] = field(default_factory=list)
    raw: bytearray = field(default_factory=bytearray)
    connections: int = 0
    host: str = "127.0.0.1"

    def __enter__(self) -> Origin:
        self._stopping = threading.Event()
        self._changed = threading.Condition()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lines: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for line in list(self._lines):
            with contextlib.suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for thread in list(self._threads):
            thread.join(5)
            assert not thread.is_alive()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something arrived that makes `condition` true."""

        def wait() -> None:
            with self._changed:
                assert self._changed.wait_for(condition, 10)

        await asyncio.to_thread(wait)

    def drop_last(self) -> None:
        """Close the newest connection from the site's side."""
        self._lines[-1].shutdown(socket.SHUT_RDWR)

    def bodies(self, method: str = "POST") -> list[bytes]:
        return [one.body for one in self.seen if one.method == method]

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            with self._changed:
                self.connections += 1
                self._lines.append(connection)
                self._changed.notify_all()
            thread = threading.Thread(target=self._serve, args=(connection, self.connections))
            self._threads.append(thread)
            thread.start()

    def _serve(self, plain: socket.socket, number: int) -> None:
        connection = plain
        try:
            if self.tls:
                connection = self.tls.wrap_socket(plain, server_side=True)
                self._lines.append(connection)
            self._requests(connection, number)
        except (OSError, ssl.SSLError, h11.RemoteProtocolError):
            pass
        finally:
            connection.close()

    def _requests(self, connection: socket.socket, number: int) -> None:
        line = Line(connection, self._stopping)
        reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
        index = 0
        while not line.ended:
            head, body = None, b""
            while True:
                event = reader.next_event()
                if event is h11.NEED_DATA:
                    data = connection.recv(1 << 16)
                    self.raw += data
                    reader.receive_data(data)
                elif isinstance(event, h11.Request):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    break
                else:
                    return
            assert head is not None
            headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
            arrived = Arrived(head.method.decode(), head.target.decode(), headers, body, number, index)
            index += 1
            with self._changed:
                self.seen.append(arrived)
                self._changed.notify_all()
            self.behaviour(arrived, line)
            # What was sent went around h11; the next request is read by a new one.
            trailing = reader.trailing_data[0]
            reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
            if trailing:
                reader.receive_data(trailing)


class TestAuthority:
    """A certificate authority made for the test, with leaves good and bad."""

    __test__ = False

    def __init__(self, folder: Path, name: str = "test authority") -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.file = folder / f"{name.replace(' ', '-')}.pem"
        self._certificate = (
            self._builder(self._name, self._key, 10)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, *, host: str = "127.0.0.1", days: int = 5) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        try:
            alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            alternative = x509.DNSName(host)
        leaf = (
            self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)]), key, days)
            .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        file = self._folder / f"leaf-{host}-{days}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
            + leaf.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        return context

    def client(self, *, name: str = "caller", days: int = 5, password: str = "") -> tuple[Path, Path]:
        """A certificate to show to a site and its key, in two files."""
        key = ec.generate_private_key(ec.SECP256R1())
        leaf = self._builder(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]), key, days).sign(
            self._key, hashes.SHA256()
        )
        certificate, key_file = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        certificate.write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        key_file.touch(mode=0o600)
        key_file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption(),
            )
        )
        return certificate, key_file

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=30))
            .not_valid_after(now + timedelta(days=days))
        )


@dataclass(frozen=True)
class Got:
    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    whole: bool

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def interlock(self) -> str | None:
        return self.header("x-interlock")


class Client:
    """A browser's connection to the gate, by hand. `get_through` opens it for one origin."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, host: str, absolute: str) -> None:
        self.reader = reader
        self.writer = writer
        self.host = host
        self._absolute = absolute
        self._left = b""

    @classmethod
    async def open(
        cls, gate_address: str, url: str, *, tunnel: bool | None = None, authority_pem: bytes = b"", sni: str = ""
    ) -> Client:
        scheme, _, authority = url.partition("://")
        gate_host, gate_port = gate_address.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(gate_host, int(gate_port))
        tunnel = scheme == "https" if tunnel is None else tunnel
        if tunnel:
            writer.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n".encode())
            answer = await reader.readuntil(b"\r\n\r\n")
            if b" 200 " not in answer:
                writer.close()
                raise ConnectionError(answer.decode())
        if scheme == "https":
            context = ssl.create_default_context(cadata=authority_pem.decode())
            await writer.start_tls(context, server_hostname=sni or authority.partition(":")[0])
        return cls(reader, writer, authority, "" if tunnel else url)

    async def ask(
        self, method: str, target: str, body: bytes | None = None, *, host: str | None = None, **headers: str
    ) -> Got:
        lines = [f"{method} {self._absolute}{target} HTTP/1.1", f"Host: {host or self.host}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        if body is not None and "Transfer_Encoding" not in headers:
            lines.append(f"Content-Length: {len(body)}")
        await self.send("\r\n".join(lines).encode() + b"\r\n\r\n" + (body or b""))
        return await self.answer(method)

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self, method: str = "GET") -> Got:
        """The next answer. Raises ConnectionError when the connection ends without a byte of one."""
        reader = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
        reader.send(h11.Request(method=method, target="/", headers=[("host", "x")]))
        reader.send(h11.EndOfMessage())
        if self._left:
            reader.receive_data(self._left)
        head, body, whole, received = None, b"", False, len(self._left)
        try:
            while True:
                event = reader.next_event()
                if event is h11.NEED_DATA:
                    data = await self.reader.read(1 << 18)
                    received += len(data)
                    reader.receive_data(data)
                elif isinstance(event, h11.Response):
                    head = event
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    whole = True
                    break
                elif isinstance(event, h11.ConnectionClosed):
                    break
        except (h11.RemoteProtocolError, ConnectionError):
            pass
        self._left = reader.trailing_data[0]
        if head is None:
            raise ConnectionError(f"no answer ({received} bytes)")
        headers = tuple((name.decode(), value.decode("latin-1")) for name, value in head.headers)
        return Got(head.status_code, headers, body, whole)

    async def at_end(self) -> bool:
        """Whether the gate closed the connection without sending anything more."""
        try:
            return await self.reader.read(1) == b""
        except ConnectionError:
            return True

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            await self.writer.wait_closed()
