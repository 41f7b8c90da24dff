"""What each phase of a flow may touch.

`ComposerPage` fills a composer: it has no `request`, no `route`, no new contexts. `ReadOnlyPage` looks: it has no way
to click, type or run script. These types keep honest authors on the path; the gate is what enforces it (C1, C7).
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal

from playwright.async_api import FrameLocator, Locator, Page, Response

from flows.files import FileBytes, PayloadFile

Role = Any
"""An ARIA role name, as Playwright types it."""


class ComposerPage:
    """A page in phase *prepare*. Everything on it goes through a gate at which the effect is closed."""

    def __init__(self, page: Page, origin: str, files: FileBytes | None = None) -> None:
        self._page = page
        self._files = files
        self.origin = origin

    @property
    def url(self) -> str:
        return self._page.url

    async def title(self) -> str:
        return await self._page.title()

    async def goto(self, address: str) -> int | None:
        """Open a path of the destination (or an absolute address); returns the status of the answer, if any."""
        return _status(await self._page.goto(_absolute(self.origin, address), wait_until="load"))

    def locator(self, selector: str) -> Locator:
        return self._page.locator(selector)

    def frame(self, selector: str) -> FrameLocator:
        """What is in the frame that the selector finds; frames in it by its own `frame_locator`."""
        return self._page.frame_locator(selector)

    async def popup(self, opening: Callable[[], Awaitable[object]]) -> ComposerPage:
        """Do what makes the page open another one (a click), and give back that one once it is loaded. Name the control
        there, and that page is the composer from then on. Raises the driver's TimeoutError when none opens."""
        async with self._page.expect_popup() as opened:
            await opening()
        page = await opened.value
        await page.wait_for_load_state("load")
        return ComposerPage(page, self.origin, self._files)

    async def opener(self) -> ComposerPage | None:
        """The page that opened this one; None where there is none any more."""
        page = await self._page.opener()
        return None if page is None else ComposerPage(page, self.origin, self._files)

    def by_role(self, role: Role, name: str | re.Pattern[str] | None = None, *, exact: bool = False) -> Locator:
        return self._page.get_by_role(role, name=name, exact=exact)

    def by_label(self, text: str, *, exact: bool = False) -> Locator:
        return self._page.get_by_label(text, exact=exact)

    def by_text(self, text: str | re.Pattern[str], *, exact: bool = False) -> Locator:
        return self._page.get_by_text(text, exact=exact)

    def by_placeholder(self, text: str) -> Locator:
        return self._page.get_by_placeholder(text)

    def by_test_id(self, name: str) -> Locator:
        return self._page.get_by_test_id(name)

    async def set_file(self, control: Locator, file: PayloadFile) -> None:
        """Choose a file of the payload in a file field: the approved bytes, under the approved name and type."""
        if self._files is None:
            raise ValueError("this page was given no files of a payload")
        content = await self._files(file)
        await control.set_input_files({"name": file.name, "mimeType": file.media_type, "buffer": content})

    async def file_in(self, control: Locator) -> dict[str, Any] | None:
        """What a file field holds, in the form of the material; None unless it holds exactly one file."""
        held = await control.evaluate(_FILE_IN)
        if held is None:
            return None
        content = base64.b64decode(held.pop("content"))
        return {"sha256": hashlib.sha256(content).hexdigest(), **held, "size": len(content)}

    async def type(self, text: str) -> None:
        """Type into whatever has the focus, key by key."""
        await self._page.keyboard.type(text)

    async def press(self, key: str) -> None:
        await self._page.keyboard.press(key)

    async def insert_text(self, text: str) -> None:
        await self._page.keyboard.insert_text(text)

    async def evaluate(self, expression: str, argument: object = None) -> Any:
        """Run an expression in the page. For reading editor state that has no accessible form."""
        return await self._page.evaluate(expression, argument)

    async def wait_for_url(self, pattern: str | re.Pattern[str]) -> None:
        await self._page.wait_for_url(pattern)

    async def wait_for(self, expression: str, argument: object = None, *, timeout_s: float | None = None) -> None:
        """Wait until the expression is true in the page."""
        await self._page.wait_for_function(
            expression, arg=argument, timeout=None if timeout_s is None else timeout_s * 1000
        )


_FILE_IN = """async (field) => {
  if (field.files.length !== 1) return null;
  const [file] = field.files;
  const url = await new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
  return { name: file.name, media_type: file.type, content: url.slice(url.indexOf(',') + 1) };
}"""


class ReadOnlyLocator:
    """Finds and reads elements; it cannot click, type, hover, focus or scroll (each runs page code)."""

    def __init__(self, locator: Locator) -> None:
        self._locator = locator

    def locator(self, selector: str) -> ReadOnlyLocator:
        return ReadOnlyLocator(self._locator.locator(selector))

    def by_role(self, role: Role, name: str | re.Pattern[str] | None = None) -> ReadOnlyLocator:
        return ReadOnlyLocator(self._locator.get_by_role(role, name=name))

    @property
    def first(self) -> ReadOnlyLocator:
        return ReadOnlyLocator(self._locator.first)

    async def all(self) -> Sequence[ReadOnlyLocator]:
        return [ReadOnlyLocator(found) for found in await self._locator.all()]

    async def count(self) -> int:
        return await self._locator.count()

    async def text(self) -> str:
        """The text of exactly one element, as laid out."""
        return await self._locator.inner_text()

    async def text_content(self) -> str:
        """The text of exactly one element, as written in the document."""
        return await self._locator.text_content() or ""

    async def texts(self) -> list[str]:
        return await self._locator.all_inner_texts()

    async def attribute(self, name: str) -> str | None:
        return await self._locator.get_attribute(name)

    async def value(self) -> str:
        return await self._locator.input_value()

    async def html(self) -> str:
        return await self._locator.inner_html()

    async def is_visible(self) -> bool:
        return await self._locator.is_visible()

    async def wait(
        self, state: Literal["attached", "visible", "hidden", "detached"] = "visible", *, timeout_s: float
    ) -> None:
        await self._locator.wait_for(state=state, timeout=timeout_s * 1000)


class ReadOnlyPage:
    """A page in phase *read-only*. Only the addresses that the view lists open; every write is refused."""

    def __init__(self, page: Page, origin: str) -> None:
        self._page = page
        self.origin = origin

    @property
    def url(self) -> str:
        return self._page.url

    async def title(self) -> str:
        return await self._page.title()

    async def open(self, address: str) -> int | None:
        """Open a path of the destination; returns the status of the answer. Raises what navigation raises."""
        return _status(await self._page.goto(_absolute(self.origin, address), wait_until="load"))

    def locator(self, selector: str) -> ReadOnlyLocator:
        return ReadOnlyLocator(self._page.locator(selector))

    def by_role(self, role: Role, name: str | re.Pattern[str] | None = None) -> ReadOnlyLocator:
        return ReadOnlyLocator(self._page.get_by_role(role, name=name))

    def by_test_id(self, name: str) -> ReadOnlyLocator:
        return ReadOnlyLocator(self._page.get_by_test_id(name))

    async def text(self) -> str:
        """The text of the whole body."""
        return await self._page.locator("body").inner_text()

    async def json(self) -> Any:
        """The document parsed as JSON, where a view opens an API address. Raises ValueError."""
        return json.loads(await self._page.locator("body").inner_text())


def _absolute(origin: str, address: str) -> str:
    return address if re.match(r"https?://", address) else origin + address


def _status(response: Response | None) -> int | None:
    return None if response is None else response.status
