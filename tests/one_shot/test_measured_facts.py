"""The facts that decided the design, as first regression tests: what the same browser does without us, and what it does
behind the gate. Real sockets, and the site's own record. C2, C6, C7, D1.

Where a row needs the rest of a run it is one; the others use a gate, a browser, and a door that lets one effect out.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from behind_a_gate import OneEffect, Site, another_refused, compose, plain_launch, refused
from desk import Desk
from playwright.async_api import Browser, BrowserContext, Page, Route, async_playwright
from playwright.async_api import TimeoutError as PlaywrightTimeout

from evidence.capture import capture
from evidence.records import Point, Rect, Target
from evidence.redaction import Redactor
from evidence.store import FileStore
from executor.browser.sessions import BrowserHost
from executor.errors import Exit
from executor.gate.rules import Kind, Phase, Reason
from executor.model.transitions import Outcome, Transmission
from flows.effect import Effect
from flows.playground import PlaygroundForm, PlaygroundSpa
from playground.faults import Fault
from playground.hazards import Hazard
from playground.process import Playground
from playground.truth import Truth

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

WAIT_S = 20.0
FLOWS = {"form": PlaygroundForm, "spa": PlaygroundSpa}
PUBLISHES_TO = {"form": "/form/publish", "spa": "/api/items"}


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


@pytest.fixture
def truth(playground: Playground) -> Truth:
    playground.truth.reset()
    return playground.truth


@asynccontextmanager
async def plain_page(
    chromium: Browser, site: Site, route: Callable[[Route], Awaitable[None]] | None = None
) -> AsyncIterator[Page]:
    context: BrowserContext = await chromium.new_context(ignore_https_errors=True)
    await site.sign_in(context)
    if route is not None:
        await context.route("**/*", route)
    page = await context.new_page()
    page.set_default_timeout(WAIT_S * 1000)
    yield page
    await context.close()


async def press(page: Page, **options: Any) -> None:
    await page.get_by_role("button", name="Publish", exact=True).click(**options)


async def says_published(page: Page, composer: str) -> None:
    if composer == "form":
        await page.get_by_role("heading", name="Published").wait_for()
    else:
        await page.get_by_role("status").get_by_text("Published.").wait_for()


async def until(condition: Callable[[], bool]) -> None:
    """The site's record is in another process: it is asked until it says so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110  no event crosses processes
            await asyncio.sleep(0.02)


async def passes_on(route: Route) -> None:
    await route.continue_()


# One click, two commits


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
@pytest.mark.parametrize("fault", [Fault.RESET_AFTER, Fault.CLOSE_AFTER, Fault.STATUS_408_AFTER])
@pytest.mark.parametrize("composer", ["form", "spa"])
async def test_a_lost_answer_is_two_commits_in_a_plain_browser_and_one_behind_the_gate(
    composer: str, fault: Fault, tls: bool, playground: Playground, truth: Truth, chromium: Browser, host: BrowserHost
) -> None:
    site = Site(playground, tls)
    async with plain_page(chromium, site) as page:
        told: list[str] = []
        page.on("request", lambda request: told.append(request.method))
        await compose(page, f"{site.url}/{composer}/new")
        truth.inject(fault, path_prefix="/", argument="reused")
        await press(page)
        await says_published(page, composer)
    assert truth.publish_count() == 2
    assert told.count("POST") == 1, "the driver is told of one request"

    truth.reset()
    site = Site(playground, tls)
    rules = site.rules(effect=FLOWS[composer].effect)
    async with site.behind(host, Phase.PREPARE, rules=rules) as (gate, session):
        await compose(session.page, f"{site.url}/{composer}/new")
        truth.inject(fault, path_prefix="/", times=9)
        gate.enter(Phase.ARMED, door=OneEffect())
        await press(session.page, no_wait_after=True)
        await asyncio.wait_for(gate.candidate_seen.wait(), WAIT_S)
        assert await gate.without_candidates(WAIT_S)
        gate.enter(Phase.SHUT)
        gate.let_go()
        # The browser tries again, as it did above; now it tries in vain.
        again = await gate.until(lambda: any(entry.reason and entry.method == "POST" for entry in gate.log), WAIT_S)
        assert again, gate.log.as_json_lines()
        await session.close()
        assert await gate.quiet(WAIT_S)
    assert truth.publish_count() == 1
    assert [entry.kind for entry in gate.log if entry.bytes_out] == [Kind.EFFECT]


