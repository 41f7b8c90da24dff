"""The four flows against the running playground, in a plain browser without a gate: what they fill, what leaves on the
gesture, what the answers mean, what the views say. Every claim is held against the site's own record."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import quote, urlencode, urlsplit

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, Request, async_playwright
from pydantic import ValidationError

from executor.gate.rules import Kind, Phase, Reason, Rules, decide
from flows import playground_views
from flows.declarations import problem
from flows.effect import Meaning, Says
from flows.flow import Credentials, Identity, Intent
from flows.observations import CouldNotLook, Found, ItemState, NoLook, NotFound, Observation, Partial, Strength
from flows.pages import ComposerPage, ReadOnlyPage
from flows.playground import (
    Announcement,
    PlaygroundAutosave,
    PlaygroundForm,
    PlaygroundPanel,
    PlaygroundProblem,
    PlaygroundSpa,
)
from flows.wire import Answer, OutgoingRequest
from playground.faults import Fault
from playground.hazards import Hazard
from playground.messages import SESSION_COOKIE
from playground.pages import csrf_of
from playground.process import Playground

FLOWS = (PlaygroundForm, PlaygroundSpa, PlaygroundPanel, PlaygroundAutosave)
NATIVE = (PlaygroundForm, PlaygroundAutosave)
TITLE = 'Tea & <b>cake</b> "today" – für alle 🎂'
BODY = "First line &amp; <script>\n\n  third, indented\nlast"
MATERIAL = {"title": TITLE, "body": BODY}

AnyFlow = PlaygroundForm | PlaygroundSpa | PlaygroundPanel | PlaygroundAutosave
each_flow = pytest.mark.parametrize("kind", FLOWS, ids=lambda kind: kind.name)


AsyncTest = TypeVar("AsyncTest", bound=Callable[..., Awaitable[None]])


def in_browser(test: AsyncTest) -> AsyncTest:
    """On the loop of the module's one browser."""
    return cast(AsyncTest, pytest.mark.browser(pytest.mark.asyncio(loop_scope="module")(test)))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with Playground.start(tmp_path_factory.mktemp("site")) as site:
        yield site


@pytest.fixture
def site(running: Playground) -> Playground:
    running.truth.reset()
    return running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    assert path is not None, "Install Chromium: apt-get install chromium"
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    async with async_playwright() as playwright:
        started = await playwright.chromium.launch(
            executable_path=Path(path), args=[*sandbox, "--disable-gpu", "--disable-quic"]
        )
        yield started
        await started.close()


@asynccontextmanager
async def signed_in(
    browser: Browser, site: Playground, account: str | None = "editor"
) -> AsyncIterator[BrowserContext]:
    context = await browser.new_context()
    if account is not None:
        session = site.truth.open_session(account)
        await context.add_cookies([{"name": SESSION_COOKIE, "value": session, "url": site.plain}])
    try:
        yield context
    finally:
        await context.close()


def intent(site: Playground, title: str = TITLE, body: str = BODY, account: str = "editor") -> Intent[Announcement]:
    return Intent(
        task="t",
        action="publish-announcement",
        destination=site.plain,
        account=account,
        payload=Announcement(title=title, body=body),
        reference="op-1",
    )


def outgoing(
    site: Playground, method: str, target: str, body: bytes = b"", headers: tuple[tuple[str, str], ...] = ()
) -> OutgoingRequest:
    place = urlsplit(site.plain)
    assert place.hostname is not None
    assert place.port is not None
    return OutgoingRequest(method, place.scheme, place.hostname, place.port, target, headers, body)


class Wire:
    """The writes that a page sends and their answers, as the gate would hand them to the flow."""

    def __init__(self, page: Page, site: Playground) -> None:
        self._site = site
        self._requests: list[Request] = []
        page.on("request", lambda request: self._requests.append(request) if request.method != "GET" else None)

    async def sent(self) -> list[OutgoingRequest]:
        """Every write so far, in order."""
        return [await self._outgoing(request) for request in list(self._requests)]

    async def exchanges(self) -> list[tuple[OutgoingRequest, Answer]]:
        """The same with answers; only while nothing is in flight, and before the page goes away with the bodies."""
        return [(await self._outgoing(one), await answer_to(one)) for one in list(self._requests)]

    async def _outgoing(self, request: Request) -> OutgoingRequest:
        target = request.url.removeprefix(self._site.plain)
        headers = tuple((await request.all_headers()).items())
        return outgoing(self._site, request.method, target, request.post_data_buffer or b"", headers)


