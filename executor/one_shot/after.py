"""Steps 12 to 17: answer, shut, evidence, verify, verdict, receipt. They run whatever happened before; none of them can
make a second request leave.

It may not release, and it may not turn an exception into an outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import Page

from evidence.records import Point
from evidence.store import EvidenceError
from executor.browser.identities import session_cookies
from executor.errors import NotReady
from executor.gate.answers import OWN_TITLE
from executor.gate.rules import Kind, Phase, Reason, destination
from executor.ledger.ledger import AttemptClosed, Judgement, LedgerError
from executor.model.operation import Attempt, Operation
from executor.model.reasons import NotSent, Unsure
from executor.model.transitions import IllegalTransition, Outcome, Transmission
from executor.model.verdict import Guarantee, Look, Reading, verdict
from executor.one_shot import keeping
from executor.one_shot.looking import PathNotProven, look, read_only
from executor.one_shot.recovery import break_circuit
from executor.one_shot.run import Run, of_the_author
from flows.effect import Says
from flows.observations import Found

_NAVIGATIONS = ("document", "frame", "iframe")
"""What a submit may want its answer for (Sec-Fetch-Dest) so that a page, or a frame in it, waits to be replaced."""
_POLL_S = 0.25
_SETTLE_S = 5.0
"""How long the page may take to show what the answer led to, before it is photographed as it is."""
_CLOSING_S = 2.0
"""How long a composer in a page of its own may take to close itself."""


async def answer(run: Run) -> None:
    """12. Wait for the effect to appear, then for its answer; or disarm. Independent of the browser from here."""
    if run.release is None:
        return  # it was cancelled before the gate was armed: there is nothing to disarm
    assert run.gate is not None
    if run.gesture_at is None:
        # No gesture was made. Disarming settles whether anything got in before.
        if not run.release.disarm():
            await run.release.settled()
        return
    await _wait_for_candidate(run, run.gesture_at + run.effect_window_s)
    if run.release.disarm():
        return
    await run.release.settled()


async def _wait_for_candidate(run: Run, until: float) -> None:
    """Until a candidate took the budget, the window passed with none arriving, or the page says why there is none. A
    candidate whose body is still arriving holds the window open, for as long as an answer may take and no longer."""
    assert run.gate is not None and run.release is not None and run.session is not None
    taken = asyncio.ensure_future(run.release.taken.wait())
    try:
        while not taken.done():
            now = time.monotonic()
            if now >= until and (run.gate.candidates == 0 or now >= until + run.answer_s):
                return
            await asyncio.wait([taken], timeout=_POLL_S)
            lost = run.session.crashed.is_set() or run.services.host.lost.is_set()
            if not taken.done() and run.gate.candidates == 0 and (lost or await _page_says_why(run)):
                return
    finally:
        taken.cancel()


async def _page_says_why(run: Run) -> bool:
    """Whether the page shows a new message about its input. Closing the door on it is safe: what has not taken the
    budget by then cannot take it any more."""
    if (message := await _message(run)) is None or message == run.message_before:
        return False
    run.not_sent = NotSent.VALIDATION_MESSAGE
    return True


async def _message(run: Run) -> str | None:
    try:
        return await of_the_author(run.flow.validation_message(run.composer(), run.intent), 2)
    except Exception:  # noqa: BLE001  a page in the middle of leaving cannot be read; the window simply goes on
        return None


async def shut(run: Run) -> None:
    """13. No write leaves this context any more, but for the declared trailing ones for a moment after the answer."""
    assert run.gate is not None
    if run.release is not None and not run.release.disarm():
        await run.release.settled()  # at once, unless step 12 could not be carried out
    run.gate.enter(Phase.SHUT)
    account = run.release.account if run.release else None
    if account is not None and account.answer is not None and account.answer.complete and run.flow.trailing:
        run.gate.open_trailing(run.contract.trailing_s)


async def keep_after(run: Run) -> None:
    """14. Evidence of what is on screen. Bounded; its failure is recorded and changes nothing. The context closes."""
    assert run.gate is not None and run.session is not None
    cookies: Sequence[Mapping[str, Any]] = ()
    try:
        cookies = await _look_at_what_is_left(run)
    except (EvidenceError, PlaywrightError, TimeoutError) as error:
        run.report("note", f"evidence after the submit is incomplete: {error}")
    finally:
        run.gate.let_go()
        await run.session.close()
        await run.gate.close()
    if kept := session_cookies(cookies, run.flow.session_cookies):
        await asyncio.to_thread(run.services.identities.save, run.site, run.intent.account, kept)


async def _look_at_what_is_left(run: Run) -> Sequence[Mapping[str, Any]]:
    """Keep what the page shows now, and return the context's cookies."""
    assert run.session is not None
    account = run.release.account if run.release else None
    answered = account is not None and account.answer is not None and account.answer.complete
    if answered:
        await _settle(run)
        await _keep_answer(run)
    elif account is not None and account.request is not None and destination(account.request) in _NAVIGATIONS:
        await _abandon_navigation(run)
    by_gate = await _shows_gate(run, run.composing, answered)
    await keeping.keep(run, run.composing, Point.AFTER, by_gate=by_gate)
    if (first := run.session.page) is not run.composing:
        # A composer in a page of its own often closes it: then that picture is a gap, and the page behind tells.
        by_gate = await _shows_gate(run, first, answered)
        await keeping.keep(run, first, Point.AFTER, label="first page", by_gate=by_gate)
    return await asyncio.wait_for(run.session.cookies(), 5)


