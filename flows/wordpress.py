"""Publish a post on a WordPress site through its block editor.

Declares and reads, as every flow does; it never submits. What it says about requests and answers was read off the
editor of WordPress 6.1 and the REST controllers behind it (tests/live holds it against them; the editor of 6.6 did the
same). Whatever another version or a plugin sends beside it is refused at the gate: the run stops, and nothing is
published.
"""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from playwright.async_api import FrameLocator, Locator
from playwright.async_api import TimeoutError as PlaywrightTimeout

from flows.effect import Material
from flows.flow import Credentials, Identity, Intent, Submit
from flows.pages import ComposerPage
from flows.wordpress_blocks import Post, block_markup, material_of
from flows.wordpress_requests import DeclaredPosts

__all__ = ["Post", "WordPressPost", "WordPressProblem"]

WAIT_S = 20.0
"""How long prepare waits for one step of the editor, and login for the site."""


class WordPressProblem(ValueError):
    """The site did not show what prepare or login needs; the message says what a person would see."""


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


class WordPressPost(DeclaredPosts):
    name = "wordpress"
    version = "1"
    action = "publish-post"
    summary = "Publish a post of plain paragraphs on a WordPress site with the block editor."

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

    async def _fill_sign_in(self, page: ComposerPage, credentials: Credentials) -> None:
        """Fill both fields. A script of the page moves the focus a moment after it has loaded, and what is being typed
        then lands in the other field: so it is looked at, and typed again."""
        fields = {page.locator("#user_login"): credentials.user, page.locator("#user_pass"): credentials.password}
        for _ in range(3):
            for field, text in fields.items():
                await field.fill(text)
            if [await field.input_value() for field in fields] == list(fields.values()):
                return
        raise WordPressProblem("the sign-in form does not keep what is typed into it")

    async def login(self, page: ComposerPage, destination: str, credentials: Credentials) -> None:
        profile = f"{destination}/wp-admin/profile.php"
        await page.goto(f"{destination}/wp-login.php?redirect_to={quote(profile, safe='')}")
        await self._fill_sign_in(page, credentials)
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
