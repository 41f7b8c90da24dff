"""Looking without touching: the flow's views in a context of their own, at a gate that lets no write out (C7, D4).

Used before the claim (is it there already?), after the submit, and by reconciliation. A view that fails in any way is
"could not look", never an empty answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Literal

from playwright.async_api import Error as PlaywrightError
from playwright.async_api import TimeoutError as PlaywrightTimeout

from evidence.records import Capture, Point, Quality
from executor.browser.sessions import Session
from executor.gate.proxy import Gate
from executor.gate.rules import Kind, Phase, Rules
from executor.gate.wire_log import shown_url
from executor.model.ending import Looked
from executor.one_shot import keeping
from executor.one_shot.run import Run, of_the_author
from flows.flow import View
from flows.observations import CouldNotLook, Found, Item, NoLook, NotFound, Observation, Partial
from flows.pages import ReadOnlyPage


class PathNotProven(Exception):
    """The page's traffic was not shown to go through the gate."""


@asynccontextmanager
async def read_only(run: Run) -> AsyncIterator[tuple[Gate, Session]]:
    """A fresh context in phase *read-only*, its path proven. Raises `NotReady` and `PathNotProven`."""
    services = run.services
    stored = await asyncio.to_thread(services.identities.load, run.site, run.intent.account)
    gate = Gate(
        authority=services.host.authority,
        rules=_rules(run, None),
        phase=Phase.READ_ONLY,
        routes=services.routes,
        door=None,
        log=run.look_log,
        before_write=None,
        limits=services.limits,
    )
    async with gate:
        session = await services.host.open(gate, cookies=stored.cookies if stored else ())
        try:
            session.context.on("response", run.trouble.hear)
            await prove_path(gate, session, run.intent.origin)
            yield gate, session
        finally:
            await session.close()


async def prove_path(gate: Gate, session: Session, *origins: str) -> None:
    """Let the page fetch a one-time address on each origin, which the gate answers by itself (step 3). Raises
    `PathNotProven`."""
    for origin in origins:
        address = gate.expect_probe(origin)
        try:
            # Twice, since the driver itself may be what does not answer.
            await asyncio.wait_for(session.page.goto(address, timeout=10_000), 15)
        except PlaywrightError as error:
            raise PathNotProven(f"{origin}: {str(error).splitlines()[0]}") from error
        except TimeoutError as error:
            raise PathNotProven(f"{origin}: the browser does not answer") from error
        if not gate.proved(origin):
            raise PathNotProven(f"{origin}: the one-time address was not seen at the gate")


async def look(
    run: Run, gate: Gate, session: Session, view: View, *, when: Literal["before", "after"]
) -> tuple[Observation, Looked]:
    """One view, captured. Raises only `StoreFull` and cancellation."""
    settings = run.services.settings
    gate.enter(Phase.READ_ONLY, rules=_rules(run, view))
    mark = run.look_log.mark(f"view {view.name}", Phase.READ_ONLY)
    started = datetime.now(UTC)
    session.page.set_default_timeout(settings.step_s * 1000)
    session.page.set_default_navigation_timeout(settings.step_s * 1000)
    observation = await _observe(run, session, view)
    shown = shown_url(session.page.url)
    by_gate = any(entry.kind is Kind.REFUSED and entry.url == shown for entry in run.look_log.entries[mark.sequence :])
    kept = await keeping.keep(run, session.page, Point.VIEW, label=f"{view.name} {when}", by_gate=by_gate)
    observation = _trusted(observation, kept, by_gate)
    return observation, _looked(view, when, started, observation, kept)


async def _observe(run: Run, session: Session, view: View) -> Observation:
    page = ReadOnlyPage(session.page, run.intent.origin)
    try:
        seen: object = await of_the_author(view.look(run.flow, page, run.intent), run.services.settings.look_s)
    except (TimeoutError, PlaywrightTimeout):
        return CouldNotLook(reason=NoLook.TIMED_OUT, detail="the view did not end in its time")
    except PlaywrightError as error:
        lost = session.crashed.is_set() or run.services.host.lost.is_set()
        reason = NoLook.BROWSER_LOST if lost else NoLook.NOT_LOADED
        return CouldNotLook(reason=reason, detail=str(error).splitlines()[0])
    except Exception as error:  # noqa: BLE001  a view is a flow author's code: whatever it raises, it could not look
        return CouldNotLook(reason=NoLook.VIEW_FAILED, detail=type(error).__name__)
    if not isinstance(seen, Found | NotFound | CouldNotLook | Partial):
        return CouldNotLook(reason=NoLook.VIEW_FAILED, detail=f"the view returned {type(seen).__name__}")
    return seen


_UNFIT = {
    Quality.BLANK: NoLook.BLANK,
    Quality.ERROR_PAGE: NoLook.ERROR_PAGE,
    Quality.HALF_LOADED: NoLook.NOT_LOADED,
    Quality.NOT_SEEN: NoLook.BROWSER_LOST,
    Quality.ANSWERED_BY_INTERLOCK: NoLook.REFUSED_BY_GATE,
}


def _trusted(observation: Observation, kept: Capture, by_gate: bool) -> Observation:
    """ "Not there" from a page that was not fit to look at is "could not look" (D4)."""
    if isinstance(observation, CouldNotLook | Found):
        return observation
    if by_gate:
        return CouldNotLook(reason=NoLook.REFUSED_BY_GATE, detail="the view was sent to a page that it does not list")
    if kept.quality in _UNFIT:
        return CouldNotLook(reason=_UNFIT[kept.quality], detail=f"the page was {kept.quality.value}")
    return observation


def _rules(run: Run, view: View | None) -> Rules:
    return Rules(
        destination_origin=run.intent.origin,
        effect=run.flow.effect,
        opens=view.opens if view else (),
        fetches=view.fetches if view else (),
        reads=view.reads if view else (),
        override_names=run.flow.override_names,
        read_budget=run.services.settings.reads_per_view,
    )


def _looked(view: View, when: Literal["before", "after"], at: datetime, seen: Observation, kept: Capture) -> Looked:
    result: Literal["found", "not_found", "could_not_look", "partial"]
    scope, complete, detail = "", False, ""
    items: tuple[Item, ...] = ()
    match seen:
        case Found():
            result, scope, complete, items = "found", seen.scope, seen.complete, seen.items
        case NotFound():
            result, scope, complete = "not_found", seen.scope, seen.complete
        case Partial():
            result, scope, items, detail = "partial", seen.scope, seen.items, seen.reason
        case CouldNotLook():
            result = "could_not_look"
            detail = f"{seen.reason.value}: {seen.detail}" if seen.detail else seen.reason.value
    return Looked(
        view=view.name,
        when=when,
        at=at,
        result=result,
        scope=scope,
        complete=complete,
        items=tuple(_item(item) for item in items),
        detail=detail,
        evidence=tuple(item.sha256 for item in kept.items),
    )


def _item(item: Item) -> dict[str, str | None]:
    """Without title and material: those are payload (A11)."""
    return {"id": item.id, "state": item.state.value, "strength": item.strength.value, "url": item.url}
