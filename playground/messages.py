"""Values that pass between the socket, the routes and the faults: one request, one response, one plan.

Nothing here performs I/O; a `Plan` only says what a request would commit, so that a fault can be chosen
before the commit takes place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from email import policy
from email.parser import BytesParser
from enum import StrEnum
from functools import cached_property
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, urlsplit

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
"""Methods defined as safe (RFC 9110 section 9.2.1); every other method is recorded as a write."""

SESSION_COOKIE = "pg_session"


class CommitKind(StrEnum):
    """What a write leaves in the record."""

    PUBLISH = "publish"
    DRAFT = "draft"
    QUEUE = "queue"
    REFUSE = "refuse"
    DELETE = "delete"


class BadBody(ValueError):
    """The request body is not in the form that its route accepts."""


@dataclass(frozen=True)
class Sent:
    """A file that was sent with a form."""

    name: str
    media_type: str
    content: bytes


@dataclass(frozen=True)
class Request:
    """A complete request as it arrived; header names are lower case, `target` is exactly what was sent."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    scheme: str
    version: str
    account: str | None = None

    @cached_property
    def path(self) -> str:
        return urlsplit(self.target).path or "/"

    @cached_property
    def query(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.target).query, keep_blank_values=True))

    @cached_property
    def session(self) -> str:
        """Value of the session cookie, or the empty string."""
        try:
            cookies = SimpleCookie(self.header("cookie"))
        except CookieError:
            return ""
        return cookies[SESSION_COOKIE].value if SESSION_COOKIE in cookies else ""

    @property
    def is_write(self) -> bool:
        return self.method not in SAFE_METHODS

    def header(self, name: str) -> str:
        """First value of a header (name in lower case), or the empty string."""
        return next((value for key, value in self.headers if key == name), "")

    def fields(self) -> dict[str, str]:
        """Form fields of the body, URL-encoded or multipart (files are left out).

        Line ends are stored as LF whatever the encoding, since browsers submit CRLF (HTML, form submission).

        Raises BadBody when the content type is neither.
        """
        kind = self.header("content-type")
        if kind.startswith("application/x-www-form-urlencoded"):
            pairs = parse_qsl(self.body.decode("utf-8", "replace"), keep_blank_values=True)
        elif kind.startswith("multipart/form-data"):
            head = f"Content-Type: {kind}\r\n\r\n".encode()
            message = BytesParser(policy=policy.HTTP).parsebytes(head + self.body)
            pairs = []
            for part in message.iter_parts() if message.is_multipart() else ():
                name = part.get_param("name", header="content-disposition")
                if isinstance(name, str) and part.get_filename() is None:
                    payload = part.get_payload(decode=True)
                    pairs.append((name, payload.decode("utf-8", "replace") if isinstance(payload, bytes) else ""))
        else:
            raise BadBody("Send this form URL-encoded or as multipart/form-data.")
        return {name: value.replace("\r\n", "\n") for name, value in pairs}

    def files(self) -> dict[str, Sent]:
        """Files of a multipart body by their fields; an empty file field has an empty name."""
        boundary = re.search(r'boundary="?([^";]+)', self.header("content-type"))
        if boundary is None:
            return {}
        found: dict[str, Sent] = {}
        for part in (b"\r\n" + self.body).split(b"\r\n--" + boundary[1].encode())[1:-1]:
            head, _, content = part.partition(b"\r\n\r\n")
            text = head.decode("utf-8", "replace")
            if named := re.search(r'[ ;]name="([^"]*)"; ?filename="([^"]*)"', text):
                kind = re.search(r"(?i)content-type: *([^\r\n;]+)", text)
                found[named[1]] = Sent(named[2], kind[1] if kind else "", content)
        return found

    def json(self) -> dict[str, object]:
        """The body as a JSON object. Raises BadBody when it is not one or is not declared as JSON."""
        if not self.header("content-type").startswith("application/json"):
            raise BadBody("Send application/json.")
        try:
            value = json.loads(self.body)
        except ValueError as error:
            raise BadBody(f"The body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise BadBody("Send a JSON object.")
        return value


@dataclass(frozen=True)
class Response:
    """A complete answer; Content-Length and Date are added when it is written."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()

    def with_header(self, name: str, value: str) -> Response:
        return Response(self.status, self.body, (*self.headers, (name, value)))


def html(text: str, status: int = 200) -> Response:
    return Response(
        status,
        text.encode(),
        (("Content-Type", "text/html; charset=utf-8"), ("Cache-Control", "no-store")),
    )


def json_response(value: object, status: int = 200) -> Response:
    body = json.dumps(value, ensure_ascii=False).encode()
    return Response(status, body, (("Content-Type", "application/json"), ("Cache-Control", "no-store")))


def plain(text: str, status: int = 200, kind: str = "text/plain; charset=utf-8") -> Response:
    return Response(status, text.encode(), (("Content-Type", kind), ("Cache-Control", "no-store")))


def redirect(location: str, status: int = 302) -> Response:
    return Response(status, b"", (("Location", location), ("Cache-Control", "no-store")))


@dataclass(frozen=True)
class Plan:
    """What a request will do once it is carried out.

    `commit` is the kind it would leave in the record (None: it stores no item). `run(request_seq, queued)`
    carries it out and gives the answer; `queued` asks for "accepted for review" in place of publishing.
    """

    run: Callable[[int, bool], Response]
    commit: CommitKind | None = None

    @classmethod
    def of(cls, response: Response) -> Plan:
        """A plan that stores nothing and gives this answer."""
        return cls(lambda _seq, _queued: response)
