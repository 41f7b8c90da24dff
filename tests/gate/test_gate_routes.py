"""The way to a site: through a proxy, past it, under a private authority, with a client certificate. Truth is what the
proxy carried and what the site read."""

from __future__ import annotations

import asyncio
import base64
import ssl

import pytest
from connect_proxy import ConnectProxy, closing, say
from gate_origin import OK, TestAuthority, answering
from gate_support import RecordingDoor

from executor.gate.certificates import ClientCertificate, UnusableCertificate, UpstreamTrust
from executor.gate.dialling import HTTP_1, HTTP_2, Proxy, Route, Routes, Site, dial
from executor.gate.limits import Limits
from executor.gate.port import Candidate, ConnectFailed, ConnectStage, Refuse, WriteFailed
from executor.gate.rules import Kind, Phase, Reason

FORM = "application/x-www-form-urlencoded"
LOGIN = "Basic " + base64.b64encode(b"agent:very secret").decode()


@pytest.fixture
def trust(site_authority) -> UpstreamTrust:
    return UpstreamTrust((site_authority.file,))


@pytest.fixture
def proxy():
    with ConnectProxy() as started:
        yield started


@pytest.fixture(params=["plain", "tls"])
def site(request, origin, tls_origin):
    return tls_origin if request.param == "tls" else origin


def through(proxy: ConnectProxy, trust: UpstreamTrust, **more) -> Routes:
    scheme = proxy.url.partition(":")[0]
    return Routes(Route(trust, Proxy(scheme, "127.0.0.1", proxy.port, trust, authorization=proxy.login), **more))


async def publish(client, **headers: str):
    return await client.ask("POST", "/publish", b"do=publish", Content_Type=FORM, **headers)


async def test_the_effect_leaves_through_a_tunnel_of_its_own(site, proxy, trust, make_gate, connect) -> None:
    proxy.login = LOGIN
    gate = await make_gate(site, Phase.ARMED, door=RecordingDoor(), routes=through(proxy, trust))
    client = await connect(gate, site.url)
    for _ in range(2):
        assert (await client.ask("GET", "/page", Sec_Fetch_Dest="image")).body == b"ok"
    assert (await publish(client, Cookie="session=deep")).body == b"ok"

    place = f"127.0.0.1:{site.port}"
    assert proxy.targets == [place, place]  # one that the reads share, and the effect's own
    assert [(one.method, one.connection) for one in site.seen] == [("GET", 1), ("GET", 1), ("POST", 2)]
    assert {(one.headers["host"], one.headers["proxy-authorization"]) for one in proxy.log} == {(place, LOGIN)}
    assert not any(name.startswith("proxy-") for one in site.seen for name, _ in one.headers)
    carried = bytes(proxy.log[1].to_site)
    assert (b"session=deep" in carried) is (site.tls is None)  # a tunnel of TLS tells the proxy nothing
    assert "very secret" not in gate.log.as_json_lines()
    assert LOGIN not in repr(through(proxy, trust))


async def test_a_proxy_is_reached_over_tls(site, site_authority, trust, make_gate, connect) -> None:
    with ConnectProxy(tls=site_authority.server()) as proxy:
        gate = await make_gate(site, Phase.ARMED, door=RecordingDoor(), routes=through(proxy, trust))
        client = await connect(gate, site.url)
        assert (await client.ask("GET", "/page")).body == b"ok"
        assert (await publish(client)).body == b"ok"
        assert len(proxy.log) == 2
        await gate.close()


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (say(403), "it does not allow this host"),
        (say(407), "it wants a user name and a password"),
        (say(502), "it did not reach the site"),
        (closing, "it closed the connection without an answer"),
        (lambda connection, carried: connection.sendall(b"no HTTP\r\n\r\n"), "it does not speak HTTP"),
        (lambda connection, carried: connection.sendall(b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 20_000), "no end"),
        (lambda connection, carried: connection.recv(1), "no answer in time"),
        (say(200, b"and a greeting"), "bytes came after its answer"),
    ],
    ids=["403", "407", "502", "closes", "no-http", "endless", "silent", "talks"],
)
async def test_a_tunnel_that_is_not_given_proves_that_nothing_was_sent(
    answer, said, site, proxy, trust, make_gate, connect
) -> None:
    proxy.answer = answer
    failures: list[ConnectFailed] = []

    async def door(candidate: Candidate) -> Refuse:
        try:
            await candidate.connect()
        except ConnectFailed as error:
            failures.append(error)
        return Refuse(Reason.HOST_UNREACHABLE)

    gate = await make_gate(site, Phase.ARMED, door=door, routes=through(proxy, trust), proxy_s=0.3)
    got = await publish(await connect(gate, site.url))
    assert got.interlock == "host_unreachable"
    assert [one.stage for one in failures] == [ConnectStage.PROXY]
    assert said in str(failures[0])
    assert f"proxy 127.0.0.1:{proxy.port}" in str(failures[0])
    assert proxy.targets == [f"127.0.0.1:{site.port}"]
    assert not site.raw
    assert not any(entry.bytes_out for entry in gate.log)


