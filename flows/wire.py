"""What crosses the wire, as a flow author reads it: an outgoing request and the answer to it.

Pure values and parsers. Nothing here opens a socket, and nothing here decides: a reader that cannot read a body
raises `UnreadableBody`, and whoever asked treats that as "does not match" (the gate then refuses the request).

Readers are strict on purpose. A request body is what the site will read, not what we would like it to say: where two
servers in use could read one body in two ways, it is unreadable here.
"""

from __future__ import annotations

import hashlib
import zlib
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from flows import graphql
from flows.bodies import (
    MAX_FIELDS,
    Form,
    Multipart,
    UnreadableBody,
    Upload,
    is_utf8,
    only_value,
    strict_json,
    urlencoded,
)

__all__ = [
    "MAX_DECODED",
    "MAX_FIELDS",
    "Answer",
    "Form",
    "LargeBody",
    "OutgoingRequest",
    "UnreadableBody",
    "Upload",
    "origin_of",
    "origin_of_url",
]

MAX_DECODED = 64 * 1024 * 1024
"""Bytes. A body that decodes to more than this is not read: a few kilobytes of gzip can hold gigabytes."""


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


@dataclass(frozen=True)
class LargeBody:
    """What is known of a body that is too large to be held. `form` is there for a multipart body: its fields, and its
    files by their digests."""

    size: int
    sha256: str
    form: Form | None = None


@dataclass(frozen=True, eq=True)
class OutgoingRequest(_Headed):
    """One request as the browser made it, before anything of it has left the machine.

    `target` is the origin form (path and query, as sent). `body` holds every byte of the body; `body_known` is false
    where it is too large to be held or cannot be seen (a sealed tunnel), and every reader of the body then raises
    `UnreadableBody`; `large` says what is known of it all the same.
    """

    method: str
    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    body_known: bool = True
    large: LargeBody | None = None

    @property
    def fully_read(self) -> bool:
        """Whether every byte of the body counts in what the readers give."""
        return self.body_known or (self.large is not None and self.large.form is not None)

    @property
    def body_size(self) -> int:
        """In bytes."""
        return len(self.body) if self.large is None else self.large.size

    @cached_property
    def body_sha256(self) -> str:
        return hashlib.sha256(self.body).hexdigest() if self.large is None else self.large.sha256

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
        """The value of a query name; None when it is not there. Raises `UnreadableBody` for a name that occurs more
        than once: servers read it differently, so no rule may rest on it, not even one that allows for its absence.
        PHP's spellings of one name count as repeats."""
        return only_value(self.query, name)

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
        if self.large is not None and self.large.form is not None:
            return self.large.form
        body = self._readable_body()
        if self.content_type == "application/x-www-form-urlencoded":
            return Form(urlencoded(body), ())
        if self.content_type == "multipart/form-data":
            reader = Multipart(self.header("content-type"))
            reader.feed(body)
            return reader.close()
        raise UnreadableBody(f"not a form: content type is {self.content_type or 'absent'}")

    @cached_property
    def json(self) -> Any:
        """The parsed JSON body. A repeated member name is refused: servers disagree on which one counts (RFC 8259)."""
        if self.content_type != "application/json" and not self.content_type.endswith("+json"):
            raise UnreadableBody(f"not JSON: content type is {self.content_type or 'absent'}")
        return strict_json(self._readable_body())

    @cached_property
    def graphql(self) -> tuple[graphql.Call, ...]:
        """The GraphQL operations that the site would execute: one, or those of a batch. Raises `UnreadableBody`. See
        `flows.graphql` for what predicates ask of them."""
        return graphql.read(self)

    def multipart(self) -> Multipart:
        """A reader to feed the body to, where that does not fit into memory. Raises `UnreadableBody`."""
        self._check_headers()
        return Multipart(self.header("content-type"))

    def _readable_body(self) -> bytes:
        if not self.body_known:
            raise UnreadableBody("the body of this request is not visible to the gate")
        self._check_headers()
        return self.body

    def _check_headers(self) -> None:
        """What would let a server read the body otherwise than it looks. Raises `UnreadableBody`."""
        if coding := self.header("content-encoding"):
            raise UnreadableBody(f"the body is encoded ({coding}); no rule reads an encoded request body")
        if len(self.header_values("content-type")) > 1:
            raise UnreadableBody("the request names its content type more than once")
        if not is_utf8(self.header("content-type")):
            raise UnreadableBody(f"the body is in another charset than UTF-8: {self.header('content-type')}")


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
        if coding in ("", "identity") or not self.body:
            return self.body
        window = _WINDOWS.get(coding)
        if window is None:
            raise UnreadableBody(f"the answer is encoded as {coding}, which no contract reads")
        try:
            return _inflate(coding, zlib.decompressobj(window), self.body)
        except zlib.error as error:
            raise UnreadableBody(f"the {coding} answer cannot be decoded: {error}") from error

    @property
    def text(self) -> str:
        return self.content.decode("utf-8", "replace")

    @cached_property
    def json(self) -> Any:
        """The parsed JSON content. Raises `UnreadableBody`."""
        return strict_json(self.content)


def origin_of(scheme: str, host: str, port: int) -> str:
    """ASCII serialisation of an origin; IPv6 addresses in brackets."""
    shown = f"[{host}]" if ":" in host else host
    default = {"http": 80, "https": 443}.get(scheme)
    return f"{scheme}://{shown}" if port == default else f"{scheme}://{shown}:{port}"


def origin_of_url(url: str) -> str:
    """The origin of an absolute http(s) URL; "cms.example." is the same host, spelt as a full name. Raises ValueError
    with one sentence for anything else."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is not an absolute http or https address")
    return origin_of(parts.scheme, parts.hostname.rstrip("."), parts.port or (443 if parts.scheme == "https" else 80))


_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "x-gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
"""What `zlib` calls the codings of RFC 9110 section 8.4.1."""


def _inflate(coding: str, decoder: Any, data: bytes) -> bytes:
    """One stream and nothing after it: browsers read a second gzip member in different ways."""
    content: bytes = decoder.decompress(data, MAX_DECODED + 1)
    if len(content) > MAX_DECODED:
        raise UnreadableBody(f"the answer decodes to more than {MAX_DECODED} bytes")
    if not decoder.eof or decoder.unused_data:
        raise UnreadableBody(f"the {coding} answer does not end where its stream does")
    return content
