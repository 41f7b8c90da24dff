"""What crosses the wire, as a flow author reads it: an outgoing request and the answer to it.

Pure values and parsers. Nothing here opens a socket, and nothing here decides: a reader that cannot read a body
raises `UnreadableBody`, and whoever asked treats that as "does not match" (the gate then refuses the request).

Readers are strict on purpose. A request body is what the site will read, not what we would like it to say: where two
servers in use could read one body in two ways, it is unreadable here.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

if TYPE_CHECKING:
    from flows.graphql import Call

MAX_DECODED = 64 * 1024 * 1024
"""Bytes. A body that decodes to more than this is not read: a few kilobytes of gzip can hold gigabytes."""


MAX_FIELDS = 1000
"""Fields of a form. PHP drops what comes after (`max_input_vars`), other servers read it; and millions of them would
hold up whoever reads."""


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
        """The value of a query name; None when it is not there. Raises `UnreadableBody` for a name that occurs more
        than once: servers read it differently, so no rule may rest on it, not even one that allows for its absence.
        PHP's spellings of one name count as repeats."""
        return _only(self.query, name)

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
            return Form(_urlencoded(body), ())
        if self.content_type == "multipart/form-data":
            return _multipart(self.header("content-type"), body)
        raise UnreadableBody(f"not a form: content type is {self.content_type or 'absent'}")

    @cached_property
    def json(self) -> Any:
        """The parsed JSON body. A repeated member name is refused: servers disagree on which one counts (RFC 8259)."""
        if self.content_type != "application/json" and not self.content_type.endswith("+json"):
            raise UnreadableBody(f"not JSON: content type is {self.content_type or 'absent'}")
        return strict_json(self._readable_body())

    @cached_property
    def graphql(self) -> tuple[Call, ...]:
        """The GraphQL operations that the site would execute: one, or those of a batch. Raises `UnreadableBody`. See
        `flows.graphql` for what predicates ask of them."""
        from flows.graphql import read  # it reads requests with what is in this module

        return read(self)

    def _readable_body(self) -> bytes:
        if not self.body_known:
            raise UnreadableBody("the body of this request is not visible to the gate")
        if coding := self.header("content-encoding"):
            raise UnreadableBody(f"the body is encoded ({coding}); no rule reads an encoded request body")
        if len(self.header_values("content-type")) > 1:
            raise UnreadableBody("the request names its content type more than once")
        if not _is_utf8(self.header("content-type")):
            raise UnreadableBody(f"the body is in another charset than UTF-8: {self.header('content-type')}")
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


@dataclass(frozen=True)
class Form:
    """Fields of a submitted form. `fields` are names and values in order; `files` are (field, file name, bytes)."""

    fields: tuple[tuple[str, str], ...]
    files: tuple[tuple[str, str, bytes], ...]

    def __contains__(self, name: str) -> bool:
        """Whether the field is there, under any of the spellings that PHP takes for it."""
        return any(_same_name(key, name) for key in (*self._names, *(key for key, _, _ in self.files)))

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self._names))

    @property
    def _names(self) -> Iterator[str]:
        return (key for key, _ in self.fields)

    def get(self, name: str) -> str | None:
        """The value of a field; None when it is not there. Raises `UnreadableBody` for one that occurs more than once
        (see `OutgoingRequest.query_value`), a file of that name included."""
        value = _only(self.fields, name)
        if any(_same_name(key, name) for key, _, _ in self.files):
            raise UnreadableBody(f"{name!r} is a file")
        return value

    def all(self, name: str) -> tuple[str, ...]:
        return tuple(value for key, value in self.fields if key == name)


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


def _only(pairs: tuple[tuple[str, str], ...], name: str) -> str | None:
    """The value of a name that stands alone; None when it is not there. Raises `UnreadableBody`."""
    found = [(key, value) for key, value in pairs if _same_name(key, name)]
    if not found:
        return None
    if len(found) > 1 or found[0][0] != name:
        raise UnreadableBody(f"{name!r} occurs more than once, or under another spelling")
    return found[0][1]


def _same_name(key: str, name: str) -> bool:
    """PHP reads `a.b`, `a b` and ` a_b` as `a_b`, and `a[]` replaces `a`."""
    (head, rest), (other, others_rest) = _php_name(name), _php_name(key)
    return other == head and (not rest or not others_rest or rest == others_rest)


def _php_name(name: str) -> tuple[str, str]:
    head, bracket, rest = name.partition("\0")[0].lstrip(" ").partition("[")
    return head.replace(".", "_").replace(" ", "_"), bracket + rest


_CHARSET = re.compile(r"""charset\s*=\s*["']?([^\s;"',]*)""", re.IGNORECASE)


def _is_utf8(content_type: str) -> bool:
    return all(found.lower() in ("utf-8", "utf8") for found in _CHARSET.findall(content_type))


_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")


