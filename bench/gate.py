"""What the gate costs: a page of 170 assets in a plain browser and behind the gate, in turn, in one run.

    python -m bench.gate                    over TLS on loopback: cold, warm, processor time, memory per context
    python -m bench.gate --distance-ms 50   against an HTTP/2 site so far away (Linux; see distance.py)

A figure is a median of ratios: each ratio is from one pair of loads, one right after the other, so that a machine that
slows down slows both. Cold is the first load of a fresh context, warm the second one in it. The site and the link are
processes of their own; the gate runs in this one, as it does in a run. Nothing here is a test: it judges nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, async_playwright

from bench.distance import FAR, NEAR, inside
from executor.browser.arguments import launch_arguments
from executor.browser.finding import find_browser
from executor.browser.sessions import BrowserHost
from executor.gate.certificates import UpstreamTrust
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Rules
from executor.gate.wire_log import WireLog

SCRIPTS, PICTURES = 150, 20


@dataclass(frozen=True)
class Load:
    """Seconds to the load event of the first and of the second load, and of this process's time for the first."""

    cold_s: float
    warm_s: float
    processor_s: float
    protocol: str


@contextmanager
def site(*, far: bool, http2: bool, scripts: int) -> Iterator[tuple[str, Path]]:
    """The site's address and certificate."""
    where = ["--host", NEAR, "--shown-as", FAR] if far else []
    size = ["--scripts", str(scripts), "--pictures", str(PICTURES)]
    with _process(["bench.asset_site", *where, *size, *(["--http2"] if http2 else [])]) as first:
        told = json.loads(first)
        yield told["url"], Path(told["certificate"])


@contextmanager
def link(distance_ms: float) -> Iterator[None]:
    with _process(["bench.distance", str(distance_ms)]):
        yield