async def answer_to(request: Request) -> Answer:
    response = await request.response()
    assert response is not None
    headers = tuple((await response.all_headers()).items())
    body = b"" if 300 <= response.status < 400 else await response.body()
    return Answer(response.status, headers, body)


# The composer and the gesture


@each_flow
@in_browser
async def test_prepares_publishes_on_the_gesture_alone_and_shows_it_on_the_wire(
    kind: type[AnyFlow], browser: Browser, site: Playground
) -> None:
    flow, wanted = kind(), intent(site)
    async with signed_in(browser, site) as context:
        page = await context.new_page()
        wire = Wire(page, site)
        composer = ComposerPage(page, site.plain)
        submit = await flow.prepare(composer, wanted)

        assert site.truth.publish_count() == 0
        assert await flow.identify(composer, wanted) == Identity(account="editor", destination=site.plain)
        assert await flow.composed(composer, wanted) == flow.material(wanted.payload) == MATERIAL
        assert await flow.validation_message(composer, wanted) is None
        assert submit.key is None
        assert await submit.control.count() == 1
        assert await submit.control.is_enabled()

        # The autosaving page never reads the answers to its autosaves, and the browser then does not show them either.
        ahead = (
            [(one, send(one)) for one in await wire.sent()] if kind is PlaygroundAutosave else await wire.exchanges()
        )
        async with page.expect_response(lambda answer: publishes(kind, answer.request)) as arriving:
            await submit.control.click()
        answer = await answer_to((await arriving.value).request)
        await page.wait_for_load_state()
        sent = await wire.sent()

    assert site.truth.publish_count() == 1
    (request,) = [one for one in sent if flow.effect.fits(one, site.plain)]
    assert flow.effect.count(request) == 1
    rules = Rules(destination_origin=site.plain, effect=flow.effect, supporting=flow.supporting)
    for one in sent:
        assert decide(Phase.ARMED, rules, one).kind is (Kind.EFFECT if one is request else Kind.SUPPORTING)
        assert sum(write.fits(one, site.plain) for write in flow.supporting) == (one is not request)
    carried: dict[str, object] = {}
    for saved, stored_answer in ahead:
        (write,) = [one for one in flow.supporting if one.fits(saved, site.plain)]
        assert write.material is not None
        assert write.item is not None
        assert write.item(saved, stored_answer) == flow.effect.item(request)
        carried = dict(write.material(saved, stored_answer))
    assert carried == (MATERIAL if flow.supporting else {})
    assert {**carried, **flow.effect.material(request)} == MATERIAL

    (item,) = site.truth.published()
    assert (item.title, item.body, item.account) == (TITLE, BODY, "editor")
    meaning = flow.contract.read_answer(request, answer)
    assert (meaning.says, meaning.item) == (Says.DONE, str(item.id))
    assert meaning.url == f"{site.plain}/items/{item.id}"


def publishes(kind: type[AnyFlow], request: Request) -> bool:
    """The publish on its way, told from an autosave to the same address by its encoding."""
    return (
        request.method == kind.effect.method
        and re.fullmatch(kind.effect.path, urlsplit(request.url).path) is not None
        and "multipart" not in request.headers.get("content-type", "")
    )


@in_browser
async def test_the_panel_shows_its_title_only_in_the_draft(browser: Browser, site: Playground) -> None:
    flow, wanted = PlaygroundPanel(), intent(site)
    async with signed_in(browser, site) as context:
        page = await context.new_page()
        wire = Wire(page, site)
        submit = await flow.prepare(ComposerPage(page, site.plain), wanted)
        async with page.expect_response("**/api/items/*"):
            await submit.control.click()
        request = (await wire.sent())[-1]
    assert flow.effect.material(request) == {"body": BODY}
    assert flow.effect.item(request) == str(site.truth.published()[0].id)


