"""What the gate carries, over real sockets: every assertion on what left reads the site's own record."""

from __future__ import annotations

import asyncio
import gzip
import ssl

import pytest
from gate_origin import OK, Arrived, Line, TestAuthority, answering

from executor.gate.rules import Phase

FORM = "application/x-www-form-urlencoded"


def chunked(*pieces: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


@pytest.fixture(params=["plain", "tunnel", "tls"])
def way(request, origin, tls_origin):
    """The site and how the browser reaches it: absolute-form, plain HTTP inside CONNECT, TLS."""
    site = tls_origin if request.param == "tls" else origin
    return site, {"tunnel": True} if request.param == "tunnel" else {}


async def test_keep_alive_carries_many_requests_over_one_connection(way, make_gate, connect) -> None:
    site, options = way
    gate = await make_gate(site)
    client = await connect(gate, site.url, **options)
    for number in range(3):
        got = await client.ask("GET", f"/page?{number}", Proxy_Connection="keep-alive", X_Kept="1")
        assert (got.status, got.body) == (200, b"ok")
    assert [one.target for one in site.seen] == ["/page?0", "/page?1", "/page?2"]
    assert site.connections == 1
    assert all(one.header("proxy-connection") is None and one.header("x-kept") == "1" for one in site.seen)
    assert gate.log.safe_reads[Phase.PREPARE] == 3


async def test_answers_of_every_framing_arrive_as_they_were(way, make_gate, connect) -> None:
    site, options = way
    packed = gzip.compress(b"text " * 1000)
    big = bytes(range(256)) * 20000
    answers = {
        "/chunked": chunked(b"one", b"two" * 50000),
        "/gzip": b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(packed) + packed,
        "/big": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(big) + big,
        "/204": b"HTTP/1.1 204 No Content\r\n\r\n",
        "/205": b"HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n",
        "/206": b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 2-3/9\r\nContent-Length: 2\r\n\r\nlo",
        "/304": b'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\n\r\n',
        "/early": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + OK,
        "/own": b"HTTP/1.1 200 OK\r\nX-Interlock: forged\r\nAlt-Svc: h3\r\nContent-Length: 0\r\n\r\n",
    }
    site.behaviour = lambda arrived, line: line.send(answers[arrived.target])
    client = await connect(await make_gate(site), site.url, **options)
    assert (await client.ask("GET", "/chunked")).body == b"one" + b"two" * 50000
    assert gzip.decompress((await client.ask("GET", "/gzip")).body) == b"text " * 1000
    assert (await client.ask("GET", "/big")).body == big
    assert (await client.ask("GET", "/204")).status == 204
    empty = await client.ask("GET", "/205")
    assert (empty.status, empty.body, empty.whole) == (205, b"", True)
    part = await client.ask("GET", "/206", Range="bytes=2-3")
    assert (part.status, part.body, part.header("content-range")) == (206, b"lo", "bytes 2-3/9")
    assert site.seen[-1].header("range") == "bytes=2-3"
    assert (await client.ask("GET", "/304")).header("etag") == '"a"'
    assert (await client.ask("GET", "/early")).body == b"ok"
    own = await client.ask("GET", "/own")
    assert own.interlock is None
    assert own.header("alt-svc") is None
    site.behaviour = answering(b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n")
    head = await client.ask("HEAD", "/head")
    assert (head.header("content-length"), head.body, head.whole) == ("500", b"", True)
    site.behaviour = answering(OK)
    assert (await client.ask("GET", "/after")).body == b"ok"


async def test_an_answer_that_ends_with_its_connection(origin, make_gate, connect) -> None:
    def old(arrived: Arrived, line: Line) -> None:
        line.send(b"HTTP/1.0 200 OK\r\n\r\nuntil the end")
        line.close()

    origin.behaviour = old
    client = await connect(await make_gate(origin), origin.url)
    for _ in range(2):
        got = await client.ask("GET", "/")
        assert (got.body, got.whole) == (b"until the end", True)


@pytest.mark.parametrize("size", [0, 10, 3 * 1024 * 1024, 9 * 1024 * 1024])
async def test_bodies_of_declared_writes_arrive_whole(way, make_gate, connect, size) -> None:
    site, options = way
    gate = await make_gate(site)
    client = await connect(gate, site.url, **options)
    body = bytes(i % 251 for i in range(1000)) * (size // 1000) + b"x" * (size % 1000)
    assert (await client.ask("PUT", "/upload", body)).status == 200
    pieces = [body[i : i + 70000] for i in range(0, len(body), 70000)]
    framed = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\nTrailer: x\r\n\r\n"
    assert (await client.ask("PUT", "/upload", framed, Transfer_Encoding="chunked")).status == 200
    assert [one.body == body for one in site.seen] == [True, True]
    assert [one.header("content-length") for one in site.seen] == [str(size)] * 2
    assert site.connections == 2
    assert [(entry.write, entry.body_size, entry.bytes_out) for entry in gate.log] == [("upload", size, True)] * 2


async def test_a_body_over_the_limit_is_refused(origin, make_gate, connect) -> None:
    gate = await make_gate(origin, body_bytes=1000)
    client = await connect(gate, origin.url)
    assert (await client.ask("PUT", "/upload", b"x" * 1001)).interlock == "body_unreadable"
    client = await connect(gate, origin.url)
    framed = b"3e9\r\n" + b"x" * 1001 + b"\r\n0\r\n\r\n"
    assert (await client.ask("PUT", "/upload", framed, Transfer_Encoding="chunked")).interlock == "body_unreadable"
    assert not origin.raw


async def test_expect_continue_is_answered_by_the_gate(origin, make_gate, connect) -> None:
    client = await connect(await make_gate(origin), origin.url)
    head = (
        f"PUT {origin.url}/upload HTTP/1.1\r\nHost: {client.host}\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n"
    )
    await client.send(head.encode())
    assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    await client.send(b"body")
    assert (await client.answer("PUT")).status == 200
    assert [(one.body, one.header("expect")) for one in origin.seen] == [(b"body", None)]


SMUGGLING = {
    "length and coding": b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "length twice": b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
    "lengths in one": b"Content-Length: 5, 5\r\n\r\nhello",
    "signed length": b"Content-Length: +5\r\n\r\nhello",
    "unknown coding": b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding twice": b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "disguised coding": b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "folded line": b"X-A: a\r\n b\r\nContent-Length: 5\r\n\r\nhello",
    "space before colon": b"Content-Length : 5\r\n\r\nhello",
    "bare LF": b"X-A: a\nContent-Length: 5\r\n\r\nhello",
    "bare CR": b"X-A: a\rb\r\nContent-Length: 5\r\n\r\nhello",
    "NUL": b"X-A: a\0b\r\nContent-Length: 5\r\n\r\nhello",
    "dropped header": b"Connection: cookie\r\nContent-Length: 5\r\n\r\nhello",
    "bad chunk": b"Transfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
    "chunk too short": b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
}


@pytest.mark.parametrize("shape", SMUGGLING)
async def test_smuggling_shapes_reach_nothing(shape, way, make_gate, connect) -> None:
    site, options = way
    gate = await make_gate(site)
    client = await connect(gate, site.url, **options)
    line = f"PUT {'' if options or site.tls else site.url}/upload HTTP/1.1\r\nHost: {client.host}\r\n"
    await client.send(line.encode() + SMUGGLING[shape])
    assert (await client.answer("PUT")).interlock == "smuggling"
    assert await client.at_end()
    assert not site.raw
    assert [entry.reason for entry in gate.log] == ["smuggling"]


async def test_a_second_request_behind_a_body_is_decided_by_itself(origin, make_gate, connect) -> None:
    client = await connect(await make_gate(origin), origin.url, tunnel=True)
    host = client.host.encode()
    inner = b"POST /publish HTTP/1.1\r\nHost: " + host + b"\r\nContent-Length: 0\r\n\r\n"
    await client.send(
        b"PUT /upload HTTP/1.1\r\nHost: " + host + b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + inner
    )
    assert (await client.answer("PUT")).status == 200
    assert (await client.answer("POST")).interlock == "body_unreadable"
    assert [one.target for one in origin.seen] == ["/upload"]


async def test_old_versions_and_garbage_are_refused(origin, make_gate, connect) -> None:
    gate = await make_gate(origin)
    for line in (b"GET / HTTP/1.0", b"GET /", b"GET  / HTTP/1.1", b"PRI * HTTP/2.0", b"GET / HTTP/1.1 x"):
        client = await connect(gate, origin.url, tunnel=True)
        await client.send(line + b"\r\nHost: " + client.host.encode() + b"\r\n\r\n")
        assert (await client.answer()).status == 400
        assert await client.at_end()
    assert not origin.raw


async def test_a_head_up_to_the_limit_passes_and_above_is_refused(origin, make_gate, connect) -> None:
    gate = await make_gate(origin)
    client = await connect(gate, origin.url)
    assert (await client.ask("GET", "/", Cookie="a=" + "x" * 200_000)).status == 200
    assert len(origin.seen[0].header("cookie") or "") == 200_002
    assert (await client.ask("GET", "/", Cookie="a=" + "x" * 300_000)).interlock == "smuggling"
    assert len(origin.seen) == 1


async def test_host_must_be_the_end_of_the_tunnel(way, make_gate, connect) -> None:
    site, options = way
    gate = await make_gate(site)
    for host in ("other.example", f"127.0.0.1:{site.port + 1}", "127.0.0.1", f"x@127.0.0.1:{site.port}"):
        client = await connect(gate, site.url, **options)
        assert (await client.ask("GET", "/", host=host)).interlock == "host_mismatch"
    client = await connect(gate, site.url, **options)
    path = "" if options or site.tls else site.url
    await client.send(f"GET {path}/ HTTP/1.1\r\nHost: {client.host}\r\nHost: {client.host}\r\n\r\n".encode())
    assert (await client.answer()).interlock == "host_mismatch"
    assert not site.raw


async def test_targets_of_the_wrong_form_are_refused(origin, make_gate, connect) -> None:
    gate = await make_gate(origin)
    inside = await connect(gate, origin.url, tunnel=True)
    assert (await inside.ask("GET", origin.url + "/")).interlock == "malformed_target"
    for target in ("/", f"https://127.0.0.1:{origin.port}/", f"ftp://127.0.0.1:{origin.port}/"):
        outside = await connect(gate, origin.url)
        await outside.send(f"GET {target} HTTP/1.1\r\nHost: {outside.host}\r\n\r\n".encode())
        assert (await outside.answer()).interlock == "malformed_target"
    with pytest.raises(ConnectionError, match="malformed_target"):
        await connect(gate, "http://user@127.0.0.1:80", tunnel=True)
    assert not origin.raw


async def test_upgrade_is_refused(way, make_gate, connect) -> None:
    site, options = way
    client = await connect(await make_gate(site), site.url, **options)
    got = await client.ask("GET", "/socket", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13")
    assert (got.status, got.interlock) == (403, "websocket")
    assert not site.raw


async def test_a_slow_head_ends(origin, make_gate, connect) -> None:
    client = await connect(await make_gate(origin, head_s=0.2), origin.url, tunnel=True)
    await client.send(b"GET / HTTP/1.1\r\nHost: ")
    assert (await client.answer()).interlock == "smuggling"
    assert await client.at_end()
    assert not origin.raw


async def test_sni_must_be_the_host_of_the_tunnel(origin, make_gate, connect) -> None:
    gate = await make_gate(origin)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await connect(gate, "https://site.example:443", sni="other.example")
    assert [entry.reason for entry in gate.log] == ["tls_failed"]


@pytest.mark.parametrize("fault", ["wrong host", "expired", "unknown authority"])
async def test_certificates_of_sites_are_verified(
    fault, tmp_path, site_authority, make_origin, make_gate, connect
) -> None:
    unknown = TestAuthority(tmp_path, "unknown authority")
    context = {
        "wrong host": lambda: site_authority.server(host="other.example"),
        "expired": lambda: site_authority.server(days=-1),
        "unknown authority": unknown.server,
    }[fault]()
    site = make_origin(tls=context)
    client = await connect(await make_gate(site), site.url)
    got = await client.ask("GET", "/", Sec_Fetch_Dest="document")
    assert (got.status, got.interlock) == (502, "tls_failed")
    assert b"Answered by Interlock, not by the site" in got.body
    assert got.header("cache-control") == "no-store"
    assert not site.seen


async def test_a_dead_host_is_said_to_be_one(origin, make_gate, connect, unused_tcp_port) -> None:
    gate = await make_gate(origin)
    client = await connect(gate, f"http://127.0.0.1:{unused_tcp_port}")
    assert (await client.ask("GET", "/")).interlock == "host_unreachable"
    client = await connect(gate, "http://nowhere.invalid")
    assert (await client.ask("GET", "/")).interlock == "host_unreachable"
    assert "(resolve)" in gate.log.entries[-1].note


async def test_a_cut_answer_is_cut_for_the_browser_too(origin, make_gate, connect) -> None:
    def lying(arrived: Arrived, line: Line) -> None:
        line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this")
        line.close()

    gate = await make_gate(origin)
    origin.behaviour = lying
    got = await (await connect(gate, origin.url)).ask("GET", "/", Sec_Fetch_Dest="document")
    assert (got.body, got.whole) == (b"only this", False)
    assert gate.log.entries[-1].complete is False


def dying_on_reuse(arrived: Arrived, line: Line) -> None:
    """Answers the first request of a connection, and lets the connection die on the second, as old ones do."""
    if arrived.index:
        line.reset()
    else:
        line.send(OK)


@pytest.mark.parametrize(
    ("destination", "times"), [("image", 2), ("script", 2), ("empty", 1), ("document", 1), ("", 1)]
)
async def test_only_a_subresource_is_sent_once_more(way, make_gate, connect, destination, times) -> None:
    site, options = way
    site.behaviour = dying_on_reuse
    client = await connect(await make_gate(site), site.url, **options)
    headers = {"Sec_Fetch_Dest": destination} if destination else {}
    await client.ask("GET", "/first", Sec_Fetch_Dest="image")
    got = await client.ask("GET", "/again", **headers)
    assert [one.target for one in site.seen].count("/again") == times
    assert got.interlock == (None if times == 2 else "upstream_failed")


async def test_a_subresource_is_not_sent_a_third_time_nor_on_a_fresh_connection(origin, make_gate, connect) -> None:
    def always_dying(arrived: Arrived, line: Line) -> None:
        if arrived.target == "/first":
            line.send(OK)
        else:
            line.reset()

    origin.behaviour = always_dying
    client = await connect(await make_gate(origin), origin.url)
    await client.ask("GET", "/first", Sec_Fetch_Dest="image")
    assert (await client.ask("GET", "/a", Sec_Fetch_Dest="image")).interlock == "upstream_failed"
    assert (await client.ask("GET", "/b", Sec_Fetch_Dest="image")).interlock == "upstream_failed"
    assert [one.target for one in origin.seen] == ["/first", "/a", "/a", "/b"]


async def test_a_subresource_with_a_byte_of_an_answer_is_not_sent_again(origin, make_gate, connect) -> None:
    def half(arrived: Arrived, line: Line) -> None:
        line.send(b"H" if arrived.index else OK)
        if arrived.index:
            line.close()

    origin.behaviour = half
    client = await connect(await make_gate(origin), origin.url)
    await client.ask("GET", "/first", Sec_Fetch_Dest="image")
    assert (await client.ask("GET", "/a", Sec_Fetch_Dest="image")).interlock == "upstream_failed"
    assert [one.target for one in origin.seen] == ["/first", "/a"]


async def test_writes_get_their_own_connection_and_are_never_sent_again(way, make_gate, connect) -> None:
    site, options = way
    gate = await make_gate(site)
    client = await connect(gate, site.url, **options)
    await client.ask("GET", "/first", Sec_Fetch_Dest="image")
    site.behaviour = lambda arrived, line: line.reset()
    got = await client.ask("POST", "/publish", b"do=draft", Content_Type=FORM, Sec_Fetch_Dest="empty")
    assert got.interlock == "upstream_failed"
    assert site.bodies() == [b"do=draft"]
    assert site.connections == 2
    assert gate.carried == ()


async def test_a_browser_that_leaves_ends_its_read(origin, make_gate, connect) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    ended: list[bytes] = []

    def silent(arrived: Arrived, line: Line) -> None:
        loop.call_soon_threadsafe(asked.set)
        line.socket.settimeout(10)
        ended.append(line.socket.recv(1))
        line.close()
        loop.call_soon_threadsafe(left.set)

    left = asyncio.Event()
    origin.behaviour = silent
    client = await connect(await make_gate(origin), origin.url)
    await client.send(f"GET {origin.url}/ HTTP/1.1\r\nHost: {client.host}\r\n\r\n".encode())
    await asyncio.wait_for(asked.wait(), 5)
    await client.close()
    await asyncio.wait_for(left.wait(), 5)
    assert ended == [b""] or not ended
    assert len(origin.seen) == 1
