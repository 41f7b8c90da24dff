"""The first four composers of the playground as flows: one action, four ways in which a site may publish.

Declares and reads, as every flow does; it never submits.
"""

from __future__ import annotations

from flows.effect import Effect, Write
from flows.flow import Submit
from flows.pages import ComposerPage
from flows.playground_parts import (
    PlaygroundComposer,
    PlaygroundProblem,
    answered_id,
    contract_of,
    form_has,
    form_material,
    item_in_path,
    json_answer,
    json_material,
    native_answer,
    saved_item,
    texts,
)
from flows.playground_views import Announcement

__all__ = [
    "Announcement",
    "PlaygroundAutosave",
    "PlaygroundForm",
    "PlaygroundPanel",
    "PlaygroundProblem",
    "PlaygroundSpa",
]

DRAFT_FIELDS = {"title", "body"}

# None of these can publish: /api/drafts stores drafts and reads no state from the body, and the autosaving form's
# address publishes only a form that has the field action-publish.
DRAFT_CREATE = Write(
    name="create draft",
    method="POST",
    path=r"/api/drafts",
    matches=lambda request: set(texts(request)) == DRAFT_FIELDS,
    may_cause_effect=False,
    material=lambda request, _answer: json_material(request),
    item=lambda _request, answer: answered_id(answer, 201),
)
DRAFT_SAVE = Write(
    name="save draft",
    method="POST",
    path=r"/api/drafts/\d{1,15}",
    matches=lambda request: set(texts(request)) == DRAFT_FIELDS,
    may_cause_effect=False,
    material=lambda request, _answer: json_material(request),
    item=saved_item,
)
_AUTOSAVE = Write(
    name="autosave",
    method="POST",
    path=r"/autosave/\d{1,15}/edit",
    matches=lambda request: (
        request.header("x-requested-with") == "XMLHttpRequest" and form_has(request, "csrf", "title", "body")
    ),
    may_cause_effect=False,
    material=lambda request, _answer: form_material(request),
    item=saved_item,
)


class PlaygroundForm(PlaygroundComposer):
    name = "playground-form"
    summary = "Publish a notice on the playground with its native form."
    composer = "/form/new"
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/form/publish",
        matches=lambda request: form_has(request, "csrf", "title", "body"),
        material=form_material,
    )
    contract = contract_of(native_answer("form"))

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish", exact=True))


class PlaygroundSpa(PlaygroundComposer):
    name = "playground-spa"
    summary = "Publish a notice on the playground from its single page, which sends JSON."
    composer = "/spa/new"
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/api/items",
        matches=lambda request: (
            set(texts(request)) == {"title", "body", "status"} and texts(request)["status"] == "published"
        ),
        material=json_material,
    )
    contract = contract_of(json_answer(201))

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish", exact=True))


class PlaygroundPanel(PlaygroundComposer):
    name = "playground-panel"
    summary = "Publish a notice on the playground through its publish panel, which saves a draft ahead."
    composer = "/panel/new"
    effect = Effect(
        name="notice published",
        method="PUT",
        path=r"/api/items/\d{1,15}",
        # The title goes along only where the draft does not have it yet; else the draft's last save shows it.
        matches=lambda request: (
            set(texts(request)) - {"title"} == {"status", "body"} and texts(request)["status"] == "published"
        ),
        material=json_material,
        item=item_in_path,
    )
    supporting = (DRAFT_CREATE, DRAFT_SAVE)
    contract = contract_of(
        json_answer(200),
        "Drafts are saved while prepare fills the composer; a run that stops before the gesture leaves one behind.",
        "Saving a draft cannot publish: /api/drafts stores drafts and reads no state from the body.",
    )

    async def _choose(self, page: ComposerPage) -> Submit:
        await page.by_role("button", "Publish…", exact=True).click()
        publish = page.by_role("button", "Publish now", exact=True)
        await publish.wait_for()
        # The panel enables its button once the draft holds what the fields hold.
        await self._wait_for(
            page, "document.getElementById('publish').disabled === false", "the site did not save the draft"
        )
        return Submit(control=publish)


class PlaygroundAutosave(PlaygroundComposer):
    name = "playground-autosave"
    summary = "Publish a notice on the playground with the form that saves to the address it publishes to."
    composer = "/autosave/new"
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/autosave/\d{1,15}/edit",
        matches=lambda request: form_has(request, "csrf", "title", "body", "action-publish"),
        material=form_material,
        item=item_in_path,
    )
    supporting = (_AUTOSAVE,)
    contract = contract_of(
        native_answer("autosave"),
        "Opening the composer is a GET that stores an empty draft; every look at /mine lists it.",
        "An autosave cannot publish, though it goes to the same address: the site publishes only a form with the "
        "field action-publish. The page sends one more of them between the gesture and the publish.",
    )

    async def _choose(self, page: ComposerPage) -> Submit:
        saved = "['Saved', 'Not saved'].includes(document.getElementById('saving').textContent)"
        await self._wait_for(page, saved, "the site did not save the draft")
        if await page.by_test_id("saving").inner_text() != "Saved":
            raise PlaygroundProblem("the site did not save the draft; the page says: Not saved")
        return Submit(control=page.by_role("button", "Publish", exact=True))
