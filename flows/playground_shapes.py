"""The composers of the playground that differ by how the page submits, as flows: a key, a question, a window of its
own, a hidden frame, an editor in a frame, frames in frames, a plain link.

Declares and reads, as every flow does; it never submits. Each says the least that its shape needs beyond the common
parts.
"""

from __future__ import annotations

import json
from typing import Any

from playwright.async_api import FrameLocator

from flows.effect import Effect, Material, Meaning, Says
from flows.flow import DialogRule, Intent, Submit
from flows.pages import ComposerPage
from flows.playground import PlaygroundPanel, PlaygroundSpa
from flows.playground_parts import (
    WAIT_S,
    PlaygroundComposer,
    PlaygroundProblem,
    alerts_of,
    contract_of,
    form_has,
    form_material,
    json_answer,
    json_material,
    native_answer,
    nothing,
    signed_out,
    texts,
)
from flows.playground_views import Announcement, normal_form, parse
from flows.wire import Answer, OutgoingRequest, UnreadableBody

__all__ = [
    "PlaygroundConfirm",
    "PlaygroundEditor",
    "PlaygroundEnter",
    "PlaygroundHidden",
    "PlaygroundLink",
    "PlaygroundNested",
    "PlaygroundPopup",
]


def _form_effect(path: str) -> Effect:
    return Effect(
        name="notice published",
        method="POST",
        path=path,
        matches=lambda request: form_has(request, "csrf", "title", "body"),
        material=form_material,
    )


class PlaygroundEnter(PlaygroundComposer):
    name = "playground-enter"
    summary = "Publish a notice on the playground by Enter in its title; there is no button."
    composer = "/enter/new"
    effect = _form_effect(r"/enter/publish")
    contract = contract_of(native_answer("enter"))

    async def _choose(self, page: ComposerPage) -> Submit:
        title = page.by_label("Title", exact=True)
        await title.focus()  # a key goes where the focus is; filling the body took it away
        return Submit(control=title, key="Enter")


class PlaygroundConfirm(PlaygroundComposer):
    name = "playground-confirm"
    summary = "Publish a notice on the playground from the form that asks once more."
    composer = "/confirm/new"
    dialogs = (DialogRule(kind="confirm", message=r"^Publish this notice for everyone\?$", accept=True),)
    effect = _form_effect(r"/confirm/publish")
    contract = contract_of(native_answer("confirm"))

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish", exact=True))


class PlaygroundPopup(PlaygroundComposer):
    name = "playground-popup"
    summary = "Publish a notice on the playground from a window of its own, which closes by itself."
    composer = "/popup/new"
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/popup/publish",
        matches=lambda request: set(texts(request)) == {"title", "body"},
        material=json_material,
    )
    contract = contract_of(json_answer(201))

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        await page.goto(self.composer)
        window = await page.popup(page.by_role("button", "Write in a window", exact=True).click)
        if await window.locator("#composer").count() != 1:
            raise PlaygroundProblem(f"the window shows no composer; it is {window.url}")
        await self._fill(window, intent)
        return await self._choose(window)

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish and close", exact=True))


def _read_hidden(request: OutgoingRequest, answer: Answer) -> Meaning:
    """The answer is a page for the hidden frame, with what it says as data in it."""
    if not answer.complete:
        return nothing("answer_cut")
    if meaning := signed_out(answer):
        return meaning
    said = _said(answer) if answer.status == 200 and answer.content_type == "text/html" else {}
    if isinstance(said.get("error"), str) and said["error"]:
        return Meaning(says=Says.NOT_APPLIED, clause="answer_names_an_error")
    number, state = said.get("id"), said.get("state")
    if type(number) is not int or state not in ("published", "queued"):
        return nothing("answer_establishes_nothing")
    item, url = str(number), f"{request.origin}/items/{number}"
    if state == "published":
        return Meaning(says=Says.DONE, clause="answer_says_published", item=item, url=url)
    return Meaning(says=Says.ACCEPTED, clause="answer_says_queued", item=item, url=url)


