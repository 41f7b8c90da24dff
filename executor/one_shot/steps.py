"""The 17 steps of a run, in order, run by one loop.

Before the claim a step may halt the run. After it, no exception and no cancellation skips the rest: a step that fails
is reported, and the steps that settle, judge and write the receipt still run. The order is data
(`executor.model.step_table`); what each step does is in `before`, `claiming` and `after`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import Literal

from evidence.store import EvidenceError
from executor.errors import Exit, InterlockError
from executor.gate.rules import Kind
from executor.gate.wire_log import WRITES, Entry
from executor.ledger.ledger import LeaseLost, LedgerError
from executor.model.ending import AnswerRead, Ending, LeftWrite, WebSocketHeld, code
from executor.model.operation import Lease
from executor.model.reasons import Halt, NotSent, Reason, Unsure
from executor.model.transitions import Dispatch
from executor.one_shot import after, before, claiming, keeping
from executor.one_shot.recovery import RUN_ENDED, RUN_OVERTAKEN
from executor.one_shot.run import Halted, RefusedRun, Run
from executor.one_shot.waits import record_wait
from flows.flow import Submit

_AUTHORED = range(4, 8)
"""The steps before the claim that run a flow's own code. (A view's is in step 8, and what it raises is a look that
failed.)"""


class NotRecorded(InterlockError):
    """The attempt could not be closed in the ledger. It is not submitted again; the next start settles it."""

    exit = Exit.UNKNOWN


async def go_through(run: Run) -> Ending:
    """Run the steps and return how it ended; the ending is in the ledger when this returns. Raises `NotRecorded`."""
    keeper = asyncio.ensure_future(_keep_lease(run))
    try:
        try:
            await _up_to_the_claim(run)
        except Halted as halt:
            run.report("halted", halt.reason.sentence)
            return await _halt(run, halt.reason, halt.detail)
        except RefusedRun as refused:
            run.report("halted", refused.refused.sentence)
            return await _halt(run, refused.refused.reason, refused.refused.sentence)
        await _after_the_claim(run)
        return await _end(run, run.not_sent or run.unsure, _detail(run))
    finally:
        keeper.cancel()
        await asyncio.gather(keeper, return_exceptions=True)  # what became of it changes nothing any more
        await _leave(run)


async def _up_to_the_claim(run: Run) -> None:
    submit: Submit | None = None

    async def prepare() -> None:
        nonlocal submit
        submit = await before.prepare(run)

    async def choose() -> None:
        assert submit is not None
        await before.choose(run, submit)

    for number, does in enumerate(
        (
            lambda: before.load(run),
            lambda: before.lease(run),
            lambda: before.open_context(run),
            prepare,
            lambda: before.identity(run),
            lambda: before.compose(run),
            choose,
            lambda: claiming.claim(run),
        ),
        start=1,
    ):
        run.begin(number)
        try:
            await _unless_cancelled(run, does)
        except (Halted, RefusedRun):
            raise
        except Exception as error:  # a flow author's code may give back anything, and this program may be wrong
            reason = Halt.PREPARE_FAILED if number in _AUTHORED else Halt.DEFECT
            raise Halted(reason, f"{type(error).__name__}: {error}") from error
        run.report("done")


async def _unless_cancelled(run: Run, does: Callable[[], Awaitable[None]]) -> None:
    """Run one step before the claim; a run that is to halt does so in the middle of it. The claim itself is not torn:
    the ledger finishes it, and what it says is waited for."""
    step = asyncio.ensure_future(does())
    signals = [asyncio.ensure_future(one.wait()) for one in (run.cancelled, run.draining)]
    try:
        await asyncio.wait([step, *signals], return_when=asyncio.FIRST_COMPLETED)
        if not step.done() and run.step < 8:
            step.cancel()
            await asyncio.wait([step])
            torn = None if step.cancelled() else step.exception()
            if torn is not None and not isinstance(torn, Halted | RefusedRun):
                # What is torn may break in its own way; why the run halts is known.
                run.report("note", f"{type(torn).__name__}: {torn}")
            raise Halted(Halt.CANCELLED)
        await step
    except LedgerError as error:
        raise Halted(Halt.LEDGER_FAILED, str(error)) from error
    finally:
        for one in signals:
            one.cancel()
    if run.is_to_halt and run.claimed is None:
        raise Halted(Halt.CANCELLED)


async def _after_the_claim(run: Run) -> None:
    if run.cancelled.is_set():
        run.not_sent = NotSent.CANCELLED
    else:
        await _attempt_step(run, 9, claiming.arm)
        await _attempt_step(run, 10, claiming.gesture)
    for number, does in ((12, after.answer), (13, after.shut), (14, after.keep_after), (15, after.verify)):
        await _attempt_step(run, number, does)
    run.begin(16)
    try:
        await after.judge(run)
    except LedgerError as error:
        raise NotRecorded(
            f"The attempt on {run.operation.id} could not be closed in the ledger ({error}). It is not submitted "
            "again. Once the ledger answers, `interlock list --unresolved` settles and shows it."
        ) from error
    run.report("done")


async def _attempt_step(run: Run, number: int, does: Callable[[Run], Awaitable[None]]) -> None:
    """A step after the claim. Whatever goes wrong in it is seen and goes no further: the verdict rests on the ledger
    and the gate, not on whether every step could be carried out."""
    run.begin(number)
    try:
        await does(run)
    except Exception as error:  # noqa: BLE001  named above
        run.report("failed", f"{type(error).__name__}: {error}")
        run.failures.append(f"step {number}: {type(error).__name__}")
    else:
        run.report("done")


async def _keep_lease(run: Run) -> None:
    """Renew the account's lease at a third of its life. A lease that is lost is found out by the ledger at the claim
    and at the release; nothing has to happen here."""
    while True:
        await asyncio.sleep(run.services.settings.lease_s / 3)
        if run.lease is None:
            continue
        lease: Lease = run.lease
        try:
            run.lease = await run.services.ledger.renew(lease, ttl_s=run.services.settings.lease_s)
        except LeaseLost:
            return
        except LedgerError as error:
            run.report("note", f"the lease could not be renewed: {error}")


async def _halt(run: Run, reason: Reason, detail: str) -> Ending:
    """End before the claim. How long the operation waits is recorded while the account is held: else another worker
    would find it due in between."""
    ending = await _end(run, reason, detail)
    await record_wait(run, ending)
    return ending


async def _end(run: Run, reason: Reason | None, detail: str) -> Ending:
    """Write the wire log, the manifest and the ending. Evidence that fails here is named in the ending."""
    try:
        if run.gate is not None:
            await keeping.keep_wire_log(run)
        if run.manifest is not None:
            await keeping.make_durable(run)
    except EvidenceError as error:
        detail = "; ".join(part for part in (detail, f"evidence: {error}") if part)
    except Exception as error:  # noqa: BLE001  the ending is recorded whatever becomes of its evidence; it is named there
        run.report("note", f"evidence failed: {type(error).__name__}: {error}")
        detail = "; ".join(part for part in (detail, f"evidence: {type(error).__name__}") if part)
    try:
        # Afresh: while this run prepared or slept, another one may have been made.
        run.operation = await run.services.ledger.operation(run.operation.id)
        ending = _ending(run, reason, detail)
        run.operation = await run.services.ledger.note(
            run.operation.id,
            kind=RUN_OVERTAKEN if _overtaken(run) else RUN_ENDED,
            by=run.actor,
            why=reason.sentence if reason is not None else "the run went through",
            data=ending.model_dump(mode="json"),
        )
    except LedgerError as error:
        raise NotRecorded(
            f"How the run of {run.operation.id} ended could not be recorded ({error}). See `interlock show`."
        ) from error
    return ending


def _overtaken(run: Run) -> bool:
    """Whether the operation's attempt is another run's: then that one's end is the end that counts."""
    attempt = run.operation.attempt
    if attempt is None or run.operation.state.dispatch is Dispatch.NOT_STARTED:
        return False
    return run.claimed is None or run.claimed.id != attempt.id