async def test_routing_everything_through_the_driver_does_not_help(
    playground: Playground, truth: Truth, chromium: Browser
) -> None:
    site = Site(playground)
    async with plain_page(chromium, site, passes_on) as page:
        await compose(page, f"{site.url}/form/new")
        truth.inject(Fault.RESET_AFTER, path_prefix="/", argument="reused")
        await press(page)
        await says_published(page, "form")
    assert truth.publish_count() == 2


# What the driver's routing does not see

IN_A_WORKER = """(url) => { window.kept = new Worker(URL.createObjectURL(new Blob([
  `const socket = new WebSocket('${url}'); socket.onopen = () => socket.send('publish')`]))); }"""


@pytest.mark.parametrize(
    "hazard",
    [Hazard.UNLOAD_BEACON, Hazard.UNLOAD_KEEPALIVE, Hazard.FETCHLATER, Hazard.SHAREDWORKER, Hazard.REDIRECT307],
)
async def test_routing_does_not_see_it(hazard: Hazard, playground: Playground, truth: Truth, chromium: Browser) -> None:
    """Every write that the driver shows is aborted; of a redirect it shows the first hop, which passes here. Behind the
    gate: `test_unseen_paths`."""
    site = Site(playground)
    truth.set_hazard(hazard)

    async def abort_writes(route: Route) -> None:
        first_hop = route.request.url.endswith("/redirect307/start")
        await (route.continue_() if route.request.method == "GET" or first_hop else route.abort())

    async with plain_page(chromium, site, abort_writes) as page:
        await page.goto(site.url + "/form/new")
        if hazard in (Hazard.UNLOAD_BEACON, Hazard.UNLOAD_KEEPALIVE):
            await page.goto("about:blank")
        await until(lambda: any(hit.target == f"/hazard/{hazard}" for hit in truth.hazard_hits(hazard)))


async def test_a_websocket_in_a_worker(
    playground: Playground, truth: Truth, chromium: Browser, host: BrowserHost
) -> None:
    site = Site(playground)
    address = site.url.replace("http", "ws", 1) + "/hazard/ws"
    async with plain_page(chromium, site, passes_on) as page:
        seen: list[str] = []
        await page.context.route_web_socket("**/*", lambda socket: seen.append(socket.url))
        await page.goto(site.url + "/form/new")
        await page.evaluate(IN_A_WORKER, address)
        await until(lambda: any(hit.method == "WEBSOCKET" for hit in truth.hazard_hits(Hazard.WS)))
        assert seen == []
    truth.reset()
    async with site.behind(host, Phase.PREPARE) as (gate, session):
        await session.page.goto(site.url + "/form/new")
        await session.page.evaluate(IN_A_WORKER, address)
        await another_refused(gate, "/hazard/ws")
    assert {entry.reason for entry in refused(gate)} == {Reason.WEBSOCKET}
    assert truth.hazard_hits() == []


# A click that fails, an effect that happened


async def test_a_click_that_times_out_has_published(
    playground: Playground, truth: Truth, chromium: Browser, desk: Desk
) -> None:
    site = Site(playground)
    truth.inject(Fault.LOST, path_prefix="/")
    async with plain_page(chromium, site) as page:
        await compose(page, f"{site.url}/form/new")
        with pytest.raises(PlaywrightTimeout):
            await press(page, timeout=1_500)
        assert truth.publish_count() == 1, "the exception says that it failed; the site says that it did not"

    truth.reset()
    desk.sign_in()
    truth.inject(Fault.LOST, path_prefix="/")
    ended = await desk.publish("playground-form")
    assert truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    state = ended.operation.state
    assert (state.transmission, state.outcome) == (Transmission.POSSIBLE, Outcome.SUCCEEDED)


# The result of a POST, loaded again


