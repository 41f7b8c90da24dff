"""Publish a post on a WordPress site through its block editor.

Declares and reads, as every flow does; it never submits. What it says about requests and answers was read off the
editor of WordPress 6.1 and the REST controllers behind it (tests/live holds it against them; the editor of 6.6 did the
same). Whatever another version or a plugin sends beside it is refused at the gate: the run stops, and nothing is
published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlsplit

from playwright.async_api import FrameLocator, Locator
from playwright.async_api import TimeoutError as PlaywrightTimeout

from flows.effect import Category, Contract, Effect, Material, Meaning, Says, Undo, Write
from flows.flow import Credentials, Identity, Intent, Submit
from flows.pages import ComposerPage
from flows.wire import Answer, OutgoingRequest, UnreadableBody
from flows.wordpress_blocks import Post, Posts, block_markup, material_of

__all__ = ["Post", "WordPressPost", "WordPressProblem"]

WAIT_S = 20.0
"""How long prepare waits for one step of the editor, and login for the site."""


class WordPressProblem(ValueError):
    """The site did not show what prepare or login needs; the message says what a person would see."""


# Requests. WordPress reads a parameter from the JSON body before the query and from the query before the path, takes
# `rest_route` from the query of any address, and honours `_method`: so nothing passes that is not listed here.

_FOLDER = r"(?:/(?![^/]*\.php(?:/|$))[^/]+)*"
"""The folder that a site lives in. No script may stand in it: what follows would be its business then."""
_ROUTE = re.compile(rf"{_FOLDER}(?:/index\.php)?/wp-json(/wp/v2/[a-z0-9/]+)")


def _rest(pretty: str) -> str:
    """The path of a REST address in both link forms; which route the second form names, `_route` says."""
    return rf"{_FOLDER}(?:(?:/index\.php)?/wp-json/wp/v2/{pretty}|/index\.php)"


def _route(request: OutgoingRequest) -> str | None:
    """The REST route ("/wp/v2/posts/5") when the address names exactly one and the query holds nothing else that
    WordPress would read."""
    allowed = ["_locale"] if request.query_value("_locale") == "user" else []
    if match := _ROUTE.fullmatch(request.path):
        route: str | None = match[1]
    else:
        route = request.query_value("rest_route")
        allowed.append("rest_route")
    return route if sorted(name for name, _ in request.query) == sorted(allowed) else None


def _item(request: OutgoingRequest) -> str | None:
    """The post that the route names, for the post itself and for its autosaves."""
    match = re.fullmatch(r"/wp/v2/posts/([1-9]\d{0,14})(/autosaves)?", _route(request) or "")
    return match[1] if match else None


def _fields(request: OutgoingRequest) -> Mapping[str, Any]:
    value = request.json
    return value if isinstance(value, dict) else {}


def _is_put(request: OutgoingRequest) -> bool:
    return request.header("x-http-method-override") == "PUT"


def _sets_status(request: OutgoingRequest, status: str) -> bool:
    """A PUT of title and content, or part of them, to one post, with this status. Any other field (date, password,
    slug, sticky, terms) would change what is published, or when, or for whom."""
    item = _item(request)
    if item is None or not _is_put(request) or _route(request) != f"/wp/v2/posts/{item}":
        return False
    fields = _fields(request)
    texts = set(fields) - {"id", "status"}
    return (
        texts <= {"title", "content"}
        and all(isinstance(fields[name], str) for name in texts)
        and type(fields.get("id")) is int
        and str(fields["id"]) == item
        and fields.get("status") == status
    )


def _is_autosave(request: OutgoingRequest) -> bool:
    """The status decides here too: WordPress publishes a draft whose autosave says "publish"."""
    item = _item(request)
    if item is None or _route(request) != f"/wp/v2/posts/{item}/autosaves":
        return False
    if request.header("x-http-method-override"):
        return False
    fields = _fields(request)
    return (
        {"status", "title", "content"} <= set(fields) <= {"status", "title", "content", "excerpt"}
        and fields["status"] == "draft"
        and all(isinstance(fields[name], str) for name in ("title", "content"))
        and fields.get("excerpt", "") == ""
    )


def _is_preferences(request: OutgoingRequest) -> bool:
    if _route(request) != "/wp/v2/users/me" or not _is_put(request):
        return False
    fields = _fields(request)
    meta = fields.get("meta")
    return set(fields) == {"meta"} and isinstance(meta, dict) and set(meta) == {"persisted_preferences"}


_LOCK_FIELDS = {"data[wp-refresh-post-lock][lock]", "data[wp-refresh-post-lock][post_id]"}
_BEAT_FIELDS = {"interval", "_nonce", "action", "screen_id", "has_focus"}


def _is_heartbeat(request: OutgoingRequest) -> bool:
    """A heartbeat that renews the lock on the post, or nothing. Never one with `wp_autosave`: the block editor does
    not send it, and WordPress takes a status from it, so it could publish."""
    names = _names(request)
    return _is_ajax(request, "heartbeat") and names in (_BEAT_FIELDS, _BEAT_FIELDS | _LOCK_FIELDS)


def _is_unlock(request: OutgoingRequest) -> bool:
    return _is_ajax(request, "wp-remove-post-lock") and (
        _names(request) == {"action", "_wpnonce", "post_ID", "active_post_lock"}
    )


def _is_ajax(request: OutgoingRequest, action: str) -> bool:
    return not request.query and request.form.get("action") == action and not request.form.files


def _names(request: OutgoingRequest) -> set[str]:
    """The field names of a form; empty when one is there twice."""
    names = [name for name, _ in request.form.fields]
    return set(names) if len(set(names)) == len(names) else set()


def _is_sign_in(request: OutgoingRequest) -> bool:
    names = _names(request)
    return (
        not request.query
        and {"log", "pwd"} <= names <= {"log", "pwd", "rememberme", "wp-submit", "redirect_to", "testcookie"}
        and not request.form.files
    )


def _saved(request: OutgoingRequest, answer: Answer) -> str | None:
    """The post that a save went into. An autosave into a revision has the revision's id: the post is as it was."""
    fields = _answered(answer)
    item = _item(request)
    return item if answer.status == 200 and item is not None and str(fields.get("id")) == item else None


