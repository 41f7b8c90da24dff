"""Attacks on what carries more than one request, one message or one reading: HTTP/2, WebSockets, large forms, GraphQL.
Truth is what arrived at the site."""

from __future__ import annotations

import asyncio
import errno
import io
import json
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress

import pytest
from gate_origin import OK
from gate_support import RecordingDoor, rules_for
from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from http2_parts import Http2Origin, lenient
from http2_parts import Line as Stream
from websocket_site import Page, WebSocketSite
from wsproto.events import Ping, Pong

from executor.gate.http2_stream import Http2Stream
from executor.gate.http2_wire import Http2Connection
from executor.gate.limits import Limits
from executor.gate.rules import Kind, Phase, Rules, decide
from executor.gate.state import Carried
from executor.gate.stream import ByteStream
from flows import graphql
from flows.effect import Effect, WebSocket, Write
from flows.wire import Answer, Form, LargeBody, OutgoingRequest, UnreadableBody

FORM = (b"content-type", b"application/x-www-form-urlencoded")


# HTTP/2: what one request does is no business of the others


def longer(line: Stream) -> None:
    line.head((b"content-length", b"1"))
    line.data(b"four", end=True)


def shorter(line: Stream) -> None:
    line.head((b"content-length", b"9"))
    line.data(b"four", end=True)


def no_number(line: Stream) -> None:
    line.head((b"content-length", b"four"))
    line.data(b"four", end=True)


@pytest.mark.parametrize("lie", [longer, shorter, no_number])
async def test_broken_an_answer_of_another_length_ends_alone(
    lie: Callable[[Stream], None], http2_origin: Http2Origin, far_gate, client_of
) -> None:
    """h2 by itself ends the connection for it, and with it every other answer that is on its way."""
    slow: list[Stream] = []

    def begin(line: Stream) -> None:
        line.head((b"content-type", b"text/plain"))
        line.data(b"half, ")
        slow.append(line)

    http2_origin.behaviours |= {"/slow": begin, "/lie": lie}
    client = await client_of(await far_gate(http2_origin), http2_origin)
    waiting = client.begin(client.fields("GET", "/slow", (b"sec-fetch-dest", b"document")))
    await http2_origin.until(lambda: bool(slow))
    lied = client.begin(client.fields("GET", "/lie", (b"sec-fetch-dest", b"document")))
    await client.until(lambda: client.asked[lied].ended or client.asked[lied].reset is not None)
    got = client.asked[lied]
    assert got.reset is not None or dict(got.headers).get("x-interlock") == "upstream_failed"
    slow[0].data(b"whole", end=True)
    answer = await client.answer(waiting)
    assert (answer.body, answer.whole) == (b"half, whole", True)
    assert http2_origin.connections == 1


async def test_broken_a_304_with_an_empty_end_is_an_answer(http2_origin: Http2Origin, far_gate, client_of) -> None:
    """Its Content-Length is that of the body which it does not have (RFC 9110 section 15.4.5)."""

    def unchanged(line: Stream) -> None:
        line.head((b"content-length", b"9"), (b"etag", b'"a"'), status=b"304")
        line.data(b"", end=True)

    http2_origin.behaviours["/cached"] = unchanged
    client = await client_of(await far_gate(http2_origin), http2_origin)
    got = await client.ask("GET", "/cached", None, (b"if-none-match", b'"a"'), dest="image")
    assert (got.status, got.whole, got.interlock) == (304, True, None)
    assert (await client.ask("GET", "/after", dest="document")).body == b"ok"
    assert http2_origin.connections == 1