@each_flow
@in_browser
async def test_a_blank_title_is_said_by_the_page_and_nothing_is_published(
    kind: type[AnyFlow], browser: Browser, site: Playground
) -> None:
    flow, wanted = kind(), intent(site)
    async with signed_in(browser, site) as context:
        page = await context.new_page()
        composer = ComposerPage(page, site.plain)
        submit = await flow.prepare(composer, wanted)
        await page.get_by_label("Title").fill("  ")
        if kind is PlaygroundPanel:  # its button comes back once the draft holds the blank title
            await page.wait_for_function("!document.getElementById('publish').disabled")
        await submit.control.click()
        assert await flow.validation_message(composer, wanted) == "Give your notice a title."
    assert site.truth.publish_count() == 0


@each_flow
@in_browser
async def test_a_visitor_is_stopped_in_prepare_and_seen_as_one(
    kind: type[AnyFlow], browser: Browser, site: Playground
) -> None:
    flow, wanted = kind(), intent(site)
    async with signed_in(browser, site, None) as context:
        composer = ComposerPage(await context.new_page(), site.plain)
        with pytest.raises(PlaygroundProblem, match="shows no composer"):
            await flow.prepare(composer, wanted)
        identity = await flow.identify(composer, wanted)
    assert identity == Identity(account=None, destination=None, problem="The site shows its sign-in page.")
    assert site.truth.requests(writes_only=True) == []


@in_browser
async def test_a_page_that_is_no_composer_names_no_destination(browser: Browser, site: Playground) -> None:
    async with signed_in(browser, site) as context:
        composer = ComposerPage(await context.new_page(), site.plain)
        flow = PlaygroundForm()
        blank = await flow.identify(composer, intent(site))
        await composer.goto("/mine")
        listing = await flow.identify(composer, intent(site))
    assert (blank.account, blank.destination) == (None, None)
    assert "no origin" in blank.problem
    assert (listing.account, listing.destination) == ("editor", None)
    assert "not a composer" in listing.problem


@pytest.mark.parametrize("kind", [PlaygroundPanel, PlaygroundAutosave])
@in_browser
async def test_a_draft_that_is_not_saved_stops_prepare(kind: type[AnyFlow], browser: Browser, site: Playground) -> None:
    site.truth.inject(Fault.STATUS_500_BEFORE, path_prefix="/", commit="draft")
    async with signed_in(browser, site) as context:
        composer = ComposerPage(await context.new_page(), site.plain)
        with pytest.raises(PlaygroundProblem, match="did not save the draft; the page says"):
            await kind().prepare(composer, intent(site))
    assert site.truth.publish_count() == 0


# Signing in


@in_browser
async def test_signs_in_by_form(browser: Browser, site: Playground) -> None:
    flow = PlaygroundForm()
    async with signed_in(browser, site, None) as context:
        page = await context.new_page()
        wire = Wire(page, site)
        await flow.login(ComposerPage(page, site.plain), site.plain, Credentials(user="second", password="playground"))
        (exchange,) = await wire.exchanges()
        cookies = [cookie.get("name") for cookie in await context.cookies()]
    assert [write.name for write in flow.login_writes if write.fits(exchange[0], site.plain)] == ["sign in"]
    assert not flow.effect.fits(exchange[0], site.plain)
    assert cookies == list(flow.session_cookies)


@in_browser
async def test_a_wrong_password_is_said_and_not_repeated(browser: Browser, site: Playground) -> None:
    async with signed_in(browser, site, None) as context:
        composer = ComposerPage(await context.new_page(), site.plain)
        with pytest.raises(PlaygroundProblem, match="do not match an account") as caught:
            await PlaygroundForm().login(composer, site.plain, Credentials(user="editor", password="sesame-7"))
    assert "sesame-7" not in str(caught.value)
    assert len(site.truth.requests(writes_only=True)) == 1


# Declarations and predicates


@each_flow
def test_is_a_complete_flow_of_the_shared_action(kind: type[AnyFlow]) -> None:
    assert problem(kind) is None
    assert kind.action == "publish-announcement"
    assert not any(write.may_cause_effect for write in (*kind.supporting, *kind.login_writes))
    assert kind.contract.absence is not None
    assert kind.contract.absence.view == "mine"
    assert [view.name for view in kind.views() if view.lists] == ["mine"]


