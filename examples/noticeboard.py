"""A complete flow, as `docs/writing-flows.md` explains it: publish a notice through the playground's plain form.

Run it by its file name: `interlock flows show examples/noticeboard.py`. The playground has the same form as the
registered flow `playground-form`, which reads more and trusts less; this one is as short as a complete flow can be.
"""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from pydantic import Field

from flows.effect import AbsenceGuarantee, Category, Contract, Effect, Material, Meaning, Says, Undo, Write
from flows.flow import Credentials, Flow, Identity, Intent, Payload, Submit, view
from flows.observations import CouldNotLook, Found, Item, ItemState, NoLook, NotFound, Observation, Partial, Strength
from flows.pages import ComposerPage, ReadOnlyPage
from flows.wire import Answer, OutgoingRequest, origin_of_url


class Notice(Payload):
    """What is to be published."""

    title: str = Field(min_length=1, max_length=200)
    body: str


def normal(title: str, body: str) -> dict[str, Any]:
    """One spelling for one text: the site trims titles, and a form sends line ends as CRLF."""
    return {"title": title.strip(), "body": body.replace("\r\n", "\n")}


def is_publish(request: OutgoingRequest) -> bool:
    """Exactly the fields of the composer, each once, and no file."""
    form = request.form
    return sorted(name for name, _ in form.fields) == ["body", "csrf", "title"] and not form.files


def sent_material(request: OutgoingRequest) -> Material:
    return normal(request.form.get("title") or "", request.form.get("body") or "")


def read_answer(request: OutgoingRequest, answer: Answer) -> Meaning:
    """What an answer to the publish means. Whatever is not named here means nothing."""
    done = re.fullmatch(r"/form/(done|queued)\?item=(\d{1,15})", answer.location)
    if answer.status == 302 and done is not None:
        says = Says.DONE if done[1] == "done" else Says.ACCEPTED
        url = f"{request.origin}/items/{done[2]}"
        return Meaning(says=says, clause=f"redirected_to_{done[1]}", item=done[2], url=url)
    if answer.status == 302 and urlsplit(answer.location).path == "/login":
        # The site looks at the session before it stores anything.
        return Meaning(says=Says.NOT_APPLIED, clause="redirected_to_sign_in")
    return Meaning(says=Says.NOTHING, clause="no_clause_fits")


