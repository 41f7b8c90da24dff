"""What the flows of the playground share: how its forms and JSON are read, what its answers mean, and how a composer is
filled and read back.

Declares and reads, as every flow does; it never submits. What it promises in the contract is read off the playground's
own routes, which store nothing before the session, the form token and the fields are found good.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar
from urllib.parse import urlsplit

from playwright.async_api import TimeoutError as PlaywrightTimeout

from flows.effect import AbsenceGuarantee, Category, Contract, Material, Meaning, Says, Undo, Write
from flows.flow import Credentials, Identity, Intent, Submit
from flows.pages import ComposerPage
from flows.playground_views import Announcement, Board, normal_form, parse
from flows.wire import Answer, OutgoingRequest, UnreadableBody, origin_of_url

WAIT_S = 15.0
"""How long prepare waits for the site to save a draft, and login for the site to decide."""


class PlaygroundProblem(RuntimeError):
    """The site did not do what prepare or login needs; the message says what a person would see."""


# What crosses the wire


def form_has(request: OutgoingRequest, *names: str) -> bool:
    """A form with exactly these fields, each once, and no file."""
    form = request.form
    return sorted(name for name, _ in form.fields) == sorted(names) and not form.files


def form_material(request: OutgoingRequest) -> Material:
    return normal_form(request.form.get("title") or "", request.form.get("body") or "")


def texts(request: OutgoingRequest) -> Mapping[str, str]:
    """The members of a JSON object whose members are all texts; empty for any other JSON."""
    value = request.json
    return value if isinstance(value, dict) and all(isinstance(one, str) for one in value.values()) else {}


def json_material(request: OutgoingRequest) -> Material:
    fields = texts(request)
    whole = normal_form(fields.get("title", ""), fields.get("body", ""))
    return {name: value for name, value in whole.items() if name in fields}


def item_in_path(request: OutgoingRequest) -> str | None:
    numbers = re.findall(r"/(\d{1,15})(?=/|$)", request.path)
    return str(int(numbers[0])) if len(numbers) == 1 else None


def answered_id(answer: Answer, status: int) -> str | None:
    """The id in a whole JSON answer of this status, else None."""
    if answer.status != status or not answer.complete:
        return None
    try:
        value = answer.json
    except UnreadableBody:
        return None
    number = value.get("id") if isinstance(value, dict) else None
    return str(number) if type(number) is int else None


def saved_item(request: OutgoingRequest, answer: Answer) -> str | None:
    saved = answered_id(answer, 200)
    return saved if saved is not None and saved == item_in_path(request) else None


SIGN_IN = Write(
    name="sign in",
    method="POST",
    path=r"/login",
    matches=lambda request: form_has(request, "next", "user", "password"),
    may_cause_effect=False,
)


# What the answers mean


def nothing(clause: str) -> Meaning:
    return Meaning(says=Says.NOTHING, clause=clause)


def signed_out(answer: Answer) -> Meaning | None:
    """The route of every write is looked up only after the session was found good, so this answer to a publish comes
    from a request that stored nothing."""
    if answer.status == 302 and re.fullmatch(r"/login(\?next=[^&#]*)?", answer.location):
        clause = "redirected_to_sign_in: the site checks the session before it stores anything"
        return Meaning(says=Says.NOT_APPLIED, clause=clause)
    return None


def native_answer(composer: str) -> Callable[[OutgoingRequest, Answer], Meaning]:
    """The reading for a form that is answered by a redirect to its result."""

    def read(request: OutgoingRequest, answer: Answer) -> Meaning:
        if not answer.complete:
            return nothing("answer_cut")
        if meaning := signed_out(answer):
            return meaning
        result = re.fullmatch(rf"/{composer}/(done|queued)\?item=(\d{{1,15}})", answer.location)
        if answer.status == 302 and result is not None:
            item = str(int(result[2]))
            if item_in_path(request) not in (None, item):
                return nothing("answer_names_another_item")
            url = f"{request.origin}/items/{item}"
            if result[1] == "done":
                return Meaning(says=Says.DONE, clause="redirected_to_done", item=item, url=url)
            return Meaning(says=Says.ACCEPTED, clause="redirected_to_queued", item=item, url=url)
        if answer.status == 200 and answer.content_type == "text/html" and _form_again(answer):
            return Meaning(says=Says.NOT_APPLIED, clause="form_shown_again_with_alert")
        return nothing("answer_establishes_nothing")

    return read


def _form_again(answer: Answer) -> bool:
    """Whether the composer came back with its message at a field. The result page of a publish has neither."""
    try:
        page = parse(answer.text)
    except UnreadableBody:
        return False
    composer = page.only("id", "composer")
    return composer is not None and any(alert.text.strip() for alert in composer.having("role", "alert"))


def json_answer(published: int) -> Callable[[OutgoingRequest, Answer], Meaning]:
    """The reading for the API: `published` is its status for a finished publish, 202 that of one that waits."""

    def read(request: OutgoingRequest, answer: Answer) -> Meaning:
        if not answer.complete:
            return nothing("answer_cut")
        if meaning := signed_out(answer):
            return meaning
        if answer.status not in (published, 202, 422) or answer.content_type != "application/json":
            return nothing("answer_establishes_nothing")
        try:
            value = answer.json
        except UnreadableBody:
            return nothing("answer_unreadable")
        if not isinstance(value, dict):
            return nothing("answer_unreadable")
        if answer.status == 422 and isinstance(value.get("error"), str) and value["error"]:
            return Meaning(says=Says.NOT_APPLIED, clause="refused_by_validation")
        item = answered_id(answer, answer.status)
        wanted = {published: "published", 202: "queued"}.get(answer.status)
        if item is None or wanted is None or value.get("state") != wanted:
            return nothing("answer_establishes_nothing")
        if item_in_path(request) not in (None, item):
            return nothing("answer_names_another_item")
        url = f"{request.origin}/items/{item}"
        if wanted == "published":
            return Meaning(says=Says.DONE, clause="answered_published", item=item, url=url)
        return Meaning(says=Says.ACCEPTED, clause="answered_queued", item=item, url=url)

    return read


def contract_of(read_answer: Callable[[OutgoingRequest, Answer], Meaning], *notes: str) -> Contract:
    return Contract(
        read_answer=read_answer,
        category=Category.WRITE_WITHOUT_KEY,
        undo=Undo.REVERSIBLE_AT_A_COST,
        undo_instructions=(
            "Sign in as the account, open “My notices” and press Delete beside the notice. Whoever read it meanwhile "
            "has read it."
        ),
        absence=AbsenceGuarantee(
            view="mine",
            consistency_window_s=5.0,
            statement=(
                "“My notices” lists every item of the account with its state, and shows a publish as soon as it is "
                "stored; the site stores a publish when the request arrives, never later."
            ),
        ),
        notes=(
            "Every publish that the site carries out counts: the same request sent twice is carried out twice.",
            "A redirect to the sign-in page means that nothing was stored: the session is checked first.",
            *notes,
        ),
    )


class PlaygroundComposer(Board):
    """One composer of the playground. A subclass names its page, its effect and its control."""

    version = "1"
    action = "publish-announcement"
    session_cookies = ("pg_session",)
    secret_fields: ClassVar[tuple[str, ...]] = ("csrf",)
    login_writes = (SIGN_IN,)

    composer: ClassVar[str]
    """Path of the page on which the notice is written."""

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        await page.goto(self.composer)
        if await page.locator("#composer").count() != 1:
            raise PlaygroundProblem(f"{self.composer} shows no composer; the page is {page.url}")
        await self._fill(page, intent)
        return await self._choose(page)

    async def _fill(self, page: ComposerPage, intent: Intent[Announcement]) -> None:
        await page.by_label("Title", exact=True).fill(intent.payload.title)
        await page.by_label("Body", exact=True).fill(intent.payload.body)

    @abstractmethod
    async def _choose(self, page: ComposerPage) -> Submit:
        """Bring the filled composer to where one gesture publishes, and name its control."""

    async def _wait_for(self, page: ComposerPage, condition: str, what: str) -> None:
        """Wait until the condition holds in the page. Raises PlaygroundProblem when the page says otherwise."""
        alert = "[...document.querySelectorAll('[role=alert]')].some((one) => one.textContent.trim())"
        try:
            await page.wait_for(f"() => ({condition}) || {alert}", timeout_s=WAIT_S)
        except PlaywrightTimeout as error:
            raise PlaygroundProblem(f"{what} within {WAIT_S:g} s") from error
        if said := await alerts_of(page):
            raise PlaygroundProblem(f"{what}; the page says: {said}")

    async def identify(self, page: ComposerPage, intent: Intent[Announcement]) -> Identity:
        if urlsplit(page.url).path == "/login":
            return Identity(account=None, destination=None, problem="The site shows its sign-in page.")
        accounts = await page.by_test_id("account").all_inner_texts()
        account = accounts[0].strip() if len(accounts) == 1 else None
        place = await self._place(page)
        ours = await page.by_test_id("site").count() == 1 and place is not None
        try:
            origin = origin_of_url(place or page.url)
        except ValueError as error:
            return Identity(account=None, destination=None, problem=f"The page has no origin: {error}.")
        return Identity(
            account=account,
            destination=origin if ours else None,
            problem="" if ours else f"The page {page.url} is not a composer of this site.",
        )

    async def _place(self, page: ComposerPage) -> str | None:
        """The address of the document that the composer is in, None where there is none."""
        return page.url if await page.locator("#composer").count() == 1 else None

    async def composed(self, page: ComposerPage, intent: Intent[Announcement]) -> Material:
        title = await page.by_label("Title", exact=True).input_value()
        return normal_form(title, await page.by_label("Body", exact=True).input_value())

    async def validation_message(self, page: ComposerPage, intent: Intent[Announcement]) -> str | None:
        return await alerts_of(page)

    async def login(self, page: ComposerPage, destination: str, credentials: Credentials) -> None:
        await page.goto("/login")
        await page.by_label("User name", exact=True).fill(credentials.user)
        await page.by_label("Password", exact=True).fill(credentials.password)
        await page.by_role("button", "Sign in", exact=True).click()
        arrived = "location.pathname !== '/login' && document.readyState === 'complete'"
        await self._wait_for(page, arrived, "the site did not let the person in")
        shown = await page.by_test_id("account").all_inner_texts()
        if [account.strip() for account in shown] != [credentials.user]:
            raise PlaygroundProblem(
                f"after signing in as {credentials.user} the site shows {', '.join(shown) or 'nobody'}"
            )


async def alerts_of(page: ComposerPage) -> str | None:
    """What the page says is wrong, None when it says nothing."""
    said = [text.strip() for text in await page.locator("[role=alert]").all_inner_texts()]
    return " ".join(filter(None, said)) or None
