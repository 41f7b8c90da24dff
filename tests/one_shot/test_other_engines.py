"""A whole run in Firefox and in WebKit, where Playwright has them: once, with the answer lost too, behind the gate."""

from __future__ import annotations

import pytest
from desk import Desk

from executor.browser.engines import Engine
from executor.browser.finding import BrowserMissing, find_engine
from executor.errors import Exit
from executor.model.transitions import Transmission
from playground.faults import Fault

pytestmark = pytest.mark.browser


@pytest.fixture(params=[Engine.FIREFOX, Engine.WEBKIT])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.param
    try:
        find_engine(found)
    except BrowserMissing:
        pytest.skip("a browser that cannot be had here")
    return found


async def test_published_once(engine: Engine, tls_desk: Desk) -> None:
    tls_desk.overrides["browser_engine"] = engine
    ended = await tls_desk.publish()
    assert ended.exit is Exit.SUCCEEDED
    assert tls_desk.playground.truth.publish_count() == 1


async def test_no_second_item_when_the_answer_is_lost(engine: Engine, desk: Desk) -> None:
    desk.overrides["browser_engine"] = engine
    desk.playground.truth.inject(Fault.CLOSE_AFTER, path_prefix="/")
    ended = await desk.publish()
    assert desk.playground.truth.publish_count() == 1
    assert ended.operation.state.transmission is Transmission.POSSIBLE
