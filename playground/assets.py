"""Small generated files with caching headers, for the heavy page and for measurements."""

from __future__ import annotations

import hashlib
import re
import struct
import zlib
from functools import lru_cache
from pathlib import Path

from playground.messages import Request, Response, plain

STATIC = Path(__file__).parent / "static"
HEAVY = {"js": 60, "css": 30, "png": 80}
"""How many assets of each type the heavy page loads: 170 in all."""

_ASSET = re.compile(r"/assets/(\d{1,6})\.(js|css|png)")
_KINDS = {"js": "text/javascript", "css": "text/css", "png": "image/png"}


def answer(request: Request) -> Response | None:
    """The answer for `/assets/N.ext` and `/static/NAME`; None when the path is neither."""
    if match := _ASSET.fullmatch(request.path):
        return _cached(request, _make(int(match[1]), match[2]), _KINDS[match[2]])
    if request.path.startswith("/static/"):
        file = STATIC / request.path.removeprefix("/static/")
        kind = _KINDS.get(file.suffix.removeprefix("."))
        if kind is None or file.parent != STATIC or not file.is_file():
            return plain("No such file.", 404)
        return Response(200, file.read_bytes(), (("Content-Type", kind), ("Cache-Control", "no-cache")))
    return None


def _cached(request: Request, body: bytes, kind: str) -> Response:
    tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
    headers = (("ETag", tag), ("Cache-Control", "public, max-age=31536000, immutable"))
    if request.header("if-none-match") == tag:
        return Response(304, b"", headers)
    return Response(200, body, (("Content-Type", kind), *headers))


@lru_cache(maxsize=1024)
def _make(number: int, kind: str) -> bytes:
    if kind == "js":
        return f"(window.loaded ??= []).push({number});\n".encode()
    if kind == "css":
        return f".asset-{number} {{ --asset: {number}; }}\n".encode()
    return _png((number * 47 % 256, 140, 255 - number * 31 % 256))


def _png(colour: tuple[int, int, int], side: int = 16) -> bytes:
    """A square of one colour as PNG (8 bits, RGB)."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(colour) * side) * side
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
