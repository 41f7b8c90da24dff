"""HTTP/2 on both sides of the gate: what is carried, over which connection, and what one stream does to the others.
Every assertion on what left reads the site's own record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from gate_origin import OK, Arrived, answering
from gate_origin import Line as Http1Line
from gate_support import RecordingDoor
from h2.errors import ErrorCodes
from h2.settings import SettingCodes
from http2_parts import Http2Origin, Line

from executor.gate.port import Hang
from executor.gate.rules import Kind, Phase

FORM = (b"content-type", b"application/x-www-form-urlencoded")


# What is spoken with whom


async def test_a_near_site_is_spoken_to_in_http_1(http2_origin, make_gate, connect) -> None:
    gate = await make_gate(http2_origin)
    client = await connect(gate, http2_origin.url)
    assert (await client.ask("GET", "/")).body == b"ok"
    assert [one.protocol for one in http2_origin.seen] == ["http/1.1"]
    assert http2_origin.connections == 1


async def test_a_distant_site_is_and_the_browser_is_offered_it_from_then_on(
    http2_origin, make_gate, connect, client_of
) -> None:
    gate = await make_gate(http2_origin, http2_beyond_s=0.0)
    first = await connect(gate, http2_origin.url)
    assert (await first.ask("GET", "/first")).body == b"ok"
    second = await client_of(gate, http2_origin)
    assert (await second.ask("GET", "/second")).body == b"ok"
    assert (await first.ask("GET", "/third")).body == b"ok"
    assert [(one.path, one.protocol) for one in http2_origin.seen] == [
        ("/first", "h2"),
        ("/second", "h2"),
        ("/third", "h2"),
    ]
    assert http2_origin.connections == 1


async def test_never_means_never(http2_origin, make_gate, connect) -> None:
    gate = await make_gate(http2_origin, http2_beyond_s=float("inf"))
    assert (await (await connect(gate, http2_origin.url)).ask("GET", "/")).body == b"ok"
    assert [one.protocol for one in http2_origin.seen] == ["http/1.1"]


async def test_a_refused_connect_dials_nothing(http2_origin, far_gate, client_of) -> None:
    gate = await far_gate(http2_origin)
    gate.enter(Phase.CLOSED)
    with pytest.raises(ConnectionError, match="phase_closed"):
        await client_of(gate, http2_origin)
    assert http2_origin.connections == 0


async def test_streams_share_one_connection_and_keep_their_headers(http2_origin, far_gate, client_of) -> None:
    gate = await far_gate(http2_origin)
    client = await client_of(gate, http2_origin)
    got = await asyncio.gather(
        *(client.ask("GET", f"/{n}", None, (b"cookie", b"a=1"), (b"cookie", b"b=2"), dest="image") for n in range(50))
    )
    assert [(one.status, one.body, one.header("content-type")) for one in got] == [(200, b"ok", "text/plain")] * 50
    assert http2_origin.connections == 1
    assert {one.header("cookie") for one in http2_origin.seen} == {"a=1; b=2"}
    assert {one.header(":authority") for one in http2_origin.seen} == {client.authority}
    assert not any(one.header("host") for one in http2_origin.seen)


async def test_a_site_of_http_1_behind_a_browser_of_http_2(tls_origin, far_gate, client_of) -> None:
    """Bodies, codings and statuses, through the same exchange."""
    answers = {
        "/chunked": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nKeep-Alive: 5\r\n\r\n3\r\none\r\n0\r\n\r\n",
        "/none": b"HTTP/1.1 204 No Content\r\n\r\n",
        "/same": b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 9\r\n\r\n',
        "/own": b"HTTP/1.1 200 OK\r\nX-Interlock: forged\r\nAlt-Svc: h3\r\nContent-Length: 0\r\n\r\n",
        "/early": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK,
    }
    tls_origin.behaviour = lambda arrived, line: line.send(answers.get(arrived.target, OK))
    client = await client_of(await far_gate(tls_origin), tls_origin)
    assert (await client.ask("GET", "/chunked")).body == b"one"
    assert (await client.ask("GET", "/none")).status == 204
    assert (await client.ask("GET", "/same")).header("etag") == '"a"'
    assert (await client.ask("GET", "/early")).body == b"ok"
    own = await client.ask("GET", "/own")
    assert (own.interlock, own.header("alt-svc"), own.whole) == (None, None, True)
    tls_origin.behaviour = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
    head = await client.ask("HEAD", "/head")
    assert (head.header("content-length"), head.body, head.whole) == ("500", b"", True)


async def test_statuses_without_a_body_over_http_2(http2_origin, far_gate, client_of) -> None:
    def answer(status: bytes, *fields: tuple[bytes, bytes]) -> Callable[[Line], None]:
        return lambda line: line.head(*fields, status=status, end=True)

    def hinted(line: Line) -> None:
        line.head(status=b"103")
        line.answer(b"after", (b"link", b"</a>"))

    def with_trailers(line: Line) -> None:
        line.head()
        line.data(b"body")
        line.protocol.send_headers(line.came.stream, [(b"x-checksum", b"1")], end_stream=True)
        line.flush()

    http2_origin.behaviours = {
        "/none": answer(b"204"),
        "/same": answer(b"304", (b"etag", b'"a"'), (b"content-length", b"9")),
        "/head": answer(b"200", (b"content-length", b"500")),
        "/empty": answer(b"200"),
        "/hinted": hinted,
        "/trailers": with_trailers,
    }
    client = await client_of(await far_gate(http2_origin), http2_origin)
    assert (await client.ask("GET", "/none")).status == 204
    assert (await client.ask("GET", "/same")).header("etag") == '"a"'
    head = await client.ask("HEAD", "/head")
    assert (head.header("content-length"), head.body, head.whole) == ("500", b"", True)
    assert (await client.ask("GET", "/empty")).whole
    assert (await client.ask("GET", "/hinted")).body == b"after"
    trailed = await client.ask("GET", "/trailers")
    assert (trailed.body, trailed.whole, trailed.header("x-checksum")) == (b"body", True, None)


# Writes and the effect


async def test_writes_leave_over_fresh_http_1_and_the_effect_once(http2_origin, far_gate, client_of) -> None:
    door = RecordingDoor()
    gate = await far_gate(http2_origin, door=door)
    client = await client_of(gate, http2_origin)
    assert (await client.ask("GET", "/page", dest="document")).status == 200
    assert (await client.ask("POST", "/publish", b"do=draft", FORM)).status == 200
    assert (await client.ask("POST", "/publish", b"do=publish", FORM)).interlock == "effect_closed"
    assert (await client.ask("POST", "/elsewhere", b"a=b", FORM)).interlock == "not_declared"
    gate.enter(Phase.ARMED)
    assert (await client.ask("POST", "/publish", b"do=publish", FORM)).body == b"ok"
    assert (await client.ask("POST", "/publish", b"do=publish", FORM)).interlock == "budget_spent"
    sent = [(one.method, one.body, one.protocol) for one in http2_origin.seen]
    assert sent == [
        ("GET", b"", "h2"),
        ("POST", b"do=draft", "http/1.1"),
        ("POST", b"do=publish", "http/1.1"),
    ]
    assert len({one.connection for one in http2_origin.seen}) == 3
    assert [entry.kind for entry in gate.log if entry.bytes_out] == [Kind.SUPPORTING, Kind.EFFECT]


async def test_a_hung_effect_does_not_hold_up_the_other_streams(http2_origin, far_gate, client_of) -> None:
    http2_origin.silent = {"/publish"}
    door = RecordingDoor()
    gate = await far_gate(http2_origin, Phase.ARMED, door=door)
    client = await client_of(gate, http2_origin)
    effect = client.begin(client.fields("POST", "/publish", FORM, (b"content-length", b"10")), end=False)
    await client.send(effect, b"do=publish")
    assert await gate.until(lambda: bool(door.outcomes), 10)
    assert door.outcomes == [Hang()]
    assert (await client.ask("GET", "/other", dest="image")).body == b"ok"
    assert client.asked[effect].reset is None
    gate.enter(Phase.SHUT)
    gate.let_go()
    with pytest.raises(ConnectionError, match="reset"):
        await client.answer(effect)
    assert (await client.ask("GET", "/after", dest="image")).body == b"ok"
    assert [one.body for one in http2_origin.seen if one.method == "POST"] == [b"do=publish"]


async def test_the_session_is_the_same_however_the_cookies_are_split(
    http2_origin, make_gate, connect, far_gate, client_of
) -> None:
    split = await far_gate(http2_origin)
    client = await client_of(split, http2_origin)
    await client.ask("GET", "/", None, (b"cookie", b"other=1"), (b"cookie", b"sid=x"), dest="document")
    joined = await make_gate(http2_origin)
    await (await connect(joined, http2_origin.url)).ask("GET", "/", Cookie="other=1; sid=x")
    digests = {gate.session_digest(http2_origin.url, ["sid"]) for gate in (split, joined)}
    assert len(digests) == 1
    assert None not in digests


async def test_a_site_that_speaks_nothing_else_gets_reads_and_no_write(site_authority, far_gate, client_of) -> None:
    async with Http2Origin(site_authority.server(), alpn=["h2"]) as origin:
        gate = await far_gate(origin)
        client = await client_of(gate, origin)
        assert (await client.ask("GET", "/")).body == b"ok"
        got = await client.ask("PUT", "/upload", b"body")
        assert got.interlock == "upstream_failed"
        assert [one.method for one in origin.seen] == ["GET"]


async def test_a_site_that_refuses_http_1_in_the_handshake_is_said_to(origin, make_gate, connect) -> None:
    """With the alert that is meant for it (RFC 7301 section 3.2); Python's own server side cannot send it."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(bytes.fromhex("15030300020278"))
        await reader.read()
        writer.close()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        gate = await make_gate(origin)
        client = await connect(gate, url)
        assert (await client.ask("PUT", "/upload", b"body")).interlock == "not_declared"
        gate.enter(Phase.WATCH)
        assert (await client.ask("PUT", "/upload", b"body")).interlock == "tls_failed"
    assert "speaks no HTTP/1.1, and nothing else carries a write: it was not sent" in gate.log.entries[-1].note
    assert not gate.log.entries[-1].bytes_out


