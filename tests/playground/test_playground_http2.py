"""HTTP/2 on the HTTPS port: agreed upon or not, the same site, and the faults as they look on a stream."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlencode, urlsplit

import pytest
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, DataReceived, ResponseReceived, StreamEnded, StreamReset

from playground.faults import Fault
from playground.messages import SESSION_COOKIE
from playground.pages import csrf_of
from playground.process import Playground


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with Playground.start(tmp_path_factory.mktemp("http2"), http2=True) as site:
        yield site


class Client:
    """One connection; `send` opens a stream and gives back what ended it."""

    def __init__(self, wire: ssl.SSLSocket, session: str) -> None:
        self.wire = wire
        self.session = session
        self.h2 = H2Connection()
        self.h2.initiate_connection()
        wire.sendall(self.h2.data_to_send())

    def send(self, method: str, path: str, body: bytes = b"", **headers: str) -> tuple[dict[str, str], bytes, object]:
        """Status and headers, body, and the event at the end: StreamEnded, StreamReset, ConnectionTerminated, or None
        for the end of the connection."""
        stream = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":path", path), (":scheme", "https"), (":authority", "localhost")]
        fields += [("cookie", f"{SESSION_COOKIE}={self.session}")]
        fields += [(name.replace("_", "-"), value) for name, value in headers.items()]
        self.h2.send_headers(stream, fields, end_stream=not body)
        for start in range(0, len(body), self.h2.max_outbound_frame_size):
            piece = body[start : start + self.h2.max_outbound_frame_size]
            self.h2.send_data(stream, piece, end_stream=start + len(piece) == len(body))
        self.wire.sendall(self.h2.data_to_send())
        answer: dict[str, str] = {}
        content = bytearray()
        while data := self.wire.recv(65536):
            for event in self.h2.receive_data(data):
                if isinstance(event, ResponseReceived):
                    answer = {_text(name).removeprefix(":"): _text(value) for name, value in event.headers or ()}
                elif isinstance(event, DataReceived):
                    content += event.data or b""
                    self.h2.acknowledge_received_data(event.flow_controlled_length or 0, stream)
                elif isinstance(event, StreamEnded | StreamReset | ConnectionTerminated):
                    return answer, bytes(content), event
            self.wire.sendall(self.h2.data_to_send())
        return answer, bytes(content), None

    def publish(self, title: str = "T") -> tuple[dict[str, str], bytes, object]:
        body = urlencode({"csrf": csrf_of(self.session), "title": title, "body": "B"}).encode()
        return self.send("POST", "/form/publish", body, content_type="application/x-www-form-urlencoded")


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


@contextmanager
def connected(site: Playground, *protocols: str) -> Iterator[ssl.SSLSocket]:
    context = ssl.create_default_context(cafile=site.ca)
    context.set_alpn_protocols(list(protocols))
    place = urlsplit(site.tls)
    with (
        socket.create_connection((str(place.hostname), place.port or 0), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=place.hostname) as wire,
    ):
        yield wire


@pytest.fixture
def client(running: Playground) -> Iterator[Client]:
    running.truth.reset()
    with connected(running, "h2", "http/1.1") as wire:
        assert wire.selected_alpn_protocol() == "h2"
        yield Client(wire, running.truth.open_session("editor"))


def test_publishes_and_shows_what_is_there(running: Playground, client: Client) -> None:
    answer, _, end = client.publish("Over HTTP/2")
    assert (answer["status"], type(end)) == ("302", StreamEnded)
    answer, body, _ = client.send("GET", "/mine")
    assert (answer["status"], b"Over HTTP/2" in body) == ("200", True)
    assert client.send("HEAD", "/mine")[1] == b""
    arrivals = running.truth.requests()
    assert {arrival.version for arrival in arrivals} == {"2"}
    assert [arrival.request_no_on_connection for arrival in arrivals] == [1, 2, 3]


def test_large_bodies_in_both_directions(running: Playground, client: Client) -> None:
    title = "x" * 60_000  # within the first windows, beyond one frame
    for _ in range(3):
        assert client.publish(title)[0]["status"] == "302"
    answer, body, _ = client.send("GET", "/mine")
    assert len(body) == int(answer["content-length"]) > 180_000


def test_whoever_wants_http1_gets_it(running: Playground) -> None:
    with connected(running, "http/1.1") as wire:
        assert wire.selected_alpn_protocol() == "http/1.1"
        wire.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert wire.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    ("fault", "published", "ended", "status"),
    [
        (Fault.RESET_AFTER, 1, StreamReset, None),
        (Fault.RESET_BEFORE, 0, StreamReset, None),
        (Fault.CLOSE_AFTER, 1, ConnectionTerminated, None),
        (Fault.CLOSE_BEFORE, 0, ConnectionTerminated, None),
        (Fault.TRUNCATED, 1, StreamReset, "302"),
        (Fault.STATUS_500_AFTER, 1, StreamEnded, "500"),
        (Fault.STATUS_429_BEFORE, 0, StreamEnded, "429"),
        (Fault.NO_CONTENT, 1, StreamEnded, "204"),
    ],
)
def test_fault(
    running: Playground, client: Client, fault: Fault, published: int, ended: type, status: str | None
) -> None:
    running.truth.inject(fault, path_prefix="/form")
    answer, _, end = client.publish()
    assert (type(end), answer.get("status")) == (ended, status)
    assert running.truth.publish_count() == published
    if isinstance(end, StreamReset):
        assert client.send("GET", "/")[0]["status"] == "200", "the connection stays"


def test_no_answer_holds_that_stream_alone(running: Playground, client: Client) -> None:
    running.truth.inject(Fault.LOST, path_prefix="/form")
    client.wire.settimeout(0.5)
    with pytest.raises(TimeoutError):
        client.publish()
    client.wire.settimeout(10)
    assert client.send("GET", "/")[0]["status"] == "200"
    assert running.truth.publish_count() == 1


def test_what_is_not_http2_ends_its_connection_and_nothing_else(running: Playground, client: Client) -> None:
    with connected(running, "h2") as wire:
        wire.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
        while wire.recv(65536):
            pass
    assert client.send("GET", "/")[0]["status"] == "200"