def _urlencoded(body: bytes) -> tuple[tuple[str, str], ...]:
    """Fields as the WHATWG serialiser writes them. A bare `;` separates fields for some servers and not for others; a
    broken escape is an error for some and text for others."""
    try:
        text = body.decode("ascii")
        if ";" in text or _BAD_ESCAPE.search(text):
            raise UnreadableBody("the urlencoded body holds a bare semicolon or a broken escape")
        return tuple(
            parse_qsl(
                text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=MAX_FIELDS
            )
        )
    except UnreadableBody:
        raise
    except ValueError as error:
        raise UnreadableBody(f"the urlencoded body cannot be read: {error}") from error


def strict_json(data: bytes) -> Any:
    """JSON that every server reads alike. Raises `UnreadableBody`."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise UnreadableBody("the JSON body repeats a member name")
        return found

    def no_constant(name: str) -> Any:
        raise UnreadableBody(f"the JSON body holds {name}, which JSON does not have")

    def finite(digits: str) -> float:
        number = float(digits)
        if not math.isfinite(number):
            raise UnreadableBody("the JSON body holds a number that is out of range")
        return number

    try:
        value = json.loads(
            data.decode("utf-8"), object_pairs_hook=unique, parse_constant=no_constant, parse_float=finite
        )
        if rb"\ud" in data.lower():  # half of a surrogate pair is text for some servers and an error for others
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnreadableBody:
        raise
    except (ValueError, RecursionError) as error:
        raise UnreadableBody(f"the JSON body cannot be read: {error}") from error
    return value


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


_TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_MULTIPART = re.compile(
    r"""multipart/form-data\s*;\s*boundary=(?:"([0-9A-Za-z'()+_,./:=? -]{1,70})"|([0-9A-Za-z'()+_,./:=?-]{1,70}))\s*""",
    re.IGNORECASE,
)
_PART_HEADER = re.compile(rf"({_TOKEN}):[ \t]*([^\r\n]*)")
_DISPOSITION = re.compile(r"""form-data;[ ]*name="([^"\\]*)"(?:;[ ]*filename="([^"\\]*)")?""", re.IGNORECASE)
_PLAIN_ENCODINGS = ("", "7bit", "8bit", "binary")


def _multipart(content_type: str, body: bytes) -> Form:
    """RFC 7578 as browsers write it (WHATWG HTML section 4.10.21.8), and nothing else: one boundary that occurs
    only where it separates, lines that end in CRLF, one quoted name without backslashes, no transfer encoding, no
    multipart inside. `%22`, `%0D` and `%0A` in names stay as they were sent."""
    match = _MULTIPART.fullmatch(content_type)
    if match is None:
        raise UnreadableBody("the multipart body has no boundary, or more parameters than one")
    delimiter = b"--" + (match[1] or match[2]).encode("ascii")
    pieces = (b"\r\n" + body).split(b"\r\n" + delimiter)
    if pieces[0] or len(pieces) < 2 or pieces[-1] not in (b"--", b"--\r\n") or body.count(delimiter) != len(pieces) - 1:
        raise UnreadableBody("the multipart body is not framed as its boundary says")
    if len(pieces) - 2 > MAX_FIELDS:
        raise UnreadableBody(f"the multipart body holds more than {MAX_FIELDS} fields")
    fields: list[tuple[str, str]] = []
    files: list[tuple[str, str, bytes]] = []
    for piece in pieces[1:-1]:
        head, separator, content = piece.removeprefix(b"\r\n").partition(b"\r\n\r\n")
        if not separator or not piece.startswith(b"\r\n"):
            raise UnreadableBody("a part of the multipart body has no head")
        try:
            name, filename = _part_head(head.decode("utf-8"))
            if filename is not None:
                files.append((name, filename, content))
            else:
                fields.append((name, content.decode("utf-8")))
        except UnicodeDecodeError as error:
            raise UnreadableBody("a name or a field of the multipart body is not UTF-8") from error
    return Form(tuple(fields), tuple(files))


def _part_head(head: str) -> tuple[str, str | None]:
    """Field name and file name of one part."""
    headers: dict[str, str] = {}
    for line in head.split("\r\n"):
        match = _PART_HEADER.fullmatch(line)
        if match is None or match[1].lower() in headers:
            raise UnreadableBody("the head of a part of the multipart body is broken, or repeats a header")
        headers[match[1].lower()] = match[2].strip(" \t")
    disposition = _DISPOSITION.fullmatch(headers.get("content-disposition", ""))
    if disposition is None:
        raise UnreadableBody("a part of the multipart body is not form data with one name")
    if headers.get("content-transfer-encoding", "").lower() not in _PLAIN_ENCODINGS:
        raise UnreadableBody("a part of the multipart body is in a transfer encoding")
    kind = headers.get("content-type", "").lower()
    if kind.startswith("multipart/") or not _is_utf8(kind):
        raise UnreadableBody("a part of the multipart body is itself multipart, or not UTF-8")
    return disposition[1], disposition[2]