def _answered(answer: Answer) -> Mapping[str, Any]:
    """The JSON object of a whole answer, else nothing."""
    if not answer.complete:
        return {}
    try:
        value = answer.json
    except UnreadableBody:
        return {}
    return value if isinstance(value, dict) else {}


def _sent_material(request: OutgoingRequest, _answer: Answer) -> Material:
    return material_of(_fields(request))


# A save without a status is not among them, though the editor sends one when a person presses "Save draft" a second
# time: the same request changes a post that is already out. This flow never presses it, and autosaves go elsewhere.
_DRAFT = Write(
    name="save draft",
    method="POST",
    path=_rest(r"posts/\d+"),
    matches=lambda request: _sets_status(request, "draft"),
    may_cause_effect=False,
    material=_sent_material,
    item=_saved,
)
_AUTOSAVE = Write(
    name="autosave",
    method="POST",
    path=_rest(r"posts/\d+/autosaves"),
    matches=_is_autosave,
    may_cause_effect=False,
    material=_sent_material,
    item=_saved,
)
_PREFERENCES = Write(
    name="editor preferences",
    method="POST",
    path=_rest("users/me"),
    matches=_is_preferences,
    may_cause_effect=False,
)
_HEARTBEAT = Write(
    name="heartbeat",
    method="POST",
    path=rf"{_FOLDER}/wp-admin/admin-ajax\.php",
    matches=_is_heartbeat,
    may_cause_effect=False,
)
_UNLOCK = Write(
    name="release post lock",
    method="POST",
    path=rf"{_FOLDER}/wp-admin/admin-ajax\.php",
    matches=_is_unlock,
    may_cause_effect=False,
)
_SIGN_IN = Write(
    name="sign in",
    method="POST",
    path=rf"{_FOLDER}/wp-login\.php",
    matches=_is_sign_in,
    may_cause_effect=False,
)


# Answers. Every refusal below is made before WordPress stores anything: by the authentication, by the permission check
# of the route, or while the post is prepared.

_NOT_APPLIED = {
    (403, "rest_cookie_invalid_nonce"): "the nonce is checked before the route is called",
    (401, "rest_forbidden"): "the permission is checked before the route is called",
    (403, "rest_forbidden"): "the permission is checked before the route is called",
    (401, "rest_cannot_edit"): "the permission to edit is checked before the route is called",
    (403, "rest_cannot_edit"): "the permission to edit is checked before the route is called",
    (401, "rest_cannot_publish"): "the permission to publish is checked before the post is stored",
    (403, "rest_cannot_publish"): "the permission to publish is checked before the post is stored",
    (404, "rest_post_invalid_id"): "there is no such post",
}


