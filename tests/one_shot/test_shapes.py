"""What is particular to one shape of composer, in whole runs: questions before sending, a window that closes itself.
(What all shapes have in common is in `test_shapes_matrix`.)"""

from __future__ import annotations

import itertools
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from checks import proven_not_sent
from desk import PERSON, Desk
from shape_cases import EnterTwice, variant

from evidence.manifest import Manifest, load_manifest
from evidence.records import INTERLOCK_NOTE, GapReason, ItemKind, Point
from evidence.store import FileStore
from executor.errors import Exit
from executor.gate.rules import Reason
from executor.model.reasons import NotSent
from executor.model.transitions import Transmission
from executor.service import Ended, Executor
from playground.process import Playground

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

_numbers = itertools.count(1)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def room(
    playground: Playground, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Desk, Executor]]:
    """A desk, and one executor for all tests of the module."""
    desk = Desk(playground, tmp_path_factory.mktemp("room"), overrides={"evidence_s": 3.0})
    desk.sign_in()
    async with desk.executor() as executor:
        yield desk, executor
        assert (await executor.ledger.verify_all()).flaws == ()


async def run(room: tuple[Desk, Executor], flow: str) -> Ended:
    """A flow by its reference, or one of `odd_shapes` by its class."""
    desk, executor = room
    desk.playground.truth.reset()
    reference = f"{Path(__file__).with_name('odd_shapes.py')}:{flow}" if flow.isidentifier() else flow
    operation = await desk.approved(executor, reference, title=f"Notice {next(_numbers)}")
    return await executor.run(operation.id, by=PERSON)


def manifest_of(desk: Desk, ended: Ended) -> Manifest:
    assert ended.ending is not None and ended.ending.evidence is not None
    return load_manifest((desk.settings.home / ended.ending.evidence.manifest).parent)


# One key


async def test_a_key_that_sends_twice_is_one_effect_and_the_picture_says_who_answered(
    room: tuple[Desk, Executor],
) -> None:
    """The handler's request goes out first; the form's is refused, and that refusal is the page that is left on screen.
    Should the form be faster, the result is on screen, and the picture is the site's."""
    ended = await run(room, variant(EnterTwice))
    assert room[0].playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None
    assert [one.partition(":")[0] for one in ended.ending.refused_writes] == [Reason.BUDGET_SPENT]
    (after,) = [entry for entry in manifest_of(room[0], ended).entries if entry.point is Point.AFTER]
    picture = after.item(ItemKind.SCREENSHOT)
    assert picture is not None
    assert picture.note == (INTERLOCK_NOTE if after.url.endswith("/enter/publish") else "")


# Questions


@pytest.mark.parametrize(
    ("flow", "dialogs"),
    [
        ("AsksSomethingElse", ("confirm, dismissed",)),
        # The flow's rule answers the page's own question, and never the one about leaving that follows it.
        ("AsksAboutLeaving", ("confirm, accepted", "beforeunload, dismissed")),
    ],
)
async def test_a_question_that_no_rule_means_is_refused_and_nothing_is_sent(
    flow: str, dialogs: tuple[str, ...], room: tuple[Desk, Executor]
) -> None:
    desk, executor = room
    ended = await run(room, flow)
    await proven_not_sent(executor, ended, desk.playground.truth, NotSent.DIALOG)
    assert desk.playground.truth.requests(writes_only=True) == []
    assert ended.ending is not None
    assert ended.ending.dialogs == dialogs
    assert ended.receipt.attempted.dialogs == len(dialogs)


async def test_a_question_about_leaving_is_answered_by_a_rule_for_its_kind(room: tuple[Desk, Executor]) -> None:
    ended = await run(room, "AsksAboutLeavingAndIsAnswered")
    assert room[0].playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None
    assert ended.ending.dialogs == ("confirm, accepted", "beforeunload, accepted")


async def test_dialogs_without_end_hold_nothing_up(room: tuple[Desk, Executor]) -> None:
    """The answer is read at the gate, whatever keeps the page busy; only its picture is missing, or shows the composer
    as it was."""
    ended = await run(room, "SaysItOverAndOver")
    assert room[0].playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.operation.state.transmission is Transmission.ANSWERED
    assert ended.ending is not None
    assert set(ended.ending.dialogs) == {"alert, dismissed"}, "the latest ones are kept, and not all of them"
    assert ended.ending.answer is not None and ended.ending.answer.item == ended.ending.item


# A window of its own


async def test_a_window_that_closes_itself_is_a_gap_and_the_page_behind_tells(room: tuple[Desk, Executor]) -> None:
    desk, _ = room
    ended = await run(room, "playground-popup")
    (item,) = desk.playground.truth.published()
    assert ended.exit is Exit.SUCCEEDED
    entries = manifest_of(desk, ended).entries
    composed, window, behind = [entry for entry in entries if entry.point is not Point.VIEW]
    assert composed.point is Point.COMPOSED
    assert composed.url.endswith("/popup/compose"), "the window is what was photographed, with the target in it"
    assert composed.item(ItemKind.SCREENSHOT) is not None
    assert (window.point, behind.point, behind.label) == (Point.AFTER, Point.AFTER, "first page")
    assert {gap.reason for gap in window.gaps} == {GapReason.PAGE_CLOSED}
    assert behind.url.endswith("/popup/new")
    assert behind.gaps == ()
    shown = behind.item(ItemKind.DOM)
    assert shown is not None
    text = FileStore(desk.settings.evidence_folder, minimum_free_bytes=1).get(shown.sha256).decode()
    assert re.search(rf'Published: <a href="[^"]*/items/{item.id}"', text), text


async def test_a_window_that_closes_without_sending_is_proven_not_sent(room: tuple[Desk, Executor]) -> None:
    desk, executor = room
    ended = await run(room, "ClosesWithoutSending")
    await proven_not_sent(executor, ended, desk.playground.truth, NotSent.NO_REQUEST)
    assert desk.playground.truth.requests(writes_only=True) == []