def _detail(run: Run) -> str:
    account = run.release.account if run.release else None
    parts = [
        account.detail if account is not None else "",
        run.control_changed,
        run.gesture_error,
        *run.failures,
    ]
    return "; ".join(part for part in parts if part)


def _ending(run: Run, reason: Reason | None, detail: str) -> Ending:
    account = run.release.account if run.release else None
    effect = run.effect
    if effect is not None and account is not None:
        effect = effect.model_copy(update={"released_at": account.released_at})
    answer = None
    if account is not None and account.answer is not None:
        reading = account.reading
        answer = AnswerRead(
            status=account.answer.status,
            complete=account.answer.complete,
            says=reading.says.value if reading else "nothing",
            clause=reading.clause if reading else "",
            item=reading.item if reading else None,
            url=reading.url if reading else None,
        )
    if isinstance(reason, Unsure) and answer is not None and not answer.complete:
        reason = Unsure.ANSWER_CUT
    verdict = run.verdict
    attempt = run.claimed.id if run.claimed is not None else None
    return Ending(
        run=run.id,
        attempt=attempt,
        started_at=run.started_at,
        ended_at=datetime.now(UTC),
        step=17 if attempt is not None else run.step,
        reason=code(reason) if reason is not None else None,
        detail=run.clean(detail)[:500],
        transmission=next((one.transmission for one in run.operation.attempts if one.id == attempt), None),
        verdict_reason=verdict.reason if verdict else None,
        verdict_why=run.clean(verdict.why) if verdict else "",
        item=verdict.item if verdict else None,
        item_url=verdict.url if verdict else None,
        discrepancy=verdict.discrepancy if verdict else None,
        effect=effect,
        answer=answer,
        baseline=tuple(sorted(run.baseline)) if run.baseline is not None else None,
        looks=tuple(
            look.model_copy(update={"scope": run.clean(look.scope), "detail": run.clean(look.detail)})
            for look in run.looked
        ),
        left=_left(run),
        websockets=_websockets(run),
        refused_writes=tuple(
            f"{entry.reason.value if entry.reason else 'refused'}: {entry.method} {_place(entry)}"
            for entry in run.log
            if entry.kind is Kind.REFUSED or (entry.kind in WRITES and entry.reason and not entry.bytes_out)
        )[:50],
        dialogs=tuple(
            f"{seen.kind}, {'accepted' if seen.accepted else 'dismissed'}"
            for seen in list(run.session.dialogs if run.session else ())[-50:]
        ),
        evidence=keeping.summary(run),
        reads=run.log.safe_reads.total() + run.look_log.safe_reads.total(),
    )