# Back-pressure, cuts, and what comes once more


async def test_a_body_that_nobody_takes_stops_the_site(http2_origin, far_gate, client_of) -> None:
    size = 200 * 1024 * 1024
    sent: list[int] = []

    async def pour(line: Line) -> None:
        line.head((b"content-length", b"%d" % size))
        left = size
        while left:
            line.changed.clear()
            room = min(left, line.protocol.local_flow_control_window(line.came.stream), 16384)
            if room <= 0:
                await line.changed.wait()
                continue
            left -= room
            sent.append(room)
            line.data(b"x" * room, end=not left)
            await line.writer.drain()

    http2_origin.behaviours["/large"] = pour
    client = await client_of(await far_gate(http2_origin), http2_origin)
    client.takes = False
    large = client.begin(client.fields("GET", "/large"))
    await client.until(lambda: len(client.asked[large].body) == 65535)
    # Others go on, and are answered after whatever the large one had still let through.
    for number in range(20):
        assert (await client.ask("HEAD", f"/{number}")).status == 200
    assert sum(sent) < 3 * 1024 * 1024
    client.protocol.reset_stream(large)
    client.flush()
    await http2_origin.until(lambda: "/large" in http2_origin.given_up)


async def test_windows_that_are_closed_behind_what_was_sent(http2_origin, far_gate, client_of) -> None:
    """Nothing is sent then but the end, which takes no room."""
    held: list[Line] = []

    def begin(line: Line) -> None:
        held.append(line)
        line.head()
        for _ in range(2):
            line.data(b"x" * 15_000)

    http2_origin.behaviours = {"/ends": begin, "/goes-on": begin}
    client = await client_of(await far_gate(http2_origin), http2_origin)
    client.takes = False
    ends, goes_on = (client.begin(client.fields("GET", path)) for path in ("/ends", "/goes-on"))
    await client.until(lambda: all(len(client.asked[one].body) == 30_000 for one in (ends, goes_on)))
    client.protocol.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 30_000})
    client.flush()
    assert (await client.ask("HEAD", "/after-the-settings")).status == 200
    first, second = sorted(held, key=lambda line: line.came.path)
    first.data(b"", end=True)
    second.data(b"y", end=True)
    assert (await client.answer(ends)).whole
    assert not client.asked[goes_on].ended
    client.protocol.increment_flow_control_window(40_000, goes_on)
    client.protocol.increment_flow_control_window(40_000)
    client.flush()
    assert (await client.answer(goes_on)).body.endswith(b"xy")


