"""Evidence at a point of a run (D1): an ordered list of named steps, one loop, every step bounded in time.

A capture never decides anything and never raises for what a page does: what could not be had is a gap with its
reason. The one exception is a full disk (`StoreFull`), because it must stop a run before the claim. Nothing is stored
before it is masked: when the page cannot be looked at, what must be masked is not known, and neither picture nor text
is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import rfc8785

from evidence import accessibility, dom_snapshot, screenshot, worker
from evidence.page_reader import Look, PageReader, TooLarge, secret_texts
from evidence.records import (
    INTERLOCK_NOTE,
    Capture,
    Gap,
    GapReason,
    Item,
    ItemKind,
    Point,
    Quality,
    Rect,
    Target,
)
from evidence.redaction import Masked, Redacted, Redactor, Tally
from evidence.store import EvidenceStore, StoreFull

if TYPE_CHECKING:
    from playwright.async_api import Page

__all__ = [
    "INTERLOCK_NOTE",
    "Capture",
    "Clock",
    "Gap",
    "GapReason",
    "Item",
    "ItemKind",
    "Point",
    "Quality",
    "Rect",
    "Target",
    "capture",
]

_MAXIMUM_TEXT = 2 * 1024 * 1024
_MAXIMUM_ELEMENTS = 4000
"""The driver unpacks the accessibility tree on the event loop, which a gate may share: about 0.05 ms an element."""
_DETACH_SECONDS = 0.5


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Clock:
    """`now` gives an aware datetime, `monotonic` seconds."""

    now: Callable[[], datetime] = _now
    monotonic: Callable[[], float] = time.monotonic


SYSTEM_CLOCK = Clock()


@dataclass
class _Run:
    page: Page
    point: Point
    label: str
    store: EvidenceStore
    redactor: Redactor
    target: Target | None
    answered: bool
    taken_at: datetime
    seconds: float  # of the step that runs
    reader: PageReader | None = None
    look: Look | None = None
    items: list[Item] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)

    def seen(self) -> tuple[PageReader, Look]:
        if self.reader is None or self.look is None:
            raise _NotLookedAt(self.gaps[0])
        return self.reader, self.look

    async def keep(
        self, kind: ItemKind, data: bytes, media_type: str, masked: tuple[Masked, ...], note: str = ""
    ) -> None:
        blob = await asyncio.to_thread(self.store.put, data, media_type=media_type)
        self.items.append(Item(kind, blob.sha256, blob.size, blob.media_type, masked, note))


class _NotLookedAt(Exception):
    def __init__(self, because: Gap) -> None:
        self.because = because
        super().__init__("not taken: the page could not be looked at, so what must be masked is not known")


class _PageEnded(Exception):
    def __init__(self, reason: GapReason) -> None:
        self.reason = reason
        super().__init__("the page crashed" if reason is GapReason.PAGE_CRASHED else "the page was closed")


async def capture(
    page: Page,
    point: Point,
    *,
    store: EvidenceStore,
    redactor: Redactor,
    label: str = "",
    target: Target | None = None,
    answered_by_interlock: bool = False,
    step_timeout: float = 5.0,
    total_timeout: float = 15.0,
    clock: Clock = SYSTEM_CLOCK,
) -> Capture:
    """Keep what the page shows now: picture, DOM, accessibility text and facts, in that order.

    `label` names a view. `target` is marked in the picture. `answered_by_interlock`: the page shows an answer that
    the gate made; the picture says so. `step_timeout` and `total_timeout` are seconds; after the latter the remaining
    steps are gaps, and at most another half second goes by. Raises `StoreFull` and, when cancelled, CancelledError;
    nothing else.
    """
    started = clock.monotonic()
    ended: asyncio.Future[GapReason] = asyncio.get_running_loop().create_future()

    def end(reason: GapReason) -> None:
        if not ended.done():
            ended.set_result(reason)

    def on_crash(_: Page) -> None:
        end(GapReason.PAGE_CRASHED)

    def on_close(_: Page) -> None:
        end(GapReason.PAGE_CLOSED)

    run = _Run(page, point, label, store, redactor, target, answered_by_interlock, clock.now(), step_timeout)
    page.on("crash", on_crash)
    page.on("close", on_close)
    if page.is_closed():
        end(GapReason.PAGE_CLOSED)
    try:
        for name, step in _STEPS:
            left = total_timeout - (clock.monotonic() - started)
            run.seconds = min(step_timeout, left)
            gap = await _attempt(name, step(run, end), run, ended if name != "facts" else None)
            if gap is not None:
                run.gaps.append(gap)
    finally:
        page.remove_listener("crash", on_crash)
        page.remove_listener("close", on_close)
        if run.reader is not None and not ended.done():
            # A page that is gone or frozen cannot be left politely; its session ends with it.
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_DETACH_SECONDS):
                    await run.reader.close()
    return Capture(
        point=point,
        label=label,
        url=redactor.url(run.look.url if run.look else page.url).value,
        title=run.redactor.text(run.look.title).value if run.look else "",
        taken_at=run.taken_at,
        monotonic=started,
        items=tuple(run.items),
        gaps=tuple(run.gaps),
        quality=_quality(run),
    )


async def _attempt(name: str, step: Awaitable[None], run: _Run, ended: asyncio.Future[GapReason] | None) -> Gap | None:
    try:
        await _bounded(step, max(run.seconds, 0.05), ended)
    except StoreFull:
        raise
    except _NotLookedAt as error:
        return Gap(name, error.because.reason, str(error))
    except _PageEnded as error:
        return Gap(name, error.reason, str(error))
    except TimeoutError as error:
        return Gap(name, GapReason.TIMED_OUT, str(error) or f"nothing came within {run.seconds:.1f} s")
    except TooLarge as error:
        return Gap(name, GapReason.TOO_LARGE, str(error))
    except Exception as error:  # noqa: BLE001 - a capture must never fail the run that it documents; recorded as a gap
        message = run.redactor.text(" ".join(str(error).split())).value[:300]
        if run.page.is_closed() or "has been closed" in message:
            return Gap(name, GapReason.PAGE_CLOSED, "the page was closed")
        if "crashed" in message:
            return Gap(name, GapReason.PAGE_CRASHED, "the page crashed")
        if type(error).__name__ == "TimeoutError":  # Playwright's own is not the built-in one
            return Gap(name, GapReason.TIMED_OUT, message)
        return Gap(name, GapReason.FAILED, f"{type(error).__name__}: {message}")
    return None


async def _bounded(step: Awaitable[None], seconds: float, ended: asyncio.Future[GapReason] | None) -> None:
    task = asyncio.ensure_future(step)
    waited_for: set[asyncio.Future[None] | asyncio.Future[GapReason]] = {task} if ended is None else {task, ended}
    try:
        await asyncio.wait(waited_for, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_DETACH_SECONDS)
    if ended is not None and ended.done():
        raise _PageEnded(ended.result())
    raise TimeoutError


async def _look(run: _Run, end: Callable[[GapReason], None]) -> None:
    """What is on the page, where it must be masked, and which values are secret: everything later builds on it."""
    cookies = await run.page.context.cookies()
    named = {name.lower() for name in run.redactor.cookie_names}
    run.redactor = run.redactor.with_secrets(
        cookie["value"]
        for cookie in cookies
        if len(cookie["value"]) >= 16
        or (len(cookie["value"]) >= 8 and cookie["httpOnly"])
        or cookie["name"].lower() in named
    )
    run.reader = await PageReader.open(run.page, run.redactor)
    await run.reader.notice_crash(end)
    run.look = await run.reader.look(seconds=run.seconds)
    run.redactor = run.reader.redactor


async def _screenshot(run: _Run, _: Callable[[GapReason], None]) -> None:
    reader, look = run.seen()
    done = await screenshot.take(
        run.page, reader, look, target=run.target, answered_by_interlock=run.answered, seconds=run.seconds
    )
    run.redactor = reader.redactor
    await run.keep(ItemKind.SCREENSHOT, done.value, screenshot.MEDIA_TYPE, done.masked, _note(run))


async def _dom(run: _Run, _: Callable[[GapReason], None]) -> None:
    reader, _look_taken = run.seen()
    documents = await dom_snapshot.read(reader, seconds=run.seconds)
    done = await worker.run(dom_snapshot.assemble, documents, run.redactor)
    if len(done.value) > dom_snapshot.MAXIMUM_SIZE:
        raise TooLarge(f"the DOM takes {len(done.value)} bytes, more than {dom_snapshot.MAXIMUM_SIZE}")
    await run.keep(ItemKind.DOM, done.value, dom_snapshot.MEDIA_TYPE, done.masked, _note(run))


async def _accessibility(run: _Run, _: Callable[[GapReason], None]) -> None:
    reader, look = run.seen()
    if look.elements > _MAXIMUM_ELEMENTS:
        raise TooLarge(f"the page has {look.elements} elements, more than {_MAXIMUM_ELEMENTS}")
    trees, hidden = await reader.accessibility_trees(seconds=run.seconds)
    redactor = run.redactor.with_secrets(secret_texts(trees, hidden))
    tally = Tally()
    text = accessibility.render(trees, hidden, tally)
    if len(text) > _MAXIMUM_TEXT:
        raise TooLarge(f"the accessibility text has {len(text)} characters, more than {_MAXIMUM_TEXT}")
    done: Redacted[str] = await worker.run(_masked, redactor, text)
    masked = (*tally.masked(), *done.masked)
    await run.keep(ItemKind.ACCESSIBILITY, done.value.encode(), accessibility.MEDIA_TYPE, masked, _note(run))


def _masked(redactor: Redactor, text: str) -> Redacted[str]:
    return redactor.text(text)


async def _facts(run: _Run, _: Callable[[GapReason], None]) -> None:
    look = run.look
    facts = {
        "point": run.point,
        "label": run.label,
        "url": look.url if look else run.page.url,
        "title": look.title if look else None,
        "taken_at": run.taken_at.isoformat(),
        "quality": _quality(run),
        "answered_by_interlock": run.answered,
        "ready_state": look.ready_state if look else None,
        "http_status": look.http_status if look else None,
        "elements": look.elements if look else None,
        "text_length": look.text_length if look else None,
        "visibility": look.visibility if look else None,
        "viewport": list(look.viewport) if look else None,
        "scroll": list(look.scroll) if look else None,
        "device_scale": look.device_scale if look else None,
        "target": _target_facts(run.target),
    }
    done = run.redactor.record(facts)
    await run.keep(ItemKind.FACTS, rfc8785.dumps(done.value), "application/json", done.masked, _note(run))


def _target_facts(target: Target | None) -> dict[str, list[float] | None] | None:
    if target is None:
        return None
    box = target.box
    return {
        "box": [box.x, box.y, box.width, box.height],
        "point": list(target.point) if target.point is not None else None,
    }


def _note(run: _Run) -> str:
    return INTERLOCK_NOTE if run.answered else ""


def _quality(run: _Run) -> Quality:
    """The precedence is `Quality`'s."""
    look = run.look
    if run.answered:
        return Quality.ANSWERED_BY_INTERLOCK
    if look is None:
        return Quality.NOT_SEEN
    if look.url.startswith("chrome-error:") or (look.http_status or 0) >= 400:
        return Quality.ERROR_PAGE
    if look.ready_state != "complete":
        return Quality.HALF_LOADED
    if look.url == "about:blank" or (look.text_length == 0 and look.pictured == 0):
        return Quality.BLANK
    return Quality.USABLE


_STEPS: tuple[tuple[str, Callable[[_Run, Callable[[GapReason], None]], Awaitable[None]]], ...] = (
    ("look", _look),
    ("screenshot", _screenshot),
    ("dom", _dom),
    ("accessibility", _accessibility),
    ("facts", _facts),
)
