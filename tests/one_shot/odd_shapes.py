"""The shapes of `shape_cases` on pages that do something else at the moment of the gesture."""

from __future__ import annotations

from flows.flow import DialogRule, Submit
from flows.pages import ComposerPage
from flows.playground_shapes import PlaygroundConfirm, PlaygroundPopup


class AsksSomethingElse(PlaygroundConfirm):
    name = "odd-asks-something-else"
    composer = "/confirm/new?ask=Publish%20this%20notice%20for%20everyone%3F%20And%20pay%3F"


class AsksAboutLeaving(PlaygroundConfirm):
    name = "odd-asks-about-leaving"
    composer = "/confirm/new?leave"


class AsksAboutLeavingAndIsAnswered(AsksAboutLeaving):
    name = "odd-asks-about-leaving-and-is-answered"
    dialogs = (*PlaygroundConfirm.dialogs, DialogRule(kind="beforeunload", message="", accept=True))


class SaysItOverAndOver(PlaygroundConfirm):
    """From the gesture on the page shows one dialog after the other, and nothing else of it can be reached."""

    name = "odd-says-it-over-and-over"
    composer = "/confirm/new?loop"


class ClosesWithoutSending(PlaygroundPopup):
    name = "odd-closes-without-sending"

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Cancel", exact=True))