def test_the_digest_of_a_flow_covers_its_views() -> None:
    digests = {kind.code_digest() for kind in FLOWS}
    assert len(digests) == len(FLOWS)
    modules = {klass.__module__ for klass in PlaygroundForm.__mro__}
    assert {"flows.playground", playground_views.__name__} <= modules


@pytest.mark.parametrize(
    ("title", "body"),
    [("", "b"), ("  ", "b"), ("x" * 201, "b"), ("two\nlines", "b"), ("bell\x07", "b"), ("t", "null\x00")],
)
def test_refuses_what_the_fields_would_not_keep(title: str, body: str) -> None:
    with pytest.raises(ValidationError):
        Announcement(title=title, body=body)


def test_the_normal_form_is_what_the_site_stores() -> None:
    payload = Announcement(title="  spaced ", body="a\r\nb\rc\n")
    assert PlaygroundForm().material(payload) == {"title": "spaced", "body": "a\nb\nc\n"}


def test_the_destination_is_an_origin() -> None:
    flow = PlaygroundSpa()
    assert flow.canonical_destination("HTTP://LOCALHOST:80/") == "http://localhost"
    with pytest.raises(ValueError, match="one board"):
        flow.canonical_destination("http://localhost/form/new")


FORM = (("content-type", "application/x-www-form-urlencoded"),)
JSON = (("content-type", "application/json"),)


@pytest.mark.parametrize(
    ("method", "target", "headers", "body"),
    [
        ("POST", "/form/draft", FORM, b"csrf=c&title=t&body=b"),
        ("POST", "/form/publish", FORM, b"csrf=c&title=t&title=u&body=b"),
        ("POST", "/form/publish", FORM, b"csrf=c&title=t&body=b&notify=all"),
        ("POST", "/api/items", JSON, b'{"title":"t","body":"b","status":"draft"}'),
        ("POST", "/api/items", JSON, b'{"title":"t","body":"b"}'),
        ("POST", "/api/items", JSON, b'[{"title":"t","body":"b","status":"published"}]'),
        ("POST", "/api/items", JSON, b'{"title":["t"],"body":"b","status":"published"}'),
        ("POST", "/api/items", JSON, b'{"title":"t","body":"b","status":"published","also":"x"}'),
        ("PUT", "/api/items/7", JSON, b'{"status":"draft","body":"b"}'),
        ("PUT", "/api/items/7", JSON, b'{"status":"published"}'),
        ("POST", "/api/drafts", JSON, b'{"title":"t","body":"b","status":"published"}'),
        ("POST", "/autosave/7/edit", FORM, b"csrf=c&title=t&body=b"),
        ("POST", "/autosave/7/edit", FORM, b"csrf=c&title=t&body=b&action-save=1"),
    ],
)
def test_what_is_not_exactly_known_is_neither_effect_nor_supporting(
    method: str, target: str, headers: tuple[tuple[str, str], ...], body: bytes, site: Playground
) -> None:
    request = outgoing(site, method, target, body, headers)
    for kind in FLOWS:
        assert not kind.effect.fits(request, site.plain)
        assert not any(write.fits(request, site.plain) for write in kind.supporting)


# What the answers mean


def publish_request(kind: type[AnyFlow], site: Playground, session: str, title: str = TITLE) -> OutgoingRequest:
    """The effect request of a flow as its page would send it, over a draft where it needs one."""
    cookie = (("cookie", f"{SESSION_COOKIE}={session}"),)
    fields = {"csrf": csrf_of(session), "title": title, "body": BODY.replace("\n", "\r\n")}
    if kind is PlaygroundForm:
        return outgoing(site, "POST", "/form/publish", urlencode(fields).encode(), FORM + cookie)
    if kind is PlaygroundSpa:
        value = {"title": title, "body": BODY, "status": "published"}
        return outgoing(site, "POST", "/api/items", json.dumps(value).encode(), JSON + cookie)
    draft = site.truth.create(account="editor", title=title.strip(), body="", state="draft", variant="panel")
    if kind is PlaygroundPanel:
        value = {"status": "published", "body": BODY}
        return outgoing(site, "PUT", f"/api/items/{draft.id}", json.dumps(value).encode(), JSON + cookie)
    fields["action-publish"] = "Publish"
    return outgoing(site, "POST", f"/autosave/{draft.id}/edit", urlencode(fields).encode(), FORM + cookie)


