"""A real Chromium behind a gate: pages load, undeclared writes stop, and the effect arrives once."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
from gate_origin import Arrived, Line, Origin, TestAuthority
from gate_support import RecordingDoor
from playwright.async_api import Browser, Page, async_playwright

from executor.browser.finding import find_browser
from executor.gate.certificates import CertificateAuthority
from executor.gate.deny import DenyListener
from executor.gate.port import Hang
from executor.gate.proxy import Gate
from executor.gate.rules import Kind, Phase

pytestmark = pytest.mark.browser

PAGE = b"""<!doctype html><link rel=stylesheet href=/style.css><script src=/script.js></script>
<img src=/picture.svg><form method=post action=/publish><input name=do value=publish><button>Publish</button></form>"""
PARTS = {
    "/": (b"text/html", PAGE),
    "/style.css": (b"text/css", b"body { color: rgb(1, 2, 3) }"),
    "/script.js": (b"text/javascript", b"window.loaded = true"),
    "/picture.svg": (b"image/svg+xml", b"<svg xmlns='http://www.w3.org/2000/svg' width='7' height='7'/>"),
}


def serve_page(arrived: Arrived, line: Line) -> None:
    kind, body = PARTS.get(arrived.target, (b"text/plain", b"ok"))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n" % (kind, len(body))
    line.send(head + body)


def serve_page_and_commit_then_reset(arrived: Arrived, line: Line) -> None:
    """The site commits the write and the connection dies without an answer."""
    if arrived.method == "POST":
        line.reset()
    else:
        serve_page(arrived, line)


@pytest.fixture
async def deny() -> AsyncIterator[DenyListener]:
    async with DenyListener() as listener:
        yield listener


@pytest.fixture
async def chromium(deny: DenyListener, gate_authority: CertificateAuthority) -> AsyncIterator[Browser]:
    arguments = [
        "--disable-gpu",
        "--proxy-bypass-list=<-loopback>",
        f"--ignore-certificate-errors-spki-list={gate_authority.spki}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
    ]
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=find_browser().path, args=arguments, proxy={"server": deny.address}, timeout=60_000
        )
        yield browser
        await browser.close()


@pytest.fixture(params=["http", "https"])
def site(request, make_origin, site_authority: TestAuthority) -> Origin:
    if request.param == "http":
        return make_origin(behaviour=serve_page)
    return make_origin(behaviour=serve_page, tls=site_authority.server(host="localhost"), host="localhost")


async def page_behind(gate: Gate, chromium: Browser, site: Origin) -> Page:
    context = await chromium.new_context(proxy={"server": gate.address}, service_workers="block")
    page = await context.new_page()
    await page.goto(site.url + "/")
    return page


FETCH = """async ([target, body]) => {
  const answer = await fetch(target, {method: "POST", body: new URLSearchParams(body)});
  return [answer.status, answer.headers.get("x-interlock")];
}"""


SOCKET = """() => new Promise((resolve) => {
  const socket = new WebSocket(location.origin.replace("http", "ws") + "/socket");
  socket.onopen = () => resolve("open");
  socket.onerror = () => resolve("refused");
})"""


async def test_a_page_and_its_writes(site, make_gate, chromium) -> None:
    door = RecordingDoor()
    gate = await make_gate(site, door=door)
    page = await page_behind(gate, chromium, site)
    assert await page.evaluate("window.loaded")
    assert await page.evaluate("getComputedStyle(document.body).color") == "rgb(1, 2, 3)"
    assert await page.evaluate("document.images[0].naturalWidth") == 7
    assert await page.evaluate(FETCH, ["/elsewhere", "a=b"]) == [403, "not_declared"]
    assert await page.evaluate(FETCH, ["/publish", "do=draft"]) == [200, None]
    assert await page.evaluate(FETCH, ["/publish", "do=publish"]) == [403, "effect_closed"]
    assert await page.evaluate(SOCKET) == "refused"
    await page.goto(gate.expect_probe(site.url))
    assert gate.proved(site.url)
    await page.goto(site.url + "/")
    assert site.bodies() == [b"do=draft"]
    gate.enter(Phase.ARMED)
    assert await page.evaluate(FETCH, ["/publish", "do=publish"]) == [200, None]
    await page.reload()
    await page.click("button")
    assert await page.text_content("body") == (
        "Answered by Interlock, not by the site: one effect was already let through (budget_spent).\n"
    )
    assert site.bodies() == [b"do=draft", b"do=publish"]
    assert "websocket" in [entry.reason for entry in gate.log]
    assert "/socket" not in [one.target for one in site.seen]
    await page.context.close()


@pytest.mark.parametrize("by", ["form", "fetch"])
async def test_a_lost_answer_is_one_commit(by, site, make_gate, chromium) -> None:
    """Without the gate Chromium re-sends the POST by itself when the reused connection dies: two commits."""
    site.behaviour = serve_page_and_commit_then_reset
    door = RecordingDoor()
    gate = await make_gate(site, door=door)
    page = await page_behind(gate, chromium, site)
    gate.enter(Phase.ARMED)
    if by == "form":
        await page.click("button", no_wait_after=True)
    else:
        await page.evaluate(
            "void fetch('/publish', {method: 'POST', body: new URLSearchParams('do=publish')}).catch(() => {})"
        )
    await asyncio.wait_for(gate.candidate_seen.wait(), 10)
    assert await gate.without_candidates(10)
    assert door.outcomes == [Hang()]
    gate.enter(Phase.SHUT)
    gate.let_go()
    # The browser finds the connection closed and tries again: the gate refuses, nothing leaves.
    assert await gate.until(lambda: gate.log.entries[-1].reason is not None, 10)
    assert site.bodies() == [b"do=publish"]
    assert [entry.kind for entry in gate.log if entry.bytes_out] == [Kind.EFFECT]
    await page.context.close()


async def test_what_a_browser_sends_outside_its_contexts_is_denied(site, make_gate, chromium, deny) -> None:
    page = await page_behind(await make_gate(site), chromium, site)
    assert await page.title() == ""
    stray = await chromium.new_context()
    other = await stray.new_page()
    with pytest.raises(Exception, match="ERR_"):
        await other.goto(site.url + "/outside")
    assert deny.hosts[f"{site.host}:{site.port}"] >= 1
    assert "/outside" not in [one.target for one in site.seen]
    await stray.close()
    await page.context.close()
