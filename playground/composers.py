"""The writes of the four composers: what each request would commit, and the answer that it then earns.

Publishing is deliberately not idempotent: every publish that is carried out is one more commit, so that a
write sent twice is seen twice in the record.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from playground.hazards import Hazard
from playground.messages import BadBody, CommitKind, Plan, Request, Response, json_response, redirect
from playground.pages import Pages, csrf_matches
from playground.records import Item
from playground.truth import Truth

NO_TITLE = "Give your notice a title."
_STATES = {"published": CommitKind.PUBLISH, "draft": CommitKind.DRAFT}


def _text(fields: dict[str, object], name: str) -> str | None:
    """A text member, None when it is absent. Raises BadBody for any other type."""
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise BadBody(f"{name} must be text.")
    return value


def _summary(item: Item) -> dict[str, object]:
    return {"id": item.id, "state": item.state, "url": f"/items/{item.id}"}


class Composers:
    """Plans for every write of the site. Each method is the handler of one route."""

    def __init__(self, truth: Truth, pages: Pages) -> None:
        self._truth = truth
        self._pages = pages

    # Shared steps

    def _refused_token(self, request: Request) -> Plan:
        text = "This form belongs to another session. Load the page again and send it once more."
        return Plan.of(self._pages.message(request, 403, "Form refused", text))

    def _own(self, request: Request, item_id: int) -> Item | None:
        item = self._truth.item(item_id)
        return item if item is not None and item.account == request.account else None

    def _create(
        self,
        request: Request,
        variant: str,
        kind: CommitKind,
        title: str,
        body: str,
        answer: Callable[[Item], Response],
    ) -> Plan:
        def run(seq: int, queued: bool) -> Response:
            state = "draft" if kind is CommitKind.DRAFT else "queued" if queued else "published"
            account = request.account or ""
            item = self._truth.create(
                account=account, title=title, body=body, state=state, variant=variant, request_seq=seq
            )
            return answer(item)

        return Plan(run, kind)

    def _change(
        self,
        item: Item,
        kind: CommitKind,
        title: str | None,
        body: str | None,
        answer: Callable[[Item], Response],
    ) -> Plan:
        def run(seq: int, queued: bool) -> Response:
            state = "draft" if kind is CommitKind.DRAFT else "queued" if queued else "published"
            changed = self._truth.change(item.id, state=state, request_seq=seq, title=title, body=body)
            return answer(changed)

        return Plan(run, kind)

    def _to_done(self, request: Request, variant: str) -> Callable[[Item], Response]:
        def answer(item: Item) -> Response:
            order = self._truth.hazard()
            if order is not None and order.name == Hazard.RELOAD_AFTER:
                return self._pages.done(request, item)  # a POST result, so that a reload sends it again
            page = "queued" if item.state == "queued" else "done"
            return redirect(f"/{variant}/{page}?item={item.id}")

        return answer

    # Native form

    def form_publish(self, request: Request) -> Plan:
        fields = request.fields()
        if not csrf_matches(request, fields.get("csrf", "")):
            return self._refused_token(request)
        title, body = fields.get("title", "").strip(), fields.get("body", "")
        if not title:
            return Plan.of(self._pages.composer(request, "form", error=NO_TITLE, title="", body=body))
        return self._create(request, "form", CommitKind.PUBLISH, title, body, self._to_done(request, "form"))

    def form_draft(self, request: Request) -> Plan:
        fields = request.fields()
        if not csrf_matches(request, fields.get("csrf", "")):
            return self._refused_token(request)
        title, body = fields.get("title", "").strip(), fields.get("body", "")
        return self._create(request, "form", CommitKind.DRAFT, title, body, lambda _item: redirect("/drafts"))

    # Single page

    def api_create(self, request: Request) -> Plan:
        fields = request.json()
        kind = _STATES.get(str(fields.get("status")))
        title, body = (_text(fields, "title") or "").strip(), _text(fields, "body") or ""
        if kind is None:
            raise BadBody('status must be "published" or "draft".')
        if kind is CommitKind.PUBLISH and not title:
            return Plan.of(json_response({"error": NO_TITLE}, 422))
        return self._create(
            request,
            "spa",
            kind,
            title,
            body,
            lambda item: json_response(_summary(item), 202 if item.state == "queued" else 201),
        )

    # Publish panel

    def draft_create(self, request: Request) -> Plan:
        fields = request.json()
        title, body = _text(fields, "title") or "", _text(fields, "body") or ""
        return self._create(
            request,
            "panel",
            CommitKind.DRAFT,
            title.strip(),
            body,
            lambda item: json_response({"id": item.id}, 201),
        )

    def draft_save(self, request: Request, item_id: int) -> Plan:
        fields = request.json()
        item = self._own(request, item_id)
        if item is None:
            return Plan.of(json_response({"error": "No such draft."}, 404))
        title = _text(fields, "title")
        return self._change(
            item,
            CommitKind.DRAFT,
            title.strip() if title is not None else None,
            _text(fields, "body"),
            lambda saved: json_response({"id": saved.id}),
        )

    def api_publish(self, request: Request, item_id: int) -> Plan:
        fields = request.json()
        item = self._own(request, item_id)
        if item is None:
            return Plan.of(json_response({"error": "No such item."}, 404))
        if fields.get("status") != "published":
            raise BadBody('status must be "published".')
        title = _text(fields, "title")
        if not (item.title if title is None else title.strip()):
            return Plan.of(json_response({"error": NO_TITLE}, 422))
        return self._change(
            item,
            CommitKind.PUBLISH,
            title.strip() if title is not None else None,
            _text(fields, "body"),
            lambda done: json_response(_summary(done), 202 if done.state == "queued" else 200),
        )

    # Autosaving form

    def autosave_new(self, request: Request) -> Plan:
        return self._create(
            request,
            "autosave",
            CommitKind.DRAFT,
            "",
            "",
            lambda item: redirect(f"/autosave/{item.id}/edit"),
        )

    def autosave_edit(self, request: Request, item_id: int) -> Plan:
        fields = request.fields()
        item = self._own(request, item_id)
        if item is None:
            return Plan.of(self._pages.not_found(request))
        if not csrf_matches(request, fields.get("csrf", "")):
            return self._refused_token(request)
        title, body = fields.get("title", "").strip(), fields.get("body", "")
        if "action-publish" not in fields:
            return self._change(item, CommitKind.DRAFT, title, body, lambda saved: json_response({"id": saved.id}))
        if not title:
            return Plan.of(self._pages.composer(request, "autosave", item=item, error=NO_TITLE, title="", body=body))
        return self._change(item, CommitKind.PUBLISH, title, body, self._to_done(request, "autosave"))

    # Elsewhere

    def other_publish(self, request: Request) -> Plan:
        """Where a 307 sends a publish: takes any encoding and commits a new item."""
        is_json = request.header("content-type").startswith("application/json")
        fields: dict[str, object] = request.json() if is_json else dict(request.fields())
        title, body = _text(fields, "title") or "Untitled", _text(fields, "body") or ""
        answer = (lambda item: json_response(_summary(item), 201)) if is_json else self._to_done(request, "form")
        return self._create(request, "other", CommitKind.PUBLISH, title, body, answer)

    def delete(self, request: Request, item_id: int) -> Plan:
        item = self._own(request, item_id)
        if item is None:
            return Plan.of(self._pages.not_found(request))
        if not csrf_matches(request, request.fields().get("csrf", "")):
            return self._refused_token(request)

        def run(seq: int, _queued: bool) -> Response:
            self._truth.delete(item.id, seq)
            return redirect("/drafts" if item.state == "draft" else "/mine")

        return Plan(run, CommitKind.DELETE)

    def upload(self, request: Request) -> Plan:
        """A supporting write: takes any bytes and answers what it was given; stores no item."""
        digest = hashlib.sha256(request.body).hexdigest()
        return Plan.of(json_response({"bytes": len(request.body), "sha256": digest}, 201))
