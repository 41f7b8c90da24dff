"""The first measured fact on HTTP/2: one click, an answer that is lost on a connection used before, and what the same
browser makes of it without us and behind the gate, which speaks HTTP/1.1 with a site so near. Real sockets, and the
site's own record. C2, F4.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from behind_a_gate import OneEffect, plain_launch
from http2_site import PUBLISH, Ending, Http2Site
from playwright.async_api import Browser, Page, async_playwright

from executor.browser.sessions import BrowserHost
from executor.gate.certificates import UpstreamTrust
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.proxy import Gate
from executor.gate.rules import Kind, Phase, Reason, Rules
from executor.gate.wire_log import WireLog
from flows.effect import Effect

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WAIT_S = 20.0

EFFECT = Effect(
    name="notice published",
    method="POST",
    path=PUBLISH,
    matches=lambda request: request.form.get("title") is not None,
    material=lambda request: {"title": request.form.get("title")},
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Http2Site]:
    folder: Path = tmp_path_factory.mktemp("http2-site")
    async with Http2Site(folder) as listening:
        yield listening


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def chromium() -> AsyncIterator[Browser]:
    """The same browser without us."""
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(**plain_launch())
        yield browser
        await browser.close()


async def composer(page: Page, site: Http2Site) -> str:
    """Open it; gives back the protocol that the browser says it was loaded over."""
    page.set_default_timeout(WAIT_S * 1000)
    await page.goto(site.url + "/")
    protocol: str = await page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol")
    return protocol


async def press(page: Page, way: str) -> None:
    await page.get_by_role("button", name=f"Publish by {way}").click(no_wait_after=True)


@pytest.mark.parametrize("way", ["form", "fetch"])
@pytest.mark.parametrize("ending", list(Ending))
async def test_an_answer_lost_on_http2_is_two_commits_in_a_plain_browser_and_one_behind_the_gate(
    ending: Ending, way: str, site: Http2Site, chromium: Browser, host: BrowserHost
) -> None:
    # The loopback authority is not the plain browser's; nothing else about it is changed.
    context = await chromium.new_context(ignore_https_errors=True)
    page = await context.new_page()
    told: list[str] = []
    page.on("request", lambda request: told.append(request.method))
    assert await composer(page, site) == "h2"
    site.fail(ending, times=1)
    await press(page, way)
    await page.get_by_role("status").get_by_text("Published").wait_for()
    await context.close()
    assert told.count("POST") == 1, "the driver is told of one request"
    assert [one.protocol for one in site.published] == ["h2", "h2"]
    first, second = site.published
    assert first.body == second.body
    assert first.index > 0, "the connection had been used before"
    assert (second.connection == first.connection) is (ending is Ending.REFUSED_STREAM)

    async with Gate(
        authority=host.authority,
        rules=Rules(destination_origin=site.url, effect=EFFECT),
        phase=Phase.PREPARE,
        routes=Routes.straight(UpstreamTrust((site.ca,))),
        door=None,
        log=WireLog(),
        before_write=None,
        limits=Limits(),
    ) as gate:
        session = await host.open(gate)
        try:
            site.fail(ending, times=9)
            assert await composer(session.page, site) == "http/1.1"
            gate.enter(Phase.ARMED, door=OneEffect())
            await press(session.page, way)
            await asyncio.wait_for(gate.candidate_seen.wait(), WAIT_S)
            assert await gate.without_candidates(WAIT_S)
            gate.enter(Phase.SHUT)
            gate.let_go()
            # The browser tries again, as it did above; now it tries in vain.
            again = await gate.until(lambda: any(entry.reason and entry.method == "POST" for entry in gate.log), WAIT_S)
            assert again, gate.log.as_json_lines()
        finally:
            await session.close()
        assert await gate.quiet(WAIT_S)
    assert [one.protocol for one in site.arrived] == ["http/1.1"] * len(site.arrived)
    (only,) = site.published
    assert only.body == first.body
    assert [one for one in site.arrived if one.connection == only.connection] == [only], "on a connection of its own"
    assert [entry.kind for entry in gate.log if entry.bytes_out] == [Kind.EFFECT]
    # Of the POSTs only: closing the context may cut a read, such as that of an icon for the gate's own page. After
    # a 408 the browser may have tried again before the phase was shut; then the door refused it.
    posts = [entry for entry in gate.log if entry.method == "POST"]
    assert posts[0].reason is None
    assert {entry.reason for entry in posts[1:]} <= {Reason.EFFECT_CLOSED, Reason.BUDGET_SPENT}
