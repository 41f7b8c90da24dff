"""Damaged bytes from both sides. What the gate takes for a request, another parser must take for the same one; what it
passes is whole requests and nothing between them; what it calls a complete answer, another reader must find complete.

The damage is random under fixed seeds: a failure names the bytes, and comes again.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import random
import re

import h11
import pytest
from gate_origin import Arrived, Client, Line, Origin
from gate_support import RecordingDoor
from hypothesis import example, given, settings
from hypothesis import strategies as st

from executor.gate.framing import Authority, BadHead, Head, outgoing, parse_head
from executor.gate.rules import Kind, Phase

TUNNEL = Authority("site.example", 443)
PIECES = (
    b"GET", b"POST", b"CONNECT", b" ", b"  ", b"\t", b"/", b"/publish", b"*", b"http://site.example/", b"//", b"\\",
    b"HTTP/1.1", b"HTTP/1.0", b"HTTP/2.0", b"\r\n", b"\n", b"\r", b"\0", b":", b": ", b" :", b",", b";",
    b"Host", b"host", b"site.example", b"site.example:443", b"other.example", b"Content-Length", b"content_length",
    b"Transfer-Encoding", b"chunked", b"Chunked", b"gzip, chunked", b"identity", b"0", b"5", b"+5", b"0x5", b"5, 5",
    b"Connection", b"close", b"keep-alive", b"Cookie", b"a=b", b"\x0b", b"\xa0", b"\xff", b"%0d%0a", b"X-A", b"\x7f",
)  # fmt: skip
SOUND = (
    b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n",
    b"POST /publish HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5\r\n\r\n",
    b"POST /draft HTTP/1.1\r\nHost: site.example\r\nTransfer-Encoding: chunked\r\nCookie: a=b\r\n\r\n",
)


@st.composite
def heads(draw: st.DrawFn) -> bytes:
    """A sound head in which some places are replaced by, or given, other pieces."""
    head = draw(st.sampled_from(SOUND))[:-4]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(head)))
        cut = draw(st.integers(0, 12))
        head = head[:at] + draw(st.sampled_from(PIECES)) + head[at + cut :]
    return head.replace(b"\r\n\r\n", b"\r\n") + b"\r\n\r\n"


def read_by_h11(raw: bytes) -> h11.Request | None:
    reader = h11.Connection(h11.SERVER, max_incomplete_event_size=1 << 20)
    reader.receive_data(raw)
    try:
        event = reader.next_event()
    except h11.RemoteProtocolError:
        return None
    return event if isinstance(event, h11.Request) else None


@settings(max_examples=3000, deadline=None)
@given(heads())
@example(b"GET / HTTP/1.1\r\nHost: site.example\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n")
def test_another_parser_reads_the_same_head(raw: bytes) -> None:
    try:
        head: Head = parse_head(raw)
        request = outgoing(head, TUNNEL, "https")
    except BadHead:
        return
    other = read_by_h11(raw)
    assert other is not None, "h11 refuses what the gate takes"
    assert (head.method, head.target) == (other.method.decode(), other.target.decode())
    assert list(head.headers) == [(name.decode(), value.decode("latin-1")) for name, value in other.headers]
    assert request.host == "site.example" and request.port == 443
    assert not re.search(r"[\x00\r\n]", "".join(name + value for name, value in head.headers))
    named = [value for name, value in head.headers if name == "content-length"]
    assert not (head.chunked and named)
    assert head.content_length == int((named or ["0"])[0])


# Streams through a gate


def damaged(source: random.Random, sound: bytes) -> bytes:
    data = bytearray(sound)
    for _ in range(source.randint(1, 3)):
        at = source.randrange(len(data) + 1)
        match source.randrange(5):
            case 0:
                data[at:at] = source.choice(PIECES)
            case 1:
                del data[at : at + source.randint(1, 20)]
            case 2:
                data[at : at + 1] = bytes([source.randrange(256)])
            case 3:
                data[at:at] = data[: source.randrange(len(data) + 1)]
            case 4:
                del data[at:]
    return bytes(data)


async def test_what_passes_is_whole_requests_and_nothing_between_them(origin: Origin, make_gate, connect) -> None:
    gate = await make_gate(origin, head_s=0.5, body_stall_s=0.5, idle_s=0.5)
    host = origin.url.removeprefix("http://").encode()
    upload = b"do=publish&text=POST /publish HTTP/1.1"
    sound = (
        b"GET /page HTTP/1.1\r\nHost: " + host + b"\r\n\r\n",
        b"PUT /upload HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: %d\r\n\r\n" % len(upload) + upload,
        b"PUT /upload HTTP/1.1\r\nHost: " + host + b"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        b"POST /publish HTTP/1.1\r\nHost: "
        + host
        + b"\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 10\r\n\r\ndo=publish",
    )
    source = random.Random(20)

    async def send(stream: bytes) -> None:
        client = await connect(gate, origin.url, tunnel=True)
        await client.send(stream)
        client.writer.write_eof()
        async with asyncio.timeout(20):
            while await client.reader.read(1 << 16):
                pass
        await client.close()

    for _ in range(40):
        await asyncio.gather(
            *(send(damaged(source, b"".join(source.choices(sound, k=source.randint(1, 4))))) for _ in range(10))
        )
    assert await gate.quiet(10)
    passed = sum(gate.log.safe_reads.values()) + sum(1 for entry in gate.log if entry.kind is Kind.SUPPORTING)
    assert len(origin.seen) == passed > 100, "nothing but what the log knows may arrive"
    assert all(one.method in ("GET", "HEAD", "OPTIONS", "PUT") for one in origin.seen)
    assert {one.target.partition("?")[0] for one in origin.seen if one.method == "PUT"} == {"/upload"}
    assert sum(1 for entry in gate.log if entry.kind is Kind.REFUSED) > 50


# Answers


ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\n\r\nhello world",
    b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    b"HTTP/1.1 204 No Content\r\n\r\n",
)


class _Bytes:
    """A socket for `http.client` that holds one answer."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def read_elsewhere(raw: bytes) -> tuple[int, bytes] | None:
    """Status and body as the standard library reads them; None for what it does not take for a whole answer. It knows
    of the interim answers only 100, so the others are taken off here (RFC 9110 section 15.2)."""
    while re.match(rb"HTTP/1\.1 1[0-9][0-9]\b", raw):
        raw = raw.partition(b"\r\n\r\n")[2]
    answer = http.client.HTTPResponse(_Bytes(raw), method="POST")  # type: ignore[arg-type]  # it only calls makefile
    try:
        answer.begin()
        body = answer.read()
    except (http.client.HTTPException, ValueError, OSError):
        return None
    finally:
        answer.close()
    return answer.status, body