_LEFT_KINDS: Mapping[Kind, Literal["effect", "supporting", "trailing", "login"]] = {
    Kind.EFFECT: "effect",
    Kind.SUPPORTING: "supporting",
    Kind.TRAILING: "trailing",
    Kind.LOGIN: "login",
}


def _left(run: Run) -> tuple[LeftWrite, ...]:
    """Every write that left, the effect included (F1: collateral is named, by the site's own id where it gave one)."""
    items = _items(run)
    gesture = run.gesture_at if run.gesture_at is not None else float("inf")
    return tuple(
        LeftWrite(
            sequence=entry.sequence,
            at=entry.at,
            phase=entry.phase.value,
            name=entry.write or (run.flow.effect.name if entry.kind is Kind.EFFECT else ""),
            kind=kind,
            method=entry.method,
            url=_place(entry),
            status=entry.status,
            after_gesture=entry.monotonic >= gesture,
            item=items.get(entry.sequence),
        )
        for entry in run.log
        if entry.kind is not None and (kind := _LEFT_KINDS.get(entry.kind)) is not None and entry.bytes_out
    )


def _websockets(run: Run) -> tuple[WebSocketHeld, ...]:
    """Every WebSocket that was opened, with what passed over it."""
    return tuple(
        WebSocketHeld(
            sequence=entry.sequence,
            at=entry.at,
            name=entry.write or "",
            url=_place(entry),
            messages_out=entry.messages_out,
            messages_in=entry.messages_in,
            ended=entry.note,
        )
        for entry in run.log
        if entry.kind is Kind.WEBSOCKET and entry.status == 101
    )


def _items(run: Run) -> Mapping[int, str]:
    """The ids of what the supporting writes stored, by the writes' numbers in the wire log."""
    found = {}
    for ahead in run.gate.carried if run.gate is not None else ():
        if ahead.write.item is None:
            continue
        try:
            item = ahead.write.item(ahead.request, ahead.answer)
        except Exception as error:  # noqa: BLE001  a flow author's reader: the write is named without an id
            run.report("note", f"the item of {ahead.write.name} could not be read: {type(error).__name__}")
            continue
        if item is not None:
            found[ahead.sequence] = item
    return found


def _place(entry: Entry) -> str:
    """Where a request went, without its query, which may hold content. The wire log in the evidence has it whole."""
    return entry.url.partition("?")[0]


async def _leave(run: Run) -> None:
    """Close what the run opened and give the lease back. That frees no account whose attempt is still open: only
    settling it does, and recovery may begin at once."""
    if run.session is not None:
        await run.session.close()
    if run.gate is not None:
        await run.gate.close()
    if run.lease is not None:
        try:
            await run.services.ledger.surrender(run.lease)
        except LedgerError as error:
            run.report("note", f"the lease was not given back: {error}")
