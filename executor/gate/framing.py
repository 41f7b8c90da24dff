"""Heads of HTTP/1.1 messages: read strictly from the browser, written without what belongs to one hop.

Pure functions over bytes. A head that two parsers could read differently raises `BadHead`; there is no lenient mode.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from executor.gate.rules import Reason
from flows.wire import OutgoingRequest

_REQUEST_LINE = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+) ([\x21-\x7e]+) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9a-f:.]+)\]|(?P<name>[a-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
_ABSOLUTE = re.compile(r"(?i:http)://(?P<authority>[^/?#@]+)(?P<target>[/?].*)?")

_ONE_HOP = frozenset(
    {"connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "http2-settings", "expect"}
)
_CONNECTION_OPTIONS = frozenset({"close", "keep-alive", "upgrade", "te", "trailer", "trailers", "http2-settings"})
"""What Connection may name. Anything else would have a header of the request dropped on the way."""

_NOT_RELAYED = frozenset(
    name.encode("ascii")
    for name in _ONE_HOP | {"proxy-connection", "proxy-authenticate", "alt-svc", "x-interlock", "content-length"}
)
"""Answer headers that stop here: Alt-Svc names a way around the gate, X-Interlock is the gate's own word."""

_ALWAYS_SIZED = frozenset({"POST", "PUT", "PATCH"})
"""Methods whose empty body is announced as such (RFC 9110 section 8.6)."""


class BadHead(Exception):
    """The head is refused. `reason` says why, `what` for a person; `method` and `target` as far as they were read."""

    def __init__(self, reason: Reason, what: str, *, method: str = "", target: str = "") -> None:
        super().__init__(what)
        self.reason = reason
        self.method = method
        self.target = target


