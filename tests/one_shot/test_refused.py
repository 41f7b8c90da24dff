"""Stopped before the claim: by the page, by the site, by the record, by a person. Nothing was dispatched, the record
says so, and a receipt says why. Every row reads the site's own record.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from checks import ODD, assert_without_payload, nothing_dispatched, odd
from desk import PERSON, Desk

from evidence.store import FileStore
from executor.browser.finding import BrowserMissing
from executor.errors import BadInput, Exit
from executor.ledger.ids import new_id
from executor.ledger.ledger import NotAPerson, SchemaTooNew
from executor.model.admission import Refusal
from executor.model.failure import FailureClass
from executor.model.operation import Actor, ActorKind, Operation
from executor.model.reasons import Halt
from executor.model.transitions import Dispatch, Permission
from executor.one_shot.run import StepEvent
from executor.receipts.guidance import Standing
from executor.service import Ended, Executor
from flows.flow import Payload

pytestmark = pytest.mark.browser

# By the page, the flow and the site


@dataclass(frozen=True)
class Row:
    flow: str
    reason: Halt
    exit: Exit
    failure: FailureClass
    detail: str = ""
    """Words of the detail."""


ROWS = (
    Row("PublishesInPrepare", Halt.FLOW_REACHED_EFFECT, Exit.DEFECT, FailureClass.ESCALATE, "POST"),
    Row("OneCharacterMore", Halt.COMPOSED_DIFFERS, Exit.REFUSED, FailureClass.POLICY_CONFLICT, "Different: body."),
    Row("TwoControls", Halt.CONTROL_NOT_FIT, Exit.DEFECT, FailureClass.ESCALATE, "2 times"),
    Row("CoveredControl", Halt.CONTROL_NOT_FIT, Exit.DEFECT, FailureClass.ESCALATE, "on top"),
    Row("DisabledControl", Halt.CONTROL_NOT_FIT, Exit.DEFECT, FailureClass.ESCALATE, "disabled"),
    Row("ControlOutside", Halt.CONTROL_NOT_FIT, Exit.DEFECT, FailureClass.ESCALATE, "outside"),
    Row("BrokenList", Halt.COULD_NOT_LOOK, Exit.DEFECT, FailureClass.MISSING_EVIDENCE, "404"),
    # Authors' mistakes end as halts with a receipt too, never as an exception of the run.
    Row("RaisesInMessage", Halt.PREPARE_FAILED, Exit.DEFECT, FailureClass.ESCALATE, "LookupError"),
    Row("NamesNoControl", Halt.PREPARE_FAILED, Exit.DEFECT, FailureClass.ESCALATE, "Submit"),
    Row("ReadsNoPlace", Halt.IDENTITY_UNREADABLE, Exit.DEFECT, FailureClass.MISSING_EVIDENCE, "address"),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.flow)
async def test_the_page_or_the_flow_is_not_as_it_should_be(row: Row, desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = await desk.approved(executor, odd(row.flow))
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, desk.playground.truth, row.reason, exit=row.exit)
        assert ended.ending is not None
        assert row.detail in ended.ending.detail
        assert ended.receipt.failure is not None
        assert ended.receipt.failure.failure_class is row.failure
        assert ended.ending.evidence is not None
        assert ended.ending.evidence.pictures, "there is no picture of what stopped it"
        # The approval is as good as before: what stopped it was seen before anything was spent.
        found = await executor.operation(operation.id)
        assert found.approval is not None
        assert found.approval.used == 0


async def test_another_account_stops_before_the_claim(desk: Desk) -> None:
    desk.sign_in("second", as_account="editor")
    async with desk.executor() as executor:
        operation = await desk.approved(executor)
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, desk.playground.truth, Halt.ACCOUNT_DIFFERS, exit=Exit.REFUSED)
        assert ended.receipt.reason is not None
        assert "second" in ended.receipt.reason.detail


async def test_another_destination_stops_before_the_claim(tls_desk: Desk) -> None:
    """The same host and the same sign-in, another place: the site that is spoken to in the clear."""
    host = urlsplit(tls_desk.site).hostname
    in_the_clear = f"http://{host}:{urlsplit(tls_desk.playground.plain).port}"
    async with tls_desk.executor() as executor:
        operation = await tls_desk.approved(executor, odd("Elsewhere"), body=f"Moved.\n{in_the_clear}")
        ended = await executor.run(operation.id, by=PERSON)
        truth = tls_desk.playground.truth
        await nothing_dispatched(executor, ended, truth, Halt.DESTINATION_DIFFERS, exit=Exit.REFUSED)


@pytest.mark.parametrize("session", ["never signed in", "signed out meanwhile", "sealed with another key"])
async def test_who_is_not_signed_in_is_told_so(session: str, desk: Desk) -> None:
    if session == "never signed in":
        shutil.rmtree(desk.settings.identities_folder)
    elif session == "sealed with another key":
        (desk.settings.key_folder / "identities.key").write_bytes(b"k" * 32)
    else:
        end_sessions(desk)
    async with desk.executor() as executor:
        operation = await desk.approved(executor)
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, desk.playground.truth, Halt.SIGN_IN_NEEDED, exit=Exit.REFUSED)
        assert any("interlock login" in (one.command or "") for one in ended.receipt.permitted)


async def test_signed_out_while_composing_means_that_nobody_could_look(desk: Desk) -> None:
    def sign_out(event: StepEvent) -> None:
        if (event.number, event.moment) == (7, "done"):
            end_sessions(desk)

    async with desk.executor(sign_out) as executor:
        operation = await desk.approved(executor)
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, desk.playground.truth, Halt.COULD_NOT_LOOK, exit=Exit.DEFECT)
        assert [look.result for look in ended.ending.looks] == ["could_not_look"] if ended.ending else False


def end_sessions(desk: Desk) -> None:
    """As the site does when it forgets its visitors."""
    with closing(sqlite3.connect(desk.playground.truth.path)) as record, record:
        record.execute("DELETE FROM sessions")


@pytest.mark.parametrize("state", ["published", "queued"])
async def test_what_is_there_already_is_not_published_again(state: str, desk: Desk) -> None:
    truth = desk.playground.truth
    title, body = "Office closed on Friday", "The office is closed on Friday.\nWe are back on Monday."
    by_hand = truth.create(account="editor", title=title, body=body, state=state, variant="form")
    async with desk.executor() as executor:
        operation = await desk.approved(executor, title=title, body=body)
        ended = await executor.run(operation.id, by=PERSON)
        there = int(state == "published")
        await nothing_dispatched(executor, ended, truth, Halt.ALREADY_THERE, exit=Exit.REFUSED, published=there)
        assert ended.receipt.failure is not None
        assert ended.receipt.failure.failure_class is FailureClass.POLICY_CONFLICT
        assert ended.ending is not None
        assert str(by_hand.id) in ended.ending.detail
        look = ended.ending.looks[-1]
        assert (look.when, look.result, look.items[0]["id"]) == ("before", "found", str(by_hand.id))
        store = FileStore(executor.settings.evidence_folder)
        assert look.evidence
        assert all(store.get(one) for one in look.evidence)


async def test_a_full_disk_stops_before_the_claim(desk: Desk) -> None:
    desk.overrides["minimum_free_bytes"] = 1 << 62
    async with desk.executor() as executor:
        operation = await desk.approved(executor)
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, desk.playground.truth, Halt.EVIDENCE_NOT_STORED, exit=Exit.DEFECT)


async def test_what_an_author_raises_is_recorded_without_the_payload(desk: Desk) -> None:
    async with desk.executor() as executor:
        operation = await desk.approved(executor, odd("RaisesInPrepare"), title="Canary in the title")
        ended = await executor.run(operation.id, by=PERSON)
        await nothing_dispatched(executor, ended, desk.playground.truth, Halt.PREPARE_FAILED, exit=Exit.DEFECT)
        assert ended.ending is not None
        assert "cannot go on with" in ended.ending.detail
        for event in await executor.events(operation.id):
            assert_without_payload(f"{event.why} {event.data}", operation)
        draft = desk.playground.truth.drafts()[0]
        assert [(write.name, write.item) for write in ended.receipt.attempted.left] == [("create draft", str(draft.id))]


# By the record and by people: refused before a browser is started


async def refused(executor: Executor, operation: Operation, reason: Refusal, *, published: int = 0) -> Ended:
    ended = await executor.run(operation.id, by=PERSON)
    assert ended.ending is None, "a browser was started for it"
    assert ended.receipt.reason is not None
    assert ended.receipt.reason.code == f"refusal:{reason.value}"
    assert ended.exit is Exit.REFUSED
    event = next(one for one in reversed(await executor.events(operation.id)) if one.kind == "refused")
    assert (event.actor, event.data["reason"]) == (PERSON, reason.value)
    return ended


async def test_no_permission_no_run(desk: Desk) -> None:
    truth = desk.playground.truth
    async with desk.executor() as executor:

        async def proposed(task: str, **more: Any) -> Operation:
            given = {"title": f"Notice of {task}", "body": "It stands below."}
            return (
                await executor.propose(
                    flow="playground-form", destination=desk.site, account="editor", payload=given, task=task,
                    by=PERSON, **more,
                )
            ).operation  # fmt: skip

        async def approve(operation: Operation, **more: Any) -> None:
            await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint, **more)

        nobody = await proposed("nobody-approved")
        await nothing_dispatched(
            executor,
            await refused(executor, nobody, Refusal.NOT_AUTHORIZED),
            truth,
            Refusal.NOT_AUTHORIZED,
            exit=Exit.REFUSED,
        )
        with pytest.raises(NotAPerson):
            await executor.approve(nobody.id, by=Actor(ActorKind.PROPOSER, "agent"), fingerprint=nobody.fingerprint)

        expired = await proposed("expired")
        await approve(expired, valid_for_s=0.001)
        await asyncio.sleep(0.01)  # the ledger's clock decides, and it counts milliseconds
        await nothing_dispatched(
            executor,
            await refused(executor, expired, Refusal.APPROVAL_EXPIRED),
            truth,
            Refusal.APPROVAL_EXPIRED,
            exit=Exit.REFUSED,
        )
        assert (await executor.operation(expired.id)).state.permission is Permission.EXPIRED

        revoked = await proposed("revoked")
        await approve(revoked)
        await executor.revoke(revoked.id, by=PERSON, why="a mistake in the date")
        ended = await refused(executor, revoked, Refusal.APPROVAL_REVOKED)
        await nothing_dispatched(executor, ended, truth, Refusal.APPROVAL_REVOKED, exit=Exit.REFUSED)

        late = await proposed("late", deadline=datetime.now(UTC) - timedelta(seconds=1))
        await approve(late)
        ended = await refused(executor, late, Refusal.DEADLINE_PASSED)
        await nothing_dispatched(executor, ended, truth, Refusal.DEADLINE_PASSED, exit=Exit.REFUSED)

        first = await proposed("first")
        second = await proposed("second", after=[first.id])
        await approve(second)
        ended = await refused(executor, second, Refusal.DEPENDENCY_NOT_SUCCEEDED)
        await nothing_dispatched(executor, ended, truth, Refusal.DEPENDENCY_NOT_SUCCEEDED, exit=Exit.REFUSED)
        assert ended.receipt.reason is not None
        assert ended.receipt.reason.because == (first.id,)
    assert truth.requests() == [], "something was asked of the site"


async def test_what_stands_in_the_way(desk: Desk) -> None:
    """A twin of another task, an attempt of the same task that is open, and stops of each kind, lifted again."""
    truth = desk.playground.truth
    async with desk.executor() as executor:
        first = await desk.approved(executor, task="first", title="The same", body="The same.")
        twin = await desk.approved(executor, task="twin", title="The same", body="The same.")
        ended = await refused(executor, twin, Refusal.LOOK_ALIKE)
        await nothing_dispatched(executor, ended, truth, Refusal.LOOK_ALIKE, exit=Exit.REFUSED)
        assert ended.receipt.reason is not None
        assert ended.receipt.reason.because == (first.id,)

        # Started elsewhere and not ended: as another process's run looks from here.
        lease = await executor.ledger.lease(first.account_key, holder="another run", ttl_s=60)
        claimed = await executor.ledger.claim(
            first.id, attempt=new_id("at"), lease=lease, flow=first.flow, by=Actor(ActorKind.EXECUTOR, "another run")
        )
        assert (await executor.operation(first.id)).state.dispatch is Dispatch.STARTED, claimed
        changed = await desk.approved(executor, task="first", title="Changed", body="Changed.")
        ended = await refused(executor, changed, Refusal.TASK_UNRESOLVED)
        await nothing_dispatched(executor, ended, truth, Refusal.TASK_UNRESOLVED, exit=Exit.REFUSED)
        assert ended.receipt.failure is not None
        assert ended.receipt.failure.failure_class is FailureClass.UNCERTAIN_ACTION
        other = await desk.approved(executor, task="other", title="Other", body="Other.")
        ended = await refused(executor, other, Refusal.ACCOUNT_BUSY)
        await nothing_dispatched(executor, ended, truth, Refusal.ACCOUNT_BUSY, exit=Exit.REFUSED)
        busy = await executor.run(first.id, by=PERSON)
        assert (busy.exit, busy.ending, busy.receipt.standing) == (Exit.REFUSED, None, Standing.STARTED)

        for where in (
            {"flow": "playground-form"},
            {"destination": f"{desk.site.upper()}/new?from=mail", "account": " editor"},
            {},
        ):
            stop = await executor.stop(by=PERSON, why="somebody complained", **where)
            ended = await refused(executor, other, Refusal.STOPPED)
            await nothing_dispatched(executor, ended, truth, Refusal.STOPPED, exit=Exit.REFUSED)
            assert ended.receipt.reason is not None
            assert ended.receipt.reason.because == (stop.id,)
            await executor.lift(stop.id, by=PERSON, why="settled")
            await refused(executor, other, Refusal.ACCOUNT_BUSY)  # what stood behind the stop
        with pytest.raises(BadInput, match="playground-form"):
            await executor.stop(by=PERSON, why="somebody complained", flow="playground-from")
        elsewhere = await executor.stop(by=PERSON, why="another flow", flow="playground-spa")
        await refused(executor, other, Refusal.ACCOUNT_BUSY)
        await executor.lift(elsewhere.id, by=PERSON, why="settled")
    assert truth.requests() == [], "something was asked of the site"


APPROVE = """
import asyncio, sys
from pathlib import Path
from executor.model.operation import Actor, ActorKind
from executor.service import Executor
from executor.settings import Settings

