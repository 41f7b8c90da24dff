"""Reads a page of a browser that does not speak the DevTools protocol (Firefox, WebKit), by the driver's evaluation.

The same `in_page.js` reads, but in the page's own world: what it calls may be what the page has put in its place, so a
hostile page can show it something else than a person sees. The picture does not rest on that, but for where it is
masked. There is no accessibility tree; that is recorded as a gap. Frames of other sites are read like the page's own.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evidence.page_reader import MAXIMUM_FRAMES, FrameRead, PageReader, PageUnreadable, page_script
from evidence.records import GapReason
from evidence.redaction import Redactor

if TYPE_CHECKING:
    from playwright.async_api import ElementHandle, Frame, Page


class NotOffered(Exception):
    """This browser's protocol does not tell."""


@dataclass
class _PlainFrame(FrameRead):
    frame: Frame
    elements: list[ElementHandle]
    """The children's frame elements."""


class PlainReader(PageReader):
    """One page, read without a session of its own."""

    def __init__(self, page: Page, redactor: Redactor) -> None:
        super().__init__(None, redactor)
        self._page = page

    async def close(self) -> None:
        """There is nothing to leave."""

    async def notice_crash(self, end: Callable[[GapReason], None]) -> None:
        """An earlier crash shows in that nothing answers."""

    async def accessibility_trees(self, *, seconds: float) -> tuple[list[tuple[str, int, Any]], set[int]]:
        raise NotOffered("only Chromium tells its accessibility tree")

    async def picture(self) -> str:
        """The viewport as PNG in base64, the page as it stands: no caret hidden, no animation ended."""
        taken = await self._page.screenshot(type="png", caret="initial", animations="allow", scale="device")
        return base64.b64encode(taken).decode("ascii")

    async def _frames(self) -> FrameRead:
        left = [MAXIMUM_FRAMES]
        return await self._read_frame(self._page.main_frame, left)

    async def _read_frame(self, frame: Frame, left: list[int]) -> _PlainFrame:
        from playwright.async_api import Error

        read = _PlainFrame([], frame, [])
        for child in frame.child_frames:
            if left[0] <= 0:
                break  # the rest are treated as unreadable: masked
            left[0] -= 1
            try:
                element = await child.frame_element()
                below = await self._read_frame(child, left)
            except Error:
                continue  # it went away meanwhile: treated as unreadable
            read.children.append(below)
            read.elements.append(element)
        return read

    async def _call(
        self,
        frame: FrameRead,
        what: str,
        seconds: float,
        *,
        characters: int = 0,
        parts: Sequence[tuple[int, int, int]] = (),
        by_value: bool = True,
    ) -> dict[str, Any]:
        from playwright.async_api import Error

        assert isinstance(frame, _PlainFrame)
        assert by_value
        config = self._config(seconds, characters, parts)
        script = f"([what, config, ...frames]) => ({page_script()})(what, config, ...frames)"
        try:
            value = await frame.frame.evaluate(script, [what, config, *frame.elements])
        except Error as error:
            message = str(error).partition("\n")[0]
            if "interlock: out of time" in message:
                raise TimeoutError("the page is too large to be read in time") from error
            raise PageUnreadable(message) from error
        return {"value": value}