@pytest.mark.parametrize("moment", ["in the head's turn", "when it has arrived", "after the phase"])
async def test_a_browser_that_gives_up_many_candidates_gets_one_out(
    moment: str, http2_origin: Http2Origin, far_gate, client_of
) -> None:
    """Twenty streams at once, reset at different moments: never a second effect, and none without its entry."""
    door = RecordingDoor()
    gate = await far_gate(http2_origin, Phase.ARMED, door=door)
    client = await client_of(gate, http2_origin)
    body = b"do=publish"
    streams = []
    for _ in range(20):
        stream = client.protocol.get_next_available_stream_id()
        client.asked[stream] = _Nothing()
        fields = client.fields("POST", "/publish", FORM, (b"content-length", b"%d" % len(body)))
        client.protocol.send_headers(stream, fields)
        client.protocol.send_data(stream, body, end_stream=True)
        if moment == "in the head's turn":
            client.protocol.reset_stream(stream, ErrorCodes.CANCEL)
        streams.append(stream)
    client.flush()
    if moment == "in the head's turn":
        assert (await client.ask("GET", "/after", dest="image")).body == b"ok"
    else:
        await http2_origin.until(lambda: "/publish" in http2_origin.paths)
        if moment == "after the phase":
            gate.enter(Phase.SHUT)
        for stream in streams:
            with suppress(ProtocolError):  # it has ended
                client.protocol.reset_stream(stream, ErrorCodes.CANCEL)
        client.flush()
    assert await gate.until(lambda: not gate._state.in_flight and not gate._state.doors, 10)
    left = [entry for entry in gate.log if entry.bytes_out]
    assert http2_origin.paths.count("/publish") == len(left) == (0 if moment == "in the head's turn" else 1)
    assert all(entry.kind is Kind.EFFECT for entry in left)
    assert all(answer is not None and answer.complete for answer in door.answers)


class _Nothing:
    """Stands for a stream of which nothing is read."""

    def __init__(self) -> None:
        self.headers: tuple[tuple[str, str], ...] = ()
        self.body = bytearray()
        self.ended = False
        self.reset: int | None = None


# Writes


async def test_broken_a_site_that_speaks_before_the_write_is_not_its_answer(make_gate, connect) -> None:
    """A proxy's late words, or a site's: they would be read as the answer to a save that nobody had sent yet."""
    with Speaking() as site:

        async def spoken(*_: object) -> None:
            await site.speak()
            async with asyncio.timeout(10):
                while not any(one.has_input for one in gate._state.pool._open):  # noqa: ASYNC110  it tells no one
                    await asyncio.sleep(0)

        gate = await make_gate(site, before_write=spoken, phase=Phase.ARMED, door=RecordingDoor())
        client = await connect(gate, site.url)
        got = await client.ask("POST", "/publish", b"do=draft", Content_Type="application/x-www-form-urlencoded")
        assert got.interlock == "upstream_failed"
        assert [entry.bytes_out for entry in gate.log] == [False]
        assert not gate.carried
        assert await asyncio.to_thread(site.heard) == b""


class Speaking:
    """Answers before it was asked."""

    host = "127.0.0.1"

    def __enter__(self) -> Speaking:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._listening.settimeout(10)
        self.port: int = self._listening.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._line: socket.socket | None = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._line is not None:
            self._line.close()
        self._listening.close()

    async def speak(self) -> None:
        self._line, _peer = await asyncio.to_thread(self._listening.accept)
        self._line.settimeout(10)
        self._line.sendall(OK)

    def heard(self) -> bytes:
        assert self._line is not None
        try:
            return self._line.recv(1 << 16)
        except ConnectionResetError:
            return b""


# WebSockets


LISTENS = WebSocket(name="presence", path="/presence", sends=lambda message: message == "here")


async def test_broken_fragments_without_a_byte_are_not_kept(make_gate, connect) -> None:
    """A page may send them for ever, and the limit for a message counts bytes."""
    with WebSocketSite() as site:
        gate = await make_gate(site, rules=rules_for(site, websockets=(LISTENS,)))
        page = await Page.open(await connect(gate, site.url, tunnel=True))
        await page.client.send(page.frame("he", last=False) + page.frame("", last=False) * 20_000)
        await page.client.send(page.frames.send(_ping()))
        relay = next(iter(gate._state.websockets))
        await _ponged(page)
        assert len(relay._held) == 1
        await page.say("re")
        await site.until(lambda: site.arrived == ["here"])