async def test_a_large_upload_and_a_large_answer_pass_whole(http2_origin, far_gate, client_of) -> None:
    size = 5 * 1024 * 1024
    http2_origin.behaviours["/large"] = lambda line: _head_and_all(line, size)
    client = await client_of(await far_gate(http2_origin), http2_origin)
    got = await client.ask("GET", "/large")
    assert (len(got.body), got.whole) == (size, True)
    body = bytes(range(256)) * (size // 256)
    assert (await client.ask("PUT", "/upload", body)).status == 200
    assert http2_origin.seen[-1].body == body
    assert http2_origin.seen[-1].header("content-length") == str(size)


async def _head_and_all(line: Line, size: int) -> None:
    line.head()
    await line.send_all(size)


async def test_a_stream_is_cut_when_the_phase_changes_and_the_others_stay(http2_origin, far_gate, client_of) -> None:
    def endless(line: Line) -> None:
        line.head((b"content-type", b"text/event-stream"))
        line.data(b"data: 1\n\n")

    http2_origin.behaviours["/events"] = endless
    gate = await far_gate(http2_origin)
    client = await client_of(gate, http2_origin)
    events = client.begin(client.fields("GET", "/events"))
    await client.until(lambda: bool(client.asked[events].body))
    gate.enter(Phase.READ_ONLY)
    got = await client.answer(events)
    assert (got.whole, client.asked[events].reset) == (False, 2)
    await http2_origin.until(lambda: http2_origin.given_up == ["/events"])
    assert (await client.ask("GET", "/picture", dest="image")).body == b"ok"


async def test_a_request_that_the_browser_gives_up_is_given_up(http2_origin, far_gate, client_of) -> None:
    http2_origin.behaviours["/slow"] = lambda line: None
    client = await client_of(await far_gate(http2_origin), http2_origin)
    slow = client.begin(client.fields("GET", "/slow"))
    await http2_origin.until(lambda: "/slow" in http2_origin.paths)
    client.protocol.reset_stream(slow)
    client.flush()
    await http2_origin.until(lambda: http2_origin.given_up == ["/slow"])


async def test_no_more_streams_than_the_site_allows(site_authority, far_gate, client_of) -> None:
    async with Http2Origin(site_authority.server(), streams=2) as origin:
        waiting: list[Line] = []
        origin.behaviours = {f"/{n}": waiting.append for n in range(5)}
        client = await client_of(await far_gate(origin), origin)
        await client.ask("GET", "/first")
        asked = [client.begin(client.fields("GET", f"/{n}")) for n in range(5)]
        for count in range(2, 6):
            await origin.until(lambda count=count: len(waiting) == count)
            waiting[count - 2].answer()
        waiting[4].answer()
        assert [(await client.answer(one)).status for one in asked] == [200] * 5
        assert origin.connections == 1


def refused_once(code: int) -> Callable[[Line], None]:
    met: list[Line] = []

    def behave(line: Line) -> None:
        met.append(line)
        if len(met) == 1:
            line.reset(ErrorCodes(code))
        else:
            line.answer()

    return behave


@pytest.mark.parametrize(
    ("dest", "code", "times"), [("image", 7, 2), ("empty", 7, 1), ("document", 7, 1), ("image", 2, 2)]
)
async def test_only_a_subresource_is_sent_once_more(http2_origin, far_gate, client_of, dest, code, times) -> None:
    """7 is REFUSED_STREAM, 2 INTERNAL_ERROR; no byte of an answer came in either."""
    http2_origin.behaviours["/again"] = refused_once(code)
    client = await client_of(await far_gate(http2_origin), http2_origin)
    await client.ask("GET", "/first", dest="image")
    got = await client.ask("GET", "/again", dest=dest)
    assert http2_origin.paths.count("/again") == times
    assert got.interlock == (None if times == 2 else "upstream_failed")


async def test_a_subresource_is_not_sent_a_third_time(http2_origin, far_gate, client_of) -> None:
    http2_origin.behaviours["/again"] = lambda line: line.reset(ErrorCodes.REFUSED_STREAM)
    client = await client_of(await far_gate(http2_origin), http2_origin)
    assert (await client.ask("GET", "/again", dest="image")).interlock == "upstream_failed"
    assert http2_origin.paths == ["/again", "/again"]


async def test_what_a_closing_site_leaves_out_goes_over_another_connection(http2_origin, far_gate, client_of) -> None:
    """GOAWAY: the stream up to its number is answered to the end, the later ones are not processed."""
    lines: dict[str, Line] = {}
    http2_origin.behaviours = {
        path: lambda line: lines.update({line.came.path: line}) for path in ("/in", "/out", "/fetch")
    }
    client = await client_of(await far_gate(http2_origin), http2_origin)
    await client.ask("GET", "/first", dest="image")
    within = client.begin(client.fields("GET", "/in", (b"sec-fetch-dest", b"image")))
    await http2_origin.until(lambda: len(lines) == 1)
    without = client.begin(client.fields("GET", "/out", (b"sec-fetch-dest", b"image")))
    fetched = client.begin(client.fields("GET", "/fetch", (b"sec-fetch-dest", b"empty")))
    await http2_origin.until(lambda: len(lines) == 3)
    first = lines["/in"]
    http2_origin.behaviours.clear()
    first.go_away(first.came.stream)
    assert (await client.answer(without)).body == b"ok"
    assert (await client.answer(fetched)).interlock == "upstream_failed"
    first.answer(b"whole")
    assert (await client.answer(within)).body == b"whole"
    assert [(one.path, one.connection) for one in http2_origin.seen if one.path == "/out"] == [("/out", 1), ("/out", 2)]
    assert http2_origin.paths.count("/fetch") == 1


async def test_what_had_no_stream_yet_goes_over_another_connection_whatever_it_is(
    site_authority, far_gate, client_of
) -> None:
    """A document waits for the one stream that the site allows; the site closes instead. Nothing of it was sent."""
    async with Http2Origin(site_authority.server(), streams=1) as origin:
        held: list[Line] = []
        origin.behaviours["/held"] = held.append
        client = await client_of(await far_gate(origin), origin)
        await client.ask("GET", "/first", dest="image")
        within = client.begin(client.fields("GET", "/held"))
        await origin.until(lambda: bool(held))
        waiting = client.begin(client.fields("GET", "/document", (b"sec-fetch-dest", b"document")))
        assert (await client.ask("POST", "/other", b"", FORM)).interlock == "not_declared"
        held[0].go_away(held[0].came.stream)
        assert (await client.answer(waiting)).body == b"ok"
        held[0].answer()
        assert (await client.answer(within)).body == b"ok"
        assert [(one.path, one.connection) for one in origin.seen] == [("/first", 1), ("/held", 1), ("/document", 2)]


async def test_a_quiet_connection_is_closed_and_one_in_use_is_not(http2_origin, far_gate, client_of) -> None:
    held: list[Line] = []
    http2_origin.behaviours["/held"] = held.append
    client = await client_of(await far_gate(http2_origin, pool_idle_s=0.1), http2_origin)
    within = client.begin(client.fields("GET", "/held"))
    await http2_origin.until(lambda: bool(held))
    await asyncio.sleep(0.3)  # three times as long as a quiet one is kept
    assert http2_origin.ended == 0
    held[0].answer()
    assert (await client.answer(within)).body == b"ok"
    await http2_origin.until(lambda: http2_origin.ended == 1)
    assert (await client.ask("GET", "/after")).body == b"ok"
    assert http2_origin.connections == 2


async def test_a_dead_connection_is_found_before_a_document_goes_over_it(http2_origin, far_gate, client_of) -> None:
    gate = await far_gate(http2_origin, pool_fetch_idle_s=0.0, http2_ping_s=0.2)
    client = await client_of(gate, http2_origin)
    assert (await client.ask("GET", "/first", dest="document")).body == b"ok"
    http2_origin.lines[0].transport.pause_reading()  # as if the network were gone: no FIN, no answer
    assert (await client.ask("GET", "/second", dest="document")).body == b"ok"
    assert [(one.path, one.connection) for one in http2_origin.seen] == [("/first", 1), ("/second", 2)]


async def test_a_site_that_no_longer_speaks_it_is_not_asked_for_a_hundred_connections(
    tls_origin, far_gate, client_of
) -> None:
    client = await client_of(await far_gate(tls_origin, http1_reads=4), tls_origin)
    got = await asyncio.gather(*(client.ask("GET", f"/{number}", dest="image") for number in range(60)))
    assert [one.body for one in got] == [b"ok"] * 60
    assert len(tls_origin.seen) == 60
    # One more may have been dialled before it was known.
    assert tls_origin.connections <= 5


async def test_over_http_1_too_only_a_subresource_is_sent_once_more(tls_origin, far_gate, client_of) -> None:
    """A site that died on reuse over HTTP/1.1 while the browser speaks HTTP/2: the same rule."""

    def dying(arrived: Arrived, line: Http1Line) -> None:
        if arrived.index:
            line.reset()
        else:
            line.send(OK)

    tls_origin.behaviour = dying
    client = await client_of(await far_gate(tls_origin), tls_origin)
    await client.ask("GET", "/first", dest="image")
    assert (await client.ask("GET", "/again", dest="image")).body == b"ok"
    await client.ask("GET", "/fresh", dest="image")
    assert (await client.ask("GET", "/fetch", dest="empty")).interlock == "upstream_failed"
    assert [one.target for one in tls_origin.seen] == ["/first", "/again", "/again", "/fresh", "/fresh", "/fetch"]
