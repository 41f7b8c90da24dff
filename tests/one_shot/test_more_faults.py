"""What a site itself does wrong with the one request that it gets, and lists that do not show it at once: whole runs in
front of a real browser, held against the site's own record. F1, D5, D6, D8.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio
from api_flows import SlowList, reference
from desk import PERSON, Desk
from fault_cases import absence_shown, honest

from executor.errors import Exit
from executor.model.reasons import Unsure
from executor.model.transitions import Outcome, Transmission
from executor.model.verdict import Discrepancy, VerdictReason
from executor.service import Ended, Executor
from playground.faults import BODY_ONLY, LOST_TOO, Fault
from playground.process import Playground

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

FORM, SPA = "playground-form", "playground-spa"
NOTHING = Unsure.ANSWER_SAYS_NOTHING
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Row:
    flow: str
    fault: Fault
    published: int
    exit: Exit
    reason: Unsure | None = None
    discrepancy: Discrepancy | None = None
    argument: str | None = None


ROWS = (
    # Answers that establish nothing. What the site did is learnt by looking, and nothing is sent again.
    Row(FORM, Fault.STATUS_409, 0, Exit.UNKNOWN, NOTHING),
    Row(SPA, Fault.STATUS_429_BEFORE, 0, Exit.UNKNOWN, NOTHING),
    Row(FORM, Fault.STATUS_429_AFTER, 1, Exit.SUCCEEDED, NOTHING),
    Row(FORM, Fault.STATUS_502_BEFORE, 0, Exit.UNKNOWN, NOTHING),
    Row(SPA, Fault.STATUS_502_AFTER, 1, Exit.SUCCEEDED, NOTHING),
    Row(SPA, Fault.ERROR_IN_200_BEFORE, 0, Exit.UNKNOWN, NOTHING),
    Row(FORM, Fault.ERROR_IN_200_AFTER, 1, Exit.SUCCEEDED, NOTHING),
    Row(SPA, Fault.STALE_NONCE, 0, Exit.UNKNOWN, NOTHING),
    # Answers that claim more than the site did. A claim against what is there is not believed.
    Row(FORM, Fault.MODERATED, 0, Exit.UNKNOWN, None, Discrepancy.ANSWER_AND_VIEW_DIFFER),
    Row(SPA, Fault.MODERATED, 0, Exit.UNKNOWN, None, Discrepancy.ANSWER_AND_VIEW_DIFFER),
    Row(SPA, Fault.SHORTENED, 1, Exit.UNKNOWN, None, Discrepancy.CONTENT_DIFFERS),
    Row(FORM, Fault.SHORTENED, 1, Exit.UNKNOWN, None, Discrepancy.CONTENT_DIFFERS, BODY_ONLY),
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def room(
    playground: Playground, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Desk, Executor]]:
    """One browser and one ledger for all cases, without the circuit breaker, which would end them at the first."""
    overrides = {"circuit_breaker": False, "verify_delays_s": (0.0,)}
    desk = Desk(playground, tmp_path_factory.mktemp("room"), overrides=overrides)
    desk.sign_in()
    async with desk.executor() as executor:
        yield desk, executor
        assert (await executor.ledger.verify_all()).flaws == ()


async def publish(room: tuple[Desk, Executor], flow: str) -> Ended:
    desk, executor = room
    operation = await desk.approved(executor, flow, title=f"Notice {next(_numbers)} of the office")
    return await executor.run(operation.id, by=PERSON)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.flow[11:]}-{row.fault}-{row.argument or ''}".rstrip("-"))
async def test_fault(row: Row, room: tuple[Desk, Executor]) -> None:
    truth = room[0].playground.truth
    truth.reset()
    truth.inject(row.fault, path_prefix="/", argument=row.argument)
    ended = await publish(room, row.flow)
    assert truth.pending_faults() == []
    assert truth.publish_count() == row.published
    honest(ended, truth)
    assert len(truth.requests(writes_only=True)) == 1, "one request reached the site, and no other"
    assert ended.ending is not None
    shown_absent = row.exit is Exit.UNKNOWN and row.discrepancy is None and absence_shown(ended)
    assert ended.exit is (Exit.REJECTED if shown_absent else row.exit)
    assert ended.operation.state.transmission is Transmission.ANSWERED
    assert ended.ending.reason == (f"unsure:{row.reason.value}" if row.reason else None)
    assert ended.ending.discrepancy is row.discrepancy
    if row.discrepancy is not None:
        assert ended.ending.verdict_reason is VerdictReason.CONTRADICTION
        assert row.discrepancy.value in ended.receipt_paths.text.read_text()


@pytest.mark.parametrize("argument", [None, LOST_TOO], ids=["answered", "lost"])
async def test_two_items_for_one_request_are_reported_as_a_duplicate(
    argument: str | None, room: tuple[Desk, Executor]
) -> None:
    """The site did it: one request reached it. The outcome is what the answer establishes, and is never raised by the
    second item."""
    truth = room[0].playground.truth
    truth.reset()
    truth.inject(Fault.TWICE, path_prefix="/", argument=argument)
    ended = await publish(room, FORM)
    assert truth.publish_count() == 2
    assert len(truth.requests(writes_only=True)) == 1
    assert ended.ending is not None
    assert ended.ending.discrepancy is Discrepancy.DUPLICATE
    assert ended.operation.state.outcome is (Outcome.SUCCEEDED if argument is None else Outcome.UNKNOWN)
    text = ended.receipt_paths.text.read_text()
    assert "duplicate" in text
    assert text.splitlines()[0].startswith("UNKNOWN" if argument else "SUCCEEDED — it was published, and something")


class TestLists:
    async def test_a_list_that_lags_does_not_make_an_absence(self, room: tuple[Desk, Executor]) -> None:
        truth = room[0].playground.truth
        truth.reset()
        truth.arrange_lists(lag_seconds=3600)
        truth.inject(Fault.RESET_AFTER, path_prefix="/")
        ended = await publish(room, reference(SlowList))
        honest(ended, truth)
        assert (ended.exit, truth.publish_count()) == (Exit.UNKNOWN, 1)
        assert ended.ending is not None
        assert ended.ending.verdict_reason is VerdictReason.ABSENCE_WITHOUT_GUARANTEE
        assert [look.result for look in ended.ending.looks if look.when == "after"] == ["not_found", "not_found"]

    async def test_a_list_that_lags_by_looks_shows_it_to_a_later_one(self, playground: Playground, desk: Desk) -> None:
        desk.overrides["verify_delays_s"] = (0.0, 0.1)
        playground.truth.arrange_lists(lag_looks=2)
        playground.truth.inject(Fault.RESET_AFTER, path_prefix="/")
        ended = await desk.publish(reference(SlowList))
        honest(ended, playground.truth)
        assert ended.exit is Exit.SUCCEEDED
        assert ended.ending is not None
        after = [look.result for look in ended.ending.looks if look.when == "after"]
        assert after == ["not_found", "not_found", "found", "found"]

    async def test_what_is_on_the_second_page_is_found(self, room: tuple[Desk, Executor]) -> None:
        truth = room[0].playground.truth
        truth.reset()
        for number in range(3):
            truth.create(account="editor", title=f"Older {number}", body="", state="published", variant="test")
        truth.arrange_lists(page_size=2, oldest_first=True)
        truth.inject(Fault.RESET_AFTER, path_prefix="/")
        ended = await publish(room, FORM)
        assert (ended.exit, truth.publish_count()) == (Exit.SUCCEEDED, 4)
        assert ended.ending is not None
        found = next(look for look in ended.ending.looks if look.when == "after" and look.view == "mine")
        assert (found.result, found.complete) == ("found", True)
        assert "on 2 pages" in found.scope