async def test_a_proxy_that_is_not_there(origin, trust, unused_tcp_port) -> None:
    for host, port in (("127.0.0.1", unused_tcp_port), ("proxy.invalid", 3128)):
        routes = Routes(Route(trust, Proxy("http", host, port, trust)))
        with pytest.raises(ConnectFailed) as failed:
            await dial(Site("http", "127.0.0.1", origin.port), routes, Limits())
        assert failed.value.stage is ConnectStage.PROXY
    assert not origin.connections


async def test_a_site_that_the_proxy_does_not_reach(trust, proxy, unused_tcp_port) -> None:
    with pytest.raises(ConnectFailed, match=r"it did not reach the site \(status 502\)"):
        await dial(Site("https", "127.0.0.1", unused_tcp_port), through(proxy, trust), Limits())


async def test_the_certificate_is_the_sites_whatever_the_proxy_does(tls_origin, tmp_path, proxy) -> None:
    stranger = UpstreamTrust((TestAuthority(tmp_path).file,))
    with pytest.raises(ConnectFailed) as failed:
        await dial(Site("https", "127.0.0.1", tls_origin.port), through(proxy, stranger), Limits())
    assert failed.value.stage is ConnectStage.TLS
    assert not tls_origin.seen


async def test_a_tunnel_that_dies_before_the_write_proves_that_nothing_was_sent(
    origin, proxy, trust, make_gate, connect
) -> None:
    failures: list[WriteFailed] = []

    async def door(candidate: Candidate) -> Refuse:
        connection = await candidate.connect()
        gone = asyncio.Event()
        connection._upstream.stream.on_closed.append(gone.set)
        await origin.until(lambda: origin.connections == 1)
        origin.drop_last()
        await gone.wait()
        try:
            await connection.write()
        except WriteFailed as error:
            failures.append(error)
        return Refuse(Reason.UPSTREAM_FAILED)

    gate = await make_gate(origin, Phase.ARMED, door=door, routes=through(proxy, trust))
    assert (await publish(await connect(gate, origin.url))).interlock == "upstream_failed"
    assert [error.nothing_written for error in failures] == [True]
    assert not proxy.log[0].to_site
    assert not origin.raw


@pytest.mark.parametrize(
    ("pattern", "past"),
    [
        ("127.0.0.1", True),
        ("127.0.0.0/8", True),
        ("127.0.0.1:{port}", True),
        ("127.0.0.1:1", False),
        ("*", True),
        ("10.0.0.0/8", False),
        (".0.0.1", True),
        ("0.0.1", False),
        ("intranet.example", False),
    ],
)
async def test_hosts_that_the_proxy_is_not_asked_for(pattern, past, origin, proxy, trust) -> None:
    routes = through(proxy, trust, direct=(pattern.format(port=origin.port),))
    dialled = await dial(Site("http", "127.0.0.1", origin.port), routes, Limits())
    dialled.stream.abort()
    assert (not proxy.log) is past


def test_names_that_the_proxy_is_not_asked_for(trust) -> None:
    proxy = Proxy("http", "proxy.example", 3128, trust)
    route = Route(trust, proxy, (".intranet.example", "cms.example", "[2001:db8::1]:443", "2001:db8:1::/48"))
    reached = {
        host: route.proxy_for(Site("https", host, 443)) is None
        for host in (
            "a.intranet.example",
            "intranet.example",
            "cms.example",
            "cms.example.",
            "xcms.example",
            "a.cms.example",
            "2001:db8::1",
            "2001:db8::2",
            "2001:db8:1::9",
        )
    }
    assert [host for host, direct in reached.items() if direct] == [
        "a.intranet.example",
        "cms.example",
        "cms.example.",
        "2001:db8::1",
        "2001:db8:1::9",
    ]


