"""What a WordPress post is: the payload in normal form, its block markup, and the view of the account's own list.

Reads pages and never writes. Part of the flow by inheritance, so that an approval binds this code too.
"""

from __future__ import annotations

import html
import json
import re
import unicodedata
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout
from pydantic import Field, field_validator

from flows.effect import Material
from flows.flow import Flow, Intent, Payload, view
from flows.observations import CouldNotLook, Found, Item, ItemState, NoLook, NotFound, Observation, Partial, Strength
from flows.pages import ReadOnlyPage

MOST_PAGES = 10
"""Pages of the list that the view reads (20 posts each, unless the account chose otherwise); newest first."""
MOST_CANDIDATES = 5
"""Posts of the wanted title that the view reads in full, newest first."""


class Post(Payload):
    """A post of plain paragraphs: blank lines between paragraphs, single line breaks inside one."""

    title: str = Field(min_length=1, max_length=400)
    body: str = Field(min_length=1)

    @field_validator("title")
    @classmethod
    def _plain_title(cls, title: str) -> str:
        if not title.strip():
            raise ValueError("the title is blank")
        if _controls(title):
            raise ValueError("the title holds a line break or another control character")
        # WordPress keeps titles as HTML: these would be read as markup and not as what was approved.
        if re.search(r"<[A-Za-z/!?]", title) or html.unescape(title) != title:
            raise ValueError("the title holds something that WordPress reads as HTML (a tag or an entity)")
        return title

    @field_validator("body")
    @classmethod
    def _plain_body(cls, body: str) -> str:
        if not paragraphs(body):
            raise ValueError("the body is blank")
        if _controls(body) - {"\n", "\r"}:
            raise ValueError("the body holds a tab or another control character, which a paragraph does not keep")
        return body


def _controls(text: str) -> set[str]:
    return {character for character in text if unicodedata.category(character) == "Cc"}


def paragraphs(body: str) -> list[str]:
    """The paragraphs of a body: lines without the spaces around them, empty paragraphs left out."""
    lines = [line.strip() for line in re.split(r"\r\n?|\n", body)]
    return [part for part in (one.strip("\n") for one in re.split(r"\n{2,}", "\n".join(lines))) if part]


def normal_form(title: str, body: str) -> dict[str, Any]:
    return {"title": title.strip(), "body": "\n\n".join(paragraphs(body))}


def block_markup(body: str) -> str:
    """The body as the block editor writes it: one paragraph block for each paragraph."""
    blocks = []
    for paragraph in paragraphs(body):
        text = "<br>".join(html.escape(line, quote=False).replace("&gt;", ">") for line in paragraph.split("\n"))
        blocks.append(f"<!-- wp:paragraph -->\n<p>{text}</p>\n<!-- /wp:paragraph -->")
    return "\n\n".join(blocks)


_PARAGRAPH = r"<!-- wp:paragraph -->\n<p>((?:[^<]|<br ?/?>)+)</p>\n<!-- /wp:paragraph -->"
_PARAGRAPHS = re.compile(rf"{_PARAGRAPH}(?:\n\n{_PARAGRAPH})*")


def body_of(markup: str) -> str | None:
    """The normal form of a body, read from block markup; None when anything in it is not a plain paragraph (another
    block, an attribute, a link, bold text, an empty paragraph), which is never equal to what was approved."""
    if _PARAGRAPHS.fullmatch(markup.strip()) is None:
        return None
    found = [re.sub(r"<br ?/?>", "\n", inner) for inner in re.findall(_PARAGRAPH, markup)]
    read = [html.unescape(text) for text in found]
    body = "\n\n".join(read)
    return body if paragraphs(body) == read else None


def material_of(fields: Material) -> Material:
    """Title and body of a post, as far as the fields have them: what the editor calls `title` and `content`."""
    shown: dict[str, Any] = {}
    if isinstance(title := fields.get("title"), str):
        shown["title"] = html.unescape(title).strip()
    if isinstance(content := fields.get("content"), str):
        shown["body"] = body_of(content)
    return shown


@dataclass(frozen=True)
class _Row:
    """One line of the list: the post's number and its raw title."""

    id: str
    title: str


@dataclass
class _Reading:
    """What was read of the list so far. `gap` says why it is not the whole; empty while nothing is missing."""

    rows: dict[str, _Row] = field(default_factory=dict)
    pages: int = 0
    total: int | None = None
    gap: str = ""


class _NoLook(Exception):
    """The view cannot go on; carries the observation that it ends with."""

    def __init__(self, reason: NoLook, detail: str) -> None:
        super().__init__(detail)
        self.observation = CouldNotLook(reason=reason, detail=detail)