class Noticeboard(Flow[Notice]):
    name = "noticeboard"
    version = "1"
    action = "publish-announcement"
    summary = "Publish a notice on the playground, as the guide explains it."
    payload_model = Notice
    session_cookies = ("pg_session",)
    secret_fields = ("csrf",)

    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/form/publish",
        matches=is_publish,
        material=sent_material,
    )
    login_writes = (
        Write(
            name="sign in",
            method="POST",
            path=r"/login",
            matches=lambda request: sorted(request.form) == ["next", "password", "user"],
            may_cause_effect=False,
        ),
    )
    contract = Contract(
        read_answer=read_answer,
        category=Category.WRITE_WITHOUT_KEY,
        undo=Undo.REVERSIBLE_AT_A_COST,
        undo_instructions="Sign in as the account, open “My notices” and press Delete beside the notice.",
        absence=AbsenceGuarantee(
            view="mine",
            consistency_window_s=5.0,
            statement="“My notices” lists every notice of the account, and shows one as soon as it is stored.",
        ),
    )

    def material(self, payload: Notice) -> dict[str, Any]:
        return normal(payload.title, payload.body)

    async def prepare(self, page: ComposerPage, intent: Intent[Notice]) -> Submit:
        await page.goto("/form/new")
        await page.by_label("Title", exact=True).fill(intent.payload.title)
        await page.by_label("Body", exact=True).fill(intent.payload.body)
        return Submit(control=page.by_role("button", "Publish", exact=True))

    async def identify(self, page: ComposerPage, intent: Intent[Notice]) -> Identity:
        if urlsplit(page.url).path == "/login":
            return Identity(account=None, destination=None, problem="The site shows its sign-in page.")
        shown = await page.by_test_id("account").all_inner_texts()
        return Identity(account=shown[0] if len(shown) == 1 else None, destination=origin_of_url(page.url))

    async def composed(self, page: ComposerPage, intent: Intent[Notice]) -> Material:
        title = await page.by_label("Title", exact=True).input_value()
        return normal(title, await page.by_label("Body", exact=True).input_value())

    async def validation_message(self, page: ComposerPage, intent: Intent[Notice]) -> str | None:
        said = await page.locator("[role=alert]").all_inner_texts()
        return " ".join(text for text in said if text.strip()) or None

    async def login(self, page: ComposerPage, destination: str, credentials: Credentials) -> None:
        await page.goto("/login")
        await page.by_label("User name").fill(credentials.user)
        await page.by_label("Password").fill(credentials.password)
        await page.by_role("button", "Sign in", exact=True).click()
        await page.wait_for("location.pathname !== '/login'")

    @view("mine", opens=(r"/mine", r"/items/\d{1,15}"), lists=True)
    async def mine(self, page: ReadOnlyPage, intent: Intent[Notice]) -> Observation:
        """The account's own list, and the page of every notice in it that has the title."""
        if (unfit := await self._open(page, intent, "/mine")) is not None:
            return unfit
        title = self.material(intent.payload)["title"]
        rows = await page.locator("main li[data-item-id]").all()
        total = await page.by_test_id("total").text()
        listed, alike = [], []
        for row in rows:
            number = await row.attribute("data-item-id") or ""
            if await row.attribute("data-state") == "draft":
                continue  # composing leaves drafts behind; they say nothing about publishing
            listed.append(number)
            if await row.locator("a").first.text_content() == title:
                alike.append(number)
        scope = f"{len(rows)} notices of {intent.account}"
        if total != str(len(rows)):
            return Partial(scope=scope, reason=f"the site says that there are {total}", listed=tuple(listed))
        items = []
        for number in alike:
            seen = await self._item(page, intent, number)
            if isinstance(seen, CouldNotLook):
                return Partial(scope=scope, reason=f"item {number}: {seen.detail}", listed=tuple(listed))
            items.append(seen)
        if items:
            return Found(items=tuple(items), listed=tuple(listed), scope=scope, complete=True)
        return NotFound(scope=scope, complete=True, listed=tuple(listed))

    async def _open(self, page: ReadOnlyPage, intent: Intent[Notice], address: str) -> CouldNotLook | None:
        """Open a page of the site as the account. Gives back why it is not fit to look at, None when it is."""
        status = await page.open(address)
        if urlsplit(page.url).path == "/login":
            return CouldNotLook(reason=NoLook.SIGNED_OUT, detail=f"{address} led to the sign-in page")
        if status != 200:
            return CouldNotLook(reason=NoLook.ERROR_PAGE, detail=f"{address} was answered with {status}")
        if (shown := await page.by_test_id("account").texts()) != [intent.account]:
            return CouldNotLook(reason=NoLook.WRONG_ACCOUNT, detail=f"{address} is shown to {', '.join(shown)}")
        return None

    async def _item(self, page: ReadOnlyPage, intent: Intent[Notice], number: str) -> Item | CouldNotLook:
        """One notice, compared in all that was approved."""
        if (unfit := await self._open(page, intent, f"/items/{number}")) is not None:
            return unfit
        card = page.locator(f'main [data-item-id="{number}"]')
        title, body = card.locator("h1"), card.locator("article")
        shown = normal(await title.text_content(), await body.text_content())
        author, state = await card.attribute("data-author"), await card.attribute("data-state")
        exact = author == intent.account and shown == self.material(intent.payload)
        return Item(
            id=number,
            state=_STATES.get(state or "", ItemState.OTHER),
            strength=Strength.EXACT_ITEM if exact else Strength.PARTIAL,
            url=page.url,
            account=author,
            material=shown,
        )


_STATES = {"published": ItemState.PUBLISHED, "queued": ItemState.QUEUED}
