"""A picture of the viewport as it is: nothing is scrolled, hidden, stopped or focused for it.

A full-page picture, a picture of one element, and Playwright's own preparations for them run page handlers that can
send a request; they are never used here. What must be masked (secret fields, regions, text that holds a secret) is
looked up before the picture and again after it, and both are painted over. A secret that only a style, a canvas or an
image shows is not found.
"""

from __future__ import annotations

import asyncio
import base64
from typing import TYPE_CHECKING

from evidence import picture, worker
from evidence.page_reader import Look, PageReader
from evidence.records import INTERLOCK_NOTE, Rect, Target
from evidence.redaction import Masked, Redacted, merged

if TYPE_CHECKING:
    from playwright.async_api import Page

MEDIA_TYPE = picture.MEDIA_TYPE


async def take(
    page: Page, reader: PageReader, before: Look, *, target: Target | None, answered_by_interlock: bool, seconds: float
) -> Redacted[bytes]:
    """The viewport as lossless WebP, masked and marked. Raises TimeoutError when the page draws nothing in time, and
    whatever a second look raises: a picture whose masks are not known is not kept."""
    png = await _viewport(page, reader, seconds)
    after = await reader.look(seconds=seconds)
    found = tuple(dict.fromkeys((*before.regions, *after.regions)))
    view = Rect(after.offset[0], after.offset[1], *after.viewport)
    seen = [(kind, box) for kind, box in found if box.clipped(view) is not None]
    done = await worker.run(
        picture.finish,
        png,
        after.viewport,
        after.offset,
        [box for _, box in seen],
        target,
        INTERLOCK_NOTE if answered_by_interlock else "",
    )
    return Redacted(done, merged(Masked(kind, "picture", 1) for kind, _ in seen))


async def _viewport(page: Page, reader: PageReader, seconds: float) -> str:
    from playwright.async_api import Error

    try:
        async with asyncio.timeout(seconds * 0.4):
            return await reader.picture()
    except (TimeoutError, Error):
        # The same picture by the other road. Its defaults would hide the caret by a style of their own: kept as it is.
        png = await page.screenshot(
            timeout=seconds * 400, caret="initial", animations="allow", full_page=False, type="png", scale="device"
        )
        return base64.b64encode(png).decode()