def send(request: OutgoingRequest) -> Answer:
    connection = http.client.HTTPConnection(request.host, request.port, timeout=10)
    try:
        connection.request(request.method, request.target, request.body, dict(request.headers))
        response = connection.getresponse()
        headers = tuple((name.lower(), value) for name, value in response.getheaders())
        try:
            return Answer(response.status, headers, response.read())
        except http.client.IncompleteRead as cut:
            return Answer(response.status, headers, cut.partial, complete=False)
    finally:
        connection.close()


def publish(kind: type[AnyFlow], site: Playground, title: str = TITLE) -> tuple[Meaning, OutgoingRequest, Answer]:
    request = publish_request(kind, site, site.truth.open_session("editor"), title)
    assert kind.effect.fits(request, site.plain)
    answer = send(request)
    return kind.contract.read_answer(request, answer), request, answer


@pytest.mark.parametrize(
    ("fault", "says", "commits"),
    [
        (Fault.LATE, Says.DONE, 1),
        (Fault.QUEUED, Says.ACCEPTED, 0),
        (Fault.REDIRECT_LOGIN, Says.NOT_APPLIED, 0),
        (Fault.REDIRECT_307, Says.NOTHING, 0),
        (Fault.NO_CONTENT, Says.NOTHING, 1),
        (Fault.STATUS_408_AFTER, Says.NOTHING, 1),
        (Fault.STATUS_500_AFTER, Says.NOTHING, 1),
        (Fault.STATUS_500_BEFORE, Says.NOTHING, 0),
        (Fault.TRUNCATED, Says.NOTHING, 1),
    ],
)
@each_flow
def test_reads_from_an_answer_what_the_site_guarantees_and_no_more(
    kind: type[AnyFlow], fault: Fault, says: Says, commits: int, site: Playground
) -> None:
    site.truth.inject(fault, path_prefix="/", argument=0.05 if fault is Fault.LATE else None)
    meaning, _, _ = publish(kind, site)
    assert meaning.says is says
    assert site.truth.publish_count() == commits
    assert site.truth.pending_faults() == []
    if says in (Says.DONE, Says.ACCEPTED):
        state = "published" if says is Says.DONE else "queued"
        (item,) = site.truth.items(state)
        assert meaning.item == str(item.id)
    else:
        assert meaning.item is None
    if says is Says.NOT_APPLIED:
        assert meaning.clause.startswith("redirected_to_sign_in")


@each_flow
def test_a_session_that_ended_is_not_applied(kind: type[AnyFlow], site: Playground) -> None:
    session = site.truth.open_session("editor")
    request = publish_request(kind, site, session)
    site.truth.end_session(session)
    answer = send(request)
    assert answer.location == f"/login?next={quote(request.path, safe='')}"
    assert kind.contract.read_answer(request, answer).says is Says.NOT_APPLIED
    assert site.truth.publish_count() == 0


@each_flow
def test_a_refused_title_is_not_applied_where_the_page_or_the_answer_says_so(
    kind: type[AnyFlow], site: Playground
) -> None:
    meaning, request, answer = publish(kind, site, title=" ")
    assert meaning.says is Says.NOT_APPLIED
    assert site.truth.publish_count() == 0
    silent = answer.body.replace(b"Give your notice a title.", b"")
    assert kind.contract.read_answer(request, replace_body(answer, silent)).says is Says.NOTHING


def replace_body(answer: Answer, body: bytes) -> Answer:
    return Answer(answer.status, answer.headers, body, answer.complete)


@pytest.mark.parametrize("kind", NATIVE)
def test_a_result_page_without_a_redirect_establishes_nothing(kind: type[AnyFlow], site: Playground) -> None:
    site.truth.set_hazard(Hazard.RELOAD_AFTER, "composer")
    meaning, _, answer = publish(kind, site)
    assert answer.status == 200
    assert meaning.says is Says.NOTHING
    assert site.truth.publish_count() == 1


