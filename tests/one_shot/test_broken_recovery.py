"""Recovery beside a run that is alive: what is still being done is left to who does it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from child import NOT_SENT, SUCCEEDED
from desk import PERSON
from release_kit import Got, bench, shape

from executor.model.transitions import Dispatch
from executor.one_shot.recovery import RUN_ENDED, finish_lost_runs, settle_open_attempts


@pytest.fixture(scope="session")
def browser() -> None:
    """In place of the fixture that skips where there is none."""


async def test_an_attempt_whose_lease_holds_is_left_alone(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        assert await settle_open_attempts(one.ledger, by=PERSON) == []
        assert (await one.ledger.operation(one.operation.id)).state.dispatch is Dispatch.STARTED
        assert await one.publish() == Got(302)
        assert shape(await one.judged()) == SUCCEEDED


async def test_settled_all_the_same_it_can_release_nothing(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        settled = await settle_open_attempts(one.ledger, by=PERSON, expired_only=False)
        assert [shape(operation) for operation in settled] == [NOT_SENT]
        assert (await one.publish()).interlock == "ledger_refused"
        assert one.site.written == 0


async def test_the_end_of_a_run_that_may_be_alive_is_its_own_to_record(tmp_path: Path) -> None:
    async with bench(tmp_path) as one:
        assert await one.publish() == Got(302)
        await one.judged()
        receipts = one.services.settings.receipts_folder
        assert await finish_lost_runs(one.ledger, receipts, by=PERSON) == []
        assert RUN_ENDED not in await one.kinds()

        assert one.run.lease is not None
        await one.ledger.surrender(one.run.lease)  # now it is gone
        assert [one.id for one in await finish_lost_runs(one.ledger, receipts, by=PERSON)] == [one.operation.id]
        assert (await one.kinds()).count(RUN_ENDED) == 1


@pytest.mark.parametrize(
    "told",
    [
        b"",
        b"[]",
        b'{"ids": {}}',
        json.dumps({"ids": {"attempt": "at_of_before"}, "times": {"run_ended": "2030-01-01T00:00:00Z"}}).encode(),
    ],
    ids=["empty", "no receipt", "of another kind", "of the attempt before"],
)
async def test_a_receipt_that_does_not_tell_the_end_is_written_anew(tmp_path: Path, told: bytes) -> None:
    async with bench(tmp_path) as one:
        assert await one.publish() == Got(302)
        await one.judged()
        assert one.run.lease is not None
        await one.ledger.surrender(one.run.lease)
        receipts = one.services.settings.receipts_folder
        receipts.mkdir(parents=True, exist_ok=True)
        (receipts / f"{one.operation.id}.json").write_bytes(told)
        assert [one.id for one in await finish_lost_runs(one.ledger, receipts, by=PERSON)] == [one.operation.id]
