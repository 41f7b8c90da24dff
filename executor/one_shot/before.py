"""Steps 1 to 7: everything up to the control, with the effect closed. A halt here leaves nothing behind but drafts.

It may not release, gesture or judge. The numbers are those of `executor.model.step_table`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from playwright.async_api import Error as PlaywrightError

from evidence.records import ItemKind, Point
from evidence.store import EvidenceError
from executor.errors import NotReady
from executor.gate.proxy import Gate
from executor.gate.rules import Kind, Phase, Reason
from executor.gate.wire_log import shown_url
from executor.ledger.ledger import AccountBusy
from executor.model.admission import Refusal, Refused, refusal
from executor.model.key import first_baseline, may_have_been_sent
from executor.model.reasons import Halt
from executor.one_shot import keeping
from executor.one_shot.control import ControlNotFit, pin
from executor.one_shot.looking import PathNotProven, prove_path
from executor.one_shot.material import differences
from executor.one_shot.run import Halted, RefusedRun, Run, of_the_author
from flows.effect import Write
from flows.flow import Identity, Submit
from flows.wire import OutgoingRequest


async def load(run: Run) -> None:
    """1. Refuse what may not run, before a browser is opened. The claim decides again, on a fresh snapshot."""
    ledger = run.services.ledger
    run.operation = await ledger.operation(run.operation.id)
    refused = refusal(await ledger.admission(run.operation.id, run.binding, key=run.contract.key))
    if refused is not None:
        raise RefusedRun(refused)
    if may_have_been_sent(run.operation):
        run.sent_before = True
        run.first_baseline = first_baseline(run.operation, await ledger.events(run.operation.id))


async def lease(run: Run) -> None:
    """2. No two runs act as one account at a time. A worker has taken the lease before it began the run."""
    if run.lease is not None:
        return
    try:
        run.lease = await run.services.ledger.lease(
            run.operation.account_key, holder=run.id, ttl_s=run.services.settings.lease_s
        )
    except AccountBusy as error:
        raise RefusedRun(Refused(Refusal.ACCOUNT_BUSY)) from error


async def open_context(run: Run) -> None:
    """3. A fresh context behind a gate at which the effect is closed; the path proof."""
    services = run.services
    try:
        stored = await asyncio.to_thread(services.identities.load, run.site, run.intent.account)
    except NotReady as error:
        raise Halted(Halt.SIGN_IN_NEEDED, str(error)) from error
    if stored is not None:
        run.redactor = run.redactor.with_secrets(stored.values)
    run.gate = Gate(
        authority=services.host.authority,
        rules=run.composer_rules(),
        phase=Phase.PREPARE,
        routes=services.routes,
        door=None,
        log=run.log,
        limits=services.limits,
        before_write=lambda request, write: _before_write(run, request, write),
    )
    await run.gate.start()
    try:
        run.session = await services.host.open(
            run.gate, cookies=stored.cookies if stored else (), dialogs=run.flow.dialogs
        )
        run.session.context.on("response", run.trouble.hear)
        await prove_path(run.gate, run.session, *_declared_origins(run))
    except NotReady as error:
        raise Halted(Halt.BROWSER_LOST, str(error)) from error
    except PathNotProven as error:
        raise Halted(Halt.PATH_NOT_PROVEN, str(error)) from error
    # For the pages too that the composer opens beside this one.
    run.session.context.set_default_timeout(services.settings.step_s * 1000)
    run.session.context.set_default_navigation_timeout(services.settings.step_s * 1000)


async def prepare(run: Run) -> Submit:
    """4. The flow fills the composer. Whatever reaches for the effect here was stopped by the gate: a defect."""
    assert run.session is not None and run.gate is not None
    try:
        submit: object = await of_the_author(
            run.flow.prepare(run.composer(), run.intent), run.services.settings.prepare_s
        )
        # Before anything is read from the page: what it shows then, and on the pictures, has no socket under it.
        await run.gate.close_websockets()
    except Exception as error:  # a flow author's code may raise anything; before the claim that is a halt
        await _stop_if_effect_reached(run)
        await _keep_what_is_there(run, "prepare stopped")
        # Who is not signed in cannot fill a composer: say that, rather than which field was missing.
        await _check_signed_in(run)
        if run.services.host.lost.is_set() or run.session.crashed.is_set():
            raise Halted(Halt.BROWSER_LOST, _first_line(run, error)) from error
        raise Halted(Halt.PREPARE_FAILED, _first_line(run, error)) from error
    await _stop_if_effect_reached(run)
    if not isinstance(submit, Submit):
        await _keep_what_is_there(run, "no control")
        raise Halted(Halt.PREPARE_FAILED, f"The flow's prepare returned {type(submit).__name__}, not a Submit.")
    if submit.control.page.context is not run.session.context:
        raise Halted(Halt.PREPARE_FAILED, "The flow's control is in a page that this run did not open.")
    run.page = submit.control.page
    return submit


async def identity(run: Run) -> None:
    """5. Account and destination as the page shows them; the session's digest."""
    assert run.gate is not None
    seen = await _identify(run)
    if seen.problem:
        await _keep_what_is_there(run, "not signed in")
        raise Halted(Halt.SIGN_IN_NEEDED, seen.problem)
    if seen.account is None or seen.destination is None:
        await _keep_what_is_there(run, "identity")
        raise Halted(Halt.IDENTITY_UNREADABLE)
    if seen.account != run.intent.account:
        await _keep_what_is_there(run, "another account")
        raise Halted(Halt.ACCOUNT_DIFFERS, f"It is signed in as {seen.account!r}.")
    try:
        place = run.flow.canonical_destination(seen.destination)
    except Exception as error:  # a flow author's code, see prepare
        await _keep_what_is_there(run, "identity")
        raise Halted(Halt.IDENTITY_UNREADABLE, _first_line(run, error)) from error
    if place != run.intent.destination:
        await _keep_what_is_there(run, "another destination")
        raise Halted(Halt.DESTINATION_DIFFERS, f"It publishes to {seen.destination!r}.")
    run.session_digest = run.gate.session_digest(run.intent.origin, run.proof_cookies)
    if run.session_digest is None:
        raise Halted(Halt.SESSION_UNREADABLE)


