"""Passing an answer on to the browser: re-framed, in pieces as large as they come, and cut where it was cut.

A cut answer is never finished politely: the browser must see that it is not whole. Decides nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

from executor.gate.browser_leg import BrowserGone, BrowserLeg
from executor.gate.limits import Limits
from executor.gate.stream import StreamLost
from executor.gate.upstream import AnswerHead, Answering, UpstreamLost
from flows.wire import Answer


class RelayedAnswer:
    """One answer on its way. `kept` is the answer for our own reading, when asked for and not larger than that."""

    def __init__(
        self, browser: BrowserLeg, upstream: Answering, limits: Limits, *, follow: bool, keep_bytes: int
    ) -> None:
        self._browser = browser
        self._upstream = upstream
        self._limits = limits
        self._follow = follow
        self._keep_bytes = keep_bytes
        self._held = bytearray()
        self.was_cut: Callable[[], bool] = bool
        """Whether the gate itself ended the answer; an end of the connection is then no end of the answer."""
        self.status: int | None = None
        self.content_type = ""
        self.complete = False
        self.kept: Answer | None = None

    async def run(self) -> None:
        """Raises `UpstreamLost` when no usable head came, so that the gate may still answer itself; `BrowserGone`
        when the browser went and nobody else needs the answer."""
        try:
            async with asyncio.timeout(self._limits.upstream_head_s):
                head = await self._upstream.head()
        except TimeoutError as error:
            raise UpstreamLost("no answer in time", no_byte=False) from error
        if head.status == 407:
            raise UpstreamLost("the site answered as if it were a proxy (407)", no_byte=False)
        self.status = head.status
        self.content_type = head.header(b"content-type").decode("latin-1").partition(";")[0].strip().lower()
        try:
            await self._relay_body(head)
        except UpstreamLost:
            # Part of the answer is with the browser: only an end that is none tells it the truth.
            self._browser.cut()
            return
        self.complete = True
        if self._keep_bytes and len(self._held) <= self._keep_bytes:
            headers = tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in head.headers)
            self.kept = Answer(head.status, headers, bytes(self._held), head.sound)

    async def _relay_body(self, head: AnswerHead) -> None:
        self._browser.begin(head)
        begun = False
        stall_s = None if self.content_type == "text/event-stream" else self._limits.upstream_stall_s
        while True:
            data, ended = self._upstream.ready()
            if self.was_cut():
                raise UpstreamLost("the answer was cut: the phase changed", no_byte=False)
            if self._keep_bytes and len(self._held) <= self._keep_bytes:
                self._held += data
            if data or ended or not begun:
                begun = True
                await self._give(data, ended=ended)
            if ended:
                return
            try:
                async with asyncio.timeout(stall_s):
                    await self._upstream.more()
            except TimeoutError as error:
                raise UpstreamLost("the answer stalled", no_byte=False) from error

    async def _give(self, data: bytes, *, ended: bool) -> None:
        try:
            self._browser.give(data, ended=ended)
            await self._browser.drain()
        except StreamLost as error:
            if not self._follow:
                raise BrowserGone(str(error)) from error


def relay_whole(browser: BrowserLeg, answer: Answer, method: str) -> None:
    """Give the browser an answer that was read whole, as it came. One that is not complete ends as a cut one does."""
    bodiless = method == "HEAD" or answer.status in (204, 304)
    headers = tuple((name.encode("latin-1"), value.encode("latin-1")) for name, value in answer.headers)
    try:
        phrase = HTTPStatus(answer.status).phrase.encode("ascii")
    except ValueError:
        phrase = b""
    length = len(answer.body) if answer.complete and not bodiless else None
    browser.begin(AnswerHead(answer.status, phrase, headers, length, bodiless, answer.complete))
    browser.give(b"" if bodiless else answer.body, ended=answer.complete)
    if not answer.complete:
        browser.cut()