@pytest.mark.parametrize("kind", [PlaygroundPanel, PlaygroundAutosave])
def test_an_answer_about_another_item_establishes_nothing(kind: type[AnyFlow], site: Playground) -> None:
    meaning, request, answer = publish(kind, site)
    assert meaning.item is not None
    elsewhere = replace(request, target=request.target.replace(meaning.item, f"{meaning.item}0"))
    assert kind.contract.read_answer(elsewhere, answer).clause == "answer_names_another_item"


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"id": true, "state": "published"}', b'{"id": 5, "state": "draft"}', b"\xff", b"{"]
)
@pytest.mark.parametrize("status", [200, 201, 202])
@pytest.mark.parametrize("kind", [PlaygroundSpa, PlaygroundPanel])
def test_an_answer_in_another_form_establishes_nothing(
    kind: type[AnyFlow], status: int, body: bytes, site: Playground
) -> None:
    request = publish_request(kind, site, "s")
    answer = Answer(status, (("content-type", "application/json"),), body)
    assert kind.contract.read_answer(request, answer).says is Says.NOTHING


def test_the_sign_in_page_of_another_site_establishes_nothing(site: Playground) -> None:
    request = publish_request(PlaygroundForm, site, "s")
    for location in ("https://elsewhere.test/login", "//elsewhere.test/login", "/login/next", "/login?next=/a&b=1"):
        meaning = PlaygroundForm.contract.read_answer(request, Answer(302, (("location", location),)))
        assert meaning.says is Says.NOTHING


# The views

Look = Callable[[str], Awaitable[Observation]]


@asynccontextmanager
async def looking(
    browser: Browser, site: Playground, account: str | None = "editor", wanted: Intent[Announcement] | None = None
) -> AsyncIterator[Look]:
    """A look by the view of that name. Afterwards: it wrote nothing and opened listed pages only."""
    flow = PlaygroundForm()
    before = len(site.truth.requests(writes_only=True))
    async with signed_in(browser, site, account) as context:
        page = await context.new_page()
        opened: list[Request] = []
        page.on("request", lambda request: opened.append(request) if request.is_navigation_request() else None)

        async def look(name: str) -> Observation:
            opened.clear()
            (view,) = [view for view in flow.views() if view.name == name]
            observation = await view.look(flow, ReadOnlyPage(page, site.plain), wanted or intent(site))
            rules = Rules(destination_origin=site.plain, opens=view.opens, fetches=view.fetches)
            for request in opened:
                target = request.url.removeprefix(site.plain)
                read = outgoing(site, "GET", target, headers=(("sec-fetch-dest", "document"),))
                decision = decide(Phase.READ_ONLY, rules, read)
                assert decision.passes or target.startswith("/login?"), target
                assert decision.passes or decision.reason is Reason.UNLISTED_DOCUMENT
            return observation

        yield look
    assert len(site.truth.requests(writes_only=True)) == before


def stored(site: Playground, *, state: str = "published", account: str = "editor", **fields: str) -> str:
    values: dict[str, Any] = {"title": TITLE, "body": BODY, "variant": "form", **fields}
    return str(site.truth.create(account=account, state=state, **values).id)


@in_browser
async def test_mine_finds_the_exact_item(browser: Browser, site: Playground) -> None:
    other = stored(site, title="Something else")
    number = stored(site)
    async with looking(browser, site) as look:
        found = await look("mine")
        public = await look("public")
    assert isinstance(found, Found)
    (item,) = found.items
    assert (item.id, item.strength, item.state) == (number, Strength.EXACT_ITEM, ItemState.PUBLISHED)
    assert (item.account, item.material, item.url) == ("editor", MATERIAL, f"{site.plain}/items/{number}")
    assert (found.listed, found.complete) == ((number, other), True)
    assert isinstance(public, Found)
    assert [(one.id, one.strength) for one in public.items] == [(number, Strength.TITLE_ONLY)]


@in_browser
async def test_not_there_is_said_of_the_whole_listing(browser: Browser, site: Playground) -> None:
    async with looking(browser, site) as look:
        empty = await look("mine")
        other = stored(site, title="Something else")
        mine, public = await look("mine"), await look("public")
    assert empty == NotFound(scope="all items of editor: 0 items on 1 page", complete=True)
    assert mine == NotFound(scope="all items of editor: 1 item on 1 page", complete=True, listed=(other,))
    assert public == NotFound(scope="all published notices: 1 item on 1 page", complete=True, listed=(other,))