@pytest.mark.parametrize("way", ["reload", "back and forward"])
async def test_loading_a_result_again_publishes_again_in_a_plain_browser_and_not_behind_the_gate(
    way: str, playground: Playground, truth: Truth, chromium: Browser, host: BrowserHost
) -> None:
    """Back and forward sends it again where the browser's cache is off, as the driver's routing switches it off. With
    the cache on Chromium says that the page is not there any more, and sends it upon the next reload."""
    site = Site(playground)

    async def again(page: Page) -> None:
        if way == "reload":
            await page.reload()
        else:
            await page.go_back()
            await page.go_forward()

    truth.inject(Fault.STATUS_500_AFTER, path_prefix="/", times=9)
    async with plain_page(chromium, site, passes_on if way != "reload" else None) as page:
        await compose(page, f"{site.url}/form/new")
        await press(page)
        await page.get_by_role("heading", name="500").wait_for()
        assert truth.publish_count() == 1
        await again(page)
        assert truth.publish_count() == 2

    truth.reset()
    site = Site(playground)
    truth.inject(Fault.STATUS_500_AFTER, path_prefix="/", times=9)
    async with site.behind(host, Phase.PREPARE) as (gate, session):
        page = session.page
        devtools = await session.context.new_cdp_session(page)
        await devtools.send("Network.enable")
        await devtools.send("Network.setCacheDisabled", {"cacheDisabled": True})
        await compose(page, f"{site.url}/form/new")
        gate.enter(Phase.ARMED, door=OneEffect())
        await press(page)
        await page.get_by_role("heading", name="500").wait_for()
        gate.enter(Phase.SHUT)
        await again(page)
        assert "Answered by Interlock" in await page.inner_text("body")
    assert [entry.reason for entry in refused(gate)] == [Reason.EFFECT_CLOSED]
    assert truth.publish_count() == 1


# Looking that acts

HELPERS: dict[str, Callable[[Page], Awaitable[Any]]] = {
    "full-page screenshot": lambda page: page.screenshot(full_page=True),
    "element screenshot": lambda page: page.locator("#far").screenshot(),
    "scroll into view": lambda page: page.locator("#far").scroll_into_view_if_needed(),
    "hover": lambda page: page.get_by_role("button", name="Publish", exact=True).hover(),
    "trial click": lambda page: page.get_by_role("button", name="Publish", exact=True).click(trial=True),
    "focus": lambda page: page.get_by_role("button", name="Publish", exact=True).focus(),
    "viewport screenshot": lambda page: page.screenshot(),
}

FAR = """() => { document.body.style.minHeight = '300vh';
  document.body.append(Object.assign(document.createElement('p'), {id: 'far', textContent: 'far down',
    style: 'position: absolute; top: 280vh'})); }"""

FIRES = {
    "full-page screenshot": Hazard.RESIZE_POST,
    "element screenshot": Hazard.SCROLL_POST,
    "scroll into view": Hazard.SCROLL_POST,
    "hover": Hazard.HOVER_POST,
    "trial click": Hazard.HOVER_POST,
    "focus": Hazard.FOCUS_POST,
}


async def handlers_have_run(page: Page) -> None:
    """Two frames, in which scrolling and resizing are told, and a request after those that they may have sent."""
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await page.evaluate("fetch('/hazard/fetch', {method: 'POST', body: '1'}).then((answer) => answer.text())")


async def watchful_page(page: Page, site: Site, hazard: Hazard) -> None:
    """A long composer whose handlers send a request when they are run; nothing stands between it and the site."""
    site.playground.truth.reset()
    site.playground.truth.set_hazard(hazard)
    await page.goto(site.url + "/form/new")
    await page.evaluate(FAR)
    await page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@pytest.mark.parametrize("helper", FIRES)
async def test_a_drivers_helper_makes_the_page_write(
    helper: str, playground: Playground, truth: Truth, chromium: Browser
) -> None:
    site = Site(playground)
    async with plain_page(chromium, site) as page:
        await watchful_page(page, site, FIRES[helper])
        await HELPERS[helper](page)
        await handlers_have_run(page)
        assert len(truth.hazard_hits(FIRES[helper])) >= 1