@pytest.mark.parametrize("seed", [1, 2])
async def test_a_complete_answer_is_complete_to_another_reader(seed: int, origin: Origin, make_gate, connect) -> None:
    source = random.Random(seed)
    answers = [damaged(source, source.choice(ANSWERS)) for _ in range(120)] + list(ANSWERS)
    sent: list[bytes] = []

    def answer(arrived: Arrived, line: Line) -> None:
        sent.append(answers[len(sent)])
        line.send(sent[-1])
        line.close()

    origin.behaviour = answer
    door = RecordingDoor(5.0, budget=len(answers))
    gate = await make_gate(origin, phase=Phase.ARMED, door=door)

    async def publish() -> None:
        before = len(door.outcomes)
        client: Client = await connect(gate, origin.url)
        head = f"POST {origin.url}/publish HTTP/1.1\r\nHost: {client.host}\r\n"
        body = b"do=publish"
        form = "Content-Type: application/x-www-form-urlencoded\r\n"
        await client.send(f"{head}{form}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        await gate.until(lambda: len(door.outcomes) > before, 20)
        gate.let_go()
        await client.close()

    complete = 0
    for number in range(len(answers)):
        gate.enter(Phase.ARMED)
        async with asyncio.timeout(20):
            await publish()
        found = door.answers[number]
        if found is None or not found.complete:
            continue
        complete += 1
        other = read_elsewhere(answers[number])
        assert other is not None, answers[number]
        assert other == (found.status, found.body), answers[number]
    assert len(origin.bodies()) == len(answers) == len(door.candidates), "each effect left once"
    assert len(ANSWERS) <= complete < len(answers)
