"""A running site for the tests of this room, and a small client that speaks to it without a browser."""

from __future__ import annotations

import http.client
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from playground.messages import SESSION_COOKIE
from playground.pages import csrf_of
from playground.process import Playground


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()

    @property
    def location(self) -> str:
        return str(self.headers["Location"])


@dataclass
class Visitor:
    """One kept connection with one account's session."""

    connection: http.client.HTTPConnection
    session: str
    csrf: str = field(init=False)

    def __post_init__(self) -> None:
        self.csrf = csrf_of(self.session)

    def send(self, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> None:
        cookie = {"Cookie": f"{SESSION_COOKIE}={self.session}"} if self.session else {}
        self.connection.request(method, path, body, {**cookie, **(headers or {})})

    def receive(self) -> Answer:
        response = self.connection.getresponse()
        return Answer(response.status, response.headers, response.read())

    def get(self, path: str) -> Answer:
        self.send("GET", path)
        return self.receive()

    def send_form(self, path: str, **fields: str) -> None:
        body = urlencode({"csrf": self.csrf, **fields}).encode()
        self.send("POST", path, body, {"Content-Type": "application/x-www-form-urlencoded"})

    def form(self, path: str, **fields: str) -> Answer:
        self.send_form(path, **fields)
        return self.receive()

    def json(self, method: str, path: str, **fields: str) -> Answer:
        self.send(method, path, json.dumps(fields).encode(), {"Content-Type": "application/json"})
        return self.receive()


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with Playground.start(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(running: Playground) -> Playground:
    running.truth.reset()
    return running


def visit(site: Playground, account: str | None = "editor") -> Visitor:
    host = urlsplit(site.plain)
    connection = http.client.HTTPConnection(str(host.hostname), host.port, timeout=10)
    return Visitor(connection, site.truth.open_session(account) if account else "")


@pytest.fixture
def editor(site: Playground) -> Iterator[Visitor]:
    visitor = visit(site)
    yield visitor
    visitor.connection.close()


@pytest.fixture
def stranger(site: Playground) -> Iterator[Visitor]:
    visitor = visit(site, None)
    yield visitor
    visitor.connection.close()


@pytest.fixture(scope="session")
def chromium() -> dict[str, object]:
    """Launch options for a plain Chromium."""
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "Install Chromium: apt-get install chromium"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    return {"executable_path": Path(path), "args": [*sandbox, "--disable-gpu", "--disable-quic"]}
