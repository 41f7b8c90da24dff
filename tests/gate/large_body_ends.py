"""Both ends of a large request, in a process of their own so that the gate's memory can be told from theirs: a site
that counts and digests what arrives, and a client that sends it through a gate.

Prints the site's port; then takes one line of JSON for each request: gate, method, path, MiB, and how it is framed.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sys

PIECE = bytes(range(256)) * 256
BOUNDARY = b"----interlock"
BEFORE = (
    b'--%b\r\nContent-Disposition: form-data; name="do"\r\n\r\npublish\r\n'
    b'--%b\r\nContent-Disposition: form-data; name="film"; filename="film.bin"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n"
) % (BOUNDARY, BOUNDARY)
AFTER = b"\r\n--%b--\r\n" % BOUNDARY


class Site:
    """Takes one request to a connection; `arrived` is what it got."""

    def __init__(self) -> None:
        self.arrived: list[dict[str, object]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:-2])
            missing, digest = int(fields["content-length"]), hashlib.sha256()
            size = missing
            while missing:
                data = await reader.read(min(missing, 1 << 20))
                if not data:
                    break
                digest.update(data)
                missing -= len(data)
            self.arrived.append(
                {"line": head.split(" HTTP")[0], "size": size, "missing": missing, "sha256": digest.hexdigest()}
            )
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the gate thought better of it
        writer.close()


async def send(order: dict[str, str], port: int) -> dict[str, object]:
    """One request through the gate, as fast as it is taken."""
    host, gate_port = order["gate"].removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(gate_port))
    pieces = int(order["mib"]) * 16
    form = order["framing"] == "multipart"
    first, last = (BEFORE, AFTER) if form else (b"", b"")
    size, digest = len(first) + pieces * len(PIECE) + len(last), hashlib.sha256()
    kind = f"multipart/form-data; boundary={BOUNDARY.decode()}" if form else "application/octet-stream"
    chunked = order["framing"] == "chunked"
    framing = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    url = f"http://127.0.0.1:{port}"
    head = f"{order['method']} {url}{order['path']} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: {kind}\r\n"
    writer.write(f"{head}{framing}\r\n\r\n".encode())
    for piece in (first, *(PIECE for _ in range(pieces)), last):
        digest.update(piece)
        if piece:
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
        await writer.drain()
    if chunked:
        writer.write(b"0\r\n\r\n")
    status = (await reader.readline()).decode().split(" ")[1]
    writer.close()
    return {"status": status, "size": size, "sha256": digest.hexdigest()}


async def main() -> None:
    site = Site()
    server = await asyncio.start_server(site.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    sys.stdout.write(f"{port}\n")
    sys.stdout.flush()
    while line := await asyncio.to_thread(sys.stdin.readline):
        site.arrived.clear()
        sent = await send(json.loads(line), port)
        sys.stdout.write(json.dumps({"sent": sent, "arrived": site.arrived}) + "\n")
        sys.stdout.flush()
    server.close()


if __name__ == "__main__":
    asyncio.run(main())
