"""What the flows of the playground have in common about what it shows: the payload in normal form, and the views.

Reads pages and never writes. Part of every playground flow by inheritance, so that an approval binds this code too.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any, ClassVar
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout
from pydantic import Field, field_validator

from flows.effect import Material
from flows.flow import Flow, Intent, Payload, view
from flows.observations import CouldNotLook, Found, Item, ItemState, NoLook, NotFound, Observation, Partial, Strength
from flows.pages import ReadOnlyPage

MOST_PAGES = 20
"""Pages of one listing that a view reads; beyond, it says that it looked at part."""
MOST_CANDIDATES = 8
"""Items of the wanted title that a view opens, newest first."""


class Announcement(Payload):
    """A notice for the board."""

    title: str = Field(min_length=1, max_length=200)
    body: str

    @field_validator("title")
    @classmethod
    def _one_line(cls, title: str) -> str:
        if not title.strip():
            raise ValueError("the title is blank")
        if _controls(title):
            raise ValueError("the title holds a line break or another control character, which its field would drop")
        return title

    @field_validator("body")
    @classmethod
    def _plain(cls, body: str) -> str:
        if _controls(body) - set("\t\n\r"):
            raise ValueError("the body holds a control character, which a page cannot show")
        return body


def _controls(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) == "Cc"}


def normal_form(title: str, body: str) -> dict[str, Any]:
    """The normal form: the site trims titles, and forms send line ends as CRLF where scripts send LF."""
    return {"title": title.strip(), "body": body.replace("\r\n", "\n").replace("\r", "\n")}


class Element:
    """One element of a page that was read as a whole, so that what is compared belongs together."""

    VOID = frozenset({"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "wbr"})

    def __init__(self, tag: str, attributes: Mapping[str, str]) -> None:
        self.tag = tag
        self.attributes = attributes
        self.parts: list[Element | str] = []

    def _walk(self) -> Iterator[Element | str]:
        """This element and what is in it, in document order."""
        waiting: list[Element | str] = [self]
        while waiting:
            part = waiting.pop()
            yield part
            if isinstance(part, Element):
                waiting.extend(reversed(part.parts))

    @property
    def text(self) -> str:
        return "".join(part for part in self._walk() if isinstance(part, str))

    def having(self, name: str, value: str | None = None, *, tag: str | None = None) -> list[Element]:
        """The elements with this attribute (and value, and tag), in document order."""
        return [
            part
            for part in self._walk()
            if isinstance(part, Element)
            and name in part.attributes
            and value in (None, part.attributes[name])
            and tag in (None, part.tag)
        ]

    def only(self, name: str, value: str | None = None, *, tag: str | None = None) -> Element | None:
        """The element with this attribute when there is exactly one."""
        found = self.having(name, value, tag=tag)
        return found[0] if len(found) == 1 else None

    def only_of(self, tag: str) -> Element | None:
        """The element of this tag when there is exactly one."""
        found = [part for part in self._walk() if isinstance(part, Element) and part.tag == tag]
        return found[0] if len(found) == 1 else None

    def only_text(self, tag: str) -> str | None:
        """The text of the one element of this tag, as written in the document."""
        found = self.only_of(tag)
        return found.text if found is not None else None


class _Builder(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("", {})
        self._open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = Element(tag, {name: value or "" for name, value in attrs})
        self._open[-1].parts.append(element)
        if tag not in Element.VOID:
            self._open.append(element)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._open[-1].parts.append(Element(tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        for depth in range(len(self._open) - 1, 0, -1):
            if self._open[depth].tag == tag:
                del self._open[depth:]
                return

    def handle_data(self, data: str) -> None:
        self._open[-1].parts.append(data)


def parse(html: str) -> Element:
    builder = _Builder()
    builder.feed(html)
    builder.close()
    return builder.root


@dataclass(frozen=True)
class Row:
    """One line of a listing."""

    id: str
    author: str
    state: ItemState
    title: str


@dataclass(frozen=True)
class Listing:
    """What was read of a listing, newest first. `gap` says why it is not the whole; empty when it is."""

    rows: tuple[Row, ...]
    scope: str
    gap: str


async def open_page(page: ReadOnlyPage, intent: Intent[Announcement], address: str) -> Element | CouldNotLook:
    """One page of the site, seen as the account; anything else is a reason why nothing could be seen (D4)."""
    try:
        status = await page.open(address)
        url = page.url
        body = parse(await page.locator("body").html())
    except PlaywrightTimeout as error:
        return CouldNotLook(reason=NoLook.TIMED_OUT, detail=f"{address}: {_first_line(error)}")
    except PlaywrightError as error:
        return CouldNotLook(reason=NoLook.NOT_LOADED, detail=f"{address}: {_first_line(error)}")
    if urlsplit(url).path == "/login":  # whoever answered there: the site sends only visitors to it
        return CouldNotLook(reason=NoLook.SIGNED_OUT, detail=f"{address} led to the sign-in page")
    if status is None or status >= 400:
        return CouldNotLook(reason=NoLook.ERROR_PAGE, detail=f"{address} was answered with {status or 'no status'}")
    if url != intent.origin + address or status != 200:
        return CouldNotLook(reason=NoLook.WRONG_PAGE, detail=f"{address} led to {url} ({status})")
    if not body.text.strip():
        return CouldNotLook(reason=NoLook.BLANK, detail=f"{address} is blank")
    if body.only("data-testid", "site") is None:
        return CouldNotLook(reason=NoLook.WRONG_PAGE, detail=f"{address} does not carry the site's name")
    if not (accounts := body.having("data-testid", "account")):
        return CouldNotLook(reason=NoLook.SIGNED_OUT, detail=f"{address} shows no account")
    if [account.text.strip() for account in accounts] != [intent.account]:
        shown = ", ".join(account.text.strip() for account in accounts)
        return CouldNotLook(reason=NoLook.WRONG_ACCOUNT, detail=f"{address} is shown to {shown}")
    return body


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def row_of(line: Element) -> Row | None:
    number, author, state = (line.attributes.get(f"data-{name}", "") for name in ("item-id", "author", "state"))
    link = line.only("href", f"/items/{number}", tag="a")
    if link is None or not re.fullmatch(r"\d{1,15}", number):
        return None
    return Row(number, author, _state(state), link.text)


def _state(shown: str) -> ItemState:
    known = (ItemState.PUBLISHED, ItemState.QUEUED, ItemState.DRAFT)
    return next((state for state in known if state.value == shown), ItemState.OTHER)


async def _read_list(page: ReadOnlyPage, intent: Intent[Announcement], path: str, scope: str) -> Listing | CouldNotLook:
    """The whole listing, page by page, as long as it says that there is a next one. It is whole when as many items
    were read as every page said there are."""
    rows: dict[str, Row] = {}
    totals: set[str] = set()
    pages = 0
    gap = ""
    for number in range(1, MOST_PAGES + 1):
        body = await open_page(page, intent, path if number == 1 else f"{path}?page={number}")
        if isinstance(body, CouldNotLook):
            if number == 1:
                return body
            gap = f"page {number} could not be read ({body.reason}: {body.detail})"
            break
        total = body.only("data-testid", "total")
        read = [row_of(line) for line in body.having("data-item-id", tag="li")]
        if total is None or None in read:
            if number == 1:
                return CouldNotLook(reason=NoLook.NOT_LOADED, detail=f"{path} is not the listing that is known")
            gap = f"page {number} is not the listing that is known"
            break
        pages = number
        totals.add(total.text.strip())
        rows |= {row.id: row for row in read if row is not None}
        following = {link.attributes.get("href") for link in body.having("rel", "next", tag="a")}
        if not following:
            break
        if following != {f"{path}?page={number + 1}"}:
            gap = f"page {number} names a next page that this view does not know"
            break
    else:
        gap = f"only the first {MOST_PAGES} pages are read"
    if not gap and totals != {str(len(rows))}:
        gap = f"the site states {' and '.join(sorted(totals))} in all, {len(rows)} were read"
    counted = f"{_count(len(rows), 'item')} on {_count(pages, 'page')}"
    return Listing(tuple(rows.values()), f"{scope}: {counted}", gap)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


async def _read_item(
    page: ReadOnlyPage,
    intent: Intent[Announcement],
    row: Row,
    wanted: Material,
    also_shown: Callable[[Element], Material],
) -> Item | CouldNotLook:
    """The item's own page, compared with the approved material. `also_shown` reads what a flow has beside the text."""
    address = f"/items/{row.id}"
    body = await open_page(page, intent, address)
    if isinstance(body, CouldNotLook):
        return body
    card = body.only("data-item-id", row.id)
    title, text = (card.only_text("h1"), card.only_text("article")) if card is not None else (None, None)
    ends = [link for link in body.having("href", "/", tag="a") if link.text.strip() == "← All notices"]
    if card is None or title is None or text is None or not ends:
        return CouldNotLook(reason=NoLook.NOT_LOADED, detail=f"{address} is not the whole page of an item")
    shown = {**normal_form(title, text), **also_shown(card)}
    author, state = card.attributes.get("data-author", ""), _state(card.attributes.get("data-state", ""))
    exact = author == intent.account and state in (ItemState.PUBLISHED, ItemState.QUEUED) and shown == wanted
    return Item(
        id=row.id,
        state=state,
        strength=Strength.EXACT_ITEM if exact else Strength.PARTIAL,
        title=title,
        url=intent.origin + address,
        account=author,
        material=shown,
    )


