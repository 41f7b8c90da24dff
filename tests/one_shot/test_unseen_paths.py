"""Every way in which a page can write unseen by the driver of its browser, at a gate in each closed phase: nothing
arrives, and the wire log names what was refused. C1, C2, C7, C10.

A page is in one of three situations: the composer while it is filled (*prepare*), what follows the submit (*shut*), and
the pages of a view (*read_only*). The whole runs at the end show the same with everything around the gate in place.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from behind_a_gate import Site, another_refused, datagrams, plain_launch, refused, stun_server
from desk import Desk
from playwright.async_api import Browser, Page, async_playwright

from evidence.manifest import load_manifest
from evidence.records import ItemKind
from evidence.store import FileStore
from executor.browser.sessions import BrowserHost
from executor.errors import Exit
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Reason
from executor.model.reasons import Halt
from executor.service import Ended
from flows.effect import Effect
from playground.hazards import Hazard
from playground.process import Playground

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WAIT_S = 20.0
"""For an event that is bound to come; two busy cores take their time."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost() as started:
        yield started


@pytest.fixture
def site(playground: Playground) -> Site:
    playground.truth.reset()
    return Site(playground)


# The situations


@dataclass(frozen=True)
class Situation:
    """Where the page is, and how the gate stands. `pages` are opened one after the other."""

    phase: Phase
    pages: tuple[str, ...]
    write: Reason
    """Why an ordinary write is refused."""

    def paths(self, item: int) -> list[str]:
        return [page.format(item=item) for page in self.pages]


PREPARE = Situation(Phase.PREPARE, ("/form/new",), Reason.NOT_DECLARED)
SHUT = Situation(Phase.SHUT, ("/form/done?item={item}", "/form/new"), Reason.WRITE_AFTER_SHUT)
VIEW = Situation(Phase.READ_ONLY, ("/mine", "/items/{item}"), Reason.WRITE_IN_READ_ONLY)
SITUATIONS = [pytest.param(one, id=one.phase.value) for one in (PREPARE, SHUT, VIEW)]

# The hazards, by what becomes of them

TOUCHED = (Hazard.FOCUS_POST, Hazard.HOVER_POST, Hazard.SCROLL_POST, Hazard.RESIZE_POST)
LEFT = (Hazard.VISIBILITY_POST, Hazard.BEFOREUNLOAD_POST)
OWN_PUBLISH = (Hazard.DOUBLE_SUBMIT, Hazard.PUBLISH_IN_PREPARE, Hazard.RELOAD_AFTER)
NOT_EVEN_SENT = (Hazard.SERVICEWORKER, Hazard.LINK_PING, Hazard.WEBRTC)
"""Our launch switches and the context's settings end these in the browser."""
READS = (Hazard.GET_EFFECT, Hazard.IMG_EFFECT)
"""Reads by their method. Only a declaration makes them an effect."""
AHEAD = {Hazard.PRELOAD: Reason.PREFETCH, Hazard.SPECRULES: Reason.PREFETCH, Hazard.WS: Reason.WEBSOCKET}
"""Refused in every phase, whatever is declared."""
BY_HELPER = {
    Hazard.POPUP: Reason.UNLISTED_DOCUMENT,
    Hazard.NOOPENER: Reason.UNLISTED_DOCUMENT,
    Hazard.XFRAME: Reason.UNLISTED_DOCUMENT,
    Hazard.CSP: Reason.UNLISTED_DOCUMENT,
    Hazard.UNLOAD_BEACON: Reason.UNLISTED_DOCUMENT,
    Hazard.UNLOAD_KEEPALIVE: Reason.UNLISTED_DOCUMENT,
    Hazard.SHAREDWORKER: Reason.UNLISTED_FETCH,
}
"""They write from a page or script of their own, which a view does not even load."""
WRITES = tuple(one for one in Hazard if one not in {*OWN_PUBLISH, *NOT_EVEN_SENT, *READS, *AHEAD})


async def test_every_hazard_has_its_place() -> None:
    """A hazard that the playground learns later is met here, or this fails."""
    assert {*WRITES, *OWN_PUBLISH, *NOT_EVEN_SENT, *READS, *AHEAD} == set(Hazard)
    assert len(Hazard) == 34