def _said(answer: Answer) -> dict[str, Any]:
    try:
        data = parse(answer.text).only("id", "answer", tag="script")
        value = json.loads(data.text) if data is not None else None
    except (UnreadableBody, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


class PlaygroundHidden(PlaygroundComposer):
    name = "playground-hidden"
    summary = "Publish a notice on the playground with the form whose answer lands in a hidden frame."
    composer = "/hidden/new"
    effect = _form_effect(r"/hidden/publish")
    contract = contract_of(_read_hidden)

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish", exact=True))


_LINES = """body => [...body.childNodes].reduce(
    (lines, node) => node.nodeName === 'DIV' ? [...lines, node.textContent]
        : [...lines.slice(0, -1), (lines.at(-1) ?? '') + node.textContent], []).join('\\n')"""
"""The text of the editor as it is laid out: each block is a line."""


class PlaygroundEditor(PlaygroundSpa):
    name = "playground-editor"
    summary = "Publish a notice on the playground whose text is written in a frame."
    composer = "/editor/new"

    async def _fill(self, page: ComposerPage, intent: Intent[Announcement]) -> None:
        await page.by_label("Title", exact=True).fill(intent.payload.title)
        await page.frame("#editor").locator("body").fill(intent.payload.body)
        # The frame tells the page what was written; until it has, the page would send what was there before.
        body = normal_form("", intent.payload.body)["body"]
        await page.wait_for("body => composer.fields().body === body", body, timeout_s=WAIT_S)

    async def composed(self, page: ComposerPage, intent: Intent[Announcement]) -> Material:
        title = await page.by_label("Title", exact=True).input_value()
        return normal_form(title, await page.frame("#editor").locator("body").evaluate(_LINES))


class PlaygroundNested(PlaygroundComposer):
    name = "playground-nested"
    summary = "Publish a notice on the playground with the composer that lies two frames down."
    composer = "/nested/new"
    effect = _form_effect(r"/nested/publish")
    contract = contract_of(native_answer("nested"))

    @staticmethod
    def _inner(page: ComposerPage) -> FrameLocator:
        return page.frame("iframe[title=Workspace]").frame_locator("iframe[title=Composer]")

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        await page.goto(self.composer)
        await self._fill(page, intent)
        return await self._choose(page)

    async def _fill(self, page: ComposerPage, intent: Intent[Announcement]) -> None:
        await self._inner(page).get_by_label("Title", exact=True).fill(intent.payload.title)
        await self._inner(page).get_by_label("Body", exact=True).fill(intent.payload.body)

    async def _choose(self, page: ComposerPage) -> Submit:
        publish = self._inner(page).get_by_role("button", name="Publish", exact=True)
        await publish.scroll_into_view_if_needed()  # nothing scrolls once the control is named
        return Submit(control=publish)

    async def _place(self, page: ComposerPage) -> str | None:
        form = self._inner(page).locator("#composer")
        return str(await form.evaluate("form => form.action")) if await form.count() == 1 else None

    async def composed(self, page: ComposerPage, intent: Intent[Announcement]) -> Material:
        title = await self._inner(page).get_by_label("Title", exact=True).input_value()
        return normal_form(title, await self._inner(page).get_by_label("Body", exact=True).input_value())

    async def validation_message(self, page: ComposerPage, intent: Intent[Announcement]) -> str | None:
        if not await self._inner(page).locator("#composer").count():
            return await alerts_of(page)  # the form is gone: what it led to fills the window
        said = await self._inner(page).locator("[role=alert]").all_inner_texts()
        return " ".join(filter(None, (text.strip() for text in said))) or None


def _linked_item(request: OutgoingRequest) -> str | None:
    item = request.query_value("item")
    return str(int(item)) if item is not None and item.isascii() and item.isdecimal() else None


def _read_link(request: OutgoingRequest, answer: Answer) -> Meaning:
    meaning = native_answer("link")(request, answer)
    if meaning.item is not None and meaning.item != _linked_item(request):
        return nothing("answer_names_another_item")
    return meaning


class PlaygroundLink(PlaygroundPanel):
    name = "playground-link"
    summary = "Publish a notice on the playground by following a link; the draft is saved ahead."
    composer = "/link/new"
    effect = Effect(
        name="notice published",
        method="GET",
        path=r"/link/publish",
        matches=lambda request: sorted(name for name, _ in request.query) == ["item", "token"],
        # The link shows which draft is published, and the draft's last save shows what is in it.
        material=lambda _request: {},
        item=_linked_item,
    )
    contract = contract_of(
        _read_link,
        "The site publishes on a GET: whatever opens the address publishes, a preview or a prefetch as well.",
        "Drafts are saved while prepare fills the composer; a run that stops before the gesture leaves one behind.",
    )

    async def _choose(self, page: ComposerPage) -> Submit:
        # There is no address to follow until the draft holds what the fields hold.
        await self._wait_for(page, "document.getElementById('publish').href !== ''", "the site did not save the draft")
        return Submit(control=page.by_role("button", "Publish", exact=True))
