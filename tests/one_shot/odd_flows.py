"""Flows that go wrong in one way each, on a site that is in order. Loaded by file, as a person's own flow would be.

Where the page must misbehave, `prepare` puts a script into it: what the gate and the executor then meet is a real page
that does this, not a stand-in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from flows.effect import Material, Write
from flows.flow import DialogRule, Identity, Intent, Submit, view
from flows.observations import CouldNotLook, NoLook, NotFound, Observation
from flows.pages import ComposerPage, ReadOnlyPage
from flows.playground import Announcement, PlaygroundAutosave, PlaygroundForm, PlaygroundPanel, PlaygroundSpa
from flows.playground_keyed import KEY, PlaygroundKeyed
from flows.playground_parts import PlaygroundComposer
from flows.playground_views import normal_form
from flows.wire import OutgoingRequest

# What prepare or the page does wrong before the claim


class PublishesInPrepare(PlaygroundForm):
    name = "odd-publishes-in-prepare"

    async def _choose(self, page: ComposerPage) -> Submit:
        await page.by_role("button", "Publish", exact=True).click()
        return await super()._choose(page)


class Elsewhere(PlaygroundForm):
    """Composes on another site than the approved one: the one that stands as the last line of the body."""

    name = "odd-elsewhere"

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        await super().prepare(page, intent)
        await page.goto(intent.payload.body.splitlines()[-1] + self.composer)
        return await self._choose(page)


class OneCharacterMore(PlaygroundForm):
    name = "odd-one-character-more"

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        submit = await super().prepare(page, intent)
        await page.by_label("Body", exact=True).fill(intent.payload.body + ".")
        return submit


class DraftThenOneCharacterMore(PlaygroundPanel):
    """Halts with the draft of the panel left behind."""

    name = "odd-draft-then-one-character-more"

    async def composed(self, page: ComposerPage, intent: Intent[Announcement]) -> Material:
        read = await super().composed(page, intent)
        return normal_form(str(read["title"]), str(read["body"]) + ".")


class _Scripted(PlaygroundForm):
    """Runs `script` in the composer once it is filled; `form`, `button` and `composer` are the page's own names."""

    script: ClassVar[str]

    async def _choose(self, page: ComposerPage) -> Submit:
        await page.evaluate(self.script)
        return await super()._choose(page)


class TwoControls(_Scripted):
    name = "odd-two-controls"
    script = "button.after(button.cloneNode(true))"


class CoveredControl(_Scripted):
    name = "odd-covered-control"
    script = """document.body.append(Object.assign(document.createElement('div'),
        {style: 'position: fixed; inset: 0; background: #fff8'}))"""


class DisabledControl(_Scripted):
    name = "odd-disabled-control"
    script = "button.disabled = true"


class ControlOutside(_Scripted):
    name = "odd-control-outside"
    script = "button.closest('.actions').style.marginTop = '2000px'"


