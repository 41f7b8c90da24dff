"""What is done in the sealed room, in a process of its own: a whole run, a page that tries to get out, and the same
browser without our switches. Says what was published and which packets went to the outside, as one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import sealed_room
from behind_a_gate import Site, compose, plain_launch
from desk import Desk
from playwright.async_api import Page, async_playwright

from executor.browser.sessions import BrowserHost
from executor.gate.rules import Phase
from playground.process import Playground

OUTSIDE = "198.51.100.7"
"""An address for documentation (RFC 5737)."""

TRY_TO_GET_OUT = """async (outside) => {
  const hint = (rel, href) => document.head.append(Object.assign(document.createElement('link'), {rel, href}));
  hint('dns-prefetch', '//prefetched.example');
  hint('preconnect', 'https://preconnected.example');
  hint('preconnect', `https://${outside}`);
  try { new WebTransport(`https://${outside}:4433/`).closed.catch(() => {}); } catch { /* no such interface */ }
  const turn = {username: 'u', credential: 'c'};
  const connection = new RTCPeerConnection({iceServers: [
    {urls: `stun:${outside}:3478`}, {urls: 'stun:stun.example:3478'},
    {urls: `turn:${outside}:3478?transport=udp`, ...turn}, {urls: `turn:${outside}:3479?transport=tcp`, ...turn},
  ]});
  window.candidates = [];
  connection.onicecandidate = (event) => { if (event.candidate) window.candidates.push(event.candidate.candidate); };
  connection.createDataChannel('x');
  await connection.setLocalDescription(await connection.createOffer());
}"""

DWELL_S = 4.0
"""How long a browser is left alone for its own services to speak up: an absence has no event to wait for."""


async def try_to_get_out(page: Page) -> list[str]:
    """Returns the addresses at which the page was told that it can be reached."""
    await page.evaluate(TRY_TO_GET_OUT, OUTSIDE)
    await asyncio.sleep(DWELL_S)
    told: list[str] = await page.evaluate("window.candidates")
    return told


async def main(folder: Path) -> None:
    outside = sealed_room.enter(folder)
    counted: dict[str, list[str]] = {}

    def count(what: str) -> None:
        before = sum(len(packets) for packets in counted.values())
        counted[what] = outside.packets[before:]

    async with await Playground.start_async(folder / "playground") as playground:
        desk = Desk(playground, folder, tls=True)
        desk.sign_in()
        ended = await desk.publish("playground-spa")
        published = playground.truth.publish_count()
        count("a run")

        site = Site(playground, tls=True)
        async with BrowserHost() as host, site.behind(host, Phase.PREPARE) as (_, session):
            await compose(session.page, site.url + "/spa/new")
            told = await try_to_get_out(session.page)
            denied = dict(host.deny.hosts)
        count("our browser")

        plain = Site(playground)
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(**plain_launch())
            context = await browser.new_context()
            await plain.sign_in(context)
            page = await context.new_page()
            await compose(page, plain.url + "/spa/new")
            await page.get_by_role("button", name="Publish", exact=True).click()
            await page.get_by_role("status").get_by_text("Published.").wait_for()
            await asyncio.sleep(DWELL_S)
            count("a plain script")
            await try_to_get_out(page)
            await browser.close()
        count("a plain browser")
    seen = {"exit": int(ended.exit), "published": published, "denied": denied, "told": told, "packets": counted}
    sys.stdout.write(json.dumps(seen) + "\n")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