@dataclass(frozen=True)
class Authority:
    """A host (lower case, IPv6 without brackets) and a port."""

    host: str
    port: int

    @property
    def shown(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Head:
    """A request head as sent. `headers` has names in lower case; `raw` has the browser's own spelling."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    raw: tuple[tuple[bytes, bytes], ...]

    def values(self, name: str) -> list[str]:
        return self._by_name.get(name, [])

    @cached_property
    def _by_name(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, value in self.headers:
            found.setdefault(name, []).append(value)
        return found

    @property
    def content_length(self) -> int:
        lengths = self.values("content-length")
        return int(lengths[0]) if lengths else 0

    @property
    def chunked(self) -> bool:
        return bool(self.values("transfer-encoding"))

    @property
    def expects_continue(self) -> bool:
        return "100-continue" in ", ".join(self.values("expect")).lower()

    @property
    def keeps_alive(self) -> bool:
        return "close" not in _tokens(self.values("connection"))


def parse_head(raw: bytes) -> Head:
    """Read a request head that ends with its empty line. Raises `BadHead`."""
    lines = raw[:-4].split(b"\r\n")
    line = _REQUEST_LINE.fullmatch(lines[0])
    if line is None:
        raise BadHead(Reason.SMUGGLING, "the request line is not one of HTTP/1.1")
    method, target = line[1].decode("ascii"), line[2].decode("ascii")
    headers: list[tuple[str, str]] = []
    spelled: list[tuple[bytes, bytes]] = []
    for text in lines[1:]:
        # Also refuses folded lines, a space before the colon, and bare CR or LF (RFC 9112 sections 5.1, 5.2, 2.2).
        field = _FIELD.fullmatch(text)
        if field is None:
            raise BadHead(Reason.SMUGGLING, "a header line is malformed", method=method, target=target)
        value = field[2].rstrip(b" \t")
        headers.append((field[1].lower().decode("ascii"), value.decode("latin-1")))
        spelled.append((field[1], value))
    head = Head(method, target, tuple(headers), tuple(spelled))
    if what := _framing_fault(head):
        raise BadHead(Reason.SMUGGLING, what, method=method, target=target)
    return head


def _framing_fault(head: Head) -> str | None:
    lengths, codings = head.values("content-length"), head.values("transfer-encoding")
    if lengths and codings:
        return "Content-Length together with Transfer-Encoding"
    if len(lengths) > 1 or (lengths and not re.fullmatch("[0-9]{1,15}", lengths[0])):
        return "Content-Length is repeated or not a number"
    if len(codings) > 1 or (codings and codings[0].lower() != "chunked"):
        return "a transfer coding other than chunked"
    if not _tokens(head.values("connection")) <= _CONNECTION_OPTIONS:
        return "Connection names a header of the request"
    return None


def parse_authority(text: str, default_port: int | None) -> Authority | None:
    """`host:port` in lower case, or None when it is not one (user names are not accepted)."""
    found = _AUTHORITY.fullmatch(text.lower())
    if found is None:
        return None
    port = int(found["port"]) if found["port"] else default_port
    if port is None or not 0 < port < 65536:
        return None
    return Authority(found["v6"] or found["name"], port)


def outgoing(head: Head, tunnel: Authority | None, scheme: str) -> OutgoingRequest:
    """The request, without its body. Inside a tunnel the target is in origin form and Host names the tunnel's end;
    outside, the target is absolute and Host names the same (RFC 9112 section 3.2). Raises `BadHead`."""

    def bad(reason: Reason, what: str) -> BadHead:
        return BadHead(reason, what, method=head.method, target=head.target)

    target, authority = head.target, tunnel
    if authority is None:
        absolute = _ABSOLUTE.fullmatch(target)
        authority = parse_authority(absolute["authority"], 80) if absolute else None
        if absolute is None or authority is None:
            raise bad(Reason.MALFORMED_TARGET, "the target is not an absolute http address")
        target = absolute["target"] or "/"
        if target.startswith("?"):
            target = "/" + target
    elif not target.startswith("/"):
        raise bad(Reason.MALFORMED_TARGET, "the target inside a tunnel is not a path")
    hosts = head.values("host")
    if len(hosts) != 1 or parse_authority(hosts[0], 443 if scheme == "https" else 80) != authority:
        raise bad(Reason.HOST_MISMATCH, f"Host does not name {authority.host}:{authority.port}")
    return OutgoingRequest(head.method, scheme, authority.host, authority.port, target, head.headers)


def forwarded(head: Head, *, body_size: int, effect: bool) -> list[tuple[bytes, bytes]]:
    """The headers that go upstream: the browser's, without those of one hop and of proxies, framed by the length of
    the spooled body. For the effect the codings are reduced to those that every reader of the answer undoes."""
    kept: list[tuple[bytes, bytes]] = []
    for (name, value), (lower, _) in zip(head.raw, head.headers, strict=True):
        if lower in _ONE_HOP or lower == "content-length" or lower.startswith("proxy-"):
            continue
        kept.append((name, b"gzip, identity" if effect and lower == "accept-encoding" else value))
    if body_size or head.chunked or head.values("content-length") or head.method in _ALWAYS_SIZED:
        kept.append((b"Content-Length", str(body_size).encode("ascii")))
    return kept


def answer_head(
    status: int, reason: bytes, headers: Iterable[tuple[bytes, bytes]], *, length: int | None, bodiless: bool
) -> bytes:
    """The head of an answer to the browser. `length` None: chunked, unless the answer can have no body. Names in
    `headers` are in lower case."""
    lines = [b"HTTP/1.1 %d %b" % (status, reason)]
    lines += [b"%b: %b" % field for field in relayed(headers)]
    if length is not None:
        lines.append(b"content-length: %d" % length)
    elif not bodiless:
        lines.append(b"transfer-encoding: chunked")
    return b"\r\n".join(lines) + b"\r\n\r\n"


def relayed(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """The headers of a site's answer (names in lower case) that go on to the browser, its length excepted."""
    return (field for field in headers if field[0] not in _NOT_RELAYED)


def _tokens(values: Iterable[str]) -> set[str]:
    return {token for value in values for part in value.split(",") if (token := part.strip().lower())}
