"""Rendering: every page that the site shows, with the account, the navigation and the hazard it carries.

Reads the record and never changes it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from playground import hazards
from playground.assets import HEAVY
from playground.hazards import Place
from playground.messages import Request, Response, html
from playground.records import Item, Listing
from playground.truth import Truth

SITE = "Noticeboard"
PAGE_SIZE = 20
COMPOSERS = (
    ("form", "Native form", "One form, one POST, a redirect to the result."),
    ("spa", "Single page", "Sends JSON with fetch and stays where it is."),
    ("panel", "Publish panel", "Saves while you type; publishing takes a second step."),
    ("autosave", "Autosaving form", "Saves to the very URL that it publishes to."),
    ("graph", "GraphQL", "Reads, saves and publishes through one address."),
    ("photo", "With a picture", "A form that sends a file along."),
    ("review", "Two permissions", "Asks for leave first; without it, a review."),
    ("enter", "Enter key", "No button: Enter in the title publishes."),
    ("confirm", "Confirmation", "Asks once more before it sends."),
    ("popup", "Window of its own", "Opens beside the list and closes by itself."),
    ("hidden", "Hidden frame", "The answer lands in a frame that nobody sees."),
    ("editor", "Editor in a frame", "The text is written in a document of its own."),
    ("nested", "Frames in frames", "The whole composer lies two frames down."),
    ("link", "Publish by link", "Saves while you type; a plain link publishes."),
    ("live", "Live presence", "Shows who else is writing, over a WebSocket."),
    ("keyed", "Client key", "The same key again makes no second notice."),
)


def csrf_of(session: str) -> str:
    """The form token that belongs to a session."""
    return hashlib.sha256(b"csrf " + session.encode()).hexdigest()[:32]


def csrf_matches(request: Request, sent: str) -> bool:
    return hmac.compare_digest(csrf_of(request.session).encode(), sent.encode())


def _page(request: Request) -> int:
    wanted = request.query.get("page", "1")
    return max(int(wanted), 1) if re.fullmatch(r"\d{1,6}", wanted, re.ASCII) else 1


def _day(moment: str) -> str:
    return f"{datetime.fromisoformat(moment):%-d %B %Y, %H:%M} UTC"


class Pages:
    """The site's pages over one record."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth
        self._templates = Environment(
            loader=FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters["day"] = _day
        self._templates.globals.update(site=SITE, composers=COMPOSERS)

    def render(
        self,
        request: Request,
        template: str,
        *,
        place: Place | None = None,
        status: int = 200,
        **values: object,
    ) -> Response:
        """One page. `place` says which hazards belong to it."""
        text = self._templates.get_template(template).render(
            account=request.account,
            path=request.path,
            csrf=csrf_of(request.session),
            hazard=self._hazard_script(place),
            **values,
        )
        return html(text, status)

    def _hazard_script(self, place: Place | None) -> str:
        order = self._truth.hazard()
        if order is None or place is None:
            return ""
        if order.place in (place, Place.ANYWHERE):
            return hazards.script_for(order.name, order.argument)
        if order.place == Place.DONE and place is Place.COMPOSER:
            return hazards.script_for(order.name, order.argument, after_publish=True)
        return ""

    def message(self, request: Request, status: int, heading: str, text: str) -> Response:
        return self.render(request, "message.html", status=status, heading=heading, text=text)

    def not_found(self, request: Request) -> Response:
        return self.message(request, 404, "Nothing here", "There is no page at this address.")

    def sign_in_first(self, request: Request) -> str:
        """Where an anonymous visitor is sent."""
        wanted = request.target if request.method == "GET" else request.path
        return f"/login?next={quote(wanted, safe='')}"

    def login(self, request: Request, error: str = "", user: str = "", wanted: str | None = None) -> Response:
        wanted = request.query.get("next", "/") if wanted is None else wanted
        return self.render(request, "login.html", next=wanted, error=error, user=user)

    def published(self, request: Request) -> Response:
        return self._list(request, "published.html", self._truth.listing(_page(request), page_size=PAGE_SIZE))

    def mine(self, request: Request) -> Response:
        return self._list(request, "mine.html", self._truth.listing(_page(request), account=request.account or ""))

    def _list(self, request: Request, template: str, listing: Listing) -> Response:
        if listing.page > listing.pages:
            return self.not_found(request)
        return self.render(request, template, place=Place.LIST, **vars(listing))

    def drafts(self, request: Request) -> Response:
        items = self._truth.items("draft", account=request.account)[::-1]
        return self.render(request, "drafts.html", place=Place.LIST, items=items)

    def item(self, request: Request, item_id: int) -> Response:
        item = self._truth.item(item_id)
        if item is None or (item.state != "published" and item.account != request.account):
            return self.not_found(request)
        return self.render(request, "item.html", place=Place.ITEM, item=item, image=self._truth.image(item_id))

    def new(self, request: Request) -> Response:
        return self.render(request, "new.html")

    def composer(
        self, request: Request, variant: str, *, item: Item | None = None, error: str = "", **typed: str
    ) -> Response:
        """A composer, filled from an item or with what was typed into a form that was refused."""
        title = typed.get("title", item.title if item else "")
        body = typed.get("body", item.body if item else "")
        return self.render(
            request,
            f"{variant}.html",
            place=Place.COMPOSER,
            item=item,
            error=error,
            title=title,
            body=body,
            heading=next(name for key, name, _ in COMPOSERS if key == variant),
        )

    def done(self, request: Request, item: Item | None) -> Response:
        """The result page of a publish; a queued item says that it waits for review."""
        if item is None or item.account != request.account:
            return self.not_found(request)
        return self.render(request, "done.html", place=Place.DONE, item=item)

    def heavy(self, request: Request) -> Response:
        return self.render(request, "heavy.html", counts=HEAVY)
