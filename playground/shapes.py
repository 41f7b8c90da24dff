"""The composers that differ by how the page submits: by Enter, after a question, from a window of its own, through a
hidden frame, with the editor in a frame, from frames in frames, and by a plain link.

As in `composers`, each method is the handler of one route and only says what a request would commit.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterator
from typing import Any

from playground.composers import NO_TITLE, Composers
from playground.hazards import Place
from playground.messages import CommitKind, Plan, Request, Response, html, json_response
from playground.pages import csrf_matches, csrf_of
from playground.records import Item

FORMS = ("enter", "confirm", "nested")
"""Those that publish as the native form does: a POST that is answered by a redirect to its result."""

Routes = Iterator[tuple[str, str, Callable[..., Plan]]]


class Shapes(Composers):
    """Plans for the pages and the writes of these composers."""

    def routes(self) -> Routes:
        """Method, path and handler of each."""
        for shape in FORMS:
            yield "POST", f"/({shape})/publish", self.form_shape_publish
            yield "GET", f"/({shape}|link)/(?:done|queued)", self.shape_done
        yield "GET", "/(enter|confirm|hidden|editor|link)/new", self.shape_composer
        yield "GET", "/popup/new", self.popup_list
        yield "GET", "/popup/compose", lambda request: self.shape_composer(request, "popup")
        yield "POST", "/popup/publish", self.popup_publish
        yield "POST", "/hidden/publish", self.hidden_publish
        yield "GET", "/editor/frame", lambda request: self._shown(request, "editor_frame")
        yield "GET", "/nested/new", lambda request: self._shown(request, "nested")
        yield "GET", "/nested/middle", lambda request: self._shown(request, "nested_middle")
        yield "GET", "/nested/form", self._nested_form
        yield "GET", "/link/publish", self.link_publish

    # Pages

    def _shown(self, request: Request, page: str, *, place: Place | None = None, **values: Any) -> Plan:
        return Plan.of(self._pages.render(request, f"{page}.html", place=place, **values))

    def shape_composer(self, request: Request, shape: str) -> Plan:
        return Plan.of(self._pages.composer(request, shape))

    def shape_done(self, request: Request, _shape: str) -> Plan:
        wanted = request.query.get("item", "")
        item = self._own(request, int(wanted)) if wanted.isascii() and wanted.isdecimal() else None
        return Plan.of(self._pages.done(request, item))

    def popup_list(self, request: Request) -> Plan:
        items = self._truth.items(account=request.account)[::-1]
        return self._shown(request, "popup_list", place=Place.LIST, items=items)

    def _nested_form(self, request: Request, error: str = "", body: str = "") -> Plan:
        return self._shown(request, "nested_form", place=Place.COMPOSER, title="", body=body, error=error)

    # Publishing

    def form_shape_publish(self, request: Request, shape: str) -> Plan:
        """As the native form, with a composer of its own to show again when there is no title."""
        fields = request.fields()
        if not csrf_matches(request, fields.get("csrf", "")):
            return self._refused_token(request)
        title, body = fields.get("title", "").strip(), fields.get("body", "")
        if title:
            return self._create(request, shape, CommitKind.PUBLISH, title, body, self._to_done(request, shape))
        if shape == "nested":
            return self._nested_form(request, NO_TITLE, body)
        return Plan.of(self._pages.composer(request, shape, error=NO_TITLE, title="", body=body))

    def popup_publish(self, request: Request) -> Plan:
        """Takes JSON and answers with what the opener needs to show."""
        fields = request.json()
        title, body = str(fields.get("title", "")).strip(), str(fields.get("body", ""))
        if not title:
            return Plan.of(json_response({"error": NO_TITLE}, 422))
        return self._create(
            request,
            "popup",
            CommitKind.PUBLISH,
            title,
            body,
            lambda item: json_response(_told(item), 202 if item.state == "queued" else 201),
        )

    def hidden_publish(self, request: Request) -> Plan:
        """A form whose answer lands in a hidden frame, from where it calls the page around it."""
        fields = request.fields()
        if not csrf_matches(request, fields.get("csrf", "")):
            return self._refused_token(request)
        title, body = fields.get("title", "").strip(), fields.get("body", "")
        if not title:
            return Plan.of(_for_parent({"error": NO_TITLE}))
        return self._create(
            request, "hidden", CommitKind.PUBLISH, title, body, lambda item: _for_parent({**_told(item)})
        )

    def link_publish(self, request: Request) -> Plan:
        """Publishes a draft on a GET, as more sites do than should. The token in the address is what it asks for."""
        number, token = request.query.get("item", ""), request.query.get("token", "")
        item = self._own(request, int(number)) if number.isascii() and number.isdecimal() else None
        if item is None:
            return Plan.of(self._pages.not_found(request))
        if not hmac.compare_digest(csrf_of(request.session).encode(), token.encode()):
            return self._refused_token(request)
        if not item.title:
            return Plan.of(self._pages.message(request, 422, "Not published", NO_TITLE))
        return self._change(item, CommitKind.PUBLISH, None, None, self._to_done(request, "link"))


def _told(item: Item) -> dict[str, object]:
    return {"id": item.id, "state": item.state, "url": f"/items/{item.id}", "title": item.title}


def _for_parent(answer: dict[str, object]) -> Response:
    """A page that is nothing but an answer: as data, and handed to the page around it."""
    data = json.dumps(answer, ensure_ascii=False).replace("<", "\\u003c")
    return html(
        f'<!doctype html><title>Answer</title><script type="application/json" id="answer">{data}</script>'
        "<script>parent.composer.answered(JSON.parse(document.getElementById('answer').textContent));</script>"
    )