async def _settle(run: Run) -> None:
    assert run.session is not None
    page = run.composing
    if page is not run.session.page and not page.is_closed():
        # Often it closes itself, after it has told the page behind what became of it.
        with contextlib.suppress(PlaywrightError):
            await page.wait_for_event("close", timeout=_CLOSING_S * 1000)
    try:
        await page.wait_for_load_state("load", timeout=_SETTLE_S * 1000)
    except PlaywrightError:
        return  # it is photographed as it is


async def _abandon_navigation(run: Run) -> None:
    """The submit was a navigation and has no answer: stop waiting for it, so that what is on screen can be read and
    the browser has nothing left to send again."""
    assert run.session is not None
    try:
        await asyncio.wait_for(run.session.stop_loading(run.composing), 5)
    except (PlaywrightError, TimeoutError) as error:
        run.report("note", f"the pending navigation could not be stopped: {error}")


async def _keep_answer(run: Run) -> None:
    assert run.release is not None and run.release.account.answer is not None
    got = run.release.account.answer
    try:
        sha256 = await keeping.keep_answer(run, got.status, got.headers, got.body, got.content_type)
    except EvidenceError as error:
        run.report("note", f"the answer could not be kept: {error}")
        return
    if (reading := run.release.account.reading) is not None:
        run.release.account.reading = replace(reading, evidence=(sha256,))


async def _shows_gate(run: Run, page: Page, answered: bool) -> bool:
    """Whether what the page shows since the gesture may come from an answer that the gate made. Where the site has
    answered, a page that submits twice may still show the refusal of the second: the gate's own page says so."""
    since = run.gesture_at if run.gesture_at is not None else float("inf")
    if not any(entry.answered_by_gate and entry.monotonic >= since for entry in run.log):
        return False
    if not answered:
        return True
    try:
        return await asyncio.wait_for(page.title(), 2) == OWN_TITLE
    except (PlaywrightError, TimeoutError):
        return False  # a page that cannot be read gives no picture that could be labelled


async def verify(run: Run) -> None:
    """15. Look with the flow's views, in a fresh read-only context, where the contract allows it."""
    attempt = await _attempt(run)
    if attempt is None or attempt.transmission is Transmission.NONE_PROVEN or not run.contract.look_after:
        return
    try:
        async with read_only(run) as (gate, session):
            for delay in run.services.settings.verify_delays_s:
                await asyncio.sleep(delay)
                for view in run.flow.views():
                    since = time.monotonic() - _last_moment(run)
                    observation, looked = await look(run, gate, session, view, when="after")
                    run.looked.append(looked)
                    run.looks.append(
                        Look(view=view.name, observation=observation, after_s=since, evidence=looked.evidence)
                    )
                if _seen_enough(run):
                    return
    except (NotReady, PathNotProven, EvidenceError) as error:
        run.report("note", f"could not look afterwards: {error}")


def _last_moment(run: Run) -> float:
    """The monotonic time after which nothing that could cause the effect can have left any more: not the effect
    request, and not another write that left after the gesture."""
    now = time.monotonic()
    gesture = run.gesture_at if run.gesture_at is not None else now
    account = run.release.account if run.release else None
    moments = [gesture]
    if account is not None and account.written_monotonic is not None:
        moments.append(account.written_monotonic)
    for entry in run.log.writes_left_since(monotonic=gesture):
        moments.append(entry.left_until if entry.left_until is not None else now)
    return max(moments)


def _seen_enough(run: Run) -> bool:
    """Whether another look would add nothing: an establishing item has been seen."""
    return any(
        isinstance(one.observation, Found) and any(item.strength.establishes for item in one.observation.items)
        for one in run.looks
    )