async def provoke(page: Page, hazard: Hazard) -> None:
    """Do what the hazard waits for, as a driver's helpers do it."""
    match hazard:
        case Hazard.FOCUS_POST:
            await page.locator("a.brand").focus()
        case Hazard.HOVER_POST:
            await page.locator("a.brand").hover()
        case Hazard.SCROLL_POST:
            await page.mouse.wheel(0, 300)
        case Hazard.RESIZE_POST:
            await page.set_viewport_size({"width": 900, "height": 700})
            await page.set_viewport_size({"width": 1280, "height": 800})
        case Hazard.VISIBILITY_POST | Hazard.BEFOREUNLOAD_POST:
            await page.goto("about:blank")


async def fence(gate: Gate, page: Page) -> None:
    """Let the page send a last write, and wait until the gate has refused it."""
    before = len(refused(gate, "/fence"))
    await page.evaluate("void fetch('/fence', {method: 'POST', body: '1'}).catch(() => {})")
    await another_refused(gate, "/fence", beyond=before)


def arranged(site: Site, hazard: Hazard, argument: str | None = None) -> int:
    """Let every page carry the hazard; returns the id of an item to look at."""
    item = site.playground.truth.create(account="editor", title="Old", body="", state="published", variant="form")
    site.playground.truth.set_hazard(hazard, "anywhere", argument)
    return item.id


def only_the_site_was_asked(gate: Gate) -> None:
    """The browser's own services do not use a context's gate as their way out either."""
    assert {urlsplit(entry.url).hostname for entry in gate.log if entry.url} <= {"127.0.0.1", "localhost"}


async def nothing_arrived(gate: Gate, site: Site) -> None:
    """After the contexts have gone, which is a moment at which pages write."""
    assert await gate.quiet(WAIT_S)
    assert site.playground.truth.hazard_hits() == []
    assert site.playground.truth.requests(writes_only=True) == []
    assert [entry for entry in gate.log if entry.bytes_out] == []
    only_the_site_was_asked(gate)


