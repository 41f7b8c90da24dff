"""What HTTP/2 can say that must not become a request of HTTP/1.1, floods, and sites that do not keep to the protocol.
What reached the site is read from its own record.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gate_support import RecordingDoor
from h2.errors import ErrorCodes
from hpack import Decoder, NeverIndexedHeaderTuple
from http2_parts import Http2Client, Line, lenient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from executor.gate.framing import Authority, BadHead
from executor.gate.http2_encoder import HeadEncoder
from executor.gate.http2_frames import PREFACE, Flood, Frames
from executor.gate.http2_heads import read_request
from executor.gate.rules import Phase

Field = tuple[bytes, bytes]
FORM = (b"content-type", b"application/x-www-form-urlencoded")
PUT = {b":method": b"PUT", b":scheme": b"https", b":path": b"/upload"}

SMUGGLING: dict[str, list[Field]] = {
    "line in a value": [(b"x-a", b"a\r\nTransfer-Encoding: chunked")],
    "LF in a value": [(b"x-a", b"a\nb: c")],
    "CR in a value": [(b"x-a", b"a\rb")],
    "NUL in a value": [(b"x-a", b"a\0b")],
    "space before a value": [(b"x-a", b" a")],
    "space after a value": [(b"x-a", b"a\t")],
    "line in a name": [(b"x-a: b\r\nx-c", b"d")],
    "colon in a name": [(b"x-a:", b"b")],
    "space in a name": [(b"content-length ", b"0")],
    "upper case in a name": [(b"X-A", b"b")],
    "empty name": [(b"", b"b")],
    "connection": [(b"connection", b"close")],
    "keep-alive": [(b"keep-alive", b"5")],
    "proxy-connection": [(b"proxy-connection", b"keep-alive")],
    "transfer-encoding": [(b"transfer-encoding", b"chunked")],
    "upgrade": [(b"upgrade", b"websocket")],
    "te": [(b"te", b"gzip")],
    "two lengths": [(b"content-length", b"0"), (b"content-length", b"0")],
    "pseudo-header behind a header": [(b"x-a", b"b"), (b":path", b"/publish")],
    "unknown pseudo-header": [(b":version", b"1.1")],
    "two paths": [(b":path", b"/publish")],
    "two authorities": [(b":authority", b"other.example")],
    "line in the path": [(b":path", b"/upload HTTP/1.1\r\nHost: x\r\n\r\nGET /")],
    "line in the method": [(b":method", b"PUT / HTTP/1.1\r\nx: ")],
}
REPLACING = {"line in the path": "malformed_target", "line in the method": "smuggling"}


@pytest.mark.parametrize("shape", SMUGGLING)
async def test_smuggling_shapes_reach_nothing(shape, http2_origin, far_gate, client_of) -> None:
    gate = await far_gate(http2_origin)
    client = await client_of(gate, http2_origin)
    pseudo = {**PUT, b":authority": client.authority.encode()}
    if shape in REPLACING:
        ((name, value),) = SMUGGLING[shape]
        fields = list({**pseudo, name: value}.items())
    else:
        fields = [*pseudo.items(), *SMUGGLING[shape]]
    # A pseudo-header's value with a line in it is refused for the line before the path is looked at.
    got = await client.answer(client.begin(fields))
    assert (got.status, got.interlock) == (400, "smuggling")
    assert (await client.ask("GET", "/after", dest="image")).body == b"ok"
    assert http2_origin.paths == ["/after"]
    assert [entry.reason for entry in gate.log] == ["smuggling"]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        (b":authority", b"other.example", "host_mismatch"),
        (b":authority", b"127.0.0.1", "host_mismatch"),
        (b":authority", b"user@127.0.0.1", "host_mismatch"),
        (b":authority", b"", "host_mismatch"),
        (b":scheme", b"http", "host_mismatch"),
        (b":path", b"https://127.0.0.1/upload", "malformed_target"),
        (b":path", b"*", "malformed_target"),
        (b":path", b"", "malformed_target"),
        (b":path", b"/a b", "malformed_target"),
        (b":path", b"/a/../upload", "malformed_target"),
        (b":method", b"CONNECT", "websocket"),
        (b":method", b"", "smuggling"),
    ],
)
async def test_targets_of_another_form_are_refused(
    name,
    value,
    reason,
    http2_origin,
    far_gate,
    client_of,
) -> None:
    gate = await far_gate(http2_origin)
    client = await client_of(gate, http2_origin)
    fields = {**PUT, b":authority": client.authority.encode(), name: value}
    assert (await client.answer(client.begin(list(fields.items())))).interlock == reason
    assert http2_origin.seen == []
    assert [entry.reason for entry in gate.log] == [reason]


@pytest.mark.parametrize("missing", [b":method", b":scheme", b":authority", b":path"])
async def test_a_missing_pseudo_header_is_refused(missing, http2_origin, far_gate, client_of) -> None:
    client = await client_of(await far_gate(http2_origin), http2_origin)
    fields = {**PUT, b":authority": client.authority.encode()}
    del fields[missing]
    assert (await client.answer(client.begin(list(fields.items())))).interlock == "smuggling"
    assert http2_origin.seen == []


async def test_host_beside_authority_and_extended_connect(http2_origin, far_gate, client_of) -> None:
    client = await client_of(await far_gate(http2_origin), http2_origin)
    own = client.authority.encode()
    assert (await client.ask("GET", "/same", None, (b"host", own))).body == b"ok"
    assert (await client.ask("GET", "/", None, (b"host", b"other.example"))).interlock == "host_mismatch"
    assert (await client.ask("GET", "/", None, (b"host", own), (b"host", own))).interlock == "host_mismatch"
    extended = [(b":method", b"CONNECT"), (b":protocol", b"websocket"), (b":scheme", b"https"), (b":path", b"/socket")]
    stream = client.begin([*extended, (b":authority", own)], end=False)
    assert (await client.answer(stream)).interlock == "websocket"
    assert http2_origin.paths == ["/same"]


async def test_a_body_of_another_length_than_announced_is_refused(http2_origin, far_gate, client_of) -> None:
    """Each by itself: what else is on the connection goes on."""
    gate = await far_gate(http2_origin)
    client = await client_of(gate, http2_origin)
    ended = client.begin(client.fields("PUT", "/upload", (b"content-length", b"5")))
    assert (await client.answer(ended)).interlock == "smuggling"
    for body in (b"four", b"longer than five"):
        stream = client.begin(client.fields("PUT", "/upload", (b"content-length", b"5")), end=False)
        await client.send(stream, body)
        assert (await client.answer(stream)).interlock == "smuggling"
    assert http2_origin.seen == []
    assert {entry.reason for entry in gate.log} == {"smuggling"}


async def test_trailers_are_dropped_and_a_body_over_the_limit_is_refused(
    http2_origin,
    far_gate,
    client_of,
) -> None:
    gate = await far_gate(http2_origin, body_bytes=1000)
    client = await client_of(gate, http2_origin)
    stream = client.begin(client.fields("PUT", "/upload"), end=False)
    await client.send(stream, b"body", end=False)
    client.protocol.send_headers(stream, [(b"x-http-method-override", b"DELETE")], end_stream=True)
    client.flush()
    assert (await client.answer(stream)).status == 200
    (only,) = http2_origin.seen
    assert (only.body, only.header("x-http-method-override"), only.header("content-length")) == (b"body", None, "4")
    large = client.begin(client.fields("PUT", "/upload"), end=False)
    await client.send(large, b"x" * 1001, end=False)
    assert (await client.answer(large)).interlock == "body_unreadable"
    announced = client.begin(client.fields("PUT", "/upload", (b"content-length", b"1001")), end=False)
    assert (await client.answer(announced)).interlock == "body_unreadable"
    assert (await client.ask("GET", "/after", dest="image")).body == b"ok"
    assert len(http2_origin.seen) == 2


async def test_a_body_that_stops_is_refused_and_one_that_is_given_up_ends(
    http2_origin,
    far_gate,
    client_of,
) -> None:
    gate = await far_gate(http2_origin, body_stall_s=0.2)
    client = await client_of(gate, http2_origin)
    stream = client.begin(client.fields("PUT", "/upload"), end=False)
    await client.send(stream, b"part", end=False)
    assert (await client.answer(stream)).interlock == "body_unreadable"
    given_up = client.begin(client.fields("PUT", "/upload"), end=False)
    client.protocol.reset_stream(given_up)
    client.flush()
    assert (await client.ask("GET", "/after", dest="image")).body == b"ok"
    assert await gate.quiet(5)
    assert http2_origin.paths == ["/after"]


async def test_the_rules_see_the_same_request(http2_origin, far_gate, client_of) -> None:
    """Everything that is refused over HTTP/1.1 after its head was read is refused here by the same code."""
    gate = await far_gate(http2_origin, door=RecordingDoor())
    client = await client_of(gate, http2_origin)
    for expected, asked in {
        "method_override": ("GET", "/publish?_method=POST", None),
        "prefetch": ("GET", "/list", None, (b"sec-purpose", b"prefetch")),
        "effect_closed": ("POST", "/publish", b"do=publish", FORM),
        "ambiguous": ("POST", "/publish/", b"do=publish", FORM),
        "not_declared": ("POST", "/other", b"", FORM),
        "probe_unknown": ("GET", "/.well-known/interlock/0", None),
    }.items():
        if expected == "ambiguous":
            gate.enter(Phase.ARMED)
        assert (await client.ask(*asked)).interlock == expected  # type: ignore[arg-type]
    url = gate.expect_probe(http2_origin.url)
    text = gate.probe_answer(url)
    got = await client.ask("GET", url.removeprefix(http2_origin.url), dest="document")
    assert got.body.decode() == text
    assert gate.proved(http2_origin.url)
    assert http2_origin.seen == []


# Floods


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def resets(client: Http2Client) -> bytes:
    """Rapid reset (CVE-2023-44487): requests that are given up in the same breath."""
    for _ in range(200):
        stream = client.begin(client.fields("GET", "/reset"))
        client.protocol.reset_stream(stream)
    return b""


FLOODS: dict[str, Callable[[Http2Client], bytes]] = {
    "ping": lambda client: frame(6, 0, 0, b"12345678") * 300,
    "settings": lambda client: frame(4, 0, 0) * 300,
    "priority": lambda client: frame(2, 0, 1, b"\0\0\0\0\x10") * 300,
    "unknown": lambda client: frame(0x20, 0, 0) * 300,
    "empty data": lambda client: frame(0, 0, client.begin(client.fields("PUT", "/upload"), end=False)) * 300,
    "window updates": lambda client: frame(8, 0, 0, b"\0\0\0\x01") * 300,
    "resets": resets,
    "continuation": lambda client: frame(1, 0, 1, b"\x82") + frame(9, 0, 1) * 300,
    "endless head": lambda client: frame(1, 0, 1, b"\x82") + frame(9, 0, 1, b"\x40\x01a\x01b" * 3000) * 70,
    "header bomb": lambda client: frame(1, 5, 1, b"\x40\x01a\x7f\x81\x1e" + b"x" * 3968 + b"\xbe" * 100),
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_a_flood_ends_its_connection_and_is_logged(kind, http2_origin, far_gate, client_of) -> None:
    gate = await far_gate(http2_origin, http2_calls=100)
    client, other = await client_of(gate, http2_origin), await client_of(gate, http2_origin)
    client.raw(FLOODS[kind](client))
    await client.until(lambda: client.closed)
    assert await gate.until(lambda: any(entry.reason == "smuggling" for entry in gate.log), 5)
    (entry,) = [entry for entry in gate.log if entry.reason == "smuggling"]
    assert entry.note.startswith("the connection was ended: ")
    assert (await other.ask("GET", "/after", dest="image")).body == b"ok"


async def test_what_is_no_http_2_ends_the_connection(http2_origin, far_gate, client_of) -> None:
    gate = await far_gate(http2_origin, head_s=0.2)
    for broken in (
        b"GET / HTTP/1.1\r\n\r\n",
        frame(0, 0, 1, b"data for no stream"),
        frame(1, 4, 2, b"\x82"),
        frame(1, 4, 1, b"\xff\xff\xff\xff\xff"),
        frame(0, 0, 1, b"x" * 20000),
        frame(5, 4, 1, b"\0\0\0\x02\x82"),
        frame(1, 0, 1, b"\x82"),
    ):
        client = await client_of(gate, http2_origin)
        client.raw(broken)
        await client.until(lambda client=client: client.closed)
    assert {entry.reason for entry in gate.log} == {"smuggling"}
    assert len(gate.log) == 7
    assert http2_origin.seen == []


async def test_more_streams_than_allowed_end_the_connection(http2_origin, far_gate, client_of) -> None:
    http2_origin.behaviours["/slow"] = lambda line: None
    gate = await far_gate(http2_origin, http2_streams=3)
    client = await client_of(gate, http2_origin)
    slow = client.fields("GET", "/slow", (b"sec-fetch-dest", b"image"))
    for _ in range(3):
        client.begin(slow)
    await http2_origin.until(lambda: len(http2_origin.seen) == 3)
    client.protocol.remote_settings = lenient(client=True).remote_settings  # forgets the limit that the gate told
    client.begin(slow)
    await client.until(lambda: client.closed)
    assert await gate.until(lambda: len(gate.log) > 0, 5)
    assert [entry.reason for entry in gate.log] == ["smuggling"]


# Sites that do not keep to the protocol


def broken_head(*fields: Field, status: bytes = b"200") -> Callable[[Line], None]:
    return lambda line: line.head(*fields, status=status, end=True)


def data_after_end(line: Line) -> None:
    line.head(end=True)
    line.raw(frame(0, 1, line.came.stream, b"more"))


def short(line: Line) -> None:
    line.head((b"content-length", b"9"))
    line.data(b"four", end=True)


def long(line: Line) -> None:
    line.head((b"content-length", b"1"))
    line.data(b"four", end=True)


def short_at_once(line: Line) -> None:
    line.head((b"content-length", b"9"), end=True)


def body_for_204(line: Line) -> None:
    line.head(status=b"204")
    line.data(b"four", end=True)


def cut(line: Line) -> None:
    line.head()
    line.data(b"part")
    line.reset(ErrorCodes.INTERNAL_ERROR)


def hints(line: Line) -> None:
    for _ in range(1200):
        line.head(status=b"103")


def push(line: Line) -> None:
    line.raw(frame(5, 4, line.came.stream, b"\0\0\0\x02\x82\x87\x84\x41\x01a"))


NO_ANSWER: dict[str, Callable[[Line], None]] = {
    "upper case": broken_head((b"X-A", b"b")),
    "line in a value": broken_head((b"x-a", b"a\r\nset-cookie: b=c")),
    "transfer-encoding": broken_head((b"transfer-encoding", b"chunked")),
    "lengths that differ": broken_head((b"content-length", b"1"), (b"content-length", b"2")),
    "length that is none": broken_head((b"content-length", b"+1")),
    "two statuses": broken_head((b":status", b"200")),
    "pseudo-header of requests": broken_head((b":path", b"/")),
    "status of four digits": broken_head(status=b"2000"),
    "status that is none": broken_head(status=b"ok"),
    "upgrade": broken_head(status=b"101"),
    "reset": lambda line: line.reset(ErrorCodes.INTERNAL_ERROR),
    "push": push,
    "garbage": lambda line: line.raw(b"\xff" * 40),
    "oversized head": lambda line: line.raw(
        frame(1, 4, line.came.stream, b"\x88" + b"\x40\x01a\x7f\x81\x1e" + b"x" * 3968 + b"\xbe" * 100)
    ),
    "end of the connection": lambda line: line.writer.close(),
    "silence": lambda line: None,
    "flood": lambda line: line.raw(frame(6, 0, 0, b"12345678") * 1200),
    "endless hints": hints,
    "no new streams": lambda line: line.raw(
        frame(4, 0, 0, b"\0\x03\0\0\0\0") + frame(3, 0, line.came.stream, b"\0\0\0\x02")
    ),
}
CUT: dict[str, Callable[[Line], None]] = {
    "shorter than it says": short,
    "longer than it says": long,
    "none where it says nine bytes": short_at_once,
    "a body for 204": body_for_204,
    "reset in the middle": cut,
    "data after its end": data_after_end,
}


@pytest.mark.parametrize("fault", NO_ANSWER)
async def test_an_answer_that_is_none_is_an_error_of_the_site(fault, http2_origin, far_gate, client_of) -> None:
    http2_origin.behaviours["/broken"] = NO_ANSWER[fault]
    gate = await far_gate(http2_origin, upstream_head_s=0.5)
    client = await client_of(gate, http2_origin)
    got = await client.ask("GET", "/broken", dest="document")
    assert (got.status, got.interlock) == (502, "upstream_failed")
    assert http2_origin.paths == ["/broken"]
    assert gate.log.entries[-1].note


@pytest.mark.parametrize("fault", CUT)
async def test_an_answer_that_is_not_whole_never_looks_whole(fault, http2_origin, far_gate, client_of) -> None:
    http2_origin.behaviours["/cut"] = CUT[fault]
    gate = await far_gate(http2_origin)
    client = await client_of(gate, http2_origin)
    stream = client.begin(client.fields("GET", "/cut", (b"sec-fetch-dest", b"document")))
    try:
        got = await client.answer(stream)
    except ConnectionError:
        got = None
    if fault == "data after its end":
        # The answer was over; the connection is what ends.
        assert got is not None and got.whole
    else:
        assert got is None or not got.whole or got.interlock == "upstream_failed"
        assert gate.log.entries[-1].complete is not True or gate.log.entries[-1].answered_by_gate
    assert (await client.ask("GET", "/after", dest="image")).body == b"ok"
    assert http2_origin.paths == ["/cut", "/after"]


async def test_a_stalled_answer_is_cut(http2_origin, far_gate, client_of) -> None:
    def stalled(line: Line) -> None:
        line.head()
        line.data(b"part")

    http2_origin.behaviours["/stalled"] = stalled
    client = await client_of(await far_gate(http2_origin, upstream_stall_s=0.3), http2_origin)
    got = await client.ask("GET", "/stalled")
    assert (got.body, got.whole) == (b"part", False)
    await http2_origin.until(lambda: http2_origin.given_up == ["/stalled"])


# The pure parts


names = st.binary(max_size=12) | st.sampled_from(
    [b":method", b":path", b":authority", b":scheme", b"host", b"cookie", b"te"]
)
values = st.binary(max_size=12) | st.sampled_from([b"GET", b"/", b"site.example", b"https", b"trailers"])


@given(st.lists(st.tuples(names, values), max_size=8))
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_fields_come_a_head_holds_no_line_and_names_its_tunnel(fields: list[Field]) -> None:
    good = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"site.example"), (b":path", b"/")]
    for given_fields in (fields, [*good, *fields]):
        try:
            head, request = read_request(given_fields, Authority("site.example", 443))
        except BadHead:
            continue
        assert (request.host, request.port, request.scheme) == ("site.example", 443, "https")
        assert request.target.startswith("/")
        for name, value in head.raw:
            assert not set(name) & set(b"\r\n\0: \t")
            assert name
            assert name == name.lower()
            assert not set(value) & set(b"\r\n\0")
            assert name not in (b"connection", b"transfer-encoding", b"upgrade")


@given(st.lists(st.tuples(st.sampled_from([0, 1, 6, 7, 9]), st.binary(max_size=30)), max_size=8), st.data())
@settings(max_examples=150, deadline=None)
def test_frames_pass_unchanged_however_they_are_cut(sent: list[tuple[int, bytes]], data: st.DataObject) -> None:
    whole = PREFACE + b"".join(frame(kind, 4, 1, payload) for kind, payload in sent)
    wanted = PREFACE + b"".join(frame(kind, 4, 1, payload) for kind, payload in sent if kind != 7)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    frames = Frames(preface=True, calls=100)
    pieces = [frames.take(whole[start:end]) for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert b"".join(pieces) == wanted
    assert len(frames.goaways) == sum(1 for kind, payload in sent if kind == 7 and len(payload) >= 8)
    assert not frames.midway


heads = st.lists(
    st.tuples(
        st.sampled_from([b":path", b"cookie", b"x-a", b"accept", b"authorization", b":method"]),
        st.sampled_from([b"", b"GET", b"b" * 90, b"c" * 3000, b"d" * 5000]) | st.binary(max_size=40),
    ),
    max_size=12,
)


@given(st.lists(st.tuples(heads, st.lists(st.integers(0, 70_000), max_size=3)), max_size=8))
@settings(max_examples=150, deadline=None)
def test_heads_are_read_as_they_were_written(sent: list[tuple[list[Field], list[int]]]) -> None:
    """By another implementation of HPACK, whose table must have stayed the same as ours through it all."""
    encoder, decoder = HeadEncoder(), Decoder()
    for fields, changes in sent:
        for allowed in changes:
            decoder.max_allowed_table_size = encoder.header_table_size = allowed
        never = [NeverIndexedHeaderTuple(*one) if one[0] == b"authorization" else one for one in fields]
        assert [tuple(one) for one in decoder.decode(encoder.encode(never), raw=True)] == fields


def test_calls_are_granted_anew_by_what_is_carried() -> None:
    frames = Frames(preface=False, calls=10)
    for _ in range(50):
        frames.carried()
        frames.take(frame(8, 0, 0, b"\0\0\0\x01") * 2)
    with pytest.raises(Flood):
        frames.take(frame(8, 0, 0, b"\0\0\0\x01") * 20)
