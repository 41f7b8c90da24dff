"""Every shape of composer against every fault at the socket: at most one effect by the site's own record, a state that
the step table has, and a receipt that agrees. F1, C2.

By default each shape meets four situations (a variant of one meets two) and each fault at least two shapes; `--long`
runs the whole product. One browser and one ledger serve the module, as they serve a worker.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from _pytest.mark.structures import ParameterSet
from desk import PERSON, Desk
from fault_cases import ROWS, Row, absence_shown, honest
from shape_cases import SHAPES, Shape

from executor.errors import Exit
from executor.model.transitions import Transmission
from executor.service import Executor
from playground.faults import Fault
from playground.process import Playground

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

VARIANTS = {None, Fault.RESET_AFTER}
ALWAYS = {*VARIANTS, Fault.RESET_BEFORE, Fault.STATUS_500_AFTER}
"""Nothing wrong; the answer lost, and the request lost; an error that comes after the commit."""

_numbers = itertools.count(1)


def cases() -> Iterator[ParameterSet]:
    turn = itertools.cycle(SHAPES)
    for row in (None, *ROWS):
        fault = row.fault if row is not None else None
        always = {shape for shape in SHAPES if fault in (VARIANTS if shape.of else ALWAYS)}
        quick = always or {next(turn), next(turn)}
        for shape in SHAPES:
            marks = () if shape in quick else (pytest.mark.long,)
            argument = f"-{row.argument}" if row is not None and row.argument is not None else ""
            yield pytest.param(shape, row, marks=marks, id=f"{shape.name}-{fault or 'published'}{argument}")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def room(
    playground: Playground, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[Desk, Executor]]:
    """A desk, and one executor for all cases. Without its circuit breaker, which would stop the account at the first
    case that ends unknown, and with a window in which every page here sends, however busy the machine is."""
    overrides = {"circuit_breaker": False, "effect_window_s": 30.0}
    desk = Desk(playground, tmp_path_factory.mktemp("room"), overrides=overrides)
    (desk.folder / "picture.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(1000))
    for account in {shape.account for shape in SHAPES}:
        desk.sign_in(account)
    async with desk.executor() as executor:
        yield desk, executor
        assert (await executor.ledger.verify_all()).flaws == ()


@pytest.mark.parametrize(("shape", "row"), list(cases()))
async def test_shape(shape: Shape, row: Row | None, room: tuple[Desk, Executor]) -> None:
    desk, executor = room
    truth = desk.playground.truth
    truth.reset()
    if row is not None:
        truth.inject(row.fault, method="any", path_prefix="/", argument=row.argument)
    title = f"Notice {next(_numbers)}"  # the same text again would be taken for the same wish
    also = {"image": {"path": "picture.png"}} if shape.picture else None
    operation = await desk.approved(executor, shape.flow, account=shape.account, title=title, also=also)
    ended = await executor.run(operation.id, by=PERSON)

    assert truth.pending_faults() == [], f"the fault was not met, so the case shows nothing: {ended.ending}"
    assert truth.publish_count() == (1 if row is None else row.published)
    honest(ended, truth)
    assert ended.ending is not None
    state = ended.operation.state
    if row is None:
        (item,) = truth.published()
        payload = operation.intent.payload
        assert (item.title, item.body) == (payload["title"], payload["body"])
        assert item.account == shape.account
        assert (ended.exit, state.transmission) == (Exit.SUCCEEDED, Transmission.ANSWERED)
        assert ended.ending.item == str(item.id)
        assert ended.ending.effect is not None
        assert ended.ending.effect.from_page_only == ()
        return
    assert ended.exit is (Exit.REJECTED if row.exit is Exit.UNKNOWN and absence_shown(ended) else row.exit)
    assert state.transmission is row.transmission
    assert ended.ending.reason == (f"unsure:{row.reason.value}" if row.reason else None)
