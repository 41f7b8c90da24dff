"""Nothing of the browser process goes around the gate: packets are counted, and known ways around are tried. C10."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
import sealed_room
from behind_a_gate import Site, plain_launch
from desk import Desk
from playwright.async_api import async_playwright

from executor.browser.sessions import BrowserHost, Session
from executor.errors import Exit
from executor.gate.rules import Phase
from executor.one_shot.looking import PathNotProven, prove_path
from playground.process import Playground

pytestmark = pytest.mark.browser

AROUND = "PLAYWRIGHT_DISABLE_FORCED_CHROMIUM_PROXIED_LOOPBACK"


# Packets


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """What happened in a network namespace whose only way out is counted."""
    if reason := sealed_room.why_not():
        pytest.skip(f"no network namespace can be made here: {reason}")
    visitor = Path(__file__).with_name("room_visitor.py")
    return sealed_room.visit(visitor, str(tmp_path_factory.mktemp("room")), timeout_s=170)


@pytest.mark.root
def test_a_whole_run_sends_no_packet_to_the_outside(room: Any) -> None:
    assert (room["published"], room["exit"]) == (1, Exit.SUCCEEDED)
    assert room["packets"]["a run"] == []


@pytest.mark.root
def test_a_page_that_tries_to_get_out_sends_no_packet(room: Any) -> None:
    """STUN and TURN over UDP and TCP, WebTransport, names to look up ahead, connections to open ahead; and whatever the
    browser does on its own meanwhile."""
    assert room["packets"]["our browser"] == []
    assert room["told"] == []


@pytest.mark.root
def test_the_same_browser_without_our_switches_does_send_packets(room: Any) -> None:
    """What makes the zeros above findings."""
    script, browser = room["packets"]["a plain script"], room["packets"]["a plain browser"]
    assert any(one.startswith(f"UDP to {sealed_room.RESOLVER}:53 asking for") for one in script)
    for wanted in ("UDP to 198.51.100.7:3478", "TCP to 198.51.100.7:3479", "asking for stun.example"):
        assert any(wanted in one for one in browser), wanted


# Ways around


async def test_the_drivers_own_way_around_is_closed(monkeypatch: pytest.MonkeyPatch, desk: Desk) -> None:
    """Whatever the site was asked for, the gates of the run had counted."""
    monkeypatch.setenv(AROUND, "1")
    ended = await desk.publish()
    truth = desk.playground.truth
    assert truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None
    assert 0 < len(truth.requests()) <= ended.ending.reads + len(ended.ending.left)


async def test_a_context_that_goes_around_does_not_prove_its_path(
    monkeypatch: pytest.MonkeyPatch, playground: Playground
) -> None:
    """With the variable set, a context that names a proxy and nothing else is not held to it for loopback. Our contexts
    name the exception themselves, which holds them; were that to fail one day, the path proof stops the run."""
    monkeypatch.setenv(AROUND, "1")
    playground.truth.reset()
    site = Site(playground)
    async with BrowserHost() as host, site.gate(host, Phase.PREPARE) as gate:
        monkeypatch.setenv(AROUND, "1")  # starting our host has taken it away
        async with async_playwright() as driver:
            browser = await driver.chromium.launch(**plain_launch())
            for bypass, goes_around in ((None, True), ("<-loopback>", False)):
                proxy = {"server": gate.address} | ({"bypass": bypass} if bypass else {})
                session = Session(await browser.new_context(proxy=proxy), ())  # type: ignore[arg-type] # a plain dict
                session.page = await session.context.new_page()
                if goes_around:
                    with pytest.raises(PathNotProven, match="not seen at the gate"):
                        await prove_path(gate, session, site.url)
                else:
                    await prove_path(gate, session, site.url)
                await session.close()
            await browser.close()
    probes = [one.target for one in playground.truth.requests() if "/.well-known/interlock/" in one.target]
    assert len(probes) == 1


def command_lines() -> list[list[str]]:
    """Those of every process that can be read now."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
            found.append((process / "cmdline").read_bytes().decode(errors="replace").split("\0"))
    return found


async def test_what_the_driver_switches_off_stays_off() -> None:
    """Of two equal switches Chromium heeds the last. Ours comes after the driver's, so it must say all that it says."""
    async with BrowserHost() as host:
        lines = await asyncio.to_thread(command_lines)
    wanted = f"--proxy-server={host.deny.address}"
    (ours,) = [line for line in lines if wanted in line and not any(one.startswith("--type=") for one in line)]
    for switch in ("--disable-features=", "--enable-features="):
        given = [set(one.removeprefix(switch).split(",")) for one in ours if one.startswith(switch)]
        assert given
        assert set.union(*given) == given[-1]
