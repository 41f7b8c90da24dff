"""The composers of the playground that differ by what is sent, as flows: GraphQL through one address, a form with a
picture, and a publish that needs two permissions and two requests.

Declares and reads, as every flow does; it never submits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from playwright.async_api import Error as PlaywrightError

from flows import graphql
from flows.effect import Effect, Material, Meaning, Read, Says, Write
from flows.files import PayloadFile, material_of
from flows.flow import Intent, Submit, view
from flows.observations import CouldNotLook, Item, ItemState, NoLook, Observation, Strength
from flows.pages import ComposerPage, ReadOnlyPage
from flows.playground_parts import (
    PlaygroundComposer,
    contract_of,
    form_material,
    json_answer,
    json_material,
    native_answer,
    nothing,
    signed_out,
    texts,
)
from flows.playground_views import Announcement, Element, Listing, conclude, normal_form, open_page, parse, row_of
from flows.wire import Answer, OutgoingRequest, UnreadableBody

LOADED_S = 10.0
"""How long a page may take to fetch its list."""

# GraphQL


def _arguments(request: OutgoingRequest, field: str) -> Mapping[str, Any]:
    """The arguments of the one mutation of this name. Raises `UnreadableBody` when there is another number of them."""
    found = [one.arguments for one in graphql.mutations(request) if one.name == field]
    if len(found) != 1:
        raise UnreadableBody(f"the request holds {len(found)} mutations {field}")
    return found[0]


def _graph_material(field: str, request: OutgoingRequest) -> Material:
    given = _arguments(request, field)
    whole = normal_form(str(given.get("title") or ""), str(given.get("body") or ""))
    return {name: value for name, value in whole.items() if given.get(name) is not None}


def _graph_result(answer: Answer) -> Mapping[str, Any]:
    """The result of the one field that was asked for, under whichever alias; empty where there is none."""
    try:
        data = answer.json.get("data") if answer.status == 200 and answer.complete else None
    except (UnreadableBody, AttributeError):
        return {}
    results = list(data.values()) if isinstance(data, dict) else []
    return results[0] if len(results) == 1 and isinstance(results[0], dict) and "errors" not in answer.json else {}


def _id(value: object) -> str | None:
    return str(value) if type(value) is int else None


_REFUSALS = {
    (200, "TITLE_NEEDED"): "refused_by_validation",
    (200, "NOT_FOUND"): "refused_without_draft",
    (200, "BAD_INPUT"): "refused_by_validation",
    (403, "STALE_NONCE"): "refused_stale_nonce: the nonce is checked before anything is stored",
    (409, "CONFLICT"): "refused_as_conflict: a conflict is found before anything is stored",
}
"""Status and code of the errors that the site documents as "nothing was stored"."""


def _refusal(answer: Answer) -> str | None:
    """The clause of a documented refusal. An error without a code that is documented says nothing: a field may have
    been carried out before it arose."""
    try:
        value = answer.json
    except UnreadableBody:
        return None
    errors = value.get("errors") if isinstance(value, dict) and value.get("data") is None else None
    if not isinstance(errors, list) or len(errors) != 1 or not isinstance(errors[0], dict):
        return None
    extensions = errors[0].get("extensions")
    code = extensions.get("code") if isinstance(extensions, dict) else None
    return _REFUSALS.get((answer.status, code)) if isinstance(code, str) else None


def _graph_answer(request: OutgoingRequest, answer: Answer) -> Meaning:
    if not answer.complete:
        return nothing("answer_cut")
    if meaning := signed_out(answer):
        return meaning
    if answer.content_type != "application/json":
        return nothing("answer_establishes_nothing")
    if clause := _refusal(answer):
        return Meaning(says=Says.NOT_APPLIED, clause=clause)
    result = _graph_result(answer)
    item = _id(result.get("id"))
    says = {"published": Says.DONE, "queued": Says.ACCEPTED}.get(str(result.get("state")))
    if item is None or says is None:
        return nothing("answer_establishes_nothing")
    if item != _id(_arguments(request, "publishNotice").get("id")):
        return nothing("answer_names_another_item")
    return Meaning(says=says, clause=f"answered_{result['state']}", item=item, url=f"{request.origin}/items/{item}")


_COMPOSERS_QUERY = Write(
    name="query",
    method="POST",
    path=r"/graphql",
    matches=graphql.is_query,
    may_cause_effect=False,
)
_SAVE = Write(
    name="save draft",
    method="POST",
    path=r"/graphql",
    matches=lambda request: graphql.mutates(request, "saveDraft"),
    may_cause_effect=False,
    material=lambda request, _answer: _graph_material("saveDraft", request),
    item=lambda _request, answer: _id(_graph_result(answer).get("id")),
)


QUERY = Read(name="query", path=r"/graphql", matches=graphql.is_query)


class PlaygroundGraph(PlaygroundComposer):
    name = "playground-graph"
    summary = "Publish a notice on the playground through its one GraphQL address."
    composer = "/graph/new"
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/graphql",
        matches=lambda request: any(field.name == "publishNotice" for field in graphql.mutations(request)),
        count=graphql.count,
        material=lambda request: _graph_material("publishNotice", request),
        item=lambda request: _id(_arguments(request, "publishNotice").get("id")),
    )
    supporting = (_COMPOSERS_QUERY, _SAVE)
    contract = contract_of(
        _graph_answer,
        "Queries, saves and the publish go to one address; only the mutation publishNotice publishes.",
        "An error in a 200 counts as a refusal only by a documented code, and as nothing otherwise.",
        "On a stale nonce the page fetches another and sends the same again: that second request is refused.",
    )

    async def _choose(self, page: ComposerPage) -> Submit:
        await self._wait_for(
            page, "document.getElementById('publish').disabled === false", "the site did not save the draft"
        )
        return Submit(control=page.by_role("button", "Publish", exact=True))

    @view(
        "mine",
        opens=(r"/graph/mine",),
        reads=(QUERY,),
        lists=True,
    )
    async def mine(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
        """The account's own list as the page fetches it by queries, every page of it, with the text of each item."""
        opened = await open_page(page, intent, "/graph/mine")
        if isinstance(opened, CouldNotLook):
            return opened
        try:
            await page.locator("#listing:not([data-state=loading])").wait("attached", timeout_s=LOADED_S)
            body = parse(await page.locator("body").html())
        except PlaywrightError as error:
            return CouldNotLook(reason=NoLook.NOT_LOADED, detail=f"/graph/mine: {str(error).partition(chr(10))[0]}")
        total, listing = body.only("data-testid", "total"), body.only("id", "listing")
        lines = body.having("data-item-id", tag="li")
        rows = [row for line in lines if (row := row_of(line)) is not None]
        if total is None or listing is None or listing.attributes["data-state"] != "loaded" or len(rows) < len(lines):
            return CouldNotLook(reason=NoLook.NOT_LOADED, detail="/graph/mine did not load its list")
        gap = "" if total.text == str(len(rows)) else f"the site states {total.text} in all, {len(rows)} were read"
        wanted = self.material(intent.payload)
        items = [
            Item(
                id=row.id,
                state=row.state,
                strength=Strength.EXACT_ITEM if exact and row.author == intent.account else Strength.PARTIAL,
                title=row.title,
                url=f"{intent.origin}/items/{row.id}",
                account=row.author,
                material=shown,
            )
            for row, line in zip(rows, lines, strict=True)
            if row.state is not ItemState.DRAFT
            and (shown := normal_form(row.title, line.only_text("p") or ""))
            and ((exact := shown == wanted) or str(wanted["title"]).startswith(row.title.rstrip("… ") or "\0"))
        ]
        scope = f"all items of {intent.account}, fetched by queries: {len(rows)}"
        return conclude(items, Listing(tuple(rows), scope, gap), gap, scope)


