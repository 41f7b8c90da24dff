"""Steps 8 to 10: look, claim, arm, and the one gesture.

The claim is the line: before it a run may halt, after it every path leads to the verdict. It may not wait for the
answer, read it, or repeat the gesture.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from playwright.async_api import Error as PlaywrightError

from evidence.store import EvidenceError
from executor.errors import NotReady
from executor.gate.rules import Phase, session_digest_of
from executor.ledger import ids
from executor.ledger.ledger import AttemptClosed, Judgement, LeaseLost, LedgerError
from executor.model.admission import Refused
from executor.model.ending import EffectRequest
from executor.model.fingerprint import digest
from executor.model.reasons import Halt, NotSent
from executor.model.step_table import STEPS
from executor.model.transitions import IllegalTransition, Outcome, Transmission
from executor.model.verdict import Look, verdict
from executor.one_shot.control import ControlNotFit, make_gesture, same
from executor.one_shot.looking import PathNotProven, look, read_only
from executor.one_shot.material import carried_key, on_the_wire
from executor.one_shot.release import Mismatch, Release, Terms
from executor.one_shot.run import Halted, RefusedRun, Run
from flows.observations import CouldNotLook, Found, Item, ItemState, NotFound, Observation, Partial
from flows.wire import OutgoingRequest

_OVERTAKEN = (LeaseLost, AttemptClosed)
"""What the ledger says when recovery, or another run, has settled this attempt."""


async def claim(run: Run) -> None:
    """8. Look whether the item is there already, then reserve the one submit."""
    if run.contract.look_before and run.flow.views():
        await _look_before(run)
    run.report("looked")
    if run.is_to_halt:
        # Looking takes its time, and a claim would spend the approval for nothing.
        raise Halted(Halt.CANCELLED)
    assert run.lease is not None
    attempt = ids.new_id("at")
    run.report("claiming")
    try:
        claimed = await run.services.ledger.claim(
            run.operation.id,
            attempt=attempt,
            lease=run.lease,
            flow=run.binding,
            key=run.contract.key,
            by=run.actor,
            data={
                "run": run.id,
                "session_sha256": run.session_digest,
                "baseline": sorted(run.baseline) if run.baseline is not None else None,
            },
            evidence=[item.sha256 for item in run.manifest.items()] if run.manifest else [],
        )
    except LedgerError as error:
        # Claimed or not, nothing was armed; what was claimed after all is settled by recovery.
        raise Halted(Halt.LEDGER_FAILED, str(error)) from error
    if isinstance(claimed, Refused):
        raise RefusedRun(claimed)
    run.claimed = claimed
    if run.manifest is not None:
        run.manifest = run.manifest.with_attempt(claimed.id)


async def arm(run: Run) -> None:
    """9. Open the gate for one effect request, under the terms of this attempt."""
    assert run.gate is not None and run.claimed is not None
    settings = run.services.settings
    terms = Terms(
        attempt=run.claimed.id,
        actor=run.actor,
        ready=lambda: _no_save_under_way(run),
        check=lambda request: _check(run, request),
        describe=lambda _request: _describe(run),
        read=run.contract.read_answer,
        connect_s=settings.connect_s,
        write_within_s=settings.write_within_s,
        answer_s=run.answer_s,
    )
    run.release = Release(run.services.ledger, terms, lambda moment: _report_wire(run, moment))
    run.gate.enter(Phase.ARMED, rules=run.composer_rules(), door=run.release)


async def gesture(run: Run) -> None:
    """10. One trusted input on the pinned control, sent once. What it raises is recorded and proves nothing."""
    assert run.session is not None and run.pinned is not None and run.claimed is not None
    assert run.release is not None and run.gate is not None
    if run.release.taken.is_set():
        # The page sent the effect by itself between arming and here: then that was the one, and no gesture is made.
        run.control_changed = "the page sent the request before the gesture"
        run.gesture_at = time.monotonic()
        return
    try:
        await run.services.ledger.gesture(run.claimed.id, by=run.actor)
    except _OVERTAKEN as error:
        _no_gesture(run, NotSent.LEASE_LOST, str(error))
        return
    except LedgerError as error:
        _no_gesture(run, NotSent.LEDGER_FAILED, str(error))
        return
    run.report("recorded")
    try:
        await asyncio.wait_for(same(run.pinned), run.services.settings.gesture_s)
    except ControlNotFit as error:
        lost = run.session.crashed.is_set() or run.services.host.lost.is_set()
        _no_gesture(run, NotSent.BROWSER_LOST if lost else NotSent.CONTROL_CHANGED, str(error))
        return
    except TimeoutError:
        _no_gesture(run, NotSent.GESTURE_FAILED, "the page does not answer")
        return
    if run.cancelled.is_set():
        _no_gesture(run, NotSent.CANCELLED, "")
        return
    try:
        await _expose_what_still_leaves(run)
    except LedgerError as error:
        _no_gesture(run, NotSent.LEASE_LOST if isinstance(error, _OVERTAKEN) else NotSent.LEDGER_FAILED, str(error))
        return
    run.gesture_at = run.log.mark("gesture", Phase.ARMED).monotonic
    try:
        await asyncio.wait_for(make_gesture(run.composing, run.pinned), run.services.settings.gesture_s)
    except (PlaywrightError, TimeoutError) as error:
        run.gesture_error = f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"


async def _expose_what_still_leaves(run: Run) -> None:
    """Record the writes that could cause the effect, began to leave before the gate was armed, and are not answered
    at the gesture: their last byte may leave after it (C5). Those that begin later are recorded by `before_write`."""
    assert run.claimed is not None
    could = {write.name for write in run.flow.supporting if write.may_cause_effect}
    for entry in run.log:
        if entry.write in could and entry.left_from is not None and entry.status is None:
            await run.services.ledger.expose(
                run.claimed.id, by=run.actor, write=entry.write, url=entry.url.partition("?")[0]
            )


def _report_wire(run: Run, moment: str) -> None:
    """What happens at the door belongs to steps 11 and 12, whichever step the run itself is in by then."""
    step = next(step for step in STEPS[10:12] if moment in step.moments)
    run.report_as(step.number, step.name, moment)


def _no_gesture(run: Run, reason: NotSent, detail: str) -> None:
    run.not_sent = reason
    run.control_changed = detail


async def _look_before(run: Run) -> None:
    seen: list[Look] = []
    try:
        async with read_only(run) as (gate, session):
            for view in run.flow.views():
                observation, looked = await look(run, gate, session, view, when="before")
                run.looked.append(looked)
                if isinstance(observation, CouldNotLook):
                    raise Halted(Halt.COULD_NOT_LOOK, f"View {view.name}: {looked.detail}.")
                if view.lists:
                    run.baseline = _baseline(observation)
                if run.sent_before:
                    seen.append(Look(view=view.name, observation=observation, after_s=0.0, evidence=looked.evidence))
                elif there := _there_already(run, observation):
                    raise Halted(Halt.ALREADY_THERE, f"View {view.name} shows item {_shown(there)}.")
    except (NotReady, PathNotProven) as error:
        raise Halted(Halt.COULD_NOT_LOOK, str(error)) from error
    except EvidenceError as error:
        raise Halted(Halt.EVIDENCE_NOT_STORED, str(error)) from error
    if run.sent_before:
        run.baseline = run.first_baseline
        await _settle_by_looking(run, seen)


async def _settle_by_looking(run: Run, seen: Sequence[Look]) -> None:
    """Before a request is repeated: what the earlier attempt brought about may be there by now. Then that is its proof,
    and nothing is sent (B5). Raises `Halted` where there is anything of it."""
    there = {
        item.id: item
        for look in seen
        for item in _matching(run, look.observation)
        if item.id not in (run.first_baseline or ())
    }
    if not there:
        return
    run.verdict = verdict(
        transmission=Transmission.POSSIBLE,
        reading=None,
        looks=seen,
        baseline=run.first_baseline,
        account=run.intent.account,
        guarantee=None,
        sent_before=True,
    )
    if run.verdict is not None and run.operation.state.outcome is Outcome.UNKNOWN:
        judgement = Judgement(
            outcome=run.verdict.outcome,
            reason=run.verdict.reason.value,
            why=run.verdict.why,
            evidence=run.verdict.evidence,
            data={
                "effect": run.flow.effect.name,
                "item": run.verdict.item,
                "url": run.verdict.url,
                "discrepancy": run.verdict.discrepancy.value if run.verdict.discrepancy else None,
                "run": run.id,
            },
        )
        try:
            run.operation = await run.services.ledger.judge(run.operation.id, judgement, by=run.actor)
        except IllegalTransition as error:  # somebody else has established it meanwhile
            raise Halted(Halt.ALREADY_THERE, f"Item {_shown(tuple(there.values()))}.") from error
        if run.verdict.outcome in (Outcome.SUCCEEDED, Outcome.ACCEPTED):
            raise Halted(Halt.SETTLED_BY_LOOKING, f"Item {_shown(tuple(there.values()))}.")
    raise Halted(Halt.ALREADY_THERE, f"Item {_shown(tuple(there.values()))}.")


def _shown(items: Sequence[Item]) -> str:
    return ", ".join(f"{item.id} ({item.state.value})" for item in items)


def _baseline(observation: Observation) -> frozenset[str] | None:
    """The ids that are there before the submit; None when the list was not read to its end, since an item from the
    rest would look new."""
    match observation:
        case Found(complete=True, listed=listed) | NotFound(complete=True, listed=listed):
            return frozenset(listed)
        case _:
            return None


def _there_already(run: Run, observation: Observation) -> tuple[Item, ...]:
    """Items that are this intent, published or on the way (B5). A draft is what preparing leaves behind. Where a person
    said that a look-alike is meant, an older one is expected."""
    return () if run.operation.meant else _matching(run, observation)


def _matching(run: Run, observation: Observation) -> tuple[Item, ...]:
    if not isinstance(observation, Found | Partial):
        return ()
    return tuple(
        item
        for item in observation.items
        if item.strength.establishes
        and item.account == run.intent.account
        and item.state in (ItemState.PUBLISHED, ItemState.QUEUED, ItemState.SCHEDULED)
    )


async def _no_save_under_way(run: Run) -> None:
    """Wait, for a while, until every save of content is answered. What is under way then is doubtful to `_check`, and
    from the candidate's coming on no other may leave."""
    assert run.gate is not None
    gate = run.gate
    await gate.until(lambda: gate.saves == 0, run.services.settings.connect_s)


