"""A site that publishes on a GET, at the gate: whatever else opens the address than the one gesture is refused, in each
phase, and coming back to the result publishes nothing again. C1, C2, C7.

That such an address publishes for anybody who merely loads it is shown in a plain browser first.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
import pytest_asyncio
from behind_a_gate import OneEffect, Site, another_refused, plain_launch, refused
from playwright.async_api import Page, async_playwright

from executor.browser.sessions import BrowserHost
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Reason, Rules
from flows.playground_shapes import PlaygroundLink
from playground.pages import csrf_of
from playground.process import Playground

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WAIT_S = 20.0

WAYS = {
    # Ahead of the window: a page that has opened one does not prerender.
    "prerender": "document.head.append(Object.assign(document.createElement('script'), {type: 'speculationrules',"
    " text: JSON.stringify({prerender: [{source: 'list', urls: [other], eagerness: 'immediate'}]})}))",
    "picture": "new Image().src = link",
    "fetch": "void fetch(link).catch(() => {})",
    "head": "void fetch(link, {method: 'HEAD'}).catch(() => {})",
    "beacon": "void navigator.sendBeacon(link, '')",
    "frame": "document.body.append(Object.assign(document.createElement('iframe'), {src: link}))",
    "window": "void window.open(link)",
    "style": "document.head.append(Object.assign(document.createElement('link'), {rel: 'stylesheet', href: link}))",
    "prefetch": "document.head.append(Object.assign(document.createElement('link'), {rel: 'prefetch', href: link}))",
    "preload": "document.head.append(Object.assign(document.createElement('link'), {rel: 'preload', as: 'image',"
    " href: link}))",
    "another spelling": "void fetch('/link//publish' + link.slice(link.indexOf('?'))).catch(() => {})",
    "navigation": "location.href = link",
}
PREFETCHED = ("prefetch", "prerender")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost() as started:
        yield started


@pytest.fixture
def site(playground: Playground) -> Site:
    playground.truth.reset()
    return Site(playground)


def rules(site: Site) -> Rules:
    return site.rules(effect=PlaygroundLink.effect, supporting=PlaygroundLink.supporting)


def draft(site: Site) -> tuple[int, str]:
    """A draft, and the address that publishes it."""
    item = site.playground.truth.create(account="editor", title="T", body="b", state="draft", variant="link")
    return item.id, f"/link/publish?item={item.id}&token={csrf_of(site.cookie['value'])}"


async def try_ways(gate: Gate, page: Page, link: str) -> None:
    """Every way, one after the other, until the gate has met it. What is prefetched already is not fetched for a
    prerender: that one gets the address with its parts the other way round."""
    item, token = urlsplit(link).query.split("&")
    other = f"/link/publish?{token}&{item}"
    for way in WAYS.values():
        before = len(refused(gate, "/link"))
        await page.evaluate(f"([link, other]) => {{ {way}; }}", [link, other])
        await another_refused(gate, "/link", beyond=before)


async def test_in_a_plain_browser_a_picture_of_that_address_publishes(site: Site) -> None:
    _, link = draft(site)
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(**plain_launch())
        context = await browser.new_context()
        await site.sign_in(context)
        page = await context.new_page()
        await page.goto(f"{site.url}/mine")
        async with page.expect_response(lambda response: "/link/done" in response.url):
            await page.evaluate("(link) => { new Image().src = link; }", link)
        await browser.close()
    assert site.playground.truth.publish_count() == 1


@pytest.mark.parametrize(
    ("phase", "page"),
    [(Phase.PREPARE, "/link/new"), (Phase.SHUT, "/link/done?item={item}"), (Phase.READ_ONLY, "/mine")],
)
async def test_nothing_that_opens_the_address_publishes(phase: Phase, page: str, site: Site, host: BrowserHost) -> None:
    item, link = draft(site)
    async with site.behind(host, phase, rules=rules(site)) as (gate, session):
        await session.page.goto(site.url + page.format(item=item))
        await try_ways(gate, session.page, link)
        await session.close()
        assert await gate.quiet(WAIT_S)
        reasons = [entry.reason for entry in refused(gate, "/link")]
    assert site.playground.truth.publish_count() == 0
    assert site.playground.truth.requests(path_prefix="/link/publish") == []
    assert reasons.count(Reason.PREFETCH) == len(PREFETCHED)
    beacon = Reason.WRITE_IN_READ_ONLY if phase is Phase.READ_ONLY else Reason.NOT_DECLARED
    beacon = Reason.WRITE_AFTER_SHUT if phase is Phase.SHUT else beacon
    assert set(reasons) == {Reason.PREFETCH, Reason.EFFECT_CLOSED, beacon}


async def test_a_view_that_lists_the_address_does_not_open_it(site: Site, host: BrowserHost) -> None:
    """A flow whose view names the very address that publishes: the effect is no read, whatever lists it."""
    _, link = draft(site)
    careless = site.rules(effect=PlaygroundLink.effect, opens=(r"/link/publish\?.*",))
    async with site.behind(host, Phase.READ_ONLY, rules=careless) as (gate, session):
        await session.page.goto(site.url + link)
        assert [entry.reason for entry in refused(gate)] == [Reason.EFFECT_CLOSED]
    assert site.playground.truth.publish_count() == 0


async def test_coming_back_to_the_result_publishes_nothing_again(site: Site, host: BrowserHost) -> None:
    truth = site.playground.truth
    async with site.behind(host, Phase.PREPARE, rules=rules(site)) as (gate, session):
        page = session.page
        await page.goto(f"{site.url}/link/new")
        await page.get_by_label("Title").fill("T")
        await page.locator("#publish[href]").wait_for()
        gate.enter(Phase.ARMED, rules=rules(site), door=OneEffect())
        await page.get_by_role("button", name="Publish", exact=True).click()
        await page.wait_for_url("**/link/done?item=*")
        gate.enter(Phase.SHUT)
        await page.reload()
        await page.go_back()
        await page.go_forward()
        await page.reload()
        await page.wait_for_url("**/link/done?item=*")
        assert len(truth.requests(path_prefix="/link/done")) >= 2, "it was loaded again"
    assert truth.publish_count() == 1
    assert len(truth.requests(path_prefix="/link/publish")) == 1