async def test_broken_a_defect_in_one_direction_ends_the_other(make_gate, connect, monkeypatch) -> None:
    with WebSocketSite() as site:
        gate = await make_gate(site, rules=rules_for(site, websockets=(LISTENS,)))
        page = await Page.open(await connect(gate, site.url, tunnel=True))
        relay = next(iter(gate._state.websockets))
        monkeypatch.setattr(relay._with_page, "receive_data", _defect)
        await page.say("here")
        assert await gate.until(lambda: not gate._state.in_flight, 10)
        assert site.arrived == []


def _defect(_data: bytes) -> None:
    raise RuntimeError("a defect")


def _ping() -> Ping:
    return Ping(b"are you there")


async def _ponged(page: Page) -> None:
    async with asyncio.timeout(20):
        while not any(isinstance(event, Pong) for event in page.frames.events()):
            page.frames.receive_data(await page.client.reader.read(1 << 16))


# GraphQL: one text, two readings


def call(text: str) -> OutgoingRequest:
    body = json.dumps({"query": text}).encode()
    return OutgoingRequest("POST", "https", "a.example", 443, "/graphql", (("content-type", "application/json"),), body)


@pytest.mark.parametrize("separator", ["\x85", "\u2028", "\u2029"])
def test_broken_a_comment_that_ends_earlier_for_some_servers_is_not_read(separator: str) -> None:
    """graphql-java ends a comment at U+2028, and so would execute the second field."""
    text = f'mutation {{ publish(text: "a") {{ id }} # {separator} again: publish(text: "b") {{ id }}\n}}'
    with pytest.raises(UnreadableBody):
        graphql.count(call(text))
    effect = Effect(
        name="published",
        method="POST",
        path="/graphql",
        matches=lambda request: graphql.mutates(request, "publish"),
        material=lambda request: {},
        count=graphql.count,
    )
    decision = decide(Phase.ARMED, Rules(destination_origin="https://a.example", effect=effect), call(text))
    assert decision.kind is Kind.REFUSED


def test_broken_a_block_of_text_without_an_end_is_no_document() -> None:
    with pytest.raises(UnreadableBody):
        graphql.count(call('mutation { publish(text: """a\\""") { id } }'))


# Forms: what is a field, and in which letters


def multipart(*parts: str) -> bytes:
    return "".join(f"--b\r\n{one}\r\n" for one in parts).encode() + b"--b--\r\n"


FIELD = 'Content-Disposition: form-data; name="{}"{}\r\n{}\r\n{}'


def upload(*parts: str) -> OutgoingRequest:
    kind = (("content-type", "multipart/form-data; boundary=b"),)
    return OutgoingRequest("POST", "https", "a.example", 443, "/publish", kind, multipart(*parts))


@pytest.mark.parametrize(
    "part",
    [
        FIELD.format("_method", '; filename=""', "", "DELETE"),  # a field for Go's mime/multipart
        FIELD.format("status", "", "Content-Type: application/octet-stream\r\n", "publish"),  # a file for busboy, Rack
        FIELD.format("_charset_", "", "", "utf-16"),
        FIELD.format("status", "", "X-A: b\x0bContent-Disposition: form-data\r\n", "publish"),
        FIELD.format("status\x1f", "", "", "publish"),
    ],
)
def test_broken_a_part_of_two_readings_is_not_read(part: str) -> None:
    with pytest.raises(UnreadableBody):
        _ = upload(FIELD.format("text", "", "", "approved"), part).form