@in_browser
async def test_an_older_identical_item_is_listed_beside_the_new_one(browser: Browser, site: Playground) -> None:
    older, newer = stored(site), stored(site)
    async with looking(browser, site) as look:
        found = await look("mine")
    assert isinstance(found, Found)
    assert [(item.id, item.strength) for item in found.items] == [
        (newer, Strength.EXACT_ITEM),
        (older, Strength.EXACT_ITEM),
    ]


@in_browser
async def test_a_draft_is_counted_and_is_neither_found_nor_listed(browser: Browser, site: Playground) -> None:
    draft, other = stored(site, state="draft"), stored(site, title="Something else")
    async with looking(browser, site) as look:
        before, public = await look("mine"), await look("public")
        site.truth.change(int(draft), state="published", request_seq=0)
        after = await look("mine")
    # The baseline is read after the composer was filled: the draft of the run itself must not count as an older item.
    scope = "all items of editor: 2 items on 1 page, of which 1 draft of that title"
    assert before == NotFound(scope=scope, complete=True, listed=(other,))
    assert public == NotFound(scope="all published notices: 1 item on 1 page", complete=True, listed=(other,))
    assert isinstance(after, Found)
    assert [(item.id, item.strength) for item in after.items] == [(draft, Strength.EXACT_ITEM)]
    assert set(after.listed) - set(before.listed) == {draft}


@pytest.mark.parametrize(
    ("fields", "state", "strength"),
    [
        # The whole item and certainly this one; that it is not published yet is said by its state.
        ({"state": "queued"}, ItemState.QUEUED, Strength.EXACT_ITEM),
        ({"body": "First line"}, ItemState.PUBLISHED, Strength.PARTIAL),
    ],
)
@in_browser
async def test_strength_says_how_much_is_equal_and_state_whether_it_is_out(
    fields: dict[str, str], state: ItemState, strength: Strength, browser: Browser, site: Playground
) -> None:
    number = stored(site, **fields)
    async with looking(browser, site) as look:
        found = await look("mine")
    assert isinstance(found, Found)
    assert [(item.id, item.strength, item.state) for item in found.items] == [(number, strength, state)]


@in_browser
async def test_the_item_of_another_account_is_not_found(browser: Browser, site: Playground) -> None:
    number = stored(site, account="second")
    async with looking(browser, site) as look:
        mine, public = await look("mine"), await look("public")
    assert mine == NotFound(scope="all items of editor: 0 items on 1 page", complete=True)
    assert public == NotFound(scope="all published notices: 1 item on 1 page", complete=True, listed=(number,))


@in_browser
async def test_a_listing_is_read_to_its_last_page(
    browser: Browser, site: Playground, monkeypatch: pytest.MonkeyPatch
) -> None:
    oldest = stored(site)
    for number in range(44):
        stored(site, account="second", title=f"Notice {number}")
    async with looking(browser, site) as look:
        whole = await look("public")
        monkeypatch.setattr(playground_views, "MOST_PAGES", 2)
        part = await look("public")
    assert isinstance(whole, Found)
    assert ([item.id for item in whole.items], len(whole.listed), whole.complete) == ([oldest], 45, True)
    assert isinstance(part, Partial)
    assert (part.items, len(part.listed), part.reason) == ((), 40, "only the first 2 pages are read")


