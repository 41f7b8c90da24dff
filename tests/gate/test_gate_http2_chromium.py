"""A real Chromium that speaks HTTP/2 with the gate, and the gate with the site: a page of 170 assets, and a publication
whose answer is lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from gate_origin import TestAuthority
from gate_support import RecordingDoor, rules_for
from http2_parts import Http2Origin, Line

from executor.browser.sessions import BrowserHost
from executor.gate.certificates import UpstreamTrust
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.port import Hang
from executor.gate.proxy import Gate
from executor.gate.rules import Kind, Phase
from executor.gate.wire_log import WireLog

pytestmark = pytest.mark.browser

ASSETS = 170
PAGE = (
    "<!doctype html><title>Assets</title><link rel=icon href='data:,'>"
    + "".join(f"<script src=/{number}.js></script>" for number in range(ASSETS))
).encode()
PUBLISH = """() => {
  window.said = false;
  const body = new URLSearchParams('do=publish');
  fetch('/publish', {method: 'POST', body}).then((got) => got.headers.get('x-interlock'), () => 'failed').then(
    (said) => { window.said = said; });
}"""
PROTOCOLS = """() => performance.getEntriesByType('resource').map((one) => one.nextHopProtocol)"""


@pytest_asyncio.fixture
async def host() -> AsyncIterator[BrowserHost]:
    async with BrowserHost() as started:
        yield started


def page(line: Line) -> None:
    line.head((b"content-type", b"text/html"), (b"set-cookie", b"sid=1; Path=/"), (b"set-cookie", b"other=2; Path=/"))
    line.data(PAGE, end=True)


def script(line: Line) -> None:
    line.head((b"content-type", b"text/javascript"))
    line.data(b"window.loaded = (window.loaded || 0) + 1", end=True)


async def test_a_page_of_many_assets_and_a_publication_whose_answer_is_lost(
    site_authority: TestAuthority, host: BrowserHost
) -> None:
    async with Http2Origin(site_authority.server()) as origin:
        origin.behaviours = {"/": page, **{f"/{number}.js": script for number in range(ASSETS)}}
        origin.silent = {"/publish"}
        door = RecordingDoor()
        gate = Gate(
            authority=host.authority,
            rules=rules_for(origin),  # type: ignore[arg-type]  # as much of a site as it reads
            phase=Phase.PREPARE,
            routes=Routes.straight(UpstreamTrust((site_authority.file,))),
            door=door,
            log=WireLog(),
            before_write=None,
            limits=Limits(http2_beyond_s=0.0),
        )
        async with gate:
            session = await host.open(gate)
            try:
                seen = session.page
                await seen.goto(origin.url + "/")
                assert await seen.evaluate("window.loaded") == ASSETS
                over = await seen.evaluate(PROTOCOLS)
                # What was asked for before the gate knew the site went over HTTP/1.1, on this side only.
                assert over.count("h2") > ASSETS * 2 // 3, over
                assert {one.protocol for one in origin.seen} == {"h2"}
                assert origin.connections == 1
                await seen.goto(origin.url + "/")
                navigation = "performance.getEntriesByType('navigation')[0].nextHopProtocol"
                assert await seen.evaluate(navigation) == "h2"
                assert origin.seen[-1].header("cookie") == "sid=1; other=2"
                digest = gate.session_digest(origin.url, ["sid"])

                gate.enter(Phase.ARMED)
                await seen.evaluate(PUBLISH)
                await asyncio.wait_for(gate.candidate_seen.wait(), 20)
                assert await gate.without_candidates(20)
                assert door.outcomes == [Hang()]
                (candidate,) = door.candidates
                assert candidate.request.header("cookie") == "sid=1; other=2"
                assert digest is not None
                gate.enter(Phase.SHUT)
                gate.let_go()
                await seen.wait_for_function("window.said === 'failed'")
                await seen.evaluate(PUBLISH)
                await seen.wait_for_function("window.said === 'effect_closed'")
            finally:
                await session.close()
        published = [one for one in origin.seen if one.path == "/publish"]
        assert [(one.body, one.protocol) for one in published] == [(b"do=publish", "http/1.1")]
        assert [entry.kind for entry in gate.log if entry.bytes_out] == [Kind.EFFECT]