def _read_answer(request: OutgoingRequest, answer: Answer) -> Meaning:
    fields = _answered(answer)
    item, status = fields.get("id"), fields.get("status")
    if answer.status == 200 and type(item) is int and str(item) == _item(request):
        url = fields.get("link")
        named = {"item": str(item), "url": url if isinstance(url, str) else None}
        if status == "publish" and fields.get("password", "") == "":
            return Meaning(says=Says.DONE, clause='published: 200 with this id and status "publish"', **named)
        if status in ("pending", "future"):
            return Meaning(says=Says.ACCEPTED, clause=f'{status}: 200 with this id and status "{status}"', **named)
    code, data = fields.get("code"), fields.get("data")
    why = _NOT_APPLIED.get((answer.status, code)) if isinstance(code, str) else None
    # WordPress repeats the status in its own errors; what stands in front of it does not know to.
    if why is not None and isinstance(data, dict) and data.get("status") == answer.status:
        return Meaning(says=Says.NOT_APPLIED, clause=f"{code}: {why}")
    return Meaning(says=Says.NOTHING, clause="no clause: an answer of another kind establishes nothing")


_EDITOR_READY = """() => {
  const frame = document.querySelector('iframe[name="editor-canvas"]');
  const inside = (frame && frame.contentDocument) || document;
  const post = window.wp?.data?.select('core/editor')?.getCurrentPostId();
  return !!post && !!inside.querySelector('.editor-post-title__input');
}"""
_STATE = """() => {
  const editor = wp.data.select('core/editor');
  return {
    mayPublish: !!editor.getCurrentPost()._links?.['wp:action-publish'],
    guide: !!wp.data.select('core/preferences')?.get('core/edit-post', 'welcomeGuide'),
  };
}"""
_COMPOSED = """() => {
  const editor = wp.data.select('core/editor');
  return {title: editor.getEditedPostAttribute('title'), content: editor.getEditedPostContent()};
}"""
_BAR = """() => {
  const text = selector => document.querySelector('#wp-admin-bar-user-info ' + selector)?.textContent.trim() ?? null;
  return {login: text('.username') ?? text('.display-name'),
          home: document.querySelector('#wp-admin-bar-site-name > a')?.href ?? null};
}"""
"""The bar holds the sign-in name where it differs from the name that is shown, else that one alone."""

_GUIDE_CLOSE = ".edit-post-welcome-guide .components-modal__header button"
_CODE = "textarea.editor-post-text-editor"
_TOGGLE_CODE = "ControlOrMeta+Shift+Alt+M"


