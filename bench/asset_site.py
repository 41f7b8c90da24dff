"""A page with many assets over TLS, in a process of its own, so that its work is not counted as anybody's.

Speaks HTTP/1.1, or HTTP/2 as well where it is asked to (ALPN). It answers every GET and keeps no record: what arrives
is the business of tests, here only time counts. Started by `python -m bench.asset_site`; prints its address and the
path of the certificate to trust as one line of JSON, and ends when its standard input does.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import ipaddress
import json
import ssl
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, RequestReceived, WindowUpdated
from h2.exceptions import ProtocolError

SCRIPT = b"window.loaded = (window.loaded || 0) + 1;\n" + b"// " + b"p" * 3000 + b"\n"
PICTURE = b"x" * 50_000
"""No picture: the browser fetches it all the same, and decoding would be counted otherwise."""


class Assets:
    """What each path holds. `scripts` of 3 kB and `pictures` of 50 kB, cacheable for ten minutes."""

    def __init__(self, scripts: int, pictures: int) -> None:
        parts = [f"<script src=/script-{number}.js></script>" for number in range(scripts)]
        parts += [f"<img src=/picture-{number}.png alt=''>" for number in range(pictures)]
        self.page = ("<!doctype html><title>Assets</title><link rel=icon href='data:,'>" + "".join(parts)).encode()

    def at(self, path: str) -> tuple[bytes, bytes]:
        """Content type and body."""
        if path.startswith("/script-"):
            return b"text/javascript", SCRIPT
        if path.startswith("/picture-"):
            return b"image/png", PICTURE
        return b"text/html", self.page


async def _http1(assets: Assets, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        head = await reader.readuntil(b"\r\n\r\n")
        kind, body = assets.at(head.split(b" ", 2)[1].decode("latin-1"))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nCache-Control: max-age=600\r\nContent-Length: %d\r\n\r\n"
            % (kind, len(body))
            + body
        )
        await writer.drain()


async def _http2(assets: Assets, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    protocol = H2Connection(H2Configuration(client_side=False, header_encoding="utf-8"))
    protocol.initiate_connection()
    waiting: dict[int, bytes] = {}
    while True:
        for stream in tuple(waiting):
            body = waiting[stream]
            while body and (
                window := min(protocol.local_flow_control_window(stream), protocol.max_outbound_frame_size)
            ):
                protocol.send_data(stream, body[:window], end_stream=len(body) <= window)
                body = body[window:]
            waiting[stream] = body
            if not body:
                del waiting[stream]
        writer.write(protocol.data_to_send())
        await writer.drain()
        data = await reader.read(65536)
        if not data:
            return
        for event in protocol.receive_data(data):
            if isinstance(event, RequestReceived):
                asked = {str(name): str(value) for name, value in event.headers}
                kind, body = assets.at(asked[":path"])
                answer = [(":status", "200"), ("content-type", kind.decode()), ("cache-control", "max-age=600")]
                protocol.send_headers(event.stream_id, [*answer, ("content-length", str(len(body)))])
                waiting[event.stream_id] = body
            elif isinstance(event, ConnectionTerminated):
                return
            elif isinstance(event, WindowUpdated):
                continue


def _certificate(folder: Path, host: str) -> Path:
    """One self-signed certificate with its key, for `host` (an IP address)."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Asset site")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=7))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(host))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "site.pem"
    file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    key_file = folder / "site.key"
    key_file.touch(mode=0o600)
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return file


async def serve(host: str, shown_as: str, protocols: list[str], assets: Assets, folder: Path) -> None:
    """Listen on `host` until standard input ends; the certificate names `shown_as`, under which clients reach it."""
    certificate = _certificate(folder, shown_as)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, folder / "site.key")
    context.set_alpn_protocols(protocols)

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        agreed = writer.get_extra_info("ssl_object").selected_alpn_protocol()
        # Browsers close connections in the middle of anything, and that is no news to a benchmark.
        with suppress(OSError, asyncio.IncompleteReadError, ProtocolError):
            await (_http2 if agreed == "h2" else _http1)(assets, reader, writer)
        writer.close()

    server = await asyncio.start_server(connection, host, 0, ssl=context, backlog=512)
    port = server.sockets[0].getsockname()[1]
    print(json.dumps({"url": f"https://{shown_as}:{port}", "certificate": str(certificate)}), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    server.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--shown-as", help="the address by which clients reach it, where it is another one")
    parser.add_argument("--http2", action="store_true")
    parser.add_argument("--scripts", type=int, default=150)
    parser.add_argument("--pictures", type=int, default=20)
    given = parser.parse_args()
    protocols = ["h2", "http/1.1"] if given.http2 else ["http/1.1"]
    with tempfile.TemporaryDirectory(prefix="interlock-bench-") as folder:
        assets = Assets(given.scripts, given.pictures)
        asyncio.run(serve(given.host, given.shown_as or given.host, protocols, assets, Path(folder)))


if __name__ == "__main__":
    main()