@pytest.mark.parametrize("hazard", sorted(set(FIRES.values())))
async def test_our_capture_makes_it_write_nothing(
    hazard: Hazard, playground: Playground, truth: Truth, chromium: Browser, tmp_path: Path
) -> None:
    """In a plain browser, so that no gate is there to stop what a capture would set off."""
    site = Site(playground)
    store = FileStore(tmp_path / "evidence", minimum_free_bytes=1)
    async with plain_page(chromium, site) as page:
        await watchful_page(page, site, hazard)
        await HELPERS["viewport screenshot"](page)
        for point in (Point.OPEN, Point.COMPOSED, Point.AFTER, Point.VIEW):
            taken = await capture(
                page, point, store=store, redactor=Redactor(), target=Target(Rect(10, 10, 80, 20), (50, 20))
            )
            assert taken.gaps == ()
        await handlers_have_run(page)
    assert truth.hazard_hits(hazard) == []
    assert len(truth.hazard_hits()) == 1, "the request that closes the test is the only one"


# A method is not a promise, a request is not an effect

ASK = """async ([target, options]) => {
  const answer = await fetch(target, options);
  return [answer.status, answer.headers.get('x-interlock')];
}"""

OVERRIDES: tuple[tuple[str, dict[str, str]], ...] = (
    ("/api/items/1?_method=PUT&status=published", {}),
    ("/api/items/1?status=published&_METHOD=put", {}),
    ("/api/items/1", {"X-HTTP-Method-Override": "PUT"}),
    ("/api/items/1", {"X-HTTP-Method": "PUT"}),
    ("/api/items/1", {"X-Method-Override": "PUT"}),
)


@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.ARMED, Phase.SHUT, Phase.READ_ONLY])
async def test_a_get_that_asks_for_another_method_is_refused(
    phase: Phase, playground: Playground, truth: Truth, chromium: Browser, host: BrowserHost
) -> None:
    site = Site(playground)
    async with plain_page(chromium, site) as page:
        await page.goto(site.url + "/mine")
        for target, headers in OVERRIDES:
            await page.evaluate(ASK, [target, {"headers": headers}])
    assert len(truth.requests(path_prefix="/api/items")) == len(OVERRIDES)

    truth.reset()
    # In views, even where the address is on the list.
    rules = site.rules(effect=PlaygroundSpa.effect, opens=(r"/mine", r"/api/items/.*"))
    async with site.behind(host, phase, rules=rules, door=OneEffect()) as (gate, session):
        await session.page.goto(site.url + "/mine")
        for target, headers in OVERRIDES:
            assert await session.page.evaluate(ASK, [target, {"headers": headers}]) == [403, Reason.METHOD_OVERRIDE]
        await session.page.goto(site.url + OVERRIDES[0][0])
        assert "Answered by Interlock" in await session.page.inner_text("body")
    assert [entry.reason for entry in refused(gate, "/api/items")] == [Reason.METHOD_OVERRIDE] * (len(OVERRIDES) + 1)
    assert truth.requests(path_prefix="/api/items") == []


async def test_a_body_with_two_effects_is_refused_and_one_with_one_leaves(
    playground: Playground, truth: Truth, host: BrowserHost
) -> None:
    """A batch as a flow would declare it: one address, one method, and a body that may hold several."""
    site = Site(playground)
    batch = Effect(
        name="notices published",
        method="POST",
        path="/api/items",
        matches=lambda request: "also" in request.json,
        count=lambda request: 1 + len(request.json["also"]),
        material=lambda _request: {},
    )

    def body(*also: str) -> dict[str, Any]:
        one = {"title": "First", "body": "", "status": "published"}
        kind = {"Content-Type": "application/json"}
        return {"method": "POST", "headers": kind, "body": json.dumps({**one, "also": list(also)})}

    async with site.behind(host, Phase.PREPARE, rules=site.rules(effect=batch)) as (gate, session):
        await session.page.goto(site.url + "/spa/new")
        gate.enter(Phase.ARMED, door=OneEffect())
        assert await session.page.evaluate(ASK, ["/api/items", body("Second")]) == [403, Reason.EFFECT_COUNT]
        assert await session.page.evaluate(ASK, ["/api/items", body("Second", "Third")]) == [403, Reason.EFFECT_COUNT]
        assert truth.requests(writes_only=True) == []
        assert await session.page.evaluate(ASK, ["/api/items", body()]) == [201, None]
    assert truth.publish_count("First") == 1