class WordPressPost(Posts):
    name = "wordpress"
    version = "1"
    action = "publish-post"
    summary = "Publish a post of plain paragraphs on a WordPress site with the block editor."

    effect = Effect(
        name="post published",
        method="POST",
        path=_rest(r"posts/\d+"),
        matches=lambda request: _sets_status(request, "publish"),
        # The editor leaves out what an earlier save holds already; that save then shows it.
        material=lambda request: material_of(_fields(request)),
        item=_item,
    )
    supporting = (_DRAFT, _AUTOSAVE, _PREFERENCES, _HEARTBEAT)
    trailing = (_UNLOCK,)
    login_writes = (_SIGN_IN,)
    session_cookies = ("wordpress_*",)
    proof_cookies = ("wordpress_logged_in_*",)
    """WordPress sets the other one for /wp-admin only, so the effect does not carry it."""
    secret_fields = ("pwd", "_wpnonce", "_nonce", "active_post_lock")
    contract = Contract(
        read_answer=_read_answer,
        category=Category.WRITE_WITHOUT_KEY,
        undo=Undo.REVERSIBLE_AT_A_COST,
        undo_instructions=(
            "Sign in, open Posts (/wp-admin/edit.php?post_status=publish), point at the post and choose Trash. It "
            "stays in the bin for 30 days. What feeds, mail subscribers and search engines have taken is not undone."
        ),
        absence=None,
        notes=(
            "No absence guarantee: a request that lost its connection may still be at work in PHP, and nothing "
            "bounds for how long.",
            "Opening the editor is a GET that stores an empty draft; a run that stops leaves it, and WordPress "
            "removes such drafts after a week.",
            "A shortcode, or an address alone in a paragraph, is kept as written and rendered by WordPress.",
            "The post goes to the site's default category, under the account's name, at once, for everybody.",
        ),
    )

    async def prepare(self, page: ComposerPage, intent: Intent[Post]) -> Submit:
        await page.goto(f"{intent.destination}/wp-admin/post-new.php")
        _check_signed_in(page)
        await _until(page, _EDITOR_READY, "the block editor did not open")
        state = await page.evaluate(_STATE)
        if not state["mayPublish"]:
            raise WordPressProblem("the editor says that this account may not publish posts")
        if state["guide"]:
            await page.locator(_GUIDE_CLOSE).click()
        await self._fill(page, intent.payload)
        return await self._open_panel(page)

    async def _fill(self, page: ComposerPage, payload: Post) -> None:
        canvas: ComposerPage | FrameLocator = page
        if await page.locator('iframe[name="editor-canvas"]').count():
            canvas = page.frame('iframe[name="editor-canvas"]')
        await canvas.locator(".editor-post-title__input").fill(payload.title.strip())
        # The body goes through the code editor: typed into blocks, "/image", "@name" or "- " would become something
        # else. The view that the account had chosen is put back.
        code = page.locator(_CODE)
        chosen = await code.count() == 1
        if not chosen:
            await page.press(_TOGGLE_CODE)
        await _appears(code, "the code editor did not open")
        await code.fill(block_markup(payload.body))
        if not chosen:
            await page.press(_TOGGLE_CODE)
            await code.wait_for(state="detached", timeout=WAIT_S * 1000)

    async def _open_panel(self, page: ComposerPage) -> Submit:
        """The first Publish button opens a panel and sends nothing. An account may have switched the panel off: then
        the first button is the one that publishes, and it is left to the executor."""
        toggle = page.locator(".editor-post-publish-panel__toggle")
        direct = page.locator(".editor-post-publish-button__button")
        await _appears(toggle.or_(direct), "the editor shows no Publish button")
        if await toggle.count():
            await toggle.click()
            direct = page.locator(".editor-post-publish-panel__header .editor-post-publish-button__button")
            await _appears(direct, "the publish panel did not open")
        handle = await direct.element_handle()
        await handle.wait_for_element_state("stable", timeout=WAIT_S * 1000)
        await handle.wait_for_element_state("enabled", timeout=WAIT_S * 1000)
        return Submit(control=direct)

    async def identify(self, page: ComposerPage, intent: Intent[Post]) -> Identity:
        path = urlsplit(page.url).path
        if path.endswith("/wp-login.php"):
            return Identity(account=None, destination=None, problem="WordPress asks to sign in.")
        bar = await page.evaluate(_BAR)
        site, mark, _ = page.url.partition("/wp-admin/")
        home = (bar["home"] or "").rstrip("/")
        # Posts are sent to the address of the front page; where that is another one than the editor's, this flow
        # could not say which of the two was approved.
        return Identity(account=bar["login"], destination=site if mark and home == site else None)

    async def composed(self, page: ComposerPage, intent: Intent[Post]) -> Material:
        return material_of(await page.evaluate(_COMPOSED))

    async def validation_message(self, page: ComposerPage, intent: Intent[Post]) -> str | None:
        said = await page.locator(".components-notice.is-error .components-notice__content").all_inner_texts()
        return " ".join(text.strip() for text in said if text.strip()) or None

    async def login(self, page: ComposerPage, destination: str, credentials: Credentials) -> None:
        profile = f"{destination}/wp-admin/profile.php"
        await page.goto(f"{destination}/wp-login.php?redirect_to={quote(profile, safe='')}")
        await page.locator("#user_login").fill(credentials.user)
        await page.locator("#user_pass").fill(credentials.password)
        await page.locator("#wp-submit").click()
        decided = "() => document.readyState === 'complete' && (!document.querySelector('#loginform') || "
        decided += "!!document.querySelector('#login_error'))"
        await _until(page, decided, "the site did not answer the sign-in")
        if await page.locator("#login_error").count():
            raise WordPressProblem("WordPress did not accept the user name or the password")
        if page.url != profile:  # a reminder that WordPress puts in between
            await page.goto(profile)
        _check_signed_in(page)
        if (await page.evaluate(_BAR))["login"] is None:
            raise WordPressProblem("after signing in the site shows no account; it may ask for a second factor")


def _check_signed_in(page: ComposerPage) -> None:
    if urlsplit(page.url).path.endswith("/wp-login.php"):
        raise WordPressProblem("WordPress asks to sign in")


async def _until(page: ComposerPage, expression: str, problem: str) -> None:
    try:
        await page.wait_for(expression, timeout_s=WAIT_S)
    except PlaywrightTimeout as error:
        raise WordPressProblem(f"{problem} within {WAIT_S:.0f} s") from error


async def _appears(locator: Locator, problem: str) -> None:
    try:
        await locator.first.wait_for(timeout=WAIT_S * 1000)
    except PlaywrightTimeout as error:
        raise WordPressProblem(f"{problem} within {WAIT_S:.0f} s") from error
