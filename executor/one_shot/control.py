"""The one control and the one gesture (steps 7 and 10).

The control is pinned as an element, not as a selector: what was checked and photographed is what is pressed. The
gesture is one trusted input, sent once, by no helper that waits, scrolls or retries. Reading geometry runs no page
code; hovering, focusing or a trial click would, so none is done before the claim.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Any

from playwright.async_api import ElementHandle, Page
from playwright.async_api import Error as PlaywrightError

from evidence.records import Rect, Target
from flows.flow import Submit

_STATE = """element => {
  if (!element.isConnected) return {problem: 'it is no longer in the page'};
  const box = element.getBoundingClientRect();
  const style = getComputedStyle(element);
  if (box.width < 1 || box.height < 1 || style.visibility !== 'visible') return {problem: 'it is not visible'};
  if (element.disabled || element.getAttribute('aria-disabled') === 'true' || element.closest('fieldset:disabled'))
    return {problem: 'it is disabled'};
  const x = box.x + box.width / 2, y = box.y + box.height / 2;
  if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight) return {problem: 'it is outside the window'};
  let hit = document.elementFromPoint(x, y);
  while (hit && hit.shadowRoot) {
    const inner = hit.shadowRoot.elementFromPoint(x, y);
    if (!inner || inner === hit) break;
    hit = inner;
  }
  let node = hit;
  while (node && node !== element) node = node.parentNode || node.host;
  if (!node) return {problem: 'something else lies on top of it'};
  let active = document.activeElement;
  while (active && active.shadowRoot && active.shadowRoot.activeElement) active = active.shadowRoot.activeElement;
  return {x: box.x, y: box.y, width: box.width, height: box.height, px: x, py: y,
          focused: active === element || element.contains(active)};
}"""
"""Runs in the page's own world and reads only. A page that lies here fools itself: the gate decides what leaves."""

_OUT_OF_FRAME = """(frame, inner) => {
  let across = 1, down = 1, turned = false;
  for (let node = frame; node; node = node.assignedSlot || node.parentElement || (node.parentNode || {}).host) {
    const style = getComputedStyle(node), matrix = new DOMMatrix(style.transform);
    const own = style.scale === 'none' ? [1] : style.scale.split(' ').map(Number);
    across *= matrix.a * own[0];
    down *= matrix.d * (own.length > 1 ? own[1] : own[0]);
    turned ||= !matrix.is2D || matrix.b !== 0 || matrix.c !== 0 || style.rotate !== 'none'
      || style.perspective !== 'none' || style.offsetPath !== 'none' || node instanceof SVGElement;
  }
  if (turned || across <= 0 || down <= 0) return {problem: 'it is turned, mirrored or skewed'};
  across *= frame.currentCSSZoom ?? 1;
  down *= frame.currentCSSZoom ?? 1;
  const box = frame.getBoundingClientRect(), style = getComputedStyle(frame), px = parseFloat;
  const left = box.x + (px(style.borderLeftWidth) + px(style.paddingLeft)) * across;
  const top = box.y + (px(style.borderTopWidth) + px(style.paddingTop)) * down;
  const x = left + inner.px * across, y = top + inner.py * down;
  if (x < 0 || y < 0 || x >= innerWidth || y >= innerHeight)
    return {problem: 'the place of the control is outside the window'};
  let hit = document.elementFromPoint(x, y);
  while (hit && hit.shadowRoot) {
    const within = hit.shadowRoot.elementFromPoint(x, y);
    if (!within || within === hit) break;
    hit = within;
  }
  if (hit !== frame) return {problem: 'something else lies on top of it at the place of the control'};
  let active = document.activeElement;
  while (active && active.shadowRoot && active.shadowRoot.activeElement) active = active.shadowRoot.activeElement;
  return {x: left + inner.x * across, y: top + inner.y * down, width: inner.width * across,
          height: inner.height * down, px: x, py: y, focused: active === frame};
}"""
"""From the coordinates of a frame's window to those of the window around it, for a frame that is moved and scaled, and
nothing beyond that. It runs in the frame's parent, where what lies over the frame can be seen."""


class ControlNotFit(Exception):
    """The control cannot take the gesture; the message says why."""


@dataclass(frozen=True)
class Pinned:
    """The control as it was checked. `target` is in CSS pixels of the page's viewport, frames included."""

    handle: ElementHandle
    key: str | None
    target: Target

    @property
    def point(self) -> tuple[float, float]:
        assert self.target.point is not None
        return self.target.point


async def pin(submit: Submit) -> Pinned:
    """Pin the control that a flow names. Raises `ControlNotFit` unless it is unique, visible, enabled and on top."""
    count = await submit.control.count()
    if count != 1:
        raise ControlNotFit(f"the flow's control is there {count} times")
    handle = await submit.control.element_handle(timeout=5_000)
    return Pinned(handle, submit.key, await _read(handle, submit.key))


async def same(pinned: Pinned) -> None:
    """Check right before the gesture that it would hit the pinned element. Raises `ControlNotFit`."""
    now = await _read(pinned.handle, pinned.key)
    if now.point != pinned.point:
        raise ControlNotFit("it has moved since it was checked")


async def make_gesture(page: Page, pinned: Pinned) -> None:
    """One click at the pinned point, or one key press. Raises what the driver raises; whatever it raises, the input
    may have arrived."""
    if pinned.key is None:
        x, y = pinned.point
        await page.mouse.click(x, y)
    else:
        await page.keyboard.press(pinned.key)


async def _read(handle: ElementHandle, key: str | None) -> Target:
    try:
        state = await _fit(handle.evaluate(_STATE), "")
        focused = state["focused"]
        frame = await handle.owner_frame()
        while frame is not None and frame.parent_frame is not None:
            element = await frame.frame_element()
            state = await _fit(element.evaluate(_OUT_OF_FRAME, state), "the frame that it is in: ")
            focused = focused and state["focused"]
            frame = frame.parent_frame
    except PlaywrightError as error:
        raise ControlNotFit(f"it cannot be read: {str(error).splitlines()[0]}") from error
    if key is not None and not focused:
        raise ControlNotFit(f"it does not have the focus, so {key} would go elsewhere")
    return Target(Rect(state["x"], state["y"], state["width"], state["height"]), (state["px"], state["py"]))


async def _fit(reading: Awaitable[Any], where: str) -> dict[str, Any]:
    state: dict[str, Any] = await reading
    if "problem" in state:
        raise ControlNotFit(f"{where}{state['problem']}")
    return state