# A picture


class PictureNotice(Announcement):
    """A notice for the board with a picture."""

    image: PayloadFile


def photo_material(request: OutgoingRequest) -> Material:
    return {**form_material(request), "image": material_of(request.form.upload("image"))}


class PlaygroundPhoto(PlaygroundComposer):
    name = "playground-photo"
    summary = "Publish a notice with a picture on the playground."
    payload_model = PictureNotice
    composer = "/photo/new"
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/photo/publish",
        matches=lambda request: (
            sorted(name for name, _ in request.form.fields) == ["body", "csrf", "title"]
            and [file.field for file in request.form.files] == ["image"]
        ),
        material=photo_material,
    )
    contract = contract_of(native_answer("photo"))

    def material(self, payload: Announcement) -> dict[str, Any]:
        assert isinstance(payload, PictureNotice)
        return {**super().material(payload), "image": payload.image.model_dump(mode="json")}

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        assert isinstance(intent.payload, PictureNotice)
        submit = await super().prepare(page, intent)
        await page.set_file(page.by_label("Picture", exact=True), intent.payload.image)
        return submit

    async def composed(self, page: ComposerPage, intent: Intent[Announcement]) -> Material:
        image = await page.file_in(page.by_label("Picture", exact=True))
        return {**await super().composed(page, intent), "image": image}

    def also_shown(self, card: Element) -> Material:
        figure = card.only_of("figure")
        if figure is None:
            return {"image": None}
        shown = {name: figure.attributes.get(f"data-image-{name}", "") for name in ("sha256", "name", "type", "size")}
        return {
            "image": {
                "sha256": shown["sha256"],
                "name": shown["name"],
                "media_type": shown["type"],
                "size": int(shown["size"]) if shown["size"].isdecimal() else None,
            }
        }

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish", exact=True))


# Two permissions

_PERMISSION = Write(
    name="ask for permission",
    method="POST",
    path=r"/review/permission",
    matches=lambda request: request.json == {"consent": True},
    may_cause_effect=False,  # it gives out a token and stores no notice
)


class PlaygroundReview(PlaygroundComposer):
    name = "playground-review"
    summary = "Publish a notice on the playground where that needs two permissions."
    composer = "/review/new"
    secret_fields = ("csrf", "token")
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/review/publish",
        matches=lambda request: set(texts(request)) == {"token", "title", "body"},
        material=json_material,
    )
    supporting = (_PERMISSION,)
    contract = contract_of(
        json_answer(201),
        "The page asks for a token after the gesture; that request stores no notice.",
        "An account that is no publisher's gets its notice queued for one: accepted, and not published.",
    )

    async def _choose(self, page: ComposerPage) -> Submit:
        await page.by_label("I may publish this", exact=True).check()
        return Submit(control=page.by_role("button", "Publish", exact=True))
