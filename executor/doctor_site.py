"""What a site is like from here, before anything is published there: how it is reached, under which certificate, in
which protocol, and whether it treats the gate's connections as it treats a browser's own.

Opens one page by GET, twice, in contexts without scripts: behind a read-only gate, as a view does, and through a tunnel
that leaves the handshake to the browser. It signs in nowhere and sends nothing else.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Request

from executor.browser.finding import BrowserMissing
from executor.browser.sessions import BrowserHost, Session
from executor.doctor import Check, Fitness
from executor.errors import BadInput, InterlockError
from executor.gate.dialling import HTTP_2, Routes, Site, dial
from executor.gate.limits import Limits
from executor.gate.passing_tunnel import PassingTunnel
from executor.gate.port import ConnectFailed
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Rules
from executor.gate.wire_log import WireLog
from executor.network import routes_of_a_run
from executor.one_shot.run import gate_limits
from executor.settings import Settings
from flows.wire import origin_of_url

_EXPIRES_SOON_DAYS = 14
_CHALLENGES: Mapping[str, str] = {"cf-mitigated": "Cloudflare", "x-datadome": "DataDome", "x-px-block": "PerimeterX"}
"""Headers by which bot walls say that an answer is theirs and not the site's."""


@dataclass(frozen=True)
class Shown:
    """What a browser got. `status` is None where no page came; `problem` then says why."""

    status: int | None
    title: str
    hops: tuple[str, ...]
    cookies: tuple[Mapping[str, Any], ...]
    wall: str = ""
    problem: str = ""

    @property
    def words(self) -> str:
        title = f" “{self.title[:60]}”" if self.title else ""
        return self.problem or f"status {self.status}{title}{f', a page of {self.wall}' if self.wall else ''}"


async def examine_site(settings: Settings, address: str) -> tuple[Check, ...]:
    """All checks of one site in the order in which a person should read them. `address` is any http or https address
    at it. Raises `BadInput`, and `NotReady` for network settings that cannot be used."""
    try:
        origin = origin_of_url(address)
    except ValueError as error:
        raise BadInput(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    parts = urlsplit(origin)
    assert parts.hostname is not None
    site = Site(parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))
    own = settings.for_run("", origin)
    limits = gate_limits(own)
    routes = await asyncio.to_thread(routes_of_a_run, settings, "", address)
    checks = await _connection(site, routes, limits)
    if any(check.fitness is Fitness.MISSING for check in checks):
        return tuple(checks)
    try:
        async with BrowserHost.of(own) as host:
            limits = replace(limits, ports=host.gate_ports())
            behind = await _behind_a_gate(host, routes, limits, origin, address)
            checks += _page(behind, origin)
            if site.scheme == "https":
                async with PassingTunnel(site, routes, limits) as tunnel:
                    checks.append(_compared(behind, await _shown(await host.open(tunnel, scripts=False), address)))
            checks.append(_cookies(behind))
    except (InterlockError, BrowserMissing) as error:
        checks.append(Check("page", Fitness.MISSING, str(error)))
    return tuple(checks)


async def _connection(site: Site, routes: Routes, limits: Limits) -> list[Check]:
    proxy = routes.to(site).proxy_for(site)
    way = f"through the proxy {proxy}" if proxy is not None else "directly"
    try:
        dialled = await dial(site, routes, limits, alpn=HTTP_2)
    except ConnectFailed as error:
        return [Check("connection", Fitness.MISSING, f"{str(error)[:1].upper()}{str(error)[1:]}")]
    stream = dialled.stream
    try:
        trip = stream.round_trip_s
        away = "" if trip is None else f", {1000 * trip:.0f} ms away"
        checks = [Check("connection", Fitness.GOOD, f"reached {way}{away}")]
        if site.scheme != "https":
            note = "no TLS: anybody on the way can read and change what is sent, the session included"
            return [*checks, Check("certificate", Fitness.NOTE, note)]
        session: ssl.SSLObject = stream.transport.get_extra_info("ssl_object")
        checks.append(_certificate(session.getpeercert() or {}, session.version() or "TLS"))
        far = trip is None or trip > limits.http2_beyond_s
        if dialled.protocol == HTTP_2[0]:
            used = "reads use it, from here" if far else "so near it is not used; HTTP/1.1 is as fast"
            checks.append(Check("protocol", Fitness.GOOD, f"speaks HTTP/2 ({used}); writes always go over HTTP/1.1"))
        else:
            checks.append(Check("protocol", Fitness.GOOD, "speaks HTTP/1.1"))
        return checks
    finally:
        stream.close()
        await stream.wait_closed(2.0)


