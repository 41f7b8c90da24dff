"""One browser process for all the runs of a program: started for the first, kept, renewed, and replaced when it dies.

A run holds its browser by `use`. What happens to a run whose browser dies under it is the run's own business (before
the claim it halts, after it the gate and the contract decide); the pool only sees to it that the next run gets a
browser that works. It never gives a run another browser than the one it began with.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from executor.browser.sessions import BrowserHost
from executor.errors import NotReady

_log = logging.getLogger(__name__)

_LOSSES_COUNT_S = 600.0
"""For how long the loss of a browser counts. One that dies of what a site does to it, dies with each run on it."""


@dataclass(frozen=True, kw_only=True)
class Wear:
    """When a browser is worn, and when losing it is no accident any more. Starting points."""

    contexts: int = 200
    """Each leaves something behind in the browser's process; after so many it is replaced."""
    seconds: float = 6 * 3600.0
    """Memory grows in use, and a long-lived process misses the updates of its program."""
    losses: int = 3
    """So many browsers lost within ten minutes, and no other is started until one of them is that long ago."""


@dataclass
class _Kept:
    host: BrowserHost
    since: float = field(default_factory=time.monotonic)
    users: int = 0

    @property
    def is_lost(self) -> bool:
        return self.host.lost.is_set()

    @property
    def failed(self) -> bool:
        return self.is_lost or self.host.unwell

    def is_worn(self, wear: Wear) -> bool:
        return self.host.opened >= wear.contexts or time.monotonic() - self.since >= wear.seconds


class BrowserPool:
    """Browsers of one program, one at a time for shown and one for hidden windows. For one event loop.

    `make` gives a host that is not started, for a shown (True) or a hidden window.
    """

    def __init__(self, make: Callable[[bool], BrowserHost], wear: Wear | None = None) -> None:
        self._make = make
        self._wear = wear or Wear()
        self._current: dict[bool, _Kept] = {}
        self._retired: set[asyncio.Task[None]] = set()
        self._taking = asyncio.Lock()
        self._losses: deque[float] = deque(maxlen=max(1, self._wear.losses))
        self._closed = False

    @asynccontextmanager
    async def use(self, *, headed: bool = False) -> AsyncIterator[BrowserHost]:
        """The browser, started when there is none that works. Several may use it at once, each with contexts of its
        own. Raises `BrowserMissing` and `NotReady`: for a browser that does not start, and for one that was lost again
        and again."""
        kept = await self._take(headed)
        try:
            yield kept.host
        finally:
            kept.users -= 1
            if kept.users == 0 and self._current.get(headed) is not kept:
                await self._end(kept)

    async def close(self) -> None:
        """End every browser. Whoever still uses one has lost it."""
        self._closed = True
        async with self._taking:
            for kept in self._current.values():
                self._retire(kept)
            self._current.clear()
        while self._retired:
            await asyncio.gather(*self._retired)

    async def _take(self, headed: bool) -> _Kept:
        async with self._taking:
            if self._closed:
                raise NotReady("The program is ending; no run is started any more. Run it again.")
            kept = self._current.get(headed)
            if kept is not None and (kept.failed or kept.is_worn(self._wear)):
                if kept.failed:
                    self._losses.append(time.monotonic())
                    _log.warning("the browser was lost or does not answer; another one is started")
                del self._current[headed]
                # The others go with their last user; in a lost one no context is open any more.
                if kept.users == 0 or kept.is_lost:
                    self._retire(kept)
                kept = None
            if kept is None:
                self._not_again_and_again()
                host = self._make(headed)
                await host.start()
                kept = self._current[headed] = _Kept(host)
            kept.users += 1
            return kept

    def _not_again_and_again(self) -> None:
        if len(self._losses) < self._wear.losses:
            return
        wait_s = self._losses[0] + _LOSSES_COUNT_S - time.monotonic()
        if wait_s > 0:
            raise NotReady(
                f"The browser was lost {len(self._losses)} times within {_LOSSES_COUNT_S / 60:.0f} minutes; the next "
                f"is not started for another {wait_s / 60:.0f} minutes. Usual reasons are too little memory "
                "and a small /dev/shm; `interlock doctor` shows whether one starts at all."
            )

    def _retire(self, kept: _Kept) -> None:
        """Beside the run that waits for its browser: ending one that does not answer takes seconds."""
        task = asyncio.ensure_future(self._end(kept))
        self._retired.add(task)
        task.add_done_callback(self._retired.discard)

    async def _end(self, kept: _Kept) -> None:
        await kept.host.close()
