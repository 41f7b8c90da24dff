"""A composer with a WebSocket, whole runs: what the page says while it is filled in arrives, and nothing of it after
that, whichever moment the page chooses; and a message can publish, which is why only declared ones leave."""

from __future__ import annotations

from pathlib import Path

import pytest
from desk import Desk

from executor.errors import Exit
from executor.model.ending import code
from executor.model.reasons import Halt
from executor.model.transitions import Dispatch
from executor.one_shot.run import StepEvent
from flows.effect import WebSocket
from flows.flow import Submit
from flows.pages import ComposerPage
from flows.playground_live import PlaygroundLive
from playground.sockets import METHOD, PRESENCE

pytestmark = pytest.mark.browser

FLOW = "playground-live"


class PublishesBySocket(PlaygroundLive):
    """Its page publishes by a message whenever somebody types. Prepare ends when the page has heard of it."""

    name = "live-publishes-by-socket"
    composer = "/live/new?publish=socket"
    heard = "document.getElementById('present').textContent.startsWith('nobody')"

    async def _choose(self, page: ComposerPage) -> Submit:
        await self._wait_for(page, self.heard, "the page heard nothing")
        return await super()._choose(page)


class AllowsAnything(PublishesBySocket):
    """An author who did not look what the page says over its WebSocket."""

    name = "live-allows-anything"
    websockets = (WebSocket(name="presence", path=PRESENCE, sends=lambda _message: True),)
    heard = "document.getElementById('present').dataset.published"


def here(flow: type[PlaygroundLive]) -> str:
    return f"{Path(__file__)}:{flow.__name__}"


def messages(desk: Desk) -> int:
    return sum(one.method == METHOD for one in desk.playground.truth.requests())


@pytest.mark.parametrize("tls", [False, True], ids=["ws", "wss"])
async def test_nothing_arrives_over_it_once_the_composer_is_filled_in(tls: bool, desk: Desk, tls_desk: Desk) -> None:
    at = tls_desk if tls else desk
    arrived: dict[int, int] = {}

    def count(event: StepEvent) -> None:
        if event.moment == "begin":
            arrived[event.number] = messages(at)

    ended = await at.publish(FLOW, on_step=count)

    truth = at.playground.truth
    assert ended.exit is Exit.SUCCEEDED
    assert truth.publish_count() == 1
    assert messages(at) == arrived[5] > 2, "the page says something every 20 ms, and in the middle of the click"
    assert sum(one.target == PRESENCE and one.method == "GET" for one in truth.requests()) == 1

    assert ended.ending is not None
    (held,) = ended.ending.websockets
    assert (held.name, held.url, held.ended) == ("presence", f"{at.site}{PRESENCE}", "closed by the gate")
    assert held.messages_out == messages(at)
    assert held.messages_in > 0
    assert any("over the WebSocket presence" in line for line in ended.receipt.unknown)
    refused = [line for line in ended.ending.refused_writes if PRESENCE in line]
    assert refused and all(line.startswith("websocket: GET") for line in refused), "it tries to connect again"


async def test_a_message_that_publishes_does_not_leave(desk: Desk) -> None:
    ended = await desk.publish(here(PublishesBySocket))

    assert desk.playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None
    assert [line for line in ended.ending.refused_writes if line.startswith("not_declared: MESSAGE")]
    assert ended.ending.websockets[0].ended == "closed by the gate: a message was refused"


async def test_a_declaration_that_allows_everything_is_named_as_the_blind_spot_that_it_is(desk: Desk) -> None:
    """The page publishes by a message while it is filled in. The gate cannot know; the look before the claim sees it,
    and the receipt names where it may have come from."""
    ended = await desk.publish(here(AllowsAnything))

    assert desk.playground.truth.publish_count() > 0
    assert not [one for one in desk.playground.truth.requests() if one.method == "POST"]
    assert ended.operation.state.dispatch is Dispatch.NOT_STARTED
    assert ended.ending is not None
    assert ended.ending.reason == code(Halt.ALREADY_THERE)
    assert any("over the WebSocket presence" in line for line in ended.receipt.unknown)
