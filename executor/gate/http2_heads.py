"""Heads of HTTP/2 messages, read as strictly as those of HTTP/1.1 and turned into the same values.

Pure functions over decoded fields. `h2` is told to check none of them, so everything that RFC 9113 section 8 forbids
in a head is refused here: what could be read differently once it is written as HTTP/1.1 raises `BadHead`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hpack import NeverIndexedHeaderTuple

from executor.gate.framing import Authority, BadHead, Head, forwarded, parse_authority, relayed
from executor.gate.rules import Reason
from executor.gate.upstream import AnswerHead
from flows.wire import OutgoingRequest

Fields = Sequence[tuple[bytes, bytes]]

_METHOD = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NAME = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_VALUE = re.compile(rb"(?:[^\x00-\x20\x7f](?:[^\x00-\x08\x0a-\x1f\x7f]*[^\x00-\x20\x7f])?)?")
"""Neither control characters nor spaces at either end (section 8.2.1)."""
_PATH = re.compile(rb"/[\x21-\x7e]*")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_STATUS = re.compile(rb"[2-5][0-9]{2}")

_PSEUDO = frozenset({b":method", b":scheme", b":authority", b":path"})
_OF_A_CONNECTION = frozenset(
    {b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade", b"http2-settings"}
)
"""Section 8.2.2; HTTP2-Settings belongs to the upgrade that is gone with it."""


class BadAnswer(Exception):
    """The head of an answer is not one of HTTP/2. The message never quotes it (A11)."""


def read_request(fields: Fields, tunnel: Authority) -> tuple[Head, OutgoingRequest]:
    """The head of a request inside a tunnel, and the request without its body. Raises `BadHead`."""
    pseudo: dict[bytes, bytes] = {}
    regular: list[tuple[bytes, bytes]] = []

    def bad(reason: Reason, what: str) -> BadHead:
        method, target = (pseudo.get(name, b"").decode("latin-1") for name in (b":method", b":path"))
        return BadHead(reason, what, method=method, target=target)

    for name, value in fields:
        name, value = bytes(name), bytes(value)
        if _VALUE.fullmatch(value) is None:
            raise bad(Reason.SMUGGLING, "the value of a header is malformed")
        if name.startswith(b":"):
            if regular or name in pseudo:
                raise bad(Reason.SMUGGLING, "a pseudo-header is repeated or comes after a header")
            pseudo[name] = value
            continue
        if _NAME.fullmatch(name) is None:
            raise bad(Reason.SMUGGLING, "the name of a header is malformed")
        if name in _OF_A_CONNECTION or (name == b"te" and value != b"trailers"):
            raise bad(Reason.SMUGGLING, "a header that belongs to a connection of HTTP/1.1")
        regular.append((name, value))
    if b":protocol" in pseudo or pseudo.get(b":method") == b"CONNECT":
        raise bad(Reason.WEBSOCKET, "CONNECT inside a tunnel")
    if pseudo.keys() != _PSEUDO:
        raise bad(Reason.SMUGGLING, "a pseudo-header is missing or unknown")
    if _METHOD.fullmatch(pseudo[b":method"]) is None:
        raise bad(Reason.SMUGGLING, "the method is not one")
    if _PATH.fullmatch(pseudo[b":path"]) is None:
        raise bad(Reason.MALFORMED_TARGET, "the target inside a tunnel is not a path")
    hosts = [pseudo[b":authority"], *(value for name, value in regular if name == b"host")]
    if (
        pseudo[b":scheme"] != b"https"
        or len(hosts) > 2
        or any(parse_authority(one.decode("latin-1"), 443) != tunnel for one in hosts)
    ):
        raise bad(
            Reason.HOST_MISMATCH, f":authority, :scheme and Host do not name https at {tunnel.host}:{tunnel.port}"
        )
    lengths = [value for name, value in regular if name == b"content-length"]
    if len(lengths) > 1 or (lengths and _LENGTH.fullmatch(lengths[0]) is None):
        raise bad(Reason.SMUGGLING, "Content-Length is repeated or not a number")
    raw = ((b"host", pseudo[b":authority"]), *_with_one_cookie(regular))
    method, target = pseudo[b":method"].decode("ascii"), pseudo[b":path"].decode("ascii")
    headers = tuple((name.decode("ascii"), value.decode("latin-1")) for name, value in raw)
    head = Head(method, target, headers, raw)
    return head, OutgoingRequest(method, "https", tunnel.host, tunnel.port, target, headers)


def _with_one_cookie(fields: Fields) -> list[tuple[bytes, bytes]]:
    """Without Host, and Cookie in one field, in the place of the first (section 8.2.3)."""
    cookies = [value for name, value in fields if name == b"cookie"]
    joined: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        if name == b"cookie":
            if cookies:
                joined.append((name, b"; ".join(cookies)))
                cookies = []
        elif name != b"host":
            joined.append((name, value))
    return joined


def request_fields(head: Head, request: OutgoingRequest) -> list[tuple[bytes, bytes]]:
    """A read as it goes to a site that speaks HTTP/2."""
    host = head.values("host")[0].encode("latin-1")
    fields = [
        (b":method", head.method.encode("ascii")),
        (b":authority", host),
        (b":scheme", request.scheme.encode("ascii")),
        (b":path", request.target.encode("ascii")),
    ]
    for name, value in forwarded(head, body_size=0, effect=False):
        name = name.lower()
        if name == b"authorization":
            fields.append(NeverIndexedHeaderTuple(name, value))  # RFC 7541 section 7.1.3
        elif name != b"host":
            fields.append((name, value))
    return fields


def read_answer(fields: Fields, *, asked_head: bool) -> AnswerHead:
    """The head of a final answer. Raises `BadAnswer`."""
    status = b""
    headers: list[tuple[bytes, bytes]] = []
    for name, value in fields:
        name, value = bytes(name), bytes(value)
        if name.startswith(b":"):
            if name != b":status" or status or headers:
                raise BadAnswer("it holds a pseudo-header that has no place in an answer")
            status = value
            continue
        if _NAME.fullmatch(name) is None or _VALUE.fullmatch(value.strip(b" \t")) is None:
            raise BadAnswer("a header is malformed")
        if name in _OF_A_CONNECTION:
            raise BadAnswer("it holds a header that belongs to a connection of HTTP/1.1")
        headers.append((name, value.strip(b" \t")))
    if _STATUS.fullmatch(status) is None:
        raise BadAnswer("its status is not a number of three digits")
    lengths = {value for name, value in headers if name == b"content-length"}
    if len(lengths) > 1 or any(_LENGTH.fullmatch(one) is None for one in lengths):
        raise BadAnswer("Content-Length is repeated or not a number")
    code = int(status)
    bodiless = code in (204, 304) or asked_head
    # The end of the body is said by the framing, so that no length is needed to tell a whole answer from a cut one.
    return AnswerHead(code, b"", tuple(headers), int(lengths.pop()) if lengths else None, bodiless, sound=True)


def answer_fields(
    status: int, headers: Iterable[tuple[bytes, bytes]], *, length: int | None
) -> list[tuple[bytes, bytes]]:
    """An answer as it goes to the browser; names in lower case."""
    fields = [(b":status", b"%d" % status), *relayed(headers)]
    if length is not None:
        fields.append((b"content-length", b"%d" % length))
    return fields