@contextmanager
def _process(command: list[str]) -> Iterator[str]:
    """A module of ours as a process that ends with its input; gives its first line."""
    started = subprocess.Popen(
        [sys.executable, "-m", *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert started.stdin is not None and started.stdout is not None
    try:
        if not (first := started.stdout.readline()):
            raise SystemExit(f"{command[0]} did not start; what it said is above")
        yield first
    finally:
        started.stdin.close()
        started.wait(timeout=20)
        started.stdout.close()


class Plain:
    """The same browser with the same switches, but for those that lead its traffic to a gate."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser

    @asynccontextmanager
    async def page(self, url: str) -> AsyncIterator[Page]:
        context = await self._browser.new_context(
            ignore_https_errors=True, service_workers="block", viewport={"width": 1280, "height": 800}
        )
        try:
            yield await context.new_page()
        finally:
            await context.close()


class Gated:
    """Contexts behind gates of the product, as a run opens them."""

    def __init__(self, host: BrowserHost, certificate: Path) -> None:
        self._host = host
        self._routes = Routes.straight(UpstreamTrust([certificate]))

    @asynccontextmanager
    async def page(self, url: str) -> AsyncIterator[Page]:
        gate = Gate(
            authority=self._host.authority,
            rules=Rules(destination_origin=url),
            phase=Phase.PREPARE,
            routes=self._routes,
            door=None,
            log=WireLog(),
            before_write=None,
            limits=Limits(),
        )
        async with gate:
            session = await self._host.open(gate)
            try:
                yield session.page
            finally:
                await session.context.close()


async def load(way: Plain | Gated, url: str, scripts: int) -> Load:
    async with way.page(url) as page:
        processor = time.process_time()
        cold_s = await _timed(page, url + "/")
        processor = time.process_time() - processor
        warm_s = await _timed(page, url + "/?again")
        assert await page.evaluate("window.loaded") == scripts, "the page did not load whole"
        protocol = await page.evaluate("performance.getEntriesByType('navigation')[0].nextHopProtocol")
        return Load(cold_s, warm_s, processor, str(protocol))


async def _timed(page: Page, url: str) -> float:
    started = time.perf_counter()
    await page.goto(url, wait_until="load")
    return time.perf_counter() - started


async def memory(way: Plain | Gated, url: str, contexts: int) -> float:
    """Bytes that one more context with the page in it takes, in this process and the browser's. The first two are not
    counted: they bring in what all share."""
    before = 0.0
    async with AsyncExitStack() as entered:
        for number in range(contexts + 2):
            if number == 2:
                before = tree_bytes()
            page = await entered.enter_async_context(way.page(url))
            await page.goto(url + "/", wait_until="load")
        return (tree_bytes() - before) / contexts


def tree_bytes() -> float:
    """Proportional share of memory (PSS, Linux) of this process and of all below it, the site and the link excepted."""
    total = 0
    for process in _descendants(os.getpid()):
        folder = Path(f"/proc/{process}")
        with suppress(FileNotFoundError, ProcessLookupError):  # a process of the browser's that has just ended
            if b"bench." in (folder / "cmdline").read_bytes() and process != os.getpid():
                continue
            shares = (line for line in (folder / "smaps_rollup").read_text().splitlines() if line.startswith("Pss:"))
            total += sum(int(line.split()[1]) * 1024 for line in shares)
    return float(total)


def _descendants(process: int) -> list[int]:
    found = [process]
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += _descendants(int(child))
    return found


@asynccontextmanager
async def both(certificate: Path) -> AsyncIterator[tuple[Plain, Gated]]:
    """A plain browser and a browser host of the product, of the same binary and with the same switches otherwise."""
    found = find_browser()
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    theirs = launch_arguments(deny_address="", spki="", as_root=root)
    own = [one for one in theirs if not one.startswith(_WAYS_TO_THE_GATE)]
    async with async_playwright() as playwright, BrowserHost() as host:
        browser = await playwright.chromium.launch(executable_path=str(found.path), args=own)
        try:
            yield Plain(browser), Gated(host, certificate)
        finally:
            await browser.close()


_WAYS_TO_THE_GATE = ("--proxy", "--host-resolver-rules", "--ignore-certificate-errors-spki-list")


async def measure(url: str, certificate: Path, *, rounds: int, contexts: int, scripts: int) -> dict[str, Any]:
    """All figures of one run, as plain values: medians, and the loads that they come from."""
    async with both(certificate) as (plain, gated):
        pairs: list[tuple[Load, Load]] = []
        for number in range(rounds + 1):
            # Each goes first as often as the other; the first pair only warms up.
            if number % 2:
                first, second = await load(plain, url, scripts), await load(gated, url, scripts)
            else:
                second, first = await load(gated, url, scripts), await load(plain, url, scripts)
            if number:
                pairs.append((first, second))
        share = (await memory(plain, url, contexts), await memory(gated, url, contexts)) if contexts else None
    return {
        "protocols": {"plain": pairs[0][0].protocol, "gate": pairs[0][1].protocol},
        "cold_ratio": statistics.median(gate.cold_s / plain.cold_s for plain, gate in pairs),
        "warm_ratio": statistics.median(gate.warm_s / plain.warm_s for plain, gate in pairs),
        "plain_cold_ms": 1000 * statistics.median(plain.cold_s for plain, _ in pairs),
        "gate_cold_ms": 1000 * statistics.median(gate.cold_s for _, gate in pairs),
        "plain_warm_ms": 1000 * statistics.median(plain.warm_s for plain, _ in pairs),
        "gate_warm_ms": 1000 * statistics.median(gate.warm_s for _, gate in pairs),
        "plain_process_ms": 1000 * statistics.median(plain.processor_s for plain, _ in pairs),
        "gate_process_ms": 1000 * statistics.median(gate.processor_s for _, gate in pairs),
        "context_mb": None if share is None else {"plain": share[0] / 1e6, "gate": share[1] / 1e6},
        "load_average": os.getloadavg()[0],
        "pairs": [{"plain": asdict(plain), "gate": asdict(gate)} for plain, gate in pairs],
    }


def show(figures: dict[str, Any], title: str) -> None:
    print(f"{title}; {len(figures['pairs'])} pairs, load average {figures['load_average']:.1f}")
    print(f"  protocol           plain {figures['protocols']['plain']}, behind the gate {figures['protocols']['gate']}")
    for name in ("cold", "warm"):
        plain, gate = figures[f"plain_{name}_ms"], figures[f"gate_{name}_ms"]
        ratio = figures[f"{name}_ratio"]
        print(f"  {name}               {ratio:.2f} x plain   ({plain:.0f} ms plain, {gate:.0f} ms behind the gate)")
    plain, gate = figures["plain_process_ms"], figures["gate_process_ms"]
    print(f"  processor time     {gate - plain:.0f} ms of the gate's process for a cold load (the driver's taken off)")
    if share := figures["context_mb"]:
        more = share["gate"] - share["plain"]
        print(f"  memory per context {more:+.1f} MB over plain ({share['plain']:.1f} MB plain)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="pairs of loads that count")
    parser.add_argument("--contexts", type=int, default=10, help="contexts for the memory figure; 0: leave it out")
    parser.add_argument("--scripts", type=int, default=SCRIPTS, help=f"scripts beside the {PICTURES} pictures")
    parser.add_argument("--distance-ms", type=float, default=0.0, help="round trip to the site")
    parser.add_argument("--http2", action=argparse.BooleanOptionalAction, help="default: only at a distance")
    parser.add_argument("--profile", metavar="FILE", help="write a profile of this process (cProfile) there")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    far = given.distance_ms > 0
    if far and not os.environ.get(_INSIDE):
        os.environ[_INSIDE] = "1"
        sys.exit(inside([sys.executable, "-m", "bench.gate", *sys.argv[1:]]))
    http2 = far if given.http2 is None else given.http2
    profile = cProfile.Profile() if given.profile else None
    with (
        link(given.distance_ms) if far else nullcontext(),
        site(far=far, http2=http2, scripts=given.scripts) as (
            url,
            certificate,
        ),
    ):
        if profile:
            profile.enable()
        figures = asyncio.run(
            measure(url, certificate, rounds=given.rounds, contexts=given.contexts, scripts=given.scripts)
        )
        if profile:
            profile.disable()
            profile.dump_stats(given.profile)
    if given.json:
        print(json.dumps(figures))
    else:
        away = f"{given.distance_ms:g} ms away" if far else "on loopback"
        offered = "HTTP/2" if http2 else "HTTP/1.1"
        show(figures, f"Page of {given.scripts + PICTURES} assets, {offered} over TLS, {away}")


_INSIDE = "INTERLOCK_BENCH_INSIDE"
"""Set in the process that runs in a network of its own."""

if __name__ == "__main__":
    main()