def _certificate(certificate: Mapping[str, Any], version: str) -> Check:
    until = datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), UTC)
    days = (until - datetime.now(UTC)).days
    says = f"{version}, issued by {_name(certificate['issuer'])}, good for another {days} days"
    return Check("certificate", Fitness.NOTE if days < _EXPIRES_SOON_DAYS else Fitness.GOOD, says)


def _name(fields: Any) -> str:
    """The organisation, or else the common name, of a distinguished name as `ssl` gives it."""
    named = {key: value for part in fields for key, value in part}
    return str(named.get("organizationName") or named.get("commonName") or "somebody without a name")


async def _behind_a_gate(host: BrowserHost, routes: Routes, limits: Limits, origin: str, address: str) -> Shown:
    log = WireLog()
    gate = Gate(
        authority=host.authority,
        rules=Rules(destination_origin=origin, opens=(".*",)),
        phase=Phase.READ_ONLY,
        routes=routes,
        door=None,
        log=log,
        before_write=None,
        limits=limits,
    )
    async with gate:
        return await _shown(await host.open(gate, scripts=False), address)


async def _shown(session: Session, address: str) -> Shown:
    """What the page at the address shows; closes the session."""
    try:
        answer = await session.page.goto(address, wait_until="domcontentloaded", timeout=30_000)
        title = await session.page.title()
        cookies = tuple(await session.cookies())
    except PlaywrightError as error:
        return Shown(None, "", (), (), problem=f"no page came ({str(error).splitlines()[0]})")
    finally:
        await session.close()
    if answer is None:
        return Shown(None, "", (), (), problem="no page came")
    headers = answer.headers
    wall = next((name for header, name in _CHALLENGES.items() if header in headers), "")
    return Shown(answer.status, title, tuple(_hops(answer.request)), cookies, wall)


def _hops(request: Request) -> Iterator[str]:
    """The addresses that led to a request, the first one asked for at the front."""
    if request.redirected_from is not None:
        yield from _hops(request.redirected_from)
    yield request.url.partition("?")[0]


def _page(behind: Shown, origin: str) -> list[Check]:
    ok = behind.status is not None and behind.status < 400 and not behind.wall
    checks = [Check("page", Fitness.GOOD if ok else Fitness.NOTE, f"behind the gate: {behind.words}")]
    if len(behind.hops) > 1:
        elsewhere = next((hop for hop in behind.hops if origin_of_url(hop) != origin), None)
        says = " → ".join(behind.hops)
        if elsewhere is not None:
            says += f"; that is another site. Name {origin_of_url(elsewhere)} as the destination if it publishes there"
        checks.append(Check("redirects", Fitness.NOTE if elsewhere is not None else Fitness.GOOD, says))
    return checks


def _compared(behind: Shown, plain: Shown) -> Check:
    """Whether the gate's own handshake is treated as a browser's is."""
    if plain.status == behind.status and plain.title == behind.title and plain.wall == behind.wall:
        return Check("handshake", Fitness.GOOD, "the gate gets the page that a browser's own connection gets")
    says = f"a browser's own connection gets: {plain.words}"
    if (behind.status or 600) >= 400 > (plain.status or 600) or behind.wall:
        advice = "The site turns the gate away, as bot walls do. Ask its owner to let this machine's address in"
        return Check("handshake", Fitness.MISSING, f"{says}. {advice}")
    return Check("handshake", Fitness.NOTE, f"{says}. The site shows them different pages")


def _cookies(behind: Shown) -> Check:
    if not behind.cookies:
        return Check("cookies", Fitness.GOOD, "none are set on this page")
    words = []
    for cookie in behind.cookies:
        flags = [name for name, key in (("Secure", "secure"), ("HttpOnly", "httpOnly")) if cookie.get(key)]
        flags.append(f"SameSite={cookie.get('sameSite', 'unset')}")
        path = "" if cookie.get("path") == "/" else f" for {cookie.get('path')}"
        words.append(f"{cookie['name']}{path} ({', '.join(flags)})")
    return Check("cookies", Fitness.GOOD, "; ".join(sorted(words)))