@in_browser
async def test_more_candidates_than_are_opened_is_part(
    browser: Browser, site: Playground, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(playground_views, "MOST_CANDIDATES", 1)
    _, newest = stored(site), stored(site)
    async with looking(browser, site) as look:
        part = await look("mine")
    assert isinstance(part, Partial)
    assert [item.id for item in part.items] == [newest]
    assert part.reason == "2 items have that title, the newest 1 were opened"


@pytest.mark.parametrize("name", ["mine", "public"])
@in_browser
async def test_a_visitor_could_not_look(name: str, browser: Browser, site: Playground) -> None:
    stored(site)
    async with looking(browser, site, None) as look:
        observation = await look(name)
    assert isinstance(observation, CouldNotLook)
    assert observation.reason is NoLook.SIGNED_OUT


@pytest.mark.parametrize("name", ["mine", "public"])
@in_browser
async def test_another_account_could_not_look(name: str, browser: Browser, site: Playground) -> None:
    stored(site)
    async with looking(browser, site, "second") as look:
        observation = await look(name)
    assert isinstance(observation, CouldNotLook)
    assert observation.reason is NoLook.WRONG_ACCOUNT


HEADER = '<header><span data-testid="site">Noticeboard</span><span data-testid="account">editor</span></header>'
ROW = '<li data-item-id="7" data-author="editor" data-state="published"><a href="/items/7">Tea</a></li>'
CARD = (
    '<main><div data-item-id="7" data-author="editor" data-state="published"><h1>Tea</h1><article>hot</article></div>'
)


@asynccontextmanager
async def broken_site(*answers: bytes) -> AsyncIterator[str]:
    """A site that gives these answers in turn, the last one for ever; yields its origin. Icons get none."""
    left = list(answers)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/favicon" not in head.partition(b"\r\n")[0]:
                writer.write(left.pop(0) if len(left) > 1 else left[0])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the browser opens connections ahead of their use and drops them
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def canned(body: str, status: str = "200 OK", *, announced: int | None = None, more: str = "") -> bytes:
    data = body.encode()
    length = len(data) if announced is None else announced
    head = f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {length}\r\n{more}"
    return f"{head}Connection: close\r\n\r\n".encode() + data


async def look_at(browser: Browser, *answers: bytes) -> Observation:
    async with broken_site(*answers) as origin:
        context = await browser.new_context()
        try:
            page = ReadOnlyPage(await context.new_page(), origin)
            wanted: Intent[Announcement] = Intent(
                task="t",
                action="publish-announcement",
                destination=origin,
                account="editor",
                payload=Announcement(title="Tea", body="hot"),
                reference="op-1",
            )
            return await PlaygroundForm().mine(page, wanted)
        finally:
            await context.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (canned("<h1>500</h1>", "500 Internal Server Error"), NoLook.ERROR_PAGE),
        (canned(HEADER + "Nothing here", "404 Not Found"), NoLook.ERROR_PAGE),
        (canned(""), NoLook.BLANK),
        (canned("<p>Welcome to the hotel's network</p>"), NoLook.WRONG_PAGE),
        (canned('<span data-testid="site">Noticeboard</span>'), NoLook.SIGNED_OUT),
        (canned(HEADER + HEADER), NoLook.WRONG_PAGE),
        (canned(HEADER), NoLook.NOT_LOADED),
        (canned(HEADER + '<span data-testid="total">1</span><li data-item-id="x">?</li>'), NoLook.NOT_LOADED),
        (canned("", "302 Found", more="Location: /login?next=%2Fmine\r\n"), NoLook.SIGNED_OUT),
        (b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", NoLook.NOT_LOADED),
        (b"", NoLook.NOT_LOADED),
    ],
)
@in_browser
async def test_a_broken_page_is_could_not_look(answer: bytes, reason: NoLook, browser: Browser) -> None:
    forbidden = canned("<p>Answered by a proxy</p>", "403 Forbidden")
    observation = await look_at(browser, answer, *([forbidden] if b"302" in answer else []))
    assert isinstance(observation, CouldNotLook)
    assert observation.reason is reason


@pytest.mark.parametrize(
    ("answers", "why"),
    [
        ([HEADER + '<span data-testid="total">3</span>' + ROW], "3 in all, 1 were read"),
        (
            [HEADER + '<span data-testid="total">1</span>' + ROW + '<a rel="next" href="/mine?after=7">More</a>'],
            "a next page that this view does not know",
        ),
        ([HEADER + '<span data-testid="total">1</span>' + ROW, HEADER + CARD], "not the whole page of an item"),
    ],
)
@in_browser
async def test_a_page_that_does_not_add_up_is_part(answers: list[str], why: str, browser: Browser) -> None:
    observation = await look_at(browser, *(canned(answer) for answer in answers))
    assert isinstance(observation, Partial)
    assert why in observation.reason