async def main(home, keys, flow, site, task):
    person = Actor(ActorKind.PERSON, "somebody else")
    async with Executor(Settings(home=Path(home), key_folder=Path(keys))) as executor:
        payload = {"title": f"Notice: {task}", "body": "It stands below."}
        proposed = await executor.propose(
            flow=flow, destination=site, account="editor", payload=payload, task=task, by=person
        )
        operation = proposed.operation
        await executor.approve(operation.id, by=person, fingerprint=operation.fingerprint)
        print(operation.id)

asyncio.run(main(*sys.argv[1:]))
"""


async def test_code_that_is_not_what_was_approved_does_not_run(desk: Desk, tmp_path: Path) -> None:
    """Changed after the approval; and the other way about, approved as the file is now by somebody whose program had
    not loaded what it was before."""
    file = tmp_path / "my_flow.py"
    shutil.copy(ODD.removesuffix(":"), file)
    flow, truth = f"{file}:DoesNothing", desk.playground.truth

    def change() -> None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write("# one line more\n")

    async def approved_elsewhere(task: str) -> Operation:
        settings = desk.settings
        given = (settings.home, settings.key_folder, flow, desk.site, task)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", APPROVE, *map(str, given), stdout=asyncio.subprocess.PIPE
        )
        said, _ = await process.communicate()
        assert process.returncode == 0
        return await executor.operation(said.decode().strip())

    async with desk.executor() as executor:
        operation = await approved_elsewhere("before")
        change()
        ended = await refused(executor, operation, Refusal.FLOW_CHANGED)
        await nothing_dispatched(executor, ended, truth, Refusal.FLOW_CHANGED, exit=Exit.REFUSED)
        change()
        operation = await approved_elsewhere("after")
        ended = await refused(executor, operation, Refusal.FLOW_CHANGED)
        await nothing_dispatched(executor, ended, truth, Refusal.FLOW_CHANGED, exit=Exit.REFUSED)
    assert truth.requests() == []


async def test_a_finished_operation_is_not_run_again(desk: Desk) -> None:
    truth = desk.playground.truth
    async with desk.executor() as executor:
        operation = await desk.approved(executor)
        first = await executor.run(operation.id, by=PERSON)
        assert first.exit is Exit.SUCCEEDED
        again = await executor.run(operation.id, by=PERSON)

        assert truth.publish_count() == 1
        assert again.exit is Exit.REFUSED
        assert again.operation.state == first.operation.state
        assert again.operation.attempts == first.operation.attempts
        assert _story(again) == _story(first)
        assert [event.data["reason"] for event in await executor.events(operation.id) if event.kind == "refused"] == [
            "already_dispatched"
        ]
        assert (await executor.ledger.verify_all()).flaws == ()


def _story(ended: Ended) -> dict[str, Any]:
    """A receipt without when it was made and where the record had come to: the part that may not change."""
    told = ended.receipt.model_dump(mode="json")
    for changing in ("made_at", "record", "timeline"):
        del told[changing]
    return told


async def test_two_runs_as_one_account_do_not_overlap(desk: Desk) -> None:
    truth = desk.playground.truth
    async with desk.executor() as executor:
        one = await desk.approved(executor, title="One", body="One.")
        other = await desk.approved(executor, title="Other", body="Other.")
        ran = await asyncio.gather(executor.run(one.id, by=PERSON), executor.run(other.id, by=PERSON))
        done, late = sorted(ran, key=lambda ended: ended.exit)
        assert (done.exit, late.exit) == (Exit.SUCCEEDED, Exit.REFUSED)
        await nothing_dispatched(executor, late, truth, Refusal.ACCOUNT_BUSY, exit=Exit.REFUSED, published=1)
        assert late.receipt.failure is not None
        assert late.receipt.failure.failure_class is FailureClass.TEMPORARY_FAILURE


# What cannot be used at all


CANARY = "canary 5a1f09"


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        ({"title": CANARY, "body": {"text": CANARY}}, "body"),
        ({"title": CANARY + "\n", "body": CANARY}, "title"),
        ({"title": CANARY}, "body"),
        ({"title": CANARY, "body": CANARY, "mood": CANARY}, "mood"),
        ({"title": CANARY, "body": CANARY + "\ud800"}, "body"),
        ([CANARY], "payload"),
        (CANARY, "payload"),
        (None, "payload"),
    ],
)
async def test_a_payload_that_cannot_be_read_is_named_and_not_shown(payload: Any, said: str, desk: Desk) -> None:
    async with desk.executor() as executor:
        with pytest.raises(BadInput) as raised:
            await executor.propose(
                flow="playground-form", destination=desk.site, account="editor", payload=payload, task="t", by=PERSON
            )
        assert said in str(raised.value)
        assert raised.value.exit is Exit.USAGE
        shown = "".join(_everything(raised.value))
        assert CANARY not in shown, "the payload is in the error, or in what a traceback shows of it"
        assert await executor.operations() == []


def _everything(error: BaseException | None) -> list[str]:
    """An error's words, and those of what a traceback would print above it."""
    if error is None:
        return []
    hidden = error.__suppress_context__
    return [str(error), *_everything(error.__cause__), *([] if hidden else _everything(error.__context__))]


