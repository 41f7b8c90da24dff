"""The composer of the playground that carries a client key, as a flow: what another attempt under it may rest on.

Declares and reads, as every flow does; it never submits. The key goes where the page's own script takes it from, and
is looked up first afterwards (D5).
"""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlencode

from playwright.async_api import Error as PlaywrightError

from flows.effect import Category, ClientKey, Effect, Meaning, Policy, Says
from flows.flow import Flow, Intent, Submit, view
from flows.observations import CouldNotLook, Found, Item, ItemState, NoLook, NotFound, Observation, Strength
from flows.pages import ComposerPage, ReadOnlyPage
from flows.playground_parts import PlaygroundComposer, contract_of, json_answer, json_material, texts
from flows.playground_views import Announcement, normal_form, parse
from flows.wire import Answer, OutgoingRequest

__all__ = ["PlaygroundKeyed"]

KEY = ClientKey(
    header="Idempotency-Key",
    field=None,
    scope="the account",
    lifetime_s=24 * 3600.0,
    attempts=5,
    same_fields=("title", "body"),
)

_STATES = {"published": ItemState.PUBLISHED, "queued": ItemState.QUEUED}


def _read_answer(request: OutgoingRequest, answer: Answer) -> Meaning:
    """A notice that the key has made before is answered with 200 in place of 201, and is as published as a new one."""
    if answer.complete and answer.status == 409 and answer.content_type == "application/json":
        return Meaning(says=Says.NOT_APPLIED, clause="key_used_for_other_fields")
    return json_answer(200 if answer.status == 200 else 201)(request, answer)


class _ByKey(Flow[Announcement]):
    """Apart, and last among the bases, so that this view is the first one."""

    @view("by-key", opens=(r"/keyed/find\?key=[0-9a-z-]{1,80}",))
    async def by_key(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
        """The notice of this intent's key, as the account's own page shows it."""
        address = f"/keyed/find?{urlencode({'key': intent.key or ''})}"
        try:
            status = await page.open(address)
            url, body = page.url, parse(await page.locator("body").html())
        except PlaywrightError as error:
            return CouldNotLook(reason=NoLook.NOT_LOADED, detail=str(error).partition("\n")[0])
        if re.search(r"/login(\?|$)", url):
            return CouldNotLook(reason=NoLook.SIGNED_OUT, detail=f"{address} led to the sign-in page")
        if status != 200 or url != intent.origin + address:
            return CouldNotLook(reason=NoLook.ERROR_PAGE, detail=f"{address} was answered with {status}")
        if [one.text.strip() for one in body.having("data-testid", "account")] != [intent.account]:
            return CouldNotLook(reason=NoLook.WRONG_ACCOUNT, detail=f"{address} is shown to somebody else")
        asked, card = body.only("data-testid", "asked"), body.only("data-item-id", tag="article")
        none = body.only("data-testid", "none")
        if asked is None or asked.text.strip() != intent.key or (card is None) == (none is None):
            return CouldNotLook(reason=NoLook.NOT_LOADED, detail=f"{address} is not the whole answer")
        scope = "the account's notice of this key"
        if card is None:
            return NotFound(scope=scope, complete=True)
        title, text = card.only_text("h2") or "", card.only_text("pre") or ""
        number, author = card.attributes["data-item-id"], card.attributes.get("data-author")
        shown, state = normal_form(title, text), _STATES.get(card.attributes.get("data-state", ""), ItemState.OTHER)
        exact = author == intent.account and shown == self.material(intent.payload) and state in _STATES.values()
        item = Item(
            id=number,
            state=state,
            strength=Strength.EXACT_ITEM if exact else Strength.PARTIAL,
            title=title,
            url=f"{intent.origin}/items/{number}",
            account=author,
            material=shown,
        )
        return Found(items=(item,), scope=scope, complete=True)


class PlaygroundKeyed(PlaygroundComposer, _ByKey):
    name = "playground-keyed"
    summary = "Publish a notice on the playground under a key of ours, which the site honours."
    composer = "/keyed/new"
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/keyed/items",
        matches=lambda request: set(texts(request)) == {"title", "body"},
        material=json_material,
    )
    contract = replace(
        contract_of(_read_answer),
        category=Category.WRITE_WITH_KEY,
        policy=Policy.IDEMPOTENT,
        key=KEY,
        notes=(
            "The same key with the same fields is answered with the notice that it made, for 24 hours; with other "
            "fields it is refused with 409 and nothing is stored.",
            "A redirect to the sign-in page means that nothing was stored: the session is checked first.",
        ),
    )

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        submit = await super().prepare(page, intent)
        # The page drew a key of its own; its script sends whatever this field holds.
        await page.locator("#idempotency-key").evaluate("(field, key) => { field.value = key }", intent.key)
        return submit

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish", exact=True))