_FOLDER = r"(?:/[^/?]+)*"
_REST = rf"{_FOLDER}/index\.php\?rest_route=/wp/v2"
_NONCE = "&_wpnonce=[0-9a-f]{10}"
_NUMBER = r"\d{1,15}"
_LIST = "post_type=post&post_status=publish&author={author}&orderby=ID&order=desc"
"""By number: by date, posts of one second may swap places between two pages, and one is then never seen."""
_STATES = {
    "publish": ItemState.PUBLISHED,
    "future": ItemState.SCHEDULED,
    "pending": ItemState.QUEUED,
    "draft": ItemState.DRAFT,
    "private": ItemState.PRIVATE,
}


class Posts(Flow[Post]):
    """The posts of a WordPress site as they are shown to the account that wrote them."""

    payload_model = Post

    def canonical_destination(self, destination: str) -> str:
        """The address of the site, as WordPress has it under Settings: the folder it lives in, without /wp-admin."""
        canonical = super().canonical_destination(destination)
        return re.sub(r"(/wp-admin(/.*)?|/wp-login\.php|/index\.php)$", "", canonical)

    def material(self, payload: Post) -> dict[str, Any]:
        return normal_form(payload.title, payload.body)

    @view(
        "published-list",
        opens=(
            rf"{_FOLDER}/wp-admin/admin-ajax\.php\?action=rest-nonce",
            rf"{_REST}/users/me&context=edit&_fields=id,username{_NONCE}",
            rf"{_FOLDER}/wp-admin/edit\.php\?{_LIST.format(author=_NUMBER)}&paged=\d{{1,4}}",
            rf"{_REST}/posts/{_NUMBER}&context=edit&_fields=[a-z.,]+{_NONCE}",
        ),
        lists=True,
    )
    async def published_list(self, page: ReadOnlyPage, intent: Intent[Post]) -> Observation:
        """The account's own list of published posts, and in full each post in it that has the title.

        The posts are read as WordPress keeps them (REST, context *edit*), since the public page shows them rewritten
        by typography and plugins. Such a read needs a nonce, which a signed-in visitor gets by GET.
        """
        try:
            nonce = await self._nonce(page, intent)
            author = await self._author(page, intent, nonce)
            reading = await self._list(page, intent, author)
            wanted = self.material(intent.payload)
            alike = [row for row in reading.rows.values() if row.title == wanted["title"]]
            if len(alike) > MOST_CANDIDATES:
                reading.gap = reading.gap or f"of {len(alike)} posts of that title {MOST_CANDIDATES} were read"
            items = [await self._item(page, intent, row, author, nonce) for row in alike[:MOST_CANDIDATES]]
        except _NoLook as stop:
            return stop.observation
        except PlaywrightTimeout as error:
            return CouldNotLook(reason=NoLook.TIMED_OUT, detail=_first_line(error))
        except PlaywrightError as error:
            return CouldNotLook(reason=NoLook.NOT_LOADED, detail=_first_line(error))
        listed = tuple(reading.rows)
        scope = f"published posts of {intent.account}: {len(listed)} posts on {reading.pages} page(s)"
        if reading.gap:
            return Partial(scope=scope, reason=reading.gap, items=tuple(items), listed=listed)
        if items:
            return Found(items=tuple(items), listed=listed, scope=scope, complete=True)
        return NotFound(scope=scope, complete=True, listed=listed)

    async def _nonce(self, page: ReadOnlyPage, intent: Intent[Post]) -> str:
        address = f"{intent.destination}/wp-admin/admin-ajax.php?action=rest-nonce"
        status = await page.open(address)
        text = (await page.text()).strip()
        if re.fullmatch(r"[0-9a-f]{10}", text) and status == 200:
            return text
        if status == 400 and text == "0":  # how WordPress answers this question to a visitor
            raise _NoLook(NoLook.SIGNED_OUT, "WordPress does not know the session")
        raise _NoLook(NoLook.ERROR_PAGE, f"the question for a nonce was answered with {status or 'no status'}")

    async def _author(self, page: ReadOnlyPage, intent: Intent[Post], nonce: str) -> int:
        fields = await self._rest(page, intent, f"/users/me&context=edit&_fields=id,username&_wpnonce={nonce}")
        number = fields.get("id")
        if fields.get("username") != intent.account:
            raise _NoLook(NoLook.WRONG_ACCOUNT, f"the session is that of {fields.get('username')!r}")
        if type(number) is not int:
            raise _NoLook(NoLook.WRONG_PAGE, "the account has no number")
        return number

    async def _rest(self, page: ReadOnlyPage, intent: Intent[Post], route: str) -> dict[str, Any]:
        shown = route.partition("&")[0]
        status = await page.open(f"{intent.destination}/index.php?rest_route=/wp/v2{route}")
        try:
            fields = await page.json()
        except json.JSONDecodeError as error:
            raise _NoLook(NoLook.ERROR_PAGE, f"{shown} was answered with {status}, and not with JSON") from error
        if status != 200 or not isinstance(fields, dict):
            code = fields.get("code") if isinstance(fields, dict) else None
            reason = NoLook.SIGNED_OUT if status == 401 else NoLook.ERROR_PAGE
            raise _NoLook(reason, f"{shown} was answered with {status} ({code})")
        return fields

    async def _list(self, page: ReadOnlyPage, intent: Intent[Post], author: int) -> _Reading:
        """The list, page by page, until as many posts were read as every page says there are."""
        reading = _Reading()
        list_address = f"{intent.destination}/wp-admin/edit.php?{_LIST.format(author=author)}"
        for number in range(1, MOST_PAGES + 1):
            try:
                total, rows = await self._list_page(page, f"{list_address}&paged={number}", intent, author)
            except _NoLook as stop:
                if number == 1:
                    raise
                reading.gap = f"page {number} could not be read ({stop.observation.detail})"
                return reading
            fresh = [row for row in rows if row.id not in reading.rows]
            reading.rows |= {row.id: row for row in fresh}
            reading.pages = number
            if reading.total not in (None, total):
                reading.gap = "the list changed while it was read"
                return reading
            reading.total = total
            if len(reading.rows) == total:
                return reading
            if len(reading.rows) > total or not fresh:
                reading.gap = f"WordPress states {total} posts, {len(reading.rows)} were read"
                return reading
        reading.gap = f"only the first {MOST_PAGES} pages are read, with {len(reading.rows)} of {reading.total} posts"
        return reading

    async def _list_page(
        self, page: ReadOnlyPage, address: str, intent: Intent[Post], author: int
    ) -> tuple[int, list[_Row]]:
        status = await page.open(address)
        if urlsplit(page.url).path.endswith("/wp-login.php"):
            raise _NoLook(NoLook.SIGNED_OUT, "the list led to the sign-in page")
        if status != 200 or page.url != address:
            raise _NoLook(NoLook.ERROR_PAGE, f"the list was answered with {status or 'no status'}")
        # The sign-in name; where the bar has none, the name that it shows is the same. Newer ones show a link after it.
        bar = page.locator("#wp-admin-bar-user-info")
        names = [*await bar.locator(".username").all(), *await bar.locator(".display-name").all()]
        shown = (await names[0].text_content()).strip() if names else None
        if shown != intent.account:
            raise _NoLook(NoLook.WRONG_ACCOUNT, f"the list is shown to {shown or 'nobody'}")
        totals = {"".join(filter(str.isdecimal, text)) for text in await page.locator(".displaying-num").texts()}
        if len(totals) != 1 or not (total := totals.pop()) or await page.locator("#wpfooter").count() != 1:
            raise _NoLook(NoLook.NOT_LOADED, "the list is not the one that is known")
        # One reading of the whole table: what is compared belongs together, and a long list stays quick.
        table = await page.locator("#the-list").html()
        kept = _KEPT.findall(table)
        if len(kept) != len(re.findall(r'<tr id="post-\d', table)):
            raise _NoLook(NoLook.NOT_LOADED, "the list has lines that are not as they are known")
        if any(int(by) != author for _, _, by in kept):
            raise _NoLook(NoLook.WRONG_PAGE, "the account's own list holds a post that is not its own")
        rows = [_Row(number, _raw_title(title)) for number, title, _ in kept]
        return int(total), rows

    async def _item(self, page: ReadOnlyPage, intent: Intent[Post], row: _Row, author: int, nonce: str) -> Item:
        """One post as WordPress keeps it, compared with the approved material."""
        names = "id,status,password,author,link,title.raw,content.raw"
        fields = await self._rest(page, intent, f"/posts/{row.id}&context=edit&_fields={names}&_wpnonce={nonce}")
        title, content = (part.get("raw") if isinstance(part := fields.get(key), dict) else None for key in _RAW)
        shown = material_of({"title": title, "content": content})
        state = _STATES.get(str(fields.get("status")), ItemState.OTHER)
        if state is ItemState.PUBLISHED and fields.get("password") != "":
            state = ItemState.PRIVATE  # only those who know the password can read it
        own = fields.get("author") == author and fields.get("id") == int(row.id)
        exact = own and state is ItemState.PUBLISHED and shown == self.material(intent.payload)
        return Item(
            id=row.id,
            state=state,
            strength=Strength.EXACT_ITEM if exact else Strength.PARTIAL,
            title=row.title,
            url=str(fields.get("link") or "") or None,
            account=intent.account if own else None,
            material=shown,
        )


_RAW = ("title", "content")
_KEPT = re.compile(
    r'<div class="hidden" id="inline_(\d+)">\s*<div class="post_title">(.*?)</div>'
    r'(?:(?!id="inline_).)*?<div class="post_author">(\d+)</div>',
    re.DOTALL,
)
"""What quick edit would start from, in each line: number, title as it is kept, author."""


def _raw_title(markup: str) -> str:
    """The title as it is kept. Where a browser has no picture for an emoji, WordPress puts its own in its place."""
    text = html.unescape(re.sub(r'<img [^>]*?\balt="([^"]*)"[^>]*>', r"\1", markup))
    return html.unescape(text).strip()


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
