"""Several runs on one browser process: they do not see each other, and when it is killed each record tells the truth
and the next run works.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from pathlib import Path

import pytest
from behind_a_gate import Site
from desk import PERSON, Desk

from executor.browser.sessions import BrowserHost
from executor.errors import Exit
from executor.gate.rules import Phase
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.one_shot.run import StepEvent
from executor.service import Ended

pytestmark = pytest.mark.browser


class Killed:
    """Kills every browser process below this one when that operation comes to the moment, once."""

    def __init__(self, at: tuple[int, str]) -> None:
        self._at = at
        self.operation = ""
        self.processes: list[int] = []
        self.begun: set[str] = set()

    def __call__(self, event: StepEvent) -> None:
        self.begun.add(event.operation)
        if (event.number, event.moment) == self._at and event.operation == self.operation:
            self.processes = _browsers(os.getpid())
            for process in self.processes:
                os.kill(process, signal.SIGKILL)


def _browsers(process: int) -> list[int]:
    """Descendants that are a browser's first process."""
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{child}/cmdline").read_bytes()
                if b"--user-data-dir" in line and b"--type=" not in line:
                    found.append(child)
                    continue
            found += _browsers(child)
    return found


async def test_killed_under_two_runs_both_records_are_true_and_a_third_run_works(desk: Desk) -> None:
    truth = desk.playground.truth
    desk.sign_in("second")
    killed = Killed((11, "released"))
    async with desk.executor(killed) as executor:
        first = await desk.approved(executor, title="First")
        second = await desk.approved(executor, title="Second", account="second")
        killed.operation = first.id
        ended = await asyncio.gather(executor.run(first.id, by=PERSON), executor.run(second.id, by=PERSON))

        assert len(killed.processes) == 1, "both ran on one process"
        assert killed.begun == {first.id, second.id}
        for one, title in zip(ended, ("First", "Second"), strict=True):
            _true_to(one, truth.publish_count(title))
        # What had left goes on without a browser: the gate has the answer.
        assert ended[0].operation.state.transmission is Transmission.ANSWERED
        assert truth.publish_count("First") == 1

        third = await desk.approved(executor, title="Third")
        assert (await executor.run(third.id, by=PERSON)).exit is Exit.SUCCEEDED
        assert truth.publish_count("Third") == 1
        (fresh,) = _browsers(os.getpid())
        assert fresh not in killed.processes
    assert _browsers(os.getpid()) == []


def _true_to(ended: Ended, published: int) -> None:
    """What the record claims, against what the site has."""
    state = ended.operation.state
    if state.dispatch is Dispatch.NOT_STARTED or state.transmission is Transmission.NONE_PROVEN:
        assert published == 0
    elif state.outcome is Outcome.SUCCEEDED:
        assert published == 1
    else:
        assert state.outcome is Outcome.UNKNOWN
        assert published <= 1


async def test_a_context_knows_nothing_of_the_one_before(desk: Desk) -> None:
    """Neither its cookies nor its storage, and not its cache: what one account was shown, no other is."""
    site = Site(desk.playground)

    def assets() -> int:
        return len(desk.playground.truth.requests(path_prefix="/assets/"))

    async with BrowserHost() as host:
        async with site.behind(host, Phase.PREPARE) as (_, session):
            await session.page.goto(f"{site.url}/heavy", wait_until="load")
            all_of_them = assets()
            assert all_of_them
            await session.page.goto(f"{site.url}/heavy", wait_until="load")
            assert assets() == all_of_them, "the cache works within a context"
            await session.page.evaluate("localStorage.setItem('seen', 'yes')")
            await session.context.add_cookies([{"name": "mark", "value": "1", "url": site.url}])
        async with site.behind(host, Phase.PREPARE) as (_, session):
            await session.page.goto(f"{site.url}/heavy", wait_until="load")
            assert assets() == 2 * all_of_them
            assert await session.page.evaluate("localStorage.getItem('seen')") is None
            assert "mark" not in {cookie["name"] for cookie in await session.cookies()}