def test_broken_a_form_that_names_another_charset_is_not_read() -> None:
    request = OutgoingRequest(
        "POST",
        "https",
        "a.example",
        443,
        "/publish",
        (("content-type", "application/x-www-form-urlencoded"),),
        b"text=%2BADw-&_charset_=utf-7",
    )
    with pytest.raises(UnreadableBody):
        _ = request.form


def test_what_browsers_send_is_read() -> None:
    form = upload(
        FIELD.format("text", "", "", "approved"),
        FIELD.format("note", "", "Content-Type: text/plain; charset=UTF-8\r\n", "b"),
        FIELD.format("picture", '; filename=""', "Content-Type: application/octet-stream\r\n", ""),
        FIELD.format("_charset_", "", "", "UTF-8"),
    ).form
    assert (form.get("text"), form.get("note"), form.files[0].size) == ("approved", "b", 0)


def test_broken_the_fields_of_a_large_form_count_in_what_is_kept() -> None:
    """Their number is bounded for one save; of many saves the kept ones are bounded by their size."""
    write = Write(name="save", method="POST", path="/save", matches=lambda _: True, may_cause_effect=False)
    fields = (("text", "x" * 1000),)
    request = OutgoingRequest(
        "POST",
        "https",
        "a.example",
        443,
        "/save",
        body_known=False,
        large=LargeBody(9_000_000, "0" * 64, Form(fields, ())),
    )
    assert Carried(1, write, request, Answer(200)).size >= 1000
    assert Limits().carried_total_bytes > Limits().carried_bytes


# Waiting


async def test_broken_what_was_sent_to_its_end_is_waited_for_no_longer() -> None:
    """The last frame fills the transport: the stream is over, and nothing that comes later would wake who waits."""
    ours, theirs = socket.socketpair()
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    theirs.setblocking(False)
    carrier = ByteStream()
    loop = asyncio.get_running_loop()
    await loop.connect_accepted_socket(lambda: carrier, ours)
    asked: asyncio.Future[Http2Stream] = loop.create_future()
    connection = Http2Connection(carrier, Limits(), on_request=lambda stream, _: asked.set_result(stream))
    running = asyncio.ensure_future(connection.run())
    browser = lenient(client=True)
    browser.initiate_connection()
    browser.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 1 << 24})
    browser.increment_flow_control_window(1 << 24)
    browser.send_headers(1, [(b":method", b"GET"), (b":path", b"/")], end_stream=True)
    await loop.sock_sendall(theirs, browser.data_to_send())
    stream = await asyncio.wait_for(asked, 10)
    connection.head(stream, [(b":status", b"200")], end=False)
    stream.send(b"x" * 512 * 1024, end=True)
    draining = asyncio.ensure_future(stream.drained())
    got = 0
    async with asyncio.timeout(10):
        while not stream.sent_end:
            got += len(await loop.sock_recv(theirs, 4096))
        assert carrier.is_full
        await draining
        while got < 512 * 1024:
            got += len(await loop.sock_recv(theirs, 65536))
    theirs.close()
    await running
    await carrier.wait_closed(1)


async def test_broken_a_disk_that_fills_up_at_the_end_of_a_body_is_a_refusal(make_gate, connect, monkeypatch) -> None:
    """The last piece is written when the body is read again: too late for an answer, and for an entry in the log."""
    with Speaking() as site:
        gate = await make_gate(site)
        client = await connect(gate, site.url)
        monkeypatch.setattr(tempfile, "TemporaryFile", _Full)
        got = await client.ask("PUT", "/upload", b"x" * 1_500_000)
        assert got.interlock == "body_unreadable"
        assert [(entry.kind, entry.bytes_out) for entry in gate.log] == [(Kind.REFUSED, False)]
        assert await client.at_end()


class _Full(io.BytesIO):
    """A file on a disk that takes a mebibyte and a little."""

    def __init__(self, **_: object) -> None:
        super().__init__()

    def write(self, data: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(data) > 1_400_000:
            raise OSError(errno.ENOSPC, "no space left on device")
        return super().write(data)