def _may_be(shown: str, title: str) -> bool:
    """Whether an item may be the wanted one by its title: a site that cuts titles leaves their beginning."""
    return shown == title or (shown.strip() != "" and title.startswith(shown.rstrip("… ")))


def conclude(items: list[Item], listing: Listing, gap: str, scope: str) -> Observation:
    # A draft of this very run would otherwise pass for an item that was there before.
    listed = tuple(row.id for row in listing.rows if row.state is not ItemState.DRAFT)
    if gap:
        return Partial(scope=scope, reason=gap, items=tuple(items), listed=listed)
    if items:
        return Found(items=tuple(items), listed=listed, scope=scope, complete=True)
    return NotFound(scope=scope, complete=True, listed=listed)


class Board(Flow[Announcement]):
    """The site as its pages show it to an account."""

    payload_model: ClassVar[type[Payload]] = Announcement

    def canonical_destination(self, destination: str) -> str:
        """The site's origin: it has one board. Raises ValueError for an address with a path."""
        canonical = super().canonical_destination(destination)
        if urlsplit(canonical).path:
            raise ValueError(f"destination {destination!r} has a path: the playground has one board, name its origin")
        return canonical

    def material(self, payload: Announcement) -> dict[str, Any]:
        return normal_form(payload.title, payload.body)

    def common_material(self, payload: Announcement) -> dict[str, Any]:
        return normal_form(payload.title, payload.body)

    def also_shown(self, card: Element) -> Material:
        """What an item's page shows of the material beside title and body."""
        return {}

    @view("mine", opens=(r"/mine(\?page=\d{1,6})?", r"/items/\d{1,15}"), lists=True)
    async def mine(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
        """The account's own list, whole, and the page of each item that is no draft and has the title, or a part that
        the site may have left of it."""
        listing = await _read_list(page, intent, "/mine", f"all items of {intent.account}")
        if isinstance(listing, CouldNotLook):
            return listing
        wanted = self.material(intent.payload)
        alike = [row for row in listing.rows if _may_be(row.title, str(wanted["title"]))]
        drafts = [row for row in alike if row.state is ItemState.DRAFT]
        # A draft is what composing leaves behind and says nothing about publishing: counted, and no finding.
        scope = listing.scope + (f", of which {_count(len(drafts), 'draft')} of that title" if drafts else "")
        candidates = [row for row in alike if row.state is not ItemState.DRAFT]
        gap, items = listing.gap, []
        if len(candidates) > MOST_CANDIDATES:
            gap = gap or f"{len(candidates)} items have that title, the newest {MOST_CANDIDATES} were opened"
        for row in candidates[:MOST_CANDIDATES]:
            item = await _read_item(page, intent, row, wanted, self.also_shown)
            if isinstance(item, CouldNotLook):
                gap = gap or f"item {row.id} could not be read ({item.reason}: {item.detail})"
            else:
                items.append(item)
        return conclude(items, listing, gap, scope)

    @view("public", opens=(r"/(\?page=\d{1,6})?",))
    async def public(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
        """The public list, whole. It shows titles and authors, so a finding here is weak."""
        listing = await _read_list(page, intent, "/", "all published notices")
        if isinstance(listing, CouldNotLook):
            return listing
        title = self.material(intent.payload)["title"]
        items = [
            Item(
                id=row.id,
                state=row.state,
                strength=Strength.TITLE_ONLY,
                title=row.title,
                url=f"{intent.origin}/items/{row.id}",
                account=row.author,
            )
            for row in listing.rows
            if row.title == title and row.author == intent.account
        ]
        return conclude(items, listing, listing.gap, listing.scope)
