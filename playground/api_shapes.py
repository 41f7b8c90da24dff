"""The composers that differ by what is sent: GraphQL through one endpoint, a form with a picture, and a publish that
needs two permissions and two requests.

As in `composers`, each method is the handler of one route and only says what a request would commit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from playground import graphql_site
from playground.composers import NO_TITLE, Composers
from playground.faults import STALE_NONCE_CODE
from playground.graphql_site import Step
from playground.hazards import Place
from playground.messages import BadBody, CommitKind, Plan, Request, Response, json_response, plain
from playground.pages import csrf_matches, csrf_of
from playground.records import Item

NO_PICTURE = "Choose a picture."
NO_CONSENT = "Say that you may publish this."
AUTHOR, PUBLISHER = "author", "publisher"
RIGHTS = {"editor": (AUTHOR, PUBLISHER), "second": (AUTHOR,)}
GRAPHQL_PAGE_SIZE = 20

Routes = Iterator[tuple[str, str, Callable[..., Plan]]]
Result = Callable[[int, bool], dict[str, Any]]


class _Refused(Exception):
    """A field that is answered by an error. `code` is documented, `said` is for the person."""

    def __init__(self, code: str, said: str) -> None:
        super().__init__(said)
        self.code = code


class ApiShapes(Composers):
    """Plans for the pages and the writes of these composers."""

    def routes(self) -> Routes:
        """Method, path and handler of each."""
        yield "GET", "/(graph|photo)/new", lambda request, shape: Plan.of(self._pages.composer(request, shape))
        yield "GET", "/graph/mine", self.graph_list
        yield "GET", "/graph/nonce", lambda request: Plan.of(plain(csrf_of(request.session)))
        yield "GET", "/graphql", self.graphql
        yield "POST", "/graphql", self.graphql
        yield "POST", "/photo/publish", self.photo_publish
        yield "GET", "/(photo)/(?:done|queued)", self.photo_done
        yield "GET", "/items/ID/image", self.image
        yield "GET", "/review/new", self.review_composer
        yield "POST", "/review/permission", self.permission
        yield "POST", "/review/publish", self.review_publish

    # GraphQL

    def graph_list(self, request: Request) -> Plan:
        """A page that fetches its list by a POST."""
        return Plan.of(self._pages.render(request, "graph_mine.html", place=Place.LIST))

    def graphql(self, request: Request) -> Plan:
        """Queries and mutations alike, batches and GET included. Nothing is stored before the nonce was found good."""
        calls, batch = graphql_site.batches(request)
        steps = [step for call in calls for step in call]
        if any(step.mutation for step in steps) and request.header("x-nonce") != csrf_of(request.session):
            return Plan.of(json_response(_errors(_Refused(STALE_NONCE_CODE, "The nonce is not valid any more.")), 403))
        planned = [[(step, *self._planned(request, step)) for step in call] for call in calls]
        kinds = {kind for call in planned for _, kind, _ in call}
        commit = next((kind for kind in (CommitKind.PUBLISH, CommitKind.DRAFT) if kind in kinds), None)

        def run(seq: int, queued: bool) -> Response:
            answers = [_carried_out(call, seq, queued) for call in planned]
            return json_response(answers if batch else answers[0])

        return Plan(run, commit)

    def _planned(self, request: Request, step: Step) -> tuple[CommitKind | None, Result]:
        try:
            match step.mutation, step.name:
                case False, "me":
                    return None, lambda _seq, _queued: {"name": request.account}
                case False, "notices":
                    return None, lambda _seq, _queued: self._notices(request, step.arguments)
                case True, "saveDraft":
                    return CommitKind.DRAFT, self._write(request, step.arguments, CommitKind.DRAFT)
                case True, "publishNotice":
                    return CommitKind.PUBLISH, self._write(request, step.arguments, CommitKind.PUBLISH)
                case _:
                    raise _Refused("UNKNOWN_FIELD", f"There is no field {step.name}.")
        except _Refused as refused:
            reason = refused

            def refuse(_seq: int, _queued: bool) -> dict[str, Any]:
                raise reason

            return None, refuse

    def _notices(self, request: Request, arguments: dict[str, Any]) -> dict[str, Any]:
        page = arguments.get("page")
        listing = self._truth.listing(
            page if isinstance(page, int) else 1, account=request.account or "", page_size=GRAPHQL_PAGE_SIZE
        )
        items = [
            {
                "id": item.id,
                "title": item.title,
                "body": item.body,
                "state": item.state,
                "author": item.account,
                "url": f"/items/{item.id}",
            }
            for item in listing.items
        ]
        return {"total": listing.total, "page": listing.page, "pages": listing.pages, "items": items}

    def _write(self, request: Request, arguments: dict[str, Any], kind: CommitKind) -> Result:
        item_id, title, body = (arguments.get(name) for name in ("id", "title", "body"))
        item = self._own(request, item_id) if isinstance(item_id, int) else None
        if (item_id is not None or kind is CommitKind.PUBLISH) and item is None:
            raise _Refused("NOT_FOUND", "No such draft.")
        if not all(isinstance(text, str | None) for text in (title, body)):
            raise _Refused("BAD_INPUT", "title and body are text.")
        if kind is CommitKind.PUBLISH and not (title if title is not None else item.title if item else "").strip():
            raise _Refused("TITLE_NEEDED", NO_TITLE)

        def carry_out(seq: int, queued: bool) -> dict[str, Any]:
            state = "draft" if kind is CommitKind.DRAFT else "queued" if queued else "published"
            stripped = title.strip() if title is not None else None
            if item is None:
                stored = self._truth.create(
                    account=request.account or "",
                    title=stripped or "",
                    body=body or "",
                    state=state,
                    variant="graph",
                    request_seq=seq,
                )
            else:
                stored = self._truth.change(item.id, state=state, request_seq=seq, title=stripped, body=body)
            return {"id": stored.id, "state": stored.state, "url": f"/items/{stored.id}"}

        return carry_out

    # A picture

    def photo_publish(self, request: Request) -> Plan:
        fields = request.fields()
        if not csrf_matches(request, fields.get("csrf", "")):
            return self._refused_token(request)
        title, body = fields.get("title", "").strip(), fields.get("body", "")
        picture = request.files().get("image")
        if not title or picture is None or not picture.name:
            said = NO_TITLE if not title else NO_PICTURE
            return Plan.of(self._pages.composer(request, "photo", error=said, title=title, body=body))
        to_done = self._to_done(request, "photo")

        def answer(item: Item) -> Response:
            self._truth.attach(item.id, picture.name, picture.media_type, picture.content)
            return to_done(item)

        return self._create(request, "photo", CommitKind.PUBLISH, title, body, answer)

    def photo_done(self, request: Request, _shape: str) -> Plan:
        wanted = request.query.get("item", "")
        item = self._own(request, int(wanted)) if wanted.isascii() and wanted.isdecimal() else None
        return Plan.of(self._pages.done(request, item))

    def image(self, request: Request, item_id: int) -> Plan:
        item, picture = self._truth.item(item_id), self._truth.image(item_id)
        if item is None or picture is None or (item.state != "published" and item.account != request.account):
            return Plan.of(self._pages.not_found(request))
        headers = (("Content-Type", picture.media_type), ("ETag", f'"{hashlib.sha256(picture.content).hexdigest()}"'))
        return Plan.of(Response(200, picture.content, headers))

    # Two permissions

    def review_composer(self, request: Request) -> Plan:
        role = PUBLISHER if PUBLISHER in RIGHTS.get(request.account or "", ()) else AUTHOR
        page = self._pages.render(
            request,
            "review.html",
            place=Place.COMPOSER,
            item=None,
            error="",
            title="",
            body="",
            heading="Two permissions",
            role=role,
        )
        return Plan.of(page)

    def permission(self, request: Request) -> Plan:
        """The first of two writes: a token for one publish, of the right that the account has."""
        if request.json().get("consent") is not True:
            return Plan.of(json_response({"error": NO_CONSENT}, 422))
        account = request.account or ""
        rights = RIGHTS.get(account, ())
        if AUTHOR not in rights:
            return Plan.of(json_response({"error": "This account may not write."}, 403))
        right = PUBLISHER if PUBLISHER in rights else AUTHOR

        def run(_seq: int, _queued: bool) -> Response:
            return json_response({"token": self._truth.grant(account, right), "right": right}, 201)

        return Plan(run)

    def review_publish(self, request: Request) -> Plan:
        """The second: with an author's right alone the notice waits for a publisher."""
        fields = request.json()
        token, title, body = (fields.get(name) for name in ("token", "title", "body"))
        if not all(isinstance(text, str) for text in (token, title, body)):
            raise BadBody("token, title and body must be text.")
        right = self._truth.permission(str(token), request.account or "")
        if right is None:
            return Plan.of(json_response({"error": "This permission was used, or is another's."}, 409))
        if not str(title).strip():
            return Plan.of(json_response({"error": NO_TITLE}, 422))

        def run(seq: int, queued: bool) -> Response:
            self._truth.use_permission(str(token))
            state = "queued" if queued or right != PUBLISHER else "published"
            item = self._truth.create(
                account=request.account or "",
                title=str(title).strip(),
                body=str(body),
                state=state,
                variant="review",
                request_seq=seq,
            )
            answer = {"id": item.id, "state": item.state, "url": f"/items/{item.id}"}
            return json_response(answer, 202 if state == "queued" else 201)

        return Plan(run, CommitKind.PUBLISH)


def _carried_out(call: list[tuple[Step, CommitKind | None, Result]], seq: int, queued: bool) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for step, _, result in call:
        try:
            data[step.key] = result(seq, queued)
        except _Refused as refused:
            return _errors(refused)
    return {"data": data}


def _errors(refused: _Refused) -> dict[str, Any]:
    return {"data": None, "errors": [{"message": str(refused), "extensions": {"code": refused.code}}]}