async def compose(run: Run) -> None:
    """6. What the composer holds equals what was approved."""
    try:
        read = await of_the_author(run.flow.composed(run.composer(), run.intent), run.services.settings.step_s)
    except Exception as error:  # a flow author's code, see prepare
        await _keep_what_is_there(run, "composed unread")
        raise Halted(Halt.PREPARE_FAILED, _first_line(run, error)) from error
    differs = differences(run.operation.intent.material, read)
    if differs:
        await _keep_what_is_there(run, "composed differs")
        raise Halted(Halt.COMPOSED_DIFFERS, f"Different: {', '.join(differs)}.")


async def choose(run: Run, submit: Submit) -> None:
    """7. Pin the control, keep the evidence *composed* with it marked, durable before anything else happens."""
    assert run.session is not None
    run.message_before = await _message_before(run)
    try:
        run.pinned = await asyncio.wait_for(pin(submit), run.services.settings.step_s)
        kept = await keeping.keep(run, run.composing, Point.COMPOSED, target=run.pinned.target)
        digest = await keeping.make_durable(run)
        if kept.item(ItemKind.SCREENSHOT) is None:
            gap = next((f": {gap.detail}" for gap in kept.gaps), "")
            raise EvidenceError(f"There is no picture of the composed page{gap}")
    except ControlNotFit as error:
        await _keep_what_is_there(run, "control")
        raise Halted(Halt.CONTROL_NOT_FIT, f"{error}.") from error
    except EvidenceError as error:
        raise Halted(Halt.EVIDENCE_NOT_STORED, str(error)) from error
    except (PlaywrightError, TimeoutError) as error:
        raise Halted(Halt.CONTROL_NOT_FIT, _first_line(run, error)) from error
    await run.services.ledger.note(
        run.operation.id,
        kind="evidence",
        by=run.actor,
        why="the composed page, before anything was submitted",
        data={"manifest_sha256": digest, "point": Point.COMPOSED.value},
        evidence=[item.sha256 for item in run.manifest.items()] if run.manifest else [],
    )
    # Time has passed while the evidence was written: a page that published meanwhile must not be armed.
    await _stop_if_effect_reached(run)


async def _message_before(run: Run) -> str | None:
    """What the page says is wrong before anything was submitted: only another message is news afterwards."""
    try:
        return await of_the_author(
            run.flow.validation_message(run.composer(), run.intent), run.services.settings.step_s
        )
    except Exception as error:  # a flow author's code, see prepare
        await _keep_what_is_there(run, "message unread")
        raise Halted(Halt.PREPARE_FAILED, _first_line(run, error)) from error


async def _before_write(run: Run, request: OutgoingRequest, write: Write) -> None:
    """Called by the gate before a declared write leaves while the gate is armed or shut (C5). From the arming on, not
    from the gesture: what is asked for just before it may leave just after."""
    if run.claimed is None or not write.may_cause_effect:
        return
    await run.services.ledger.expose(run.claimed.id, by=run.actor, write=write.name, url=request.origin + request.path)


def _declared_origins(run: Run) -> Sequence[str]:
    """Every origin that the effect and its writes go to."""
    flow = run.flow
    own = run.intent.origin
    others = {write.origin for write in (*flow.supporting, *flow.trailing) if write.origin}
    others |= {websocket.origin for websocket in flow.websockets if websocket.origin}
    if flow.effect.origin:
        others.add(flow.effect.origin)
    return [own, *sorted(others - {own})]


async def _stop_if_effect_reached(run: Run) -> None:
    for entry in run.log:
        if entry.kind is Kind.REFUSED and entry.reason in (Reason.EFFECT_CLOSED, Reason.EFFECT_COUNT):
            await _keep_what_is_there(run, "effect reached")
            raise Halted(Halt.FLOW_REACHED_EFFECT, f"Refused: {entry.method} {entry.url}.")


async def _identify(run: Run) -> Identity:
    try:
        return await of_the_author(run.flow.identify(run.composer(), run.intent), run.services.settings.step_s)
    except Exception as error:  # a flow author's code, see prepare
        await _keep_what_is_there(run, "identity")
        raise Halted(Halt.IDENTITY_UNREADABLE, _first_line(run, error)) from error


async def _check_signed_in(run: Run) -> None:
    try:
        seen = await of_the_author(run.flow.identify(run.composer(), run.intent), 5)
    except Exception:  # noqa: BLE001  only asked to name a known problem better; the halt that follows stands anyway
        return
    if seen.problem:
        raise Halted(Halt.SIGN_IN_NEEDED, seen.problem)


async def _keep_what_is_there(run: Run, label: str) -> None:
    """A picture of why it halted, where one can be had."""
    if run.session is None:
        return
    shown = shown_url(run.composing.url)
    by_gate = any(entry.kind is Kind.REFUSED and entry.url == shown for entry in run.log)
    try:
        await keeping.keep(run, run.composing, Point.OPEN, label=label, by_gate=by_gate)
        await keeping.make_durable(run)
    except EvidenceError as error:
        run.report("note", f"no picture of the halt: {error}")


def _first_line(run: Run, error: Exception) -> str:
    """The driver's first line, cut: the rest is a call log that may hold what was typed (A11)."""
    text = run.clean(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:160]}" if text else type(error).__name__