# One hazard at one gate


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("hazard", [*WRITES, *AHEAD])
async def test_nothing_arrives_and_the_log_names_it(
    hazard: Hazard, situation: Situation, site: Site, host: BrowserHost
) -> None:
    item = arranged(site, hazard)
    target, reason = f"/hazard/{hazard}", AHEAD.get(hazard, situation.write)
    if situation is VIEW and hazard in BY_HELPER:
        target, reason = "/hazard-page/", BY_HELPER[hazard]
    async with site.gate(host, situation.phase) as gate:
        for path in situation.paths(item):
            before = len(refused(gate, target))
            async with site.visit(host, gate) as session:
                await session.page.goto(site.url + path)
                await provoke(session.page, hazard)
                await another_refused(gate, target, beyond=before)
        await nothing_arrived(gate, site)
    entries = refused(gate, target)
    assert {entry.reason for entry in entries} == {reason}
    assert all(entry.answered_by_gate and entry.phase is situation.phase for entry in entries)


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("hazard", [Hazard.SERVICEWORKER, Hazard.LINK_PING])
async def test_what_our_browser_does_not_even_send(
    hazard: Hazard, situation: Situation, site: Site, host: BrowserHost
) -> None:
    """No request, hence no entry: the context refuses service workers and the launch switches end pings. That the gate
    would refuse them by itself is the next test."""
    item = arranged(site, hazard)
    async with site.gate(host, situation.phase) as gate:
        for path in situation.paths(item):
            async with site.visit(host, gate) as session:
                page = session.page
                await page.goto(site.url + path)
                await fence(gate, page)
                if hazard is Hazard.SERVICEWORKER:
                    assert await page.evaluate("navigator.serviceWorker.getRegistrations()") == []
                else:
                    assert await page.locator("a[ping]").count() == 1
        await nothing_arrived(gate, site)
    assert refused(gate, "/hazard") == []


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def plain_chromium(host: BrowserHost) -> AsyncIterator[Browser]:
    """The same browser without our switches. It knows nothing of the gate's certificates; plain HTTP asks for none."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(**plain_launch())
        yield browser
        await browser.close()


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("hazard", [Hazard.SERVICEWORKER, Hazard.LINK_PING])
async def test_the_gate_alone_refuses_them(
    hazard: Hazard, situation: Situation, site: Site, host: BrowserHost, plain_chromium: Browser
) -> None:
    item = arranged(site, hazard)
    async with site.gate(host, situation.phase) as gate:
        context = await plain_chromium.new_context(proxy={"server": gate.address})
        await site.sign_in(context)
        page = await context.new_page()
        await page.goto(site.url + situation.paths(item)[0])
        await another_refused(gate, "/hazard")
        await context.close()
        assert await gate.quiet(WAIT_S)
    script_of_a_view = situation is VIEW and hazard is Hazard.SERVICEWORKER
    wanted = Reason.UNLISTED_FETCH if script_of_a_view else situation.write
    assert {entry.reason for entry in refused(gate, "/hazard")} == {wanted}
    assert site.playground.truth.hazard_hits() == []


GATHERING = """(() => {
  const Real = RTCPeerConnection;
  window.RTCPeerConnection = function (...given) {
    const made = new Real(...given);
    made.addEventListener('icegatheringstatechange', () => {
      window.gathered = made.iceGatheringState === 'complete';
    });
    return made;
  };
})()"""
"""Says when the browser has asked every STUN server that it will ask."""


@pytest.mark.parametrize("situation", SITUATIONS)
async def test_no_packet_reaches_a_stun_server(situation: Situation, site: Site, host: BrowserHost) -> None:
    """The one hazard that is not HTTP: no proxy sees it, a launch switch ends it."""
    with stun_server() as listening:
        item = arranged(site, Hazard.WEBRTC, str(listening.getsockname()[1]))
        async with site.gate(host, situation.phase) as gate:
            for path in situation.paths(item):
                async with site.visit(host, gate) as session:
                    await session.context.add_init_script(GATHERING)
                    await session.page.goto(site.url + path)
                    await session.page.wait_for_function("window.gathered")
            await nothing_arrived(gate, site)
        assert datagrams(listening) == 0


async def test_without_our_switch_packets_reach_the_stun_server(
    site: Site, host: BrowserHost, plain_chromium: Browser
) -> None:
    """What makes the zero above a finding: a gate alone does not hold them."""
    with stun_server() as listening:
        arranged(site, Hazard.WEBRTC, str(listening.getsockname()[1]))
        async with site.gate(host, Phase.READ_ONLY) as gate:
            context = await plain_chromium.new_context(proxy={"server": gate.address})
            await site.sign_in(context)
            page = await context.new_page()
            await page.goto(site.url + "/mine")
            asked = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(listening, 2048), WAIT_S)
            await context.close()
    assert asked[:2] == b"\x00\x01"  # a STUN binding request (RFC 8489 section 5)


# Reads that act


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("hazard", READS)
async def test_an_effect_by_get_that_is_declared_never_leaves(
    hazard: Hazard, situation: Situation, site: Site, host: BrowserHost
) -> None:
    item = arranged(site, hazard)
    declared = Effect(
        name="published by a link",
        method="GET",
        path=rf"/hazard/{hazard}",
        matches=lambda request: "publish=1" in request.target,
        material=lambda _request: {},
    )
    async with site.gate(host, situation.phase, rules=site.rules(effect=declared)) as gate:
        for number, path in enumerate(situation.paths(item)):
            async with site.visit(host, gate) as session:
                await session.page.goto(site.url + path)
                await another_refused(gate, "/hazard/", beyond=number)
        await nothing_arrived(gate, site)
    assert {entry.reason for entry in refused(gate, "/hazard/")} == {Reason.EFFECT_CLOSED}


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("hazard", READS)
async def test_a_get_that_nobody_declared_is_a_read(
    hazard: Hazard, situation: Situation, site: Site, host: BrowserHost
) -> None:
    """What is promised, and no more: by its method it is safe, so it passes where reads pass; a site that acts upon it
    has to be declared. In views a fetch outside the list is refused whatever its method; a picture is a subresource and
    passes there too."""
    item = arranged(site, hazard)
    passes = not (situation is VIEW and hazard is Hazard.GET_EFFECT)
    truth = site.playground.truth
    async with site.behind(host, situation.phase) as (gate, session):
        async with session.page.expect_response(lambda response: "/hazard/" in response.url):
            await session.page.goto(site.url + situation.paths(item)[0])
        await session.close()
    assert [(hit.method, hit.is_write) for hit in truth.hazard_hits()] == ([("GET", 0)] if passes else [])
    assert [entry.reason for entry in refused(gate)] == ([] if passes else [Reason.UNLISTED_FETCH])
    assert truth.requests(writes_only=True) == []


# The page's own publish request


@pytest.mark.parametrize("situation", SITUATIONS)
@pytest.mark.parametrize("hazard", OWN_PUBLISH)
async def test_the_pages_own_publish_does_not_leave(
    hazard: Hazard, situation: Situation, site: Site, host: BrowserHost
) -> None:
    """The composer is filled and submitted for real, by script, twice over, and by loading the result again. Even a
    view that lists the composer lets no write out."""
    site.playground.truth.set_hazard(hazard, "composer")
    rules = site.rules(opens=(r"/form/new",))
    async with site.gate(host, situation.phase, rules=rules) as gate:
        async with site.visit(host, gate) as session:
            page = session.page
            await page.goto(site.url + "/form/new")
            await page.get_by_label("Title").fill("T")
            if hazard is not Hazard.PUBLISH_IN_PREPARE:
                await page.get_by_role("button", name="Publish", exact=True).click()
            if hazard is Hazard.RELOAD_AFTER:
                # The gate's own page must be there: a reload that comes before it loads the composer again.
                await page.wait_for_url("**/form/publish", wait_until="load")
                await page.reload()
            await another_refused(gate, "/form/publish", beyond=0 if hazard is Hazard.PUBLISH_IN_PREPARE else 1)
        await nothing_arrived(gate, site)
    reason = Reason.WRITE_IN_READ_ONLY if situation is VIEW else Reason.EFFECT_CLOSED
    assert {entry.reason for entry in refused(gate, "/form/publish")} == {reason}
    assert site.playground.truth.publish_count() == 0


# Whole runs


async def wire_log(desk: Desk, ended: Ended) -> list[dict[str, Any]]:
    """The wire log that the run kept as evidence."""
    assert ended.ending is not None and ended.ending.evidence is not None
    settings = desk.settings
    manifest = load_manifest((settings.home / ended.ending.evidence.manifest).parent)
    (kept,) = [item for item in manifest.items() if item.kind is ItemKind.WIRE_LOG]
    lines = FileStore(settings.evidence_folder, minimum_free_bytes=1).get(kept.sha256).decode()
    return [json.loads(line) for line in lines.splitlines()]


async def run_with(hazard: Hazard, desk: Desk, *, flow: str = "playground-form", place: str = "composer") -> Ended:
    desk.playground.truth.set_hazard(hazard, place)
    return await desk.publish(flow)


@pytest.mark.parametrize("flow", ["playground-form", "playground-spa"])
async def test_a_run_on_a_page_that_submits_twice_publishes_once(flow: str, desk: Desk) -> None:
    ended = await run_with(Hazard.DOUBLE_SUBMIT, desk, flow=flow)
    assert desk.playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None
    assert [one.kind for one in ended.ending.left] == ["effect"]
    sent = [line for line in await wire_log(desk, ended) if line.get("method") == "POST"]
    assert sorted(line["bytes_out"] for line in sent) == [False, True]
    assert {line["reason"] for line in sent if not line["bytes_out"]} <= {Reason.BUDGET_SPENT, Reason.EFFECT_CLOSED}


async def test_a_run_on_a_page_that_publishes_while_it_is_filled_is_stopped(desk: Desk) -> None:
    ended = await run_with(Hazard.PUBLISH_IN_PREPARE, desk, flow="playground-spa")
    assert desk.playground.truth.publish_count() == 0
    assert desk.playground.truth.requests(writes_only=True) == []
    assert ended.ending is not None
    assert ended.ending.reason == f"halt:{Halt.FLOW_REACHED_EFFECT}"
    assert ended.exit is Exit.DEFECT


async def test_a_run_on_a_page_that_loads_its_result_again_publishes_once(desk: Desk) -> None:
    ended = await run_with(Hazard.RELOAD_AFTER, desk, place="done")
    assert desk.playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED


@pytest.mark.parametrize("hazard", [*TOUCHED, *LEFT, Hazard.UNLOAD_BEACON, Hazard.REDIRECT307])
async def test_a_run_publishes_and_the_page_writes_nothing_else(hazard: Hazard, desk: Desk) -> None:
    """With the pages that are touched or left, those of the views and the result carry the hazard as well."""
    ended = await run_with(hazard, desk, place="anywhere" if hazard in (*TOUCHED, *LEFT) else "composer")
    truth = desk.playground.truth
    assert truth.hazard_hits() == []
    assert [one.target for one in truth.requests(writes_only=True)] == ["/form/publish"]
    assert truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    met = [one for one in refusals(ended) if f"/hazard/{hazard}" in one]
    # Filling focuses and the gesture hovers, as a person would; nothing in a run scrolls or resizes the page.
    assert bool(met) is (hazard not in (Hazard.SCROLL_POST, Hazard.RESIZE_POST))
    in_views = [
        line
        for line in await wire_log(desk, ended)
        if line.get("phase") == Phase.READ_ONLY and f"/hazard/{hazard}" in str(line.get("url"))
    ]
    # A look and its picture touch nothing; but they do leave a page for the next one.
    assert bool(in_views) is (hazard in LEFT)


def refusals(ended: Ended) -> tuple[str, ...]:
    assert ended.ending is not None
    return ended.ending.refused_writes
