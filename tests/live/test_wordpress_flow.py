"""The WordPress flow on a real WordPress, in a plain browser without a gate: what the editor sends on the way to a post
and on publishing, what the rules say to each of these requests, and what the views say afterwards. Ground truth is the
posts table."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser
from wordpress_kit import (
    BODY,
    FLOW,
    TITLE,
    Wire,
    answer_of,
    decided,
    intent,
    is_effect,
    publish,
    rules,
    signed_in,
    stored,
    the_only,
    visiting,
)
from wordpress_site import CONTRIBUTOR, OTHER, PASSWORD, WRITER, WordPressSite

from executor.gate.rules import Kind, Phase, Reason, Rules, decide, session_digest_of
from executor.gate.state import Carried
from executor.one_shot.material import on_the_wire
from flows.effect import Says
from flows.flow import Credentials, Identity, Intent
from flows.observations import CouldNotLook, Found, ItemState, NoLook, NotFound, Observation, Partial, Strength
from flows.pages import ReadOnlyPage
from flows.wire import OutgoingRequest
from flows.wordpress import Post, WordPressProblem
from flows.wordpress_blocks import MOST_PAGES, block_markup

pytestmark = [
    pytest.mark.live,
    pytest.mark.browser,
    pytest.mark.timeout(360),
    pytest.mark.asyncio(loop_scope="session"),
]


# What the editor sends


@pytest.mark.parametrize(("place", "pretty"), [("root", False), ("root", True), ("folder", False), ("folder", True)])
async def test_the_editor_sends_one_effect_and_nothing_undeclared(
    site: WordPressSite, browser: Browser, place: str, pretty: bool
) -> None:
    site.pretty_links(pretty)
    url = site.root_url if place == "root" else site.folder_url
    wanted = intent(url)
    async with signed_in(browser, url) as (page, composer):
        wire = Wire(page)
        submit = await FLOW.prepare(composer, wanted)
        assert await FLOW.identify(composer, wanted) == Identity(account=WRITER, destination=url)
        assert await FLOW.composed(composer, wanted) == FLOW.material(wanted.payload)
        assert await FLOW.validation_message(composer, wanted) is None
        assert await submit.control.count() == 1
        before = await wire.exchanges()
        assert {kind for kind, _ in decided(url, [sent for sent, _ in before], Phase.PREPARE)} <= {"safe", "supporting"}
        assert site.published() == []

        async with page.expect_response(lambda answer: is_effect(answer.request)) as answered:
            await submit.control.click()
        answer = await answer_of(await answered.value)
        await page.locator(".post-publish-panel__postpublish-header").wait_for()
        # The beacon that leaves with the page, while the page can still be listened to.
        await page.evaluate("window.dispatchEvent(new Event('beforeunload'))")
        after = (await wire.exchanges())[len(before) :]

    row = the_only(site.published())
    assert (row.title, row.content, row.author) == (stored(TITLE), stored(block_markup(BODY)), WRITER)
    verdicts = decided(url, [sent for sent, _ in after])
    assert [kind for kind, _ in verdicts].count("effect") == 1
    assert {one for one in verdicts if one[0] == "refused"} == {("refused", "not_declared")}  # the beacon alone
    refused = [sent for sent, _ in after if not decide(Phase.ARMED, rules(url), sent).passes]
    assert [sent.form.get("action") for sent in refused] == ["wp-remove-post-lock"]
    trailing = decide(Phase.SHUT, rules(url), refused[0], trailing_open=True)
    assert trailing.kind is Kind.TRAILING

    effect = next(sent for sent, _ in after if decide(Phase.ARMED, rules(url), sent).kind is Kind.EFFECT)
    shown = on_the_wire(FLOW.effect, effect, [], FLOW.material(wanted.payload))
    assert (shown.differs, shown.unseen) == ((), ())
    documents = [sent for sent, _ in before if sent.header("sec-fetch-dest") == "document"]
    assert session_digest_of(effect, FLOW.proof_cookies) == session_digest_of(documents[-1], FLOW.proof_cookies)
    meaning = FLOW.contract.read_answer(effect, answer)
    assert (meaning.says, meaning.item) == (Says.DONE, str(row.id))


_ALL_SAVED = """() => {
  const id = wp.data.select('core/editor').getCurrentPostId();
  const edits = wp.data.select('core').getEntityRecordNonTransientEdits('postType', 'post', id) || {};
  return !('title' in edits) && !wp.data.select('core/editor').isSavingPost();
}"""


async def test_what_an_autosave_carried_ahead_is_not_sent_again(site: WordPressSite, browser: Browser) -> None:
    site.tune(autosave_s=1)
    # Without anything that WordPress stores in another spelling: the editor would then take it for changed for ever.
    wanted = intent(site.root_url, title="A plain title")
    async with signed_in(browser, site.root_url) as (page, composer):
        wire = Wire(page)
        async with page.expect_response(lambda answer: "autosaves" in answer.url):
            submit = await FLOW.prepare(composer, wanted)
        await page.wait_for_function(_ALL_SAVED)
        async with page.expect_response(lambda answer: is_effect(answer.request)):
            await submit.control.click()
        exchanges = await wire.exchanges()
    decisions = [(decide(Phase.ARMED, rules(site.root_url), sent), sent, answer) for sent, answer in exchanges]
    effect = next(sent for decision, sent, _ in decisions if decision.kind is Kind.EFFECT)
    carried = [
        Carried(number, decision.write, sent, answer)
        for number, (decision, sent, answer) in enumerate(decisions)
        if decision.write is not None
    ]
    assert {decision.kind for decision, _, _ in decisions} == {Kind.SAFE, Kind.SUPPORTING, Kind.EFFECT}
    assert "autosave" in {one.write.name for one in carried}
    approved = FLOW.material(wanted.payload)
    alone = on_the_wire(FLOW.effect, effect, [], approved)
    assert "title" in alone.unseen
    together = on_the_wire(FLOW.effect, effect, carried, approved)
    assert (together.differs, together.unseen) == ((), ())
    row = the_only(site.published())
    assert (row.title, row.content) == ("A plain title", stored(block_markup(BODY)))


async def test_a_heartbeat_passes_only_as_a_lock(site: WordPressSite, browser: Browser) -> None:
    async with signed_in(browser, site.root_url) as (page, composer):
        await FLOW.prepare(composer, intent(site.root_url))
        async with page.expect_response(lambda answer: "admin-ajax" in answer.url):
            wire = Wire(page)
            await page.evaluate("wp.heartbeat.connectNow()")
        beats = [sent for sent, _ in await wire.exchanges() if sent.path.endswith("admin-ajax.php")]
    assert decided(site.root_url, beats) == [("supporting", "heartbeat")]


async def test_saving_a_draft_twice_takes_the_shape_of_an_update(site: WordPressSite, browser: Browser) -> None:
    """Why a save without a status is not declared: nothing in it tells a draft from a post that is out."""
    async with signed_in(browser, site.root_url) as (page, composer):
        await FLOW.prepare(composer, intent(site.root_url))
        await page.get_by_role("button", name="Cancel").click()
        wire = Wire(page)
        for text in ("one", "two"):
            await page.locator(".editor-post-title__input").fill(text)
            async with page.expect_response(lambda answer: answer.request.method == "POST" and "posts" in answer.url):
                await page.locator(".editor-post-save-draft").click()
        saves = [sent for sent, _ in await wire.exchanges() if sent.method == "POST" and "posts" in sent.target]
    assert ["status" in save.json for save in saves] == [True, False]
    assert decided(site.root_url, saves) == [("supporting", "save draft"), ("refused", "not_declared")]


# Ways around the effect. Each was measured to publish; none may pass in any phase.

_SEND = """async ([path, options]) => {
  const root = wpApiSettings.root, plain = root.includes('rest_route=');
  const url = path.startsWith('/wp-admin') ? path : root + path.slice(1).replace('?', plain ? '&' : '?');
  const {form, json, headers = {}, nonce = wpApiSettings.nonce, ...rest} = options;
  const init = {headers: {...headers}, ...rest};
  if (!form && nonce) init.headers['X-WP-Nonce'] = nonce;
  if (json) { init.body = JSON.stringify(json); init.headers['Content-Type'] = 'application/json'; }
  if (form) init.body = new URLSearchParams(form);
  const answer = await fetch(url, init);
  return [answer.status, await answer.text()];
}"""
_PUT = {"X-HTTP-Method-Override": "PUT"}


def ways(item: int, nonce: str = "", form_nonce: str = "") -> dict[str, tuple[str, dict[str, Any], int, Reason]]:
    """Path, options, how many posts it publishes, and why it is refused while the effect is armed."""
    post = f"/wp/v2/posts/{item}"
    publish = {"method": "POST", "json": {"id": item, "status": "publish"}}
    return {
        "GET with _method": (f"{post}?_method=PUT&status=publish", {}, 1, Reason.METHOD_OVERRIDE),
        "GET with a header": (f"{post}?status=publish", {"headers": _PUT}, 1, Reason.METHOD_OVERRIDE),
        "batch/v1": (
            "/batch/v1",
            {
                "method": "POST",
                "json": {
                    "requests": [
                        {"path": post, "method": "PUT", "body": {"status": "publish"}},
                        {"path": "/wp/v2/posts", "body": {"status": "publish", "title": "second"}},
                    ]
                },
            },
            2,
            Reason.NOT_DECLARED,
        ),
        "autosave": (
            f"{post}/autosaves",
            {"method": "POST", "json": {"status": "publish", "title": "t", "content": "c"}},
            1,
            Reason.NOT_DECLARED,
        ),
        "heartbeat": (
            "/wp-admin/admin-ajax.php",
            {
                "method": "POST",
                "form": {
                    "action": "heartbeat",
                    "_nonce": nonce,
                    "interval": "60",
                    "screen_id": "post",
                    "has_focus": "true",
                    "data[wp_autosave][post_id]": str(item),
                    "data[wp_autosave][_wpnonce]": form_nonce,
                    "data[wp_autosave][post_type]": "post",
                    "data[wp_autosave][post_status]": "publish",
                    "data[wp_autosave][post_title]": "t",
                },
            },
            1,
            Reason.NOT_DECLARED,
        ),
        "another address for the same": (f"{post}?context=edit", publish | {"headers": _PUT}, 1, Reason.NOT_DECLARED),
        "create": (
            "/wp/v2/posts",
            {"method": "POST", "json": {"status": "publish", "title": "t"}},
            1,
            Reason.NOT_DECLARED,
        ),
        "the id in the body wins": (
            "/wp/v2/posts/999999",
            publish | {"headers": _PUT},
            1,
            Reason.NOT_DECLARED,
        ),
        "another way to override": (
            post,
            publish | {"headers": {"X-HTTP-Method-Override": "PATCH"}},
            1,
            Reason.NOT_DECLARED,
        ),
        "with a password": (
            post,
            {"method": "POST", "headers": _PUT, "json": {"id": item, "status": "publish", "password": "p"}},
            1,
            Reason.NOT_DECLARED,
        ),
    }


@pytest.mark.parametrize("way", list(ways(0)))
async def test_no_way_around_the_effect_passes(site: WordPressSite, browser: Browser, way: str) -> None:
    item = site.add_post("t", "c", status="draft")
    async with signed_in(browser, site.root_url) as (page, _):
        await page.goto(f"{site.root_url}/wp-admin/post.php?post={item}&action=edit")
        nonces = await page.evaluate("[heartbeatSettings.nonce, document.querySelector('#_wpnonce').value]")
        path, options, publications, reason = ways(item, *nonces)[way]
        wire = Wire(page)
        await page.evaluate(_SEND, [path, options])
        sent = next(sent for sent, _ in await wire.exchanges() if is_sent(sent, path, options))
    assert len(site.published()) == publications
    for phase in (Phase.PREPARE, Phase.READ_ONLY, Phase.ARMED, Phase.SHUT, Phase.LOGIN):
        assert decide(phase, rules(site.root_url), sent, trailing_open=True).kind is Kind.REFUSED, phase
    assert decide(Phase.ARMED, rules(site.root_url), sent).reason is reason


def is_sent(request: OutgoingRequest, path: str, options: dict[str, Any]) -> bool:
    route = path.partition("?")[0]
    return request.method == options.get("method", "GET") and route in (request.path, request.query_value("rest_route"))


# What WordPress answers when it did not publish


@pytest.mark.parametrize(
    ("user", "nonce", "cookies", "status", "code"),
    [
        (WRITER, "0123456789", True, 403, "rest_cookie_invalid_nonce"),
        (CONTRIBUTOR, None, True, 403, "rest_cannot_publish"),
        (OTHER, None, True, 403, "rest_cannot_edit"),
        (WRITER, None, False, 403, "rest_cookie_invalid_nonce"),
        (WRITER, "", False, 401, "rest_cannot_edit"),
    ],
)
async def test_a_refusal_is_read_as_not_applied(
    site: WordPressSite, browser: Browser, user: str, nonce: str | None, cookies: bool, status: int, code: str
) -> None:
    item = site.add_post("t", "c", status="draft", author=CONTRIBUTOR if user == CONTRIBUTOR else WRITER)
    async with signed_in(browser, site.root_url, user) as (page, _):
        await page.goto(f"{site.root_url}/wp-admin/post-new.php")
        if not cookies:
            await page.context.clear_cookies()
        options: dict[str, Any] = {"method": "POST", "headers": _PUT, "json": {"id": item, "status": "publish"}}
        if nonce is not None:
            options["nonce"] = nonce
        wire = Wire(page)
        await page.evaluate(_SEND, [f"/wp/v2/posts/{item}", options])
        effects = [
            (sent, answer)
            for sent, answer in await wire.exchanges()
            if decide(Phase.ARMED, rules(site.root_url), sent).kind is Kind.EFFECT
        ]
    assert site.published() == []
    [(sent, answer)] = effects
    assert answer.status == status
    meaning = FLOW.contract.read_answer(sent, answer)
    assert (meaning.says, meaning.clause.partition(":")[0]) == (Says.NOT_APPLIED, code)


# Prepare, identity and sign-in where something is in the way


async def test_prepare_leaves_the_only_button_where_the_panel_is_switched_off(
    site: WordPressSite, browser: Browser
) -> None:
    wanted = intent(site.root_url)
    async with signed_in(browser, site.root_url) as (page, composer):
        await FLOW.prepare(composer, wanted)
        await page.get_by_label("Always show pre-publish checks.").uncheck()
        async with page.expect_response(lambda answer: "users" in answer.url and answer.request.method == "POST"):
            pass
        submit = await FLOW.prepare(composer, wanted)
        assert await FLOW.composed(composer, wanted) == FLOW.material(wanted.payload)
        assert site.published() == []
        assert await page.locator(".editor-post-publish-panel").count() == 0
        async with page.expect_response(lambda answer: is_effect(answer.request)):
            await submit.control.click()
    the_only(site.published())


async def test_the_editors_view_stays_as_the_account_chose_it(site: WordPressSite, browser: Browser) -> None:
    wanted = intent(site.root_url)
    mode = "wp.data.select('core/edit-post').getEditorMode()"
    async with signed_in(browser, site.root_url) as (page, composer):
        await FLOW.prepare(composer, wanted)
        assert await page.evaluate(mode) == "visual"
        await page.get_by_role("button", name="Cancel").click()
        async with page.expect_response(lambda answer: "users" in answer.url and answer.request.method == "POST"):
            await page.evaluate("wp.data.dispatch('core/edit-post').switchEditorMode('text')")
        await FLOW.prepare(composer, wanted)
        assert await page.evaluate(mode) == "text"
        assert await FLOW.composed(composer, wanted) == FLOW.material(wanted.payload)


async def test_whoever_may_not_publish_is_stopped_in_prepare(site: WordPressSite, browser: Browser) -> None:
    async with signed_in(browser, site.root_url, CONTRIBUTOR) as (_, composer):
        wanted = intent(site.root_url, account=CONTRIBUTOR)
        with pytest.raises(WordPressProblem, match="may not publish"):
            await FLOW.prepare(composer, wanted)
        assert await FLOW.identify(composer, wanted) == Identity(account=CONTRIBUTOR, destination=site.root_url)


async def test_a_sign_in_page_is_named(site: WordPressSite, browser: Browser) -> None:
    async with visiting(browser, site.folder_url) as (_, composer):
        with pytest.raises(WordPressProblem, match="sign in"):
            await FLOW.prepare(composer, intent(site.folder_url))
        assert (await FLOW.identify(composer, intent(site.folder_url))).problem == "WordPress asks to sign in."


@pytest.mark.parametrize("password", [PASSWORD, "wrong"])
async def test_signing_in_sends_one_form(site: WordPressSite, browser: Browser, password: str) -> None:
    async with visiting(browser, site.folder_url) as (page, composer):
        wire = Wire(page)
        credentials = Credentials(user=WRITER, password=password)
        if password == PASSWORD:
            await FLOW.login(composer, site.folder_url, credentials)
        else:
            with pytest.raises(WordPressProblem, match="did not accept"):
                await FLOW.login(composer, site.folder_url, credentials)
        sent = [request for request, _ in await wire.exchanges()]
        cookies = {cookie["name"].rstrip("0123456789abcdef") for cookie in await page.context.cookies()}
    verdicts = decided(site.folder_url, sent, Phase.LOGIN)
    assert {kind for kind, _ in verdicts} == {"safe", "login"}
    assert verdicts.count(("login", "sign in")) == 1
    assert {"wordpress_", "wordpress_logged_in_"} <= cookies or password != PASSWORD


# The view


async def look(
    browser: Browser, site: WordPressSite, wanted: Intent[Post], *, user: str | None = WRITER, url: str = ""
) -> Observation:
    """The view as it is run, each of its requests held against its own list."""
    url = url or site.root_url
    async with signed_in(browser, url, user) if user else visiting(browser, url) as (page, _):
        wire = Wire(page)
        observation = await FLOW.published_list(ReadOnlyPage(page, wanted.origin), wanted)
        sent = [request for request, _ in await wire.exchanges()]
    [view] = FLOW.views()
    listed = Rules(destination_origin=wanted.origin, effect=FLOW.effect, opens=view.opens, fetches=view.fetches)
    for request in sent:
        decision = decide(Phase.READ_ONLY, listed, request)
        if request.header("sec-fetch-dest") == "document":
            assert decision.kind is Kind.SAFE, request.url
        if request.method == "POST":
            assert decision.reason is Reason.WRITE_IN_READ_ONLY
    return observation


async def test_the_view_finds_what_was_published(site: WordPressSite, browser: Browser) -> None:
    site.pretty_links(True)
    wanted = intent(site.folder_url)
    before = await look(browser, site, wanted, url=site.folder_url)
    assert before == NotFound(scope="published posts of writer: 0 posts on 1 page(s)", complete=True)
    async with signed_in(browser, site.folder_url) as (page, composer):
        await publish(page, composer, wanted)
    row = the_only(site.published())
    after = await look(browser, site, wanted, url=site.folder_url)
    assert isinstance(after, Found)
    assert after.complete
    assert after.listed == (str(row.id),)
    [item] = after.items
    assert (item.id, item.state, item.strength) == (str(row.id), ItemState.PUBLISHED, Strength.EXACT_ITEM)
    assert (item.account, item.material) == (WRITER, FLOW.material(wanted.payload))


@pytest.mark.parametrize(
    ("changes", "state", "strength"),
    [
        ({}, ItemState.PUBLISHED, Strength.EXACT_ITEM),
        ({"content": block_markup(BODY + "!")}, ItemState.PUBLISHED, Strength.PARTIAL),
        ({"content": block_markup(BODY).replace("<p>", '<p class="x">', 1)}, ItemState.PUBLISHED, Strength.PARTIAL),
        ({"content": BODY}, ItemState.PUBLISHED, Strength.PARTIAL),
        ({"password": "secret"}, ItemState.PRIVATE, Strength.PARTIAL),
        ({"title": TITLE + "!"}, None, None),
        ({"status": "draft"}, None, None),
        ({"status": "private"}, None, None),
        ({"author": OTHER}, None, None),
    ],
)
async def test_the_view_tells_the_post_from_others(
    site: WordPressSite, browser: Browser, changes: dict[str, str], state: ItemState | None, strength: Strength | None
) -> None:
    item = str(site.add_post(**{"title": TITLE, "content": block_markup(BODY)} | changes))
    observation = await look(browser, site, intent(site.root_url))
    if state is None:
        assert isinstance(observation, NotFound)
        assert observation.complete
        assert observation.listed == ((item,) if "title" in changes else ())
    else:
        assert isinstance(observation, Found)
        assert [(one.id, one.state, one.strength) for one in observation.items] == [(item, state, strength)]


@pytest.mark.parametrize(("posts", "whole"), [(45, True), (MOST_PAGES * 20 + 1, False)])
async def test_the_view_pages_through_the_list(site: WordPressSite, browser: Browser, posts: int, whole: bool) -> None:
    ids = [str(site.add_post(f"post {number}", "c")) for number in range(posts)]
    observation = await look(browser, site, intent(site.root_url))
    if whole:
        assert isinstance(observation, NotFound)
        assert observation.complete
        assert sorted(observation.listed) == sorted(ids)
    else:
        assert isinstance(observation, Partial)
        assert observation.reason == f"only the first {MOST_PAGES} pages are read, with 200 of {posts} posts"
        assert len(observation.listed) == MOST_PAGES * 20


@pytest.mark.parametrize(
    ("user", "reason"), [(None, NoLook.SIGNED_OUT), (OTHER, NoLook.WRONG_ACCOUNT), (CONTRIBUTOR, NoLook.WRONG_ACCOUNT)]
)
async def test_the_view_looks_only_as_the_account(
    site: WordPressSite, browser: Browser, user: str | None, reason: NoLook
) -> None:
    observation = await look(browser, site, intent(site.root_url), user=user)
    assert isinstance(observation, CouldNotLook)
    assert observation.reason is reason


async def test_a_site_under_maintenance_could_not_be_looked_at(site: WordPressSite, browser: Browser) -> None:
    async with signed_in(browser, site.root_url) as (page, _):
        with site.under_maintenance():
            observation = await FLOW.published_list(ReadOnlyPage(page, site.root_url), intent(site.root_url))
    assert isinstance(observation, CouldNotLook)
    assert observation.reason is NoLook.ERROR_PAGE
