"""Stopped after the claim: whatever the page, the network, a person or a crash did, nothing left, and the record proves
it (C5). And the other side of that proof: where another write could have done it, the outcome is unknown.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from checks import odd, proven_not_sent
from desk import PERSON, Desk

from executor.errors import Exit
from executor.ledger.anchor import Anchor
from executor.ledger.sql import SqlLedger, open_ledger
from executor.model.failure import FailureClass
from executor.model.operation import Operation
from executor.model.reasons import NotSent, Unsure
from executor.model.retry import Permits, RetryReason
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.one_shot.run import StepEvent
from executor.receipts.guidance import ActionPermitted, ActionProhibited, Standing
from executor.service import Ended, Executor
from playground.process import Playground

pytestmark = pytest.mark.browser

MOMENTS = {"claimed": (8, "done"), "connected": (11, "connected"), "released": (11, "released"), "waits": (12, "begin")}
"""`connected` is the last one before the release is committed."""

# By the page


@dataclass(frozen=True)
class Row:
    flow: str
    reason: NotSent
    failure: FailureClass
    refused: str = ""
    """Why the gate refused a write of the page, where it did."""
    detail: str = ""


ROWS = (
    Row("ChangesOneCharacter", NotSent.MATERIAL_DIFFERS, FailureClass.POLICY_CONFLICT, "material_differs", "body"),
    Row("ChangesTheSession", NotSent.SESSION_DIFFERS, FailureClass.POLICY_CONFLICT, "session_differs", "cookies"),
    Row("SendsAnotherShape", NotSent.EFFECT_OF_ANOTHER_SHAPE, FailureClass.ESCALATE, "not_declared"),
    Row("SendsTwo", NotSent.EFFECT_COUNT, FailureClass.POLICY_CONFLICT, "effect_count"),
    Row("ShowsMessage", NotSent.VALIDATION_MESSAGE, FailureClass.ESCALATE),
    Row("AsksFirst", NotSent.DIALOG, FailureClass.ESCALATE),
    Row("DoesNothing", NotSent.NO_REQUEST, FailureClass.ESCALATE),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.flow)
async def test_the_page_does_not_send_what_was_approved(row: Row, desk: Desk) -> None:
    truth = desk.playground.truth
    async with desk.executor() as executor:
        operation = await desk.approved(executor, odd(row.flow))
        ended = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, ended, truth, row.reason)
        assert truth.requests(writes_only=True) == []
        assert ended.ending is not None
        assert row.detail in ended.ending.detail
        assert ended.receipt.failure is not None
        assert ended.receipt.failure.failure_class is row.failure
        refused = " ".join(ended.receipt.attempted.refused_writes)
        assert row.refused in refused
        assert bool(refused) is bool(row.refused)
        assert ended.receipt.attempted.dialogs == int(row.reason is NotSent.DIALOG)


async def test_a_dialog_with_a_declared_answer_is_answered(desk: Desk) -> None:
    ended = await desk.publish(odd("AsksAndIsAnswered"))
    assert desk.playground.truth.publish_count() == 1
    assert ended.exit is Exit.SUCCEEDED
    assert ended.ending is not None
    assert ended.ending.dialogs == ("confirm, accepted",)


# Between the claim and the gesture


def at(moment: str, does: Callable[[], Any]) -> Callable[[StepEvent], None]:
    """A listener that acts once, at a moment of the run, before the run goes on."""
    waiting = [does]

    def listener(event: StepEvent) -> None:
        if (event.number, event.moment) == MOMENTS[moment] and waiting:
            waiting.pop()()

    return listener


@asynccontextmanager
async def held(desk: Desk, **does: Callable[[Any], Any]) -> AsyncIterator[tuple[Executor, Operation]]:
    """An executor, and an approved operation of the flow that a test can reach into. `does` are called with that flow's
    class, each at the moment of its name."""
    began: list[Any] = []

    def listener(event: StepEvent) -> None:
        for name, act in does.items():
            if MOMENTS[name] == (event.number, event.moment):
                began.append(act(type(executor.flows.get(odd("Held")))))

    async with desk.executor(listener) as executor:
        yield executor, await desk.approved(executor, odd("Held"))
        assert len(began) == len(does), "a moment did not come"
        await asyncio.gather(*(one for one in began if one is not None), return_exceptions=True)


@pytest.mark.parametrize(
    ("script", "reason", "detail"),
    [
        ("button.remove()", NotSent.CONTROL_CHANGED, "no longer in the page"),
        ("button.before('Now then: ')", NotSent.CONTROL_CHANGED, "moved"),
        ("button.disabled = true", NotSent.CONTROL_CHANGED, "disabled"),
        ("void setTimeout(() => { for (;;); })", NotSent.GESTURE_FAILED, "does not answer"),
    ],
    ids=["removed", "moved", "disabled", "frozen"],
)
async def test_the_page_changes_under_the_gesture(script: str, reason: NotSent, detail: str, desk: Desk) -> None:
    desk.overrides |= {"gesture_s": 2.0, "evidence_s": 2.0}
    async with held(desk, claimed=lambda flow: flow.soon(script)) as (executor, operation):
        ended = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, ended, desk.playground.truth, reason)
        assert ended.ending is not None
        assert detail in ended.ending.detail


@pytest.mark.parametrize("lost", ["tab", "browser", "tab after a gesture that sent nothing"])
async def test_the_browser_dies_after_the_claim(lost: str, desk: Desk) -> None:
    desk.overrides |= {"evidence_s": 2.0, "effect_window_s": 60.0}
    does: dict[str, Callable[[Any], Any]] = {
        "tab": {"claimed": lambda flow: flow.crash_soon()},
        "browser": {"claimed": lambda _flow: kill_browser()},
        "tab after a gesture that sent nothing": {
            "claimed": lambda flow: flow.soon("button.type = 'button'"),
            "waits": lambda flow: flow.crash_soon(),
        },
    }[lost]
    async with held(desk, **does) as (executor, operation):
        ended = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, ended, desk.playground.truth, NotSent.BROWSER_LOST)
        assert ended.receipt.failure is not None
        assert ended.receipt.failure.failure_class is FailureClass.TEMPORARY_FAILURE


async def test_a_browser_that_dies_with_the_request_on_its_way_cancels_nothing(desk: Desk) -> None:
    desk.overrides["evidence_s"] = 2.0
    async with held(desk, released=lambda _flow: kill_browser()) as (executor, operation):
        ended = await executor.run(operation.id, by=PERSON)
        assert desk.playground.truth.publish_count() == 1
        assert ended.exit is Exit.SUCCEEDED
        assert ended.operation.state.transmission is Transmission.ANSWERED
        assert (await executor.ledger.verify_all()).flaws == ()


def kill_browser() -> None:
    """End the browser that this process started, as the kernel does when memory runs out."""
    roots = [pid for pid in _descendants(os.getpid()) if _is_browser(pid)]
    assert len(roots) == 1
    os.kill(roots[0], signal.SIGKILL)


def _is_browser(pid: int) -> bool:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return b"--remote-debugging-pipe" in command and not any(one.startswith(b"--type=") for one in command)


def _descendants(pid: int) -> Iterator[int]:
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            yield child
            yield from _descendants(child)


# Between the claim and the release


async def test_a_dead_host_is_proven_not_sent(desk: Desk, tmp_path: Path) -> None:
    async with await Playground.start_async(tmp_path / "own") as own:
        desk = Desk(own, tmp_path)
        desk.sign_in()
        async with desk.executor(at("claimed", own.kill)) as executor:
            operation = await desk.approved(executor)
            ended = await executor.run(operation.id, by=PERSON)
            await proven_not_sent(executor, ended, own.truth, NotSent.HOST_UNREACHABLE)
            assert ended.receipt.failure is not None
            assert ended.receipt.failure.failure_class is FailureClass.TEMPORARY_FAILURE


async def test_a_stop_holds_back_what_was_claimed(desk: Desk) -> None:
    ids: list[str] = []

    def stop() -> None:
        with another_process(desk) as ledger:
            key = ledger.operations()[0].account_key
            ids.append(ledger.stop(by=PERSON, why="somebody complained", account_key=key).id)

    async with desk.executor(at("connected", stop)) as executor:
        operation = await desk.approved(executor)
        ended = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, ended, desk.playground.truth, NotSent.STOPPED)
        assert ended.ending is not None
        assert ids[0] in ended.ending.detail


async def test_an_approval_that_is_revoked_holds_back_what_was_claimed(desk: Desk) -> None:
    def revoke() -> None:
        with another_process(desk) as ledger:
            ledger.revoke(ledger.operations()[0].id, by=PERSON, why="the date is wrong")

    async with desk.executor(at("connected", revoke)) as executor:
        operation = await desk.approved(executor)
        ended = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, ended, desk.playground.truth, NotSent.APPROVAL_ENDED)


@contextmanager
def another_process(desk: Desk) -> Iterator[SqlLedger]:
    """The same ledger, opened a second time: what a person does elsewhere while a run goes on."""
    ledger = open_ledger(desk.settings.ledger_url, anchor=Anchor(desk.settings.evidence_folder / "anchor.json"))
    try:
        yield ledger
    finally:
        ledger.close_connections()


# After it was proven


async def test_a_fresh_approval_opens_one_linked_attempt_and_nothing_else_does(desk: Desk) -> None:
    truth = desk.playground.truth
    stops: list[str] = []

    def stop() -> None:
        with another_process(desk) as ledger:
            stops.append(ledger.stop(by=PERSON, why="somebody complained").id)

    async with desk.executor(at("connected", stop)) as executor:
        operation = await desk.approved(executor)
        first = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, first, truth, NotSent.STOPPED)
        may = {one.action for one in first.receipt.permitted}
        assert ActionPermitted.APPROVE_AGAIN_AND_RUN in may
        assert ActionPermitted.REPORT_AS_NOT_SENT in may
        assert (first.receipt.retry.permits, first.receipt.retry.reason) == (
            Permits.FRESH_APPROVAL,
            RetryReason.NONE_PROVEN,
        )

        await executor.lift(stops[0], by=PERSON, why="it was about something else")
        again = await executor.run(operation.id, by=PERSON)
        assert (again.exit, again.ending, again.receipt.standing) == (Exit.REFUSED, None, Standing.NOT_SENT)
        assert len(again.operation.attempts) == 1

        await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint, why="still meant")
        second = await executor.run(operation.id, by=PERSON)
        assert second.exit is Exit.SUCCEEDED
        assert truth.publish_count() == 1
        assert [attempt.transmission for attempt in second.operation.attempts] == [
            Transmission.NONE_PROVEN,
            Transmission.ANSWERED,
        ]
        assert second.operation.releases == 1
        events = await executor.events(operation.id)
        reopened = next(event for event in events if event.kind == "reopened")
        assert (reopened.actor, reopened.data["after_attempt"]) == (PERSON, first.operation.attempts[0].id)

        third = await executor.run(operation.id, by=PERSON)
        assert (third.exit, third.receipt.standing) == (Exit.REFUSED, Standing.SUCCEEDED)
        assert truth.publish_count() == 1
        assert (await executor.ledger.verify_all()).flaws == ()


# Other writes


async def test_a_write_that_cannot_publish_leaves_the_proof_whole(desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = await desk.approved(executor, odd("SavesOnly"))
        ended = await executor.run(operation.id, by=PERSON)
        await proven_not_sent(executor, ended, desk.playground.truth, NotSent.NO_REQUEST)
        assert [write.name for write in ended.receipt.attempted.left if write.after_gesture] == ["autosave"]


async def test_a_write_that_may_publish_makes_it_unknown(desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = await desk.approved(executor, odd("SavesOnlyAndMayPublish"))
        ended = await executor.run(operation.id, by=PERSON)
        assert desk.playground.truth.publish_count() == 0
        assert_unknown(ended, Unsure.OTHER_WRITE_LEFT)
        assert ended.receipt.attempted.other_write_exposed
        assert not ended.receipt.attempted.released
        exposed = next(event for event in await executor.events(operation.id) if event.kind == "exposed")
        draft = desk.playground.truth.drafts()[0].id
        assert exposed.data["url"] == f"{desk.site}/autosave/{draft}/edit"
        assert [(write.name, write.item) for write in ended.receipt.attempted.left if write.after_gesture] == [
            ("autosave", str(draft))
        ]
        assert (await executor.ledger.verify_all()).flaws == ()


async def test_absence_counts_from_the_last_write_that_left(desk: Desk) -> None:
    """The look begins after the window as counted from the gesture, and within it as counted from the write."""
    desk.overrides |= {
        "effect_window_s": None,
        "verify_delays_s": (1.0,),
    }  # 4 s and 1 s are the window, from the gesture
    async with desk.executor() as executor:
        operation = await desk.approved(executor, odd("SavesLate"))
        ended = await executor.run(operation.id, by=PERSON)
        assert desk.playground.truth.publish_count() == 0
        assert ended.ending is not None
        left = next(write for write in ended.ending.left if write.after_gesture)
        look = next(look for look in ended.ending.looks if (look.view, look.when) == ("mine", "after"))
        if look.at - left.at < timedelta(seconds=5):
            assert_unknown(ended, Unsure.OTHER_WRITE_LEFT)
        else:
            assert ended.exit is Exit.REJECTED, "on a slow machine the window has passed, and then absence is a fact"


def assert_unknown(ended: Ended, reason: Unsure) -> None:
    state = ended.operation.state
    assert ended.exit is Exit.UNKNOWN
    assert (state.dispatch, state.transmission, state.outcome) == (
        Dispatch.COMPLETED,
        Transmission.POSSIBLE,
        Outcome.UNKNOWN,
    )
    assert ended.ending is not None
    assert ended.ending.reason == f"unsure:{reason.value}"
    assert ended.receipt.standing is Standing.UNKNOWN
    assert ended.receipt.failure is not None
    assert ended.receipt.failure.failure_class is FailureClass.UNCERTAIN_ACTION
    assert ended.receipt.ownership.owner is not None
    assert {ActionProhibited.SUBMIT_AGAIN, ActionProhibited.SUBMIT_BY_HAND, ActionProhibited.REPORT_AS_FAILED} <= {
        one.action for one in ended.receipt.prohibited
    }
