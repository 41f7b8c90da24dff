"""Reads a page through the DevTools protocol without giving it a chance to act.

Everything is read by `in_page.js` in an isolated world of each document (the page's own code neither runs nor sees
it) or by the browser itself. This module may not focus, hover, scroll, resize, evaluate in the page's world, or
picture anything but the viewport: each of those was seen to run page code that can send a request.

Documents of other processes (frames of other sites) are not read; the elements that hold them are reported as regions
to mask.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import TYPE_CHECKING, Any

from evidence.records import GapReason, Rect
from evidence.redaction import EXACT_NAMES, PASSWORD_NAMES, SECRET_AUTOCOMPLETE, TOKEN_NAMES, Kind, Redactor, plain_name

if TYPE_CHECKING:
    from playwright.async_api import CDPSession, Page

MAXIMUM_FRAMES = 40
_MAXIMUM_SECRET_ELEMENTS = 500
_MINIMUM_VALUE = {Kind.PASSWORD: 4, Kind.TOKEN: 8, Kind.FIELD: 8}
"""A value found in a secret field is masked elsewhere too, from this length on; shorter ones would hit ordinary
words."""


class PageUnreadable(Exception):
    """The page script failed; the message is the page's or the browser's own and may hold anything."""


@dataclass(frozen=True)
class Look:
    """What one look over all readable documents told. Sizes in CSS pixels; regions are in the main viewport."""

    url: str
    title: str
    ready_state: str
    http_status: int | None
    text_length: int
    pictured: int
    elements: int
    visibility: str
    viewport: tuple[float, float]
    offset: tuple[float, float]
    scroll: tuple[float, float]
    device_scale: float
    regions: tuple[tuple[Kind, Rect], ...]


@dataclass(frozen=True)
class Document:
    """One serialised document; `children` are indexes into the same sequence, in the order of its frame marks."""

    html: str = field(repr=False)
    base: str
    masked: dict[str, int]
    children: tuple[int, ...]


class TooLarge(Exception):
    """More than the limit; the message says what and how much."""


@dataclass
class FrameRead:
    """A document that can be read, and those in it."""

    children: list[Any]


@dataclass
class _Frame(FrameRead):
    frame_id: str
    world: int
    owners: list[str]  # object ids of the children's frame elements, in this frame's world


@dataclass
class _Seen:
    frame: FrameRead
    value: dict[str, Any] = field(repr=False)
    outer: tuple[_Seen, list[float]] | None  # the document around it, and where in that it is and at what scale


def _in_main(seen: _Seen, box: Rect) -> Rect | None:
    """A box of a document in the main viewport, without what its frames clip away."""
    while seen.outer is not None:
        seen, (x, y, width, height, scale_x, scale_y) = seen.outer
        moved = Rect(x + box.x * scale_x, y + box.y * scale_y, box.width * scale_x, box.height * scale_y)
        clipped = moved.clipped(Rect(x, y, width, height))
        if clipped is None:
            return None
        box = clipped
    return box


class PageReader:
    """One DevTools session on a page. `open` and `close` it; every method may hang on a frozen page, so bound each
    one."""

    def __init__(self, session: CDPSession | None, redactor: Redactor) -> None:
        self._session = session
        self.redactor = redactor

    @classmethod
    async def open(cls, page: Page, redactor: Redactor) -> PageReader:
        """As the page's browser can be read."""
        from evidence.plain_reader import PlainReader

        browser = page.context.browser
        if browser is not None and browser.browser_type.name != "chromium":
            return PlainReader(page, redactor)
        return cls(await page.context.new_cdp_session(page), redactor)

    @property
    def session(self) -> CDPSession:
        assert self._session is not None
        return self._session

    async def close(self) -> None:
        await self.session.detach()

    async def notice_crash(self, end: Callable[[GapReason], None]) -> None:
        """A page that crashed earlier fires no event any more, but the inspector says so when it is switched on."""
        self.session.on("Inspector.targetCrashed", lambda _: end(GapReason.PAGE_CRASHED))
        await self.session.send("Inspector.enable")

    async def look(self, *, seconds: float) -> Look:
        """Look at every readable document; `redactor` then also knows the secret values that were found."""
        seen = await self._look_at(await self._frames(), None, seconds)
        self.redactor = self.redactor.with_secrets(
            text
            for one in seen
            for kind, text in one.value["values"]
            if len(text) >= _MINIMUM_VALUE.get(Kind(kind), 1 << 30)
        )
        regions: list[tuple[Kind, Rect]] = []
        for one in seen:
            found = [(Kind(kind), Rect(*box)) for kind, *box in one.value["regions"]]
            found += await self._secret_texts(one, seconds)
            regions += [(kind, box) for kind, inner in found if (box := _in_main(one, inner)) is not None]
        main = seen[0].value
        return Look(
            url=main["url"],
            title=main["title"],
            ready_state=main["ready_state"],
            http_status=main["http_status"],
            text_length=sum(one.value["text_length"] for one in seen),
            elements=sum(one.value["elements"] for one in seen),
            pictured=sum(one.value["pictured"] for one in seen),
            visibility=main["visibility"],
            viewport=(main["viewport"][0], main["viewport"][1]),
            offset=(main["offset"][0], main["offset"][1]),
            scroll=(main["scroll"][0], main["scroll"][1]),
            device_scale=main["device_scale"],
            regions=tuple(regions),
        )

    async def documents(self, *, seconds: float, characters: int) -> tuple[Document, ...]:
        """The documents as HTML, the main one first. Raises `TooLarge`."""
        done: list[Document] = []
        await self._serialise(await self._frames(), seconds, characters, done)
        return tuple(done)

    async def accessibility_trees(self, *, seconds: float) -> tuple[list[tuple[str, int, Any]], set[int]]:
        """Per document (frame id, backend node id of its frame element or 0, its accessibility nodes), and the
        backend node ids of everything that must not be shown."""
        trees: list[tuple[str, int, Any]] = []
        hidden: set[int] = set()
        waiting = [(await self._document_tree(), 0)]
        while waiting:
            frame, owner = waiting.pop(0)
            hidden |= await self._secret_nodes(frame, seconds)
            answer = await self.session.send("Accessibility.getFullAXTree", {"frameId": frame.frame_id})
            trees.append((frame.frame_id, owner, answer["nodes"]))
            for child, element in zip(frame.children, frame.owners, strict=True):
                described = await self.session.send("DOM.describeNode", {"objectId": element})
                waiting.append((child, described["node"]["backendNodeId"]))
        return trees, hidden

    async def picture(self) -> str:
        """The viewport as PNG in base64."""
        answer = await self.session.send(
            "Page.captureScreenshot", {"format": "png", "optimizeForSpeed": True, "fromSurface": True}
        )
        return str(answer["data"])

    async def _frames(self) -> FrameRead:
        return await self._document_tree()

    async def _document_tree(self) -> _Frame:
        tree = (await self.session.send("Page.getFrameTree"))["frameTree"]
        left = [MAXIMUM_FRAMES]
        main = await self._frame(tree)
        await self._add_children(main, tree, left)
        return main

    async def _frame(self, tree: Any) -> _Frame:
        frame_id = tree["frame"]["id"]
        world = await self.session.send("Page.createIsolatedWorld", {"frameId": frame_id, "worldName": "interlock"})
        return _Frame([], frame_id, world["executionContextId"], [])

    async def _add_children(self, frame: _Frame, tree: Any, left: list[int]) -> None:
        from playwright.async_api import Error

        for child_tree in tree.get("childFrames", ()):
            if left[0] <= 0:
                return  # the rest are treated as unreadable: masked
            left[0] -= 1
            try:
                child = await self._frame(child_tree)
                owner = await self.session.send("DOM.getFrameOwner", {"frameId": child.frame_id})
                element = await self.session.send(
                    "DOM.resolveNode",
                    {"backendNodeId": owner["backendNodeId"], "executionContextId": frame.world},
                )
            except Error:
                continue  # it went away or moved to another process meanwhile: treated as unreadable
            frame.children.append(child)
            frame.owners.append(element["object"]["objectId"])
            await self._add_children(child, child_tree, left)

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
        assert isinstance(frame, _Frame)
        config = self._config(seconds, characters, parts)
        answer = await self.session.send(
            "Runtime.callFunctionOn",
            {
                "functionDeclaration": page_script(),
                "executionContextId": frame.world,
                "arguments": [{"value": what}, {"value": config}] + [{"objectId": element} for element in frame.owners],
                "returnByValue": by_value,
                "silent": True,
            },
        )
        if "exceptionDetails" in answer:
            thrown = answer["exceptionDetails"].get("exception", {}).get("description", "")
            message = thrown.partition("\n")[0]
            if "interlock: out of time" in message:
                raise TimeoutError("the page is too large to be read in time")
            raise PageUnreadable(message)
        result: dict[str, Any] = answer["result"]
        return result

    def _config(self, seconds: float, characters: int, parts: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
        """For the script in the page."""
        config = {
            "fields": [plain_name(name) for name in self.redactor.field_names],
            "password_names": PASSWORD_NAMES,
            "token_names": TOKEN_NAMES,
            "exact_names": EXACT_NAMES,
            "autocomplete": SECRET_AUTOCOMPLETE,
            "selectors": self.redactor.selectors,
            "milliseconds": seconds * 1000,
            "characters": characters,
            "parts": parts,
        }
        config_of_plain_values: dict[str, Any] = json.loads(json.dumps(config))
        return config_of_plain_values

    async def _look_at(self, frame: FrameRead, outer: tuple[_Seen, list[float]] | None, seconds: float) -> list[_Seen]:
        """The document and all below it, itself first."""
        seen = [_Seen(frame, (await self._call(frame, "look", seconds))["value"], outer)]
        for child, owner in zip(frame.children, seen[0].value["owners"], strict=True):
            if owner is not None:  # else its element is not in the document any more, so not in the picture
                seen += await self._look_at(child, (seen[0], owner), seconds)
        return seen

    async def _secret_texts(self, seen: _Seen, seconds: float) -> list[tuple[Kind, Rect]]:
        """Where the document shows, as ordinary text, something that would be masked in text."""
        parts: list[tuple[int, int, int]] = []
        kinds: list[Kind] = []
        for number, text in enumerate(seen.value["texts"]):
            if (span := self.redactor.span(text)) is not None:
                parts.append((number, span[1], span[2]))
                kinds.append(span[0])
        if not parts:
            return []
        boxes = (await self._call(seen.frame, "text_boxes", seconds, parts=parts))["value"]
        return [(kind, Rect(*box)) for kind, found in zip(kinds, boxes, strict=True) for box in found]

    async def _serialise(self, frame: FrameRead, seconds: float, characters: int, done: list[Document]) -> int:
        """Append the frame and what is in it to `done`; gives the index of the frame."""
        left = characters - sum(len(document.html) for document in done)
        value = (await self._call(frame, "serialise", seconds, characters=max(left, 0)))["value"]
        if value["truncated"]:
            raise TooLarge(f"the page is longer than {characters} characters of HTML")
        index = len(done)
        done.append(Document(value["html"], value["base"], value["masked"], ()))
        children = [await self._serialise(child, seconds, characters, done) for child in frame.children]
        done[index] = Document(value["html"], value["base"], value["masked"], tuple(children))
        return index

    async def _secret_nodes(self, frame: _Frame, seconds: float) -> set[int]:
        result = await self._call(frame, "secret_elements", seconds, by_value=False)
        listed = await self.session.send(
            "Runtime.getProperties", {"objectId": result["objectId"], "ownProperties": True}
        )
        elements = [entry["value"]["objectId"] for entry in listed["result"] if entry["name"].isdigit()]
        if len(elements) > _MAXIMUM_SECRET_ELEMENTS:
            raise TooLarge(f"the page has {len(elements)} elements to mask, more than {_MAXIMUM_SECRET_ELEMENTS}")
        described = await asyncio.gather(
            *(
                self.session.send("DOM.describeNode", {"objectId": element, "depth": -1, "pierce": True})
                for element in elements
            )
        )
        found: set[int] = set()
        waiting = [answer["node"] for answer in described]
        while waiting:
            node = waiting.pop()
            found.add(node["backendNodeId"])
            for part in ("children", "shadowRoots", "pseudoElements"):
                waiting.extend(node.get(part, ()))
            if "contentDocument" in node:
                waiting.append(node["contentDocument"])
        return found


def secret_texts(trees: Sequence[tuple[str, int, Any]], hidden: set[int]) -> frozenset[str]:
    """Texts of nodes that must not be shown: other nodes may carry them as their accessible name."""
    return frozenset(
        name
        for _, _, nodes in trees
        for node in nodes
        if node.get("backendDOMNodeId") in hidden
        and len(name := str(node.get("name", {}).get("value") or "").strip()) >= _MINIMUM_VALUE[Kind.FIELD]
    )


def page_script() -> str:
    global _script_text
    if not _script_text:
        _script_text = resources.files("evidence").joinpath("in_page.js").read_text(encoding="utf-8")
    return _script_text


_script_text = ""
