"""What crosses the wire, as a flow author reads it: an outgoing request and the answer to it.

Pure values and parsers. Nothing here opens a socket, and nothing here decides: a reader that cannot read a body
raises `UnreadableBody`, and whoever asked treats that as "does not match" (the gate then refuses the request).
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from email.policy import HTTP
from functools import cached_property
from io import BytesIO
from typing import Any
from urllib.parse import parse_qsl, urlsplit

MAX_DECODED = 64 * 1024 * 1024
"""Bytes. A body that decodes to more than this is not read: a few kilobytes of gzip can hold gigabytes."""


class UnreadableBody(ValueError):
    """The body is not in the form that the reader expects; the message says which form and why."""


class _Headed:
    """Header look-up shared by requests and answers. Names are stored in lower case, order and repeats are kept."""

    headers: tuple[tuple[str, str], ...]

    def header(self, name: str, default: str = "") -> str:
        """The value of a header that occurs once; repeated ones are joined by ", " (RFC 9110 section 5.3)."""
        values = self.header_values(name)
        return ", ".join(values) if values else default

    def header_values(self, name: str) -> tuple[str, ...]:
        wanted = name.lower()
        return tuple(value for key, value in self.headers if key == wanted)

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; empty when there is none."""
        return self.header("content-type").partition(";")[0].strip().lower()


@dataclass(frozen=True, eq=True)
class OutgoingRequest(_Headed):
    """One request as the browser made it, before anything of it has left the machine.

    `target` is the origin form (path and query, as sent). `body` holds every byte of the body; `body_known` is false
    where the gate cannot see it (a sealed tunnel), and every reader of the body then raises `UnreadableBody`.
    """

    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    body_known: bool = True

    @property
    def origin(self) -> str:
        """Scheme, host and port, with the default port left out (RFC 6454 section 6.2)."""
        return origin_of(self.scheme, self.host, self.port)

    @property
    def url(self) -> str:
        return self.origin + self.target

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @cached_property
    def query(self) -> tuple[tuple[str, str], ...]:
        """Names and values of the query, decoded, in order, blank values kept."""
        return tuple(parse_qsl(self.target.partition("?")[2], keep_blank_values=True))

    def query_value(self, name: str) -> str | None:
        """The value of a query name that occurs exactly once, else None: a repeated name is read differently by
        different servers, so no rule may rest on it."""
        values = [value for key, value in self.query if key == name]
        return values[0] if len(values) == 1 else None

    @cached_property
    def cookies(self) -> tuple[tuple[str, str], ...]:
        """Cookie names and values in the order sent (RFC 6265 section 5.4)."""
        pairs: list[tuple[str, str]] = []
        for header in self.header_values("cookie"):
            for part in header.split(";"):
                name, equals, value = part.strip().partition("=")
                if equals:
                    pairs.append((name, value))
        return tuple(pairs)

    @cached_property
    def form(self) -> Form:
        """The fields of an urlencoded or multipart body. Raises `UnreadableBody` for anything else."""
        body = self._readable_body()
        if self.content_type == "application/x-www-form-urlencoded":
            try:
                text = body.decode("ascii")
                fields = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict")
            except (UnicodeDecodeError, ValueError) as error:
                raise UnreadableBody(f"the urlencoded body cannot be read: {error}") from error
            return Form(tuple(fields), ())
        if self.content_type == "multipart/form-data":
            return _multipart(self.header("content-type"), body)
        raise UnreadableBody(f"not a form: content type is {self.content_type or 'absent'}")

    @cached_property
    def json(self) -> Any:
        """The parsed JSON body. A repeated member name is refused: servers disagree on which one counts (RFC 8259)."""
        if self.content_type != "application/json" and not self.content_type.endswith("+json"):
            raise UnreadableBody(f"not JSON: content type is {self.content_type or 'absent'}")
        return _json(self._readable_body())

    def _readable_body(self) -> bytes:
        if not self.body_known:
            raise UnreadableBody("the body of this request is not visible to the gate")
        if coding := self.header("content-encoding"):
            raise UnreadableBody(f"the body is encoded ({coding}); no rule reads an encoded request body")
        return self.body