async def test_each_host_of_a_page_has_its_own_way(make_origin, tmp_path, proxy, make_gate, connect) -> None:
    """A page on one site, its pictures on another with a private authority and a certificate of ours, a third straight:
    in one gate."""
    own, theirs = TestAuthority(tmp_path, "own"), TestAuthority(tmp_path, "theirs")
    certificate, key = theirs.client()
    demanding = theirs.server()
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(theirs.file)
    page, pictures, third = make_origin(tls=own.server()), make_origin(tls=demanding), make_origin()
    common = UpstreamTrust((own.file,))
    routes = Routes(
        Route(common, Proxy("http", "127.0.0.1", proxy.port, common)),
        {
            pictures.url: Route(UpstreamTrust((theirs.file,), ClientCertificate(certificate, key))),
            third.url: Route(common),
        },
    )
    gate = await make_gate(page, routes=routes)
    for site in (page, pictures, third):
        got = await (await connect(gate, site.url)).ask("GET", "/", Sec_Fetch_Dest="image")
        assert (got.status, got.body) == (200, b"ok")
    assert proxy.targets == [f"127.0.0.1:{page.port}"]
    assert [len(site.seen) for site in (page, pictures, third)] == [1, 1, 1]


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("tickets", [0, 2])
async def test_a_site_that_does_not_take_the_certificate_gets_nothing(
    version, tickets, make_origin, site_authority, tmp_path, make_gate, connect
) -> None:
    """Under TLS 1.3 the site refuses it after our side of the handshake is done, and the effect must not be on its way
    by then."""
    demanding = site_authority.server()
    demanding.minimum_version = demanding.maximum_version = version
    demanding.num_tickets = tickets
    demanding.verify_mode = ssl.CERT_REQUIRED
    demanding.load_verify_locations(site_authority.file)
    origin = make_origin(tls=demanding, behaviour=answering(OK))
    stages: list[ConnectStage] = []
    good, other = site_authority.client(name="good"), TestAuthority(tmp_path, "unknown").client(name="other")

    class Door(RecordingDoor):
        async def __call__(self, candidate: Candidate):
            try:
                return await super().__call__(candidate)
            except ConnectFailed as error:
                stages.append(error.stage)
                return Refuse(Reason.HOST_UNREACHABLE)

    for files, published in ((other, False), (good, True)):
        routes = Routes.straight(UpstreamTrust((site_authority.file,), ClientCertificate(*files)))
        gate = await make_gate(origin, Phase.ARMED, door=Door(), routes=routes)
        got = await publish(await connect(gate, origin.url))
        assert got.interlock == (None if published else "host_unreachable")
        left = [entry for entry in gate.log if entry.kind is Kind.EFFECT and entry.bytes_out]
        assert bool(left) is published
    assert stages == [ConnectStage.TLS]
    assert origin.bodies() == [b"do=publish"]


def test_certificates_are_read_once_and_refused_in_one_sentence(site_authority, tmp_path) -> None:
    certificate, key = site_authority.client(name="once", password="open sesame")
    trust = UpstreamTrust((site_authority.file,), ClientCertificate(certificate, key, "open sesame"))
    trust.load(HTTP_1, HTTP_2)
    again = trust.context_offering(HTTP_2)
    other_key = site_authority.client(name="stranger")[1]
    expired = site_authority.client(name="expired", days=-1)
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    away = tmp_path / "away.pem"
    for authorities, client, said in (
        ((), ClientCertificate(certificate, key), "needs a password"),
        ((), ClientCertificate(certificate, key, "wrong"), "the password does not open it"),
        ((), ClientCertificate(certificate, other_key), f"does not belong to {certificate}"),
        ((), ClientCertificate(*expired), "has expired"),
        ((), ClientCertificate(empty, key), "holds no certificate"),
        ((), ClientCertificate(certificate, empty), "it is no key"),
        ((), ClientCertificate(away), "cannot be read: No such file or directory"),
        ((), ClientCertificate(certificate, away), "cannot be read: No such file or directory"),
        ((empty,), None, "holds no certificate"),
        ((away,), None, "cannot be read"),
    ):
        with pytest.raises(UnusableCertificate, match=said) as refused:
            UpstreamTrust(authorities, client).load(HTTP_1)
        assert "\n" not in str(refused.value)
        assert "wrong" not in str(refused.value)
    for file in (certificate, key):
        file.unlink()
    assert trust.context_offering(HTTP_2) is again
