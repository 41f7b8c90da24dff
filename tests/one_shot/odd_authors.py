"""Flows whose code ends more than itself, does not let go, or gives back what no look can be. See `odd_flows`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import ClassVar

from flows.flow import Intent, Submit, view
from flows.observations import NotFound, Observation
from flows.pages import ComposerPage, ReadOnlyPage
from flows.playground import Announcement, PlaygroundForm

AUTHORS = f"{Path(__file__)}:"


class CancelsInPrepare(PlaygroundForm):
    name = "odd-cancels-in-prepare"

    async def _choose(self, page: ComposerPage) -> Submit:
        raise asyncio.CancelledError


class ExitsInPrepare(PlaygroundForm):
    name = "odd-exits-in-prepare"

    async def _choose(self, page: ComposerPage) -> Submit:
        raise SystemExit(3)


class HoldsOnInPrepare(PlaygroundForm):
    """A loop that takes its own cancelling for one more failure to go on after."""

    name = "odd-holds-on-in-prepare"
    let_go: ClassVar[asyncio.Event]

    async def _choose(self, page: ComposerPage) -> Submit:
        type(self).let_go = asyncio.Event()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        raise RuntimeError("let go")


class _LooksTwice(PlaygroundForm):
    """Finds nothing before the claim; what it does afterwards is the subclass's."""

    @view("mine", opens=(r"/mine(\?.*)?",), lists=True)
    async def mine(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
        await page.open("/mine")
        if type(self).looked:
            return await self._again()
        type(self).looked = True
        return NotFound(scope="all items", complete=True)

    looked: ClassVar[bool] = False

    async def _again(self) -> Observation:
        raise NotImplementedError


class CancelsInView(_LooksTwice):
    name = "odd-cancels-in-view"
    looked = False

    async def _again(self) -> Observation:
        raise asyncio.CancelledError


class ExitsInView(_LooksTwice):
    name = "odd-exits-in-view"
    looked = False

    async def _again(self) -> Observation:
        raise SystemExit(3)


class GivesNothingBack(_LooksTwice):
    name = "odd-gives-nothing-back"
    looked = False

    async def _again(self) -> Observation:
        return None  # type: ignore[return-value]  # the mistake


class GivesNothingBackAtOnce(GivesNothingBack):
    name = "odd-gives-nothing-back-at-once"
    looked = True


class FindsNothingOnAnErrorPage(PlaygroundForm):
    """Takes a page that is not there for a list on which nothing is."""

    name = "odd-finds-nothing-on-an-error-page"

    @view("mine", opens=(r"/mine-of-old",), lists=True)
    async def mine(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
        await page.open("/mine-of-old")
        return NotFound(scope="all items", complete=True)