async def judge(run: Run) -> None:
    """16. Close the attempt and judge it, in one transaction. The ledger's own record of the transmission decides
    whether there is anything to judge."""
    assert run.claimed is not None
    attempt = await _settle_uncertain_commit(run)
    account = run.release.account if run.release else None
    reading = account.reading if account is not None else None
    if reading is not None and attempt.transmission is not Transmission.ANSWERED:
        reading = None  # an answer that is not in the record supports nothing in it
    run.verdict = verdict(
        transmission=attempt.transmission,
        reading=reading,
        looks=run.looks,
        baseline=run.baseline,
        account=run.intent.account,
        guarantee=_guarantee(run),
        sent_before=run.sent_before,
    )
    reason = not_sent_reason(run) if attempt.transmission is Transmission.NONE_PROVEN else unsure_reason(run, reading)
    judgement = None
    if run.verdict is not None and run.verdict.outcome is not Outcome.UNKNOWN:
        judgement = Judgement(
            outcome=run.verdict.outcome,
            reason=run.verdict.reason.value,
            why=run.verdict.why,
            evidence=run.verdict.evidence,
            data={"effect": run.flow.effect.name, "item": run.verdict.item, "url": run.verdict.url},
        )
    run.not_sent = reason if isinstance(reason, NotSent) else None
    run.unsure = reason if isinstance(reason, Unsure) else None
    shown = reason.sentence if reason is not None else "the answer was read"
    unknown = run.verdict is not None and run.verdict.outcome is Outcome.UNKNOWN and attempt.closed_at is None
    if unknown and run.services.settings.circuit_breaker:
        await break_circuit(run.services.ledger, run.operation, run.actor)
    try:
        run.operation = await run.services.ledger.close(
            run.claimed.id,
            by=run.actor,
            reason=reason.value if reason is not None else "answered",
            why=shown,
            judgement=judgement,
            data={
                "verdict": run.verdict.reason.value if run.verdict else None,
                "item": run.verdict.item if run.verdict else None,
            },
        )
    except AttemptClosed:
        # Recovery was faster: its settlement stands, and this run's evidence is added beside it.
        run.operation = await run.services.ledger.operation(run.operation.id)


async def _settle_uncertain_commit(run: Run) -> Attempt:
    """Read back a release whose commit was uncertain. Nothing was written under it, and this process knows that."""
    assert run.claimed is not None
    attempt = await _attempt(run)
    assert attempt is not None
    account = run.release.account if run.release else None
    if account is None or account.unsure is not Unsure.COMMIT_UNCERTAIN:
        return attempt
    if attempt.released_at is None:
        account.unsure, account.not_sent = None, NotSent.LEDGER_FAILED
        return attempt
    try:
        attempt = await run.services.ledger.nothing_written(
            attempt.id, by=run.actor, why="the commit was uncertain, and nothing was written under it"
        )
        account.unsure, account.not_sent = None, NotSent.NOTHING_WRITTEN
    except (LedgerError, IllegalTransition) as error:
        # Closed by recovery, or a supporting write that could cause the effect has left: then it stays possible.
        account.detail = f"{account.detail}; {error}"
    return attempt


async def _attempt(run: Run) -> Attempt | None:
    if run.claimed is None:
        return None
    operation: Operation = await run.services.ledger.operation(run.operation.id)
    return next((one for one in operation.attempts if one.id == run.claimed.id), None)


def _guarantee(run: Run) -> Guarantee | None:
    absence = run.contract.absence
    return Guarantee(view=absence.view, window_s=absence.consistency_window_s) if absence else None


def not_sent_reason(run: Run) -> NotSent:
    """Why nothing left, from the strongest source: the door, a step, the gate's refusals, the page, the browser."""
    account = run.release.account if run.release else None
    if account is not None and account.not_sent is not None:
        return account.not_sent
    if run.not_sent is not None and run.not_sent is not NotSent.VALIDATION_MESSAGE:
        return run.not_sent
    after = run.gesture_at if run.gesture_at is not None else float("inf")
    refused = {entry.reason for entry in run.log if entry.kind is Kind.REFUSED and entry.monotonic >= after}
    if Reason.EFFECT_COUNT in refused:
        return NotSent.EFFECT_COUNT
    if refused & {
        Reason.NOT_DECLARED,
        Reason.AMBIGUOUS,
        Reason.BODY_UNREADABLE,
        Reason.PREDICATE_FAILED,
        Reason.METHOD_OVERRIDE,
    }:
        return NotSent.EFFECT_OF_ANOTHER_SHAPE
    if run.not_sent is not None:
        return run.not_sent
    if run.session is not None and any(seen.at >= after and not seen.accepted for seen in run.session.dialogs):
        return NotSent.DIALOG
    if (run.session is not None and run.session.crashed.is_set()) or run.services.host.lost.is_set():
        return NotSent.BROWSER_LOST
    if run.cancelled.is_set():
        return NotSent.CANCELLED
    return NotSent.GESTURE_FAILED if run.gesture_error else NotSent.NO_REQUEST


def unsure_reason(run: Run, reading: Reading | None) -> Unsure | None:
    """Why it may have left without a conclusive answer; None where the answer was conclusive."""
    account = run.release.account if run.release else None
    if account is None or account.released_at is None:
        return account.unsure if account is not None and account.unsure else Unsure.OTHER_WRITE_LEFT
    if account.unsure is not None:
        return account.unsure
    if reading is None or reading.says is Says.NOTHING:
        return Unsure.ANSWER_SAYS_NOTHING if account.answer is not None else Unsure.NO_ANSWER
    return None
