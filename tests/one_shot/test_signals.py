"""Asked to end, paused, or raced: SIGTERM and SIGINT at the moments that matter, a pause across the lease, and two
processes on one operation. One effect at most, and a record that is true (A5, C8, F3).
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from child import (
    IDLE,
    NOT_SENT,
    SEEN,
    SUCCEEDED,
    UNKNOWN,
    check_the_record,
    child,
    let_the_leases_run_out,
    shape_of,
)
from desk import PERSON, Desk
from killed_run import CANCELLED

from executor.errors import Exit
from executor.model.admission import refusal
from executor.model.reasons import Halt, NotSent
from executor.one_shot.recovery import RUN_OVERTAKEN
from executor.receipts import Standing
from executor.service import Executor
from playground.faults import Fault

pytestmark = pytest.mark.browser

Moment = tuple[int, str]


async def approved(desk: Desk, flow: str = "playground-form") -> str:
    async with desk.executor() as executor:
        return (await desk.approved(executor, flow)).id


def receipt_of(desk: Desk, operation: str) -> dict[str, Any]:
    kept: dict[str, Any] = json.loads((desk.settings.receipts_folder / f"{operation}.json").read_text())
    return kept


# -- asked to end ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sent", "at"),
    [("SIGTERM", (2, "done")), ("SIGTERM", (4, "begin")), ("SIGINT", (6, "done")), ("SIGINT", (8, "begin"))],
)
async def test_asked_to_end_before_the_claim_it_halts(sent: str, at: Moment, desk: Desk) -> None:
    operation = await approved(desk)
    with child(desk.settings, operation, at, sent=sent) as asked:
        assert asked.ended() == (CANCELLED, {"cancelled": True})
    async with desk.executor() as executor:
        assert await check_the_record(desk, executor, operation) == IDLE
        kept = receipt_of(desk, operation)
        assert (kept["standing"], kept["reason"]["code"]) == (Standing.HALTED, f"halt:{Halt.CANCELLED}")
        # Nothing is used up: the approval is there, and so is the account, before any lease has run out.
        found = await executor.operation(operation)
        assert refusal(await executor.ledger.admission(operation, found.flow)) is None
        await executor.ledger.lease(found.account_key, holder="somebody", ttl_s=5)


@pytest.mark.parametrize(
    ("sent", "at"), [("SIGTERM", (8, "claiming")), ("SIGINT", (9, "done")), ("SIGTERM", (10, "recorded"))]
)
async def test_asked_to_end_between_claim_and_gesture_it_proves_that_nothing_was_sent(
    sent: str, at: Moment, desk: Desk
) -> None:
    operation = await approved(desk)
    with child(desk.settings, operation, at, sent=sent) as asked:
        assert asked.ended() == (CANCELLED, {"cancelled": True})
    async with desk.executor() as executor:
        assert executor.recovered == ()
        assert await check_the_record(desk, executor, operation) == NOT_SENT
    reason = receipt_of(desk, operation)["reason"]
    assert (reason["code"], reason["detail"]) == (f"not_sent:{NotSent.CANCELLED}", "")


@pytest.mark.parametrize(
    ("sent", "at"),
    [
        ("SIGTERM", [(11, "connected")]),
        ("SIGINT", [(11, "connected"), (11, "released"), (13, "begin")]),
        ("SIGTERM", [(11, "released")]),
        ("SIGINT", [(11, "done"), (12, "begin")]),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(f"{step}{moment}" for step, moment in value),
)
async def test_asked_to_end_once_it_is_in_the_door_it_waits_and_tells(sent: str, at: list[Moment], desk: Desk) -> None:
    """From the connection to the answer nothing cancels it, however often it is asked."""
    desk.playground.truth.inject(Fault.LATE, path_prefix="/form/publish", argument=0.5)
    operation = await approved(desk)
    with child(desk.settings, operation, *at, sent=sent) as asked:
        assert asked.ended() == (CANCELLED, {"cancelled": True})
    async with desk.executor() as executor:
        assert executor.recovered == ()
        assert await check_the_record(desk, executor, operation) == SUCCEEDED
    assert receipt_of(desk, operation)["observed"]["item"] == str(desk.playground.truth.published()[0].id)


async def test_asked_to_end_while_no_answer_comes_it_ends_by_its_own_deadline(desk: Desk) -> None:
    desk.overrides["answer_s"] = 1.5
    desk.playground.truth.inject(Fault.LOST, path_prefix="/form/publish")
    operation = await approved(desk)
    with child(desk.settings, operation, (11, "done"), sent="SIGTERM") as asked:
        assert asked.ended() == (CANCELLED, {"cancelled": True})
    async with desk.executor() as executor:
        assert executor.recovered == ()
        assert await check_the_record(desk, executor, operation) == SEEN


@pytest.mark.parametrize("at", [(4, "begin"), (11, "released")], ids=["prepare", "released"])
async def test_ctrl_c_reaches_the_driver_too_and_the_record_is_true(at: Moment, desk: Desk) -> None:
    """A terminal signals the whole group: the browser's driver ends with the first Ctrl-C, whatever the run does."""
    operation = await approved(desk)
    with child(desk.settings, operation, at, sent="SIGINT", group=True) as asked:
        assert asked.ended() == (CANCELLED, {"cancelled": True})
    async with desk.executor() as executor:
        assert executor.recovered == ()
        shape = await check_the_record(desk, executor, operation)
    assert shape == (IDLE if at[0] == 4 else SUCCEEDED)