@dataclass(frozen=True, eq=True)
class Answer(_Headed):
    """The answer to the effect request. `complete` is true only for a whole, well-framed message; a truncated one is
    kept for people to see, and no contract may rest on it."""

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    complete: bool = True

    @property
    def location(self) -> str:
        return self.header("location")

    @cached_property
    def content(self) -> bytes:
        """The body with gzip or deflate undone. Raises `UnreadableBody`."""
        coding = self.header("content-encoding").strip().lower()
        if coding in ("", "identity"):
            return self.body
        try:
            if coding in ("gzip", "x-gzip"):
                return _gunzip(self.body)
            if coding == "deflate":
                return _bounded(zlib.decompressobj(), self.body)
        except (OSError, EOFError, zlib.error) as error:
            raise UnreadableBody(f"the {coding} answer cannot be decoded: {error}") from error
        raise UnreadableBody(f"the answer is encoded as {coding}, which no contract reads")

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    @cached_property
    def json(self) -> Any:
        """The parsed JSON content. Raises `UnreadableBody`."""
        return _json(self.content)


@dataclass(frozen=True)
class Form:
    """Fields of a submitted form. `fields` are names and values in order; `files` are (field, file name, bytes)."""

    fields: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str, bytes], ...]

    def __contains__(self, name: str) -> bool:
        return any(key == name for key, _ in self.fields)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(key for key, _ in self.fields))

    def get(self, name: str) -> str | None:
        """The value of a field that occurs exactly once, else None (see `OutgoingRequest.query_value`)."""
        values = self.all(name)
        return values[0] if len(values) == 1 else None

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.fields if key == name)


def origin_of(scheme: str, host: str, port: int) -> str:
    """ASCII serialisation of an origin; IPv6 addresses in brackets."""
    shown = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(scheme)
    return f"{scheme}://{shown}" if port == default else f"{scheme}://{shown}:{port}"


def origin_of_url(url: str) -> str:
    """The origin of an absolute http(s) URL. Raises ValueError with one sentence for anything else."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an absolute http or https address")
    return origin_of(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))


def _json(data: bytes) -> Any:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise UnreadableBody("the JSON body repeats a member name")
        return found

    def no_constant(name: str) -> Any:
        raise UnreadableBody(f"the JSON body holds {name}, which JSON does not have")

    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant)
    except (UnicodeDecodeError, json.JSONDecodeError, RecursionError) as error:
        raise UnreadableBody(f"the JSON body cannot be read: {error}") from error


def _gunzip(data: bytes) -> bytes:
    with gzip.GzipFile(fileobj=BytesIO(data)) as stream:
        content = stream.read(MAX_DECODED + 1)
    if len(content) > MAX_DECODED:
        raise UnreadableBody(f"the answer decodes to more than {MAX_DECODED} bytes")
    return content


def _bounded(decoder: Any, data: bytes) -> bytes:
    content: bytes = decoder.decompress(data, MAX_DECODED)
    if decoder.unconsumed_tail:
        raise UnreadableBody(f"the answer decodes to more than {MAX_DECODED} bytes")
    if not decoder.eof:
        raise UnreadableBody("the deflate answer ends early")
    return content


def _multipart(content_type: str, body: bytes) -> Form:
    """RFC 7578, read strictly: every part must be framed exactly and carry a form-data disposition."""
    header = BytesHeaderParser(policy=HTTP).parsebytes(b"content-type: " + content_type.encode("latin-1") + b"\r\n\r\n")
    boundary = header["content-type"].params.get("boundary")
    if not boundary:
        raise UnreadableBody("the multipart body has no boundary")
    delimiter = b"--" + boundary.encode("latin-1")
    pieces = (b"\r\n" + body).split(b"\r\n" + delimiter)
    if pieces[0].strip() or len(pieces) < 2 or not pieces[-1].startswith(b"--") or pieces[-1][2:].strip():
        raise UnreadableBody("the multipart body is not framed as its boundary says")
    fields: list[tuple[str, str]] = []
    files: list[tuple[str, str, bytes]] = []
    for piece in pieces[1:-1]:
        head, separator, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not separator or not piece.startswith(b"\r\n"):
            raise UnreadableBody("a part of the multipart body has no head")
        disposition = BytesHeaderParser(policy=HTTP).parsebytes(head + b"\r\n\r\n")["content-disposition"]
        if disposition is None or disposition.content_disposition != "form-data":
            raise UnreadableBody("a part of the multipart body is not form data")
        name = disposition.params.get("name")
        if name is None:
            raise UnreadableBody("a part of the multipart body has no name")
        filename = disposition.params.get("filename")
        if filename is not None:
            files.append((name, filename, content))
            continue
        try:
            fields.append((name, content.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise UnreadableBody(f"field {name!r} of the multipart body is not UTF-8") from error
    return Form(tuple(fields), tuple(files))
