"""The one control and the one gesture (steps 7 and 10).

The control is pinned as an element, not as a selector: what was checked and photographed is what is pressed. The
gesture is one trusted input, sent once, by no helper that waits, scrolls or retries. Reading geometry runs no page
code; hovering, focusing or a trial click would, so none is done before the claim.
"""

from __future__ import annotations

from dataclasses import dataclass

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
  const active = document.activeElement;
  return {x: box.x, y: box.y, width: box.width, height: box.height, px: x, py: y,
          focused: active === element || element.contains(active)};
}"""
"""Runs in the page's own world and reads only. A page that lies here fools itself: the gate decides what leaves."""

_FRAME = """frame => { const box = frame.getBoundingClientRect();
  return {x: box.x + frame.clientLeft, y: box.y + frame.clientTop}; }"""


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
        state = await handle.evaluate(_STATE)
        if "problem" in state:
            raise ControlNotFit(str(state["problem"]))
        if key is not None and not state["focused"]:
            raise ControlNotFit(f"it does not have the focus, so {key} would go elsewhere")
        dx, dy = await _frame_offset(handle)
    except PlaywrightError as error:
        raise ControlNotFit(f"it cannot be read: {str(error).splitlines()[0]}") from error
    box = Rect(state["x"] + dx, state["y"] + dy, state["width"], state["height"])
    return Target(box, (state["px"] + dx, state["py"] + dy))


async def _frame_offset(handle: ElementHandle) -> tuple[float, float]:
    """Where the control's frame begins in the page's viewport: the sum over all frames around it."""
    dx = dy = 0.0
    frame = await handle.owner_frame()
    while frame is not None and frame.parent_frame is not None:
        element = await frame.frame_element()
        box = await element.evaluate(_FRAME)
        dx, dy = dx + box["x"], dy + box["y"]
        frame = frame.parent_frame
    return dx, dy