def _check(run: Run, request: OutgoingRequest) -> Mismatch | None:
    """What the door compares (C3): the material, the session, and that this is the request the flow declares."""
    assert run.gate is not None
    try:
        approved, gate = run.operation.intent.material, run.gate
        shown = on_the_wire(run.flow.effect, request, gate.carried, approved, gate.doubtful)
        material_sha256 = digest("material", dict(shown.shown))
    except Exception as error:  # noqa: BLE001  a flow author's reader: what cannot be read cannot be compared
        return Mismatch(NotSent.MATERIAL_DIFFERS, (f"unreadable ({type(error).__name__})",))
    run.effect = EffectRequest(
        method=request.method,
        url=request.origin + request.path,
        body_sha256=request.body_sha256,
        body_length=request.body_size,
        material_sha256=material_sha256,
        released_at=None,
        from_page_only=shown.unseen,
    )
    if shown.differs:
        return Mismatch(NotSent.MATERIAL_DIFFERS, shown.differs)
    if session_digest_of(request, run.proof_cookies) != run.session_digest:
        return Mismatch(NotSent.SESSION_DIFFERS, ("session cookies",))
    if run.contract.key is not None:
        carried = carried_key(request, run.contract.key)
        if carried is None or carried != run.operation.provider_key:
            return Mismatch(NotSent.KEY_DIFFERS, ("client key",))
    return None


def _describe(run: Run) -> Mapping[str, Any]:
    assert run.effect is not None  # _check made it
    return run.effect.model_dump(mode="json", exclude={"released_at"})