class BrokenList(PlaygroundForm):
    name = "odd-broken-list"

    @view("mine", opens=(r"/mine-of-old",), lists=True)
    async def mine(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
        status = await page.open("/mine-of-old")
        if status != 200:
            return CouldNotLook(reason=NoLook.ERROR_PAGE, detail=f"the list was answered with {status}")
        return NotFound(scope="all items", complete=True)


# Authors' mistakes, in code that the executor calls


class RaisesInPrepare(PlaygroundPanel):
    """Raises with what was to be typed in its words, and without any line end to cut at."""

    name = "odd-raises-in-prepare"

    async def _choose(self, page: ComposerPage) -> Submit:
        await super()._choose(page)
        title = await page.by_label("Title", exact=True).input_value()
        raise RuntimeError(f"cannot go on with {title}")


class RaisesInMessage(PlaygroundForm):
    name = "odd-raises-in-message"

    async def validation_message(self, page: ComposerPage, intent: Intent[Announcement]) -> str | None:
        raise LookupError(f"no message for {intent.payload.title}")


class NamesNoControl(PlaygroundForm):
    name = "odd-names-no-control"

    async def _choose(self, page: ComposerPage) -> Submit:
        return None  # type: ignore[return-value]  # the mistake


class ReadsNoPlace(PlaygroundForm):
    """The page shows something that is no address."""

    name = "odd-reads-no-place"

    async def identify(self, page: ComposerPage, intent: Intent[Announcement]) -> Identity:
        return Identity(account=intent.account, destination="Noticeboard")


# What the page does wrong from the gesture on


class ChangesOneCharacter(_Scripted):
    """On its way out the body gets a character that the composer never showed."""

    name = "odd-changes-one-character"
    script = "form.addEventListener('formdata', ({formData}) => formData.set('body', formData.get('body') + '.'))"


class ChangesTheSession(_Scripted):
    """A cookie of the login's name for a longer path, which a browser sends first: another session in its place."""

    name = "odd-changes-the-session"
    script = "form.addEventListener('submit', () => { document.cookie = 'pg_session=another; path=/form'; })"


class ShowsMessage(_Scripted):
    """The composer's own check refuses: the title is gone when it looks."""

    name = "odd-shows-message"
    script = "button.addEventListener('click', () => { document.getElementById('title').value = ''; })"


class AsksFirst(_Scripted):
    name = "odd-asks-first"
    script = """button.addEventListener('click', (event) => {
        if (!confirm('Really publish this notice?')) event.preventDefault(); })"""


class AsksAndIsAnswered(AsksFirst):
    name = "odd-asks-and-is-answered"
    dialogs = (DialogRule(message="Really publish", accept=True),)


class DoesNothing(_Scripted):
    name = "odd-does-nothing"
    script = "button.addEventListener('click', (event) => event.preventDefault())"


class _Sends(PlaygroundSpa):
    """Sends `body` in place of what the page would; `sent` is that, as an object."""

    body: ClassVar[str]

    async def _choose(self, page: ComposerPage) -> Submit:
        await page.evaluate(
            f"""() => {{
                const plain = window.fetch;
                window.fetch = (url, options) => {{
                    const sent = JSON.parse(options.body);
                    return plain(url, {{...options, body: JSON.stringify({self.body})}});
                }};
            }}"""
        )
        return await super()._choose(page)


class SendsAnotherShape(_Sends):
    name = "odd-sends-another-shape"
    body = "{...sent, notify: 'everybody'}"


def _items(request: OutgoingRequest) -> list[Any]:
    value = request.json
    return value if isinstance(value, list) else [value]


class SendsTwo(_Sends):
    """A batch of two in one request, as an interface that takes batches would."""

    name = "odd-sends-two"
    body = "[sent, sent]"
    effect = replace(
        PlaygroundSpa.effect,
        matches=lambda request: all(isinstance(one, Mapping) and "status" in one for one in _items(request)),
        count=lambda request: len(_items(request)),
    )


# Held by a test while it runs


class Held(PlaygroundForm):
    """Lets a test reach into the page while the run goes on, as another script or the site itself might."""

    name = "odd-held"
    page: ClassVar[Page]

    async def _choose(self, page: ComposerPage) -> Submit:
        submit = await super()._choose(page)
        type(self).page = submit.control.page
        return submit

    @classmethod
    def soon(cls, script: str) -> asyncio.Task[None]:
        """Have a script run in the page before anything that the run asks of it from its next wait on."""
        return asyncio.ensure_future(cls._run(script))

    @classmethod
    def crash_soon(cls) -> asyncio.Task[None]:
        """Crash the page's renderer, as running out of memory does."""
        return asyncio.ensure_future(cls._crash())

    @classmethod
    async def _run(cls, script: str) -> None:
        await cls.page.evaluate(script)

    @classmethod
    async def _crash(cls) -> None:
        try:
            await cls.page.goto("chrome://crash")
        except PlaywrightError:
            return  # the page is gone, as it was meant to be


# Other writes


def _unguarded(flow: type[PlaygroundForm] | type[PlaygroundAutosave]) -> Any:
    """The flow's contract without its guarantee of absence: what was not seen stays open, however slow the run."""
    return replace(flow.contract, absence=None)


class NothingGuaranteed(PlaygroundForm):
    name = "odd-nothing-guaranteed"
    contract = _unguarded(PlaygroundForm)


class KeyedBriefly(PlaygroundKeyed):
    """As if the site remembered keys for no time to speak of."""

    name = "odd-keyed-briefly"
    contract = replace(PlaygroundKeyed.contract, key=replace(KEY, lifetime_s=0.2, margin_s=0.1))


class KeyedByThePage(PlaygroundKeyed):
    """Leaves the page the key that the page has drawn."""

    name = "odd-keyed-by-the-page"

    async def prepare(self, page: ComposerPage, intent: Intent[Announcement]) -> Submit:
        return await PlaygroundComposer.prepare(self, page, intent)


class SavesOnly(PlaygroundAutosave):
    """Saves once more after the gesture, and does not publish. The author knows that a save publishes nothing."""

    name = "odd-saves-only"
    contract = _unguarded(PlaygroundAutosave)
    wait_ms: ClassVar[int] = 0

    async def _choose(self, page: ComposerPage) -> Submit:
        submit = await super()._choose(page)
        await page.evaluate(f"composer.publish = () => setTimeout(autosave, {self.wait_ms})")
        return submit


def _may_publish(write: Write) -> Write:
    return replace(write, may_cause_effect=True)


class SavesOnlyAndMayPublish(SavesOnly):
    """The same, by an author who cannot say what the site makes of a save."""

    name = "odd-saves-only-and-may-publish"
    supporting = tuple(map(_may_publish, PlaygroundAutosave.supporting))


class SavesLate(SavesOnlyAndMayPublish):
    """The save leaves long after the gesture, under a contract that says when absence counts."""

    name = "odd-saves-late"
    contract = replace(PlaygroundAutosave.contract, effect_window_s=4.0)
    wait_ms = 3500
