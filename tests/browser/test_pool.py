"""One browser process for many runs: kept, renewed, replaced when it dies, and nothing left behind when nobody closed
it. Real Chromium; which processes there are, the kernel says.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from executor.browser import leftovers
from executor.browser.finding import BrowserMissing, find_browser
from executor.browser.pool import BrowserPool, Wear
from executor.browser.sessions import BrowserHost, Session
from executor.errors import NotReady
from executor.gate.certificates import UpstreamTrust
from executor.gate.dialling import Routes
from executor.gate.limits import Limits
from executor.gate.proxy import Gate
from executor.gate.rules import Phase, Rules
from executor.gate.wire_log import WireLog
from flows.playground import PlaygroundForm

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module", autouse=True)
def _browser() -> None:
    try:
        find_browser()
    except BrowserMissing:
        pytest.skip("a browser that cannot be had here")


@pytest.fixture(autouse=True)
def temporary(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A short place for temporary files that is this test's alone: what is in it at the end was left behind."""
    with tempfile.TemporaryDirectory(prefix="pool-") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        yield Path(folder)


@contextlib.asynccontextmanager
async def context_on(host: BrowserHost, cookies: Sequence[Mapping[str, Any]] = ()) -> AsyncIterator[Session]:
    gate = Gate(
        authority=host.authority,
        rules=Rules(destination_origin="http://127.0.0.1:1", effect=PlaygroundForm.effect),
        phase=Phase.READ_ONLY,
        routes=Routes.straight(UpstreamTrust()),
        door=None,
        log=WireLog(),
        before_write=None,
        limits=Limits(),
    )
    async with gate:
        session = await host.open(gate, cookies=cookies)
        try:
            yield session
        finally:
            await session.close()


@contextlib.asynccontextmanager
async def pool(**wear: float) -> AsyncIterator[BrowserPool]:
    made = BrowserPool(lambda headed: BrowserHost(headed=headed), Wear(**wear))  # type: ignore[arg-type]  # a test's
    try:
        yield made
    finally:
        await made.close()


def processes_in(folder: Path) -> list[int]:
    """What runs on the browsers' folders in here; a driver comes before what it started."""
    lodgings = sorted(folder.glob(f"{leftovers.PREFIX}*"))
    return [process for lodging in lodgings for process in leftovers.Lodging(lodging, -1).processes()]


def browser_process(folder: Path) -> int:
    """The one browser process that runs on a folder in here, without its helpers."""
    lines = {process: Path(f"/proc/{process}/cmdline").read_bytes() for process in processes_in(folder)}
    (found,) = [process for process, line in lines.items() if b"--user-data-dir" in line and b"--type=" not in line]
    return found


def alive(processes: Iterable[int]) -> list[int]:
    return [process for process in processes if Path(f"/proc/{process}/exe").exists()]


def left_in(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


async def test_kept_while_it_works_and_replaced_when_it_died(temporary: Path) -> None:
    async with pool(losses=2) as browsers:
        async with browsers.use() as first, browsers.use() as second:
            assert first is second, "two runs at once share a process"
            async with context_on(first), context_on(second):
                pass
        killed = browser_process(temporary)
        async with browsers.use() as again:
            assert again is first
            os.kill(killed, signal.SIGKILL)
            await asyncio.wait_for(again.lost.wait(), 20)
            with pytest.raises(NotReady, match="gone away"):
                async with context_on(again):
                    pass
            async with browsers.use() as fresh, context_on(fresh):
                assert fresh is not again
                assert browser_process(temporary) != killed
        os.kill(browser_process(temporary), signal.SIGKILL)
        await asyncio.wait_for(fresh.lost.wait(), 20)
        with pytest.raises(NotReady, match="lost 2 times within 10 minutes"):
            async with browsers.use():
                pass
    assert left_in(temporary) == []


async def test_a_worn_one_ends_with_its_last_user(temporary: Path) -> None:
    async with pool(contexts=2) as browsers:
        async with browsers.use() as old, context_on(old):
            async with context_on(old):
                pass
            async with browsers.use() as new, context_on(new):
                assert new is not old
                assert not old.lost.is_set(), "a context is open on it"
        assert old.lost.is_set()
        assert not new.lost.is_set()
        assert browser_process(temporary)
    with pytest.raises(NotReady, match="ending"):
        async with browsers.use():
            pass
    assert left_in(temporary) == []


async def test_nothing_is_left_by_a_driver_that_is_frozen(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.browser.sessions._END_S", 0.5)
    async with BrowserHost() as host:
        assert host.version
        processes = processes_in(temporary)
        os.kill(processes[0], signal.SIGSTOP)  # the driver comes first
    assert not alive(processes)
    assert left_in(temporary) == []


_LEFT_BEHIND = """
import asyncio, os, signal
from pathlib import Path
from executor.browser import leftovers
from executor.browser.sessions import BrowserHost

async def main():
    async with BrowserHost() as host:
        driver = host._lodging.processes()[0]
        os.kill(driver, signal.SIGSTOP)
        print(*host._lodging.processes(), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


async def test_what_a_killed_program_left_is_cleared_by_the_next(temporary: Path) -> None:
    """Its driver was frozen, so nothing ended with it."""
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", _LEFT_BEHIND], stdout=subprocess.PIPE, check=False, timeout=120
    )
    assert ran.returncode == -signal.SIGKILL
    left = [int(one) for one in ran.stdout.split()]
    assert left[0] in alive(left), "its driver"
    assert [name.partition("-")[0] for name in left_in(temporary)] == ["interlock", "playwright_chromiumdev_profile"]
    kept = leftovers.Lodging.take()  # of a program that lives

    assert len(leftovers.sweep()) == 1

    assert not alive(left)
    assert left_in(temporary) == [kept.folder.name]
    kept.leave()


async def test_a_browser_that_opens_nothing_any_more_is_replaced(temporary: Path) -> None:
    """It is there and answers at once, each time that it cannot. One refusal alone may be an account's own cookies."""
    async with pool() as browsers:
        async with browsers.use() as first:
            bad = [{"name": "pg", "value": "v", "domain": "", "path": "nowhere"}]
            for _ in range(2):
                with pytest.raises(NotReady):
                    async with context_on(first, cookies=bad):
                        pass
            assert not first.unwell
            async with context_on(first):
                pass  # it opens others: nothing is wrong with it
            for _ in range(3):
                with pytest.raises(NotReady):
                    async with context_on(first, cookies=bad):
                        pass
            assert first.unwell
        async with browsers.use() as second:
            assert second is not first
            async with context_on(second):
                pass