async def test_other_input_that_cannot_be_used(desk: Desk) -> None:
    async with desk.executor() as executor:

        async def propose(**changed: Any) -> None:
            given: dict[str, Any] = {
                "flow": "playground-form", "destination": desk.site, "account": "editor",
                "payload": {"title": "T", "body": "B"}, "task": "t", "by": PERSON,
            }  # fmt: skip
            await executor.propose(**{**given, **changed})

        with pytest.raises(BadInput, match=r"no flow named 'playground-from'.*playground-form"):
            await propose(flow="playground-from")
        with pytest.raises(BadInput, match="no class Nothing"):
            await propose(flow=odd("Nothing"))
        with pytest.raises(BadInput, match="account and a task"):
            await propose(task=" ")
        with pytest.raises(BadInput, match="not an absolute"):
            await propose(destination="noticeboard")
        with pytest.raises(BadInput, match="time zone"):
            await propose(deadline=datetime(2030, 1, 31, 12))  # noqa: DTZ001  the mistake
        assert await executor.operations() == []


class _Other(Payload):
    title: str


async def test_a_payload_of_another_flow_is_refused(desk: Desk) -> None:
    async with desk.executor() as executor:
        with pytest.raises(BadInput, match="body"):
            await executor.propose(
                flow="playground-form", destination=desk.site, account="editor", payload=_Other(title=CANARY),
                task="t", by=PERSON,
            )  # fmt: skip


async def test_a_missing_browser_loses_nothing(desk: Desk, tmp_path: Path) -> None:
    desk.overrides["browser"] = tmp_path / "no-such-browser"
    async with desk.executor() as executor:
        operation = await desk.approved(executor)
        before = await executor.events(operation.id)
        with pytest.raises(BrowserMissing, match="no-such-browser"):
            await executor.run(operation.id, by=PERSON)
        assert await executor.events(operation.id) == before
    del desk.overrides["browser"]
    async with desk.executor() as executor:
        assert (await executor.run(operation.id, by=PERSON)).exit is Exit.SUCCEEDED
    assert desk.playground.truth.publish_count() == 1


async def test_a_ledger_of_a_newer_program_is_left_as_it_is(desk: Desk) -> None:
    async with desk.executor() as executor:
        await desk.approved(executor)
    file = desk.settings.home / "ledger.sqlite"
    with closing(sqlite3.connect(file)) as ledger, ledger:
        ledger.execute("UPDATE alembic_version SET version_num = '0099'")
    before = file.read_bytes()
    with pytest.raises(SchemaTooNew, match="0099"):
        async with desk.executor():
            pass
    assert file.read_bytes() == before