# -- paused across the lease -----------------------------------------------------------------------------------------


async def test_paused_between_the_release_and_the_first_byte_it_does_not_write_when_it_wakes(desk: Desk) -> None:
    """The worst moment, by the real clock: `released` is committed, so it stays unknown; and nothing leaves."""
    desk.overrides |= {"lease_s": 6.0, "write_within_s": 1.0}
    operation = await approved(desk)
    with child(desk.settings, operation, (11, "released"), sent="SIGSTOP") as paused:
        paused.stopped()
        async with desk.executor() as executor:
            while not executor.recovered:
                executor.recovered = await executor.recover(by=PERSON)
            assert await shape_of(executor, operation) == UNKNOWN
            paused.go_on()
            assert paused.ended() == (Exit.UNKNOWN, {"exit": Exit.UNKNOWN})
            assert await check_the_record(desk, executor, operation) == UNKNOWN
    assert desk.playground.truth.publish_count() == 0


# -- two processes ---------------------------------------------------------------------------------------------------


async def test_two_processes_at_once_have_one_effect(desk: Desk) -> None:
    operation = await approved(desk)
    with (
        child(desk.settings, operation, sent="SIGTERM") as one,
        child(desk.settings, operation, sent="SIGTERM") as other,
    ):
        assert sorted(code for code, _ in (one.ended(), other.ended())) == [Exit.SUCCEEDED, Exit.REFUSED]
    async with desk.executor() as executor:
        assert await check_the_record(desk, executor, operation) == SUCCEEDED
        assert (await executor.receipt(operation)).observed.item is not None


async def test_while_one_holds_the_account_another_is_refused(desk: Desk) -> None:
    operation = await approved(desk)
    with child(desk.settings, operation, (7, "done"), sent="SIGSTOP") as first:
        first.stopped()
        async with desk.executor() as executor:
            second = await executor.run(operation, by=PERSON)
            assert second.exit is Exit.REFUSED
            assert second.ending is not None
            assert second.ending.reason == "refusal:account_busy"
            first.go_on()
            assert first.ended() == (Exit.SUCCEEDED, {"exit": Exit.SUCCEEDED})
            assert await check_the_record(desk, executor, operation) == SUCCEEDED


@pytest.mark.parametrize("at", [(8, "claiming"), (10, "recorded"), (11, "connected")])
async def test_a_sleeper_that_was_overtaken_has_no_effect_and_does_not_speak_for_the_other(
    at: Moment, desk: Desk
) -> None:
    """It sleeps across its lease; what it left is settled, approved anew and published by another process; it wakes."""
    operation = await approved(desk)
    with child(desk.settings, operation, at, sent="SIGSTOP") as sleeper:
        sleeper.stopped()
        let_the_leases_run_out(desk)
        async with desk.executor() as executor:
            if at != (8, "claiming"):
                assert await shape_of(executor, operation) == NOT_SENT
                await _approve(executor, operation)
            ended = await executor.run(operation, by=PERSON)
            assert ended.exit is Exit.SUCCEEDED
            told = await executor.receipt(operation)
            sleeper.go_on()
            code, _ = sleeper.ended()
            assert code == (Exit.REFUSED if at == (8, "claiming") else Exit.NOT_SENT)
            assert await check_the_record(desk, executor, operation) == SUCCEEDED
            kinds = [event.kind for event in await executor.events(operation)]
            assert kinds.count("released") == kinds.count(RUN_OVERTAKEN) == 1
            # What the receipt says of the published item is untouched by what the sleeper had to say.
            now = await executor.receipt(operation)
            assert (now.observed, now.reason, now.evidence) == (told.observed, told.reason, told.evidence)
    assert desk.playground.truth.publish_count() == 1


async def _approve(executor: Executor, operation: str) -> None:
    fingerprint = (await executor.operation(operation)).fingerprint
    await executor.approve(
        operation, by=PERSON, fingerprint=fingerprint, valid_for_s=timedelta(hours=1).total_seconds()
    )
