"""The composer of the playground that shows who else is writing, as a flow: an example of a declared WebSocket.

Declares and reads, as every flow does; it never submits.
"""

from __future__ import annotations

import json

from flows.effect import Effect, WebSocket
from flows.flow import Intent, Submit
from flows.pages import ComposerPage
from flows.playground_parts import PlaygroundComposer, contract_of, form_has, form_material, native_answer
from flows.playground_views import Announcement

__all__ = ["PlaygroundLive"]


def _only_presence(message: str | bytes) -> bool:
    """Whether it says no more than that somebody is there, or typing. The site publishes on a message of another
    type."""
    if isinstance(message, bytes):
        return False
    value = json.loads(message)
    return isinstance(value, dict) and list(value) == ["type"] and value["type"] in ("here", "typing")


class PlaygroundLive(PlaygroundComposer):
    name = "playground-live"
    summary = "Publish a notice on the playground from the form that shows who else is writing."
    composer = "/live/new"
    websockets = (WebSocket(name="presence", path=r"/live/presence", sends=_only_presence),)
    effect = Effect(
        name="notice published",
        method="POST",
        path=r"/live/publish",
        matches=lambda request: form_has(request, "csrf", "title", "body"),
        material=form_material,
    )
    contract = contract_of(native_answer("live"))

    async def _fill(self, page: ComposerPage, intent: Intent[Announcement]) -> None:
        await self._wait_for(page, "document.getElementById('present').textContent !== '…'", "nobody is shown as here")
        await super()._fill(page, intent)

    async def _choose(self, page: ComposerPage) -> Submit:
        return Submit(control=page.by_role("button", "Publish", exact=True))
