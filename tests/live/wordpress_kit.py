"""What the live tests share: an intent, the rules that follow from the flow, a browser that is signed in, and the wire
as the gate would see it. Helpers only."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, Request, Response
from playwright.async_api import Error as PlaywrightError
from wordpress_site import PASSWORD, WRITER
from wordpress_site import Post as Row

from executor.gate.rules import Decision, Phase, Rules, decide
from flows.flow import Credentials, Intent
from flows.pages import ComposerPage
from flows.wire import Answer, OutgoingRequest
from flows.wordpress import Post, WordPressPost

TITLE = 'Tea & cake "today" – für alle 🎂'
BODY = "First, with <angles>, AT&T & 'quotes'.\nA second line.\n\n/image\n\n- no list, @writer"
FLOW = WordPressPost()


def intent(destination: str, title: str = TITLE, body: str = BODY, account: str = WRITER) -> Intent[Post]:
    return Intent(
        task="t",
        action="publish-post",
        destination=FLOW.canonical_destination(destination),
        account=account,
        payload=Post(title=title, body=body),
        reference="op-1",
    )


def rules(url: str) -> Rules:
    return Rules(
        destination_origin=intent(url).origin,
        effect=FLOW.effect,
        supporting=FLOW.supporting,
        trailing=FLOW.trailing,
        login=FLOW.login_writes,
    )


class Wire:
    """Everything that a page sends, as the gate would hand it to the rules, with the answers."""

    def __init__(self, page: Page) -> None:
        self._requests: list[Request] = []
        self._read: dict[Request, tuple[OutgoingRequest, Answer]] = {}
        page.on("request", lambda request: self._requests.append(request))

    async def exchanges(self) -> list[tuple[OutgoingRequest, Answer]]:
        """All so far, in order. Call it before a navigation too: the browser drops bodies with the page."""
        for request in list(self._requests):
            if request not in self._read and not request.url.startswith(("data:", "blob:", "about:")):
                self._read[request] = await _exchange(request)
        return [self._read[request] for request in self._requests if request in self._read]


async def _exchange(request: Request) -> tuple[OutgoingRequest, Answer]:
    place = urlsplit(request.url)
    sent = OutgoingRequest(
        request.method,
        place.scheme,
        place.hostname or "",
        place.port or (443 if place.scheme == "https" else 80),
        place.path + (f"?{place.query}" if place.query else ""),
        tuple((await request.all_headers()).items()),
        request.post_data_buffer or b"",
    )
    if request.method in ("GET", "OPTIONS"):  # no answer to a read is looked at, and there are a hundred of them
        return sent, Answer(0, complete=False)
    response = await request.response()
    if response is None or response.headers.get("content-type", "").partition(";")[0] != "application/json":
        return sent, Answer(response.status if response else 0, complete=False)
    try:
        return sent, await answer_of(response)
    except PlaywrightError:  # the page has gone on, and its answers with it
        return sent, Answer(response.status, complete=False)


async def answer_of(response: Response) -> Answer:
    # The driver hands out the decoded body.
    headers = tuple((k, v) for k, v in (await response.all_headers()).items() if k != "content-encoding")
    return Answer(response.status, headers, await response.body())


@asynccontextmanager
async def visiting(browser: Browser, url: str) -> AsyncIterator[tuple[Page, ComposerPage]]:
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = await context.new_page()
        yield page, ComposerPage(page, intent(url).origin)
    finally:
        await context.close()


@asynccontextmanager
async def signed_in(browser: Browser, url: str, user: str = WRITER) -> AsyncIterator[tuple[Page, ComposerPage]]:
    async with visiting(browser, url) as (page, composer):
        await FLOW.login(composer, intent(url).destination, Credentials(user=user, password=PASSWORD))
        yield page, composer


async def publish(page: Page, composer: ComposerPage, wanted: Intent[Post]) -> Answer:
    submit = await FLOW.prepare(composer, wanted)
    async with page.expect_response(lambda answer: is_effect(answer.request)) as answered:
        await submit.control.click()
    return await answer_of(await answered.value)


def is_effect(request: Request) -> bool:
    return request.method == "POST" and b'"status":"publish"' in (request.post_data_buffer or b"")


def decided(url: str, requests: list[OutgoingRequest], phase: Phase = Phase.ARMED) -> list[tuple[str, str]]:
    """Kind, and the name of the declared write or the reason of the refusal, for each request."""
    return [_named(decide(phase, rules(url), request)) for request in requests]


def _named(decision: Decision) -> tuple[str, str]:
    name = decision.write.name if decision.write else ""
    return decision.kind.value, name or (decision.reason.value if decision.reason else "")


def the_only(rows: list[Row]) -> Row:
    assert len(rows) == 1, rows
    return rows[0]


def stored(text: str) -> str:
    """As WordPress keeps what an author without unfiltered HTML sends: a bare ampersand or `>` becomes an entity."""
    text = re.sub(r"&(?!\w+;)", "&amp;", text)
    return re.sub(r"(<!--.*?-->|</?p>|<br>)|>", lambda match: match[1] or "&gt;", text)
