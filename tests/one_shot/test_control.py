"""The control and the gesture through frames, in a real browser: what was checked is what is pressed, wherever the
frame lies, and where that cannot be said, nothing is pressed. Ground truth is the event that the control itself got."""

from __future__ import annotations

import html
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from behind_a_gate import plain_launch
from playwright.async_api import Browser, Locator, Page, async_playwright

from executor.one_shot.control import ControlNotFit, make_gesture, pin, same
from flows.flow import Submit

pytestmark = [pytest.mark.browser, pytest.mark.asyncio(loop_scope="module")]

BUTTON = """<!doctype html><body style="margin: 0">
<button id="go" style="margin: 37px 0 0 53px; width: 31px; height: 17px; padding: 0">Go</button>
<div style="height: 900px"></div><script>
window.got = [];
const go = document.getElementById('go');
for (const kind of ['click', 'keydown']) go.addEventListener(kind, (event) => {
  const box = go.getBoundingClientRect();
  window.off = Math.hypot(event.clientX - box.x - box.width / 2, event.clientY - box.y - box.height / 2);
  got.push(kind + (event.isTrusted ? '' : ' by script'));
});
</script>"""


def framed(inner: str, style: str = "", *, attributes: str = "", around: str = "", beside: str = "") -> str:
    """A page with `inner` in a frame of this style, inside an element of the style `around`."""
    frame = f'<iframe srcdoc="{html.escape(inner)}" style="{style}" {attributes}></iframe>'
    return f'<!doctype html><body style="margin: 0"><div style="{around}">{frame}</div>{beside}'


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    async with async_playwright() as driver:
        browser = await driver.chromium.launch(**plain_launch())
        yield browser
        await browser.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(browser: Browser) -> AsyncIterator[Page]:
    context = await browser.new_context(viewport={"width": 1280, "height": 800})
    yield await context.new_page()
    await context.close()


async def shown(page: Page, content: str, depth: int) -> Locator:
    """Show the page; returns the button, `depth` frames down."""
    await page.set_content(content)
    inside = page.frame_locator("iframe")
    for _ in range(depth - 1):
        inside = inside.frame_locator("iframe")
    button = inside.locator("#go")
    await button.wait_for()
    return button


LAYOUTS = {
    "moved": (1, framed(BUTTON, "border: 7px solid; padding: 11px 3px; margin: 40px 0 0 60px")),
    "fractions": (1, framed(BUTTON, "border: 1.5px solid; width: 333.3px; margin: 10.4px 0 0 20.7px")),
    "scaled": (1, framed(BUTTON, "border: 9px solid; padding: 5px; transform: scale(0.6, 1.7) translate(80px, 90px)")),
    "scaled around": (1, framed(BUTTON, "scale: 1.5", around="transform: translate(100px, 50px) scale(0.5)")),
    "zoomed": (1, framed(BUTTON, "border: 4px solid; padding: 6px", around="zoom: 1.4")),
    "zoomed itself": (1, framed(BUTTON, "border: 4px solid; padding: 6px; zoom: 0.7")),
    "scrolled around": (
        1,
        framed(
            BUTTON, "margin-top: 150px", around="height: 200px; overflow: scroll", beside="<div style='height: 2000px'>"
        ),
    ),
    "nested": (
        2,
        framed(
            framed(BUTTON, "border: 5px solid; width: 250px; transform: scale(0.8)", around="padding: 20px"),
            "border: 2px solid; width: 500px; height: 300px; transform: translate(30px, 40px) scale(1.25)",
        ),
    ),
    "another origin": (1, framed(BUTTON, "margin: 80px; transform: scale(1.3)", attributes='sandbox="allow-scripts"')),
    "another origin, nested": (
        2,
        framed(
            framed(BUTTON, "border: 3px solid", attributes='sandbox="allow-scripts"'),
            "width: 420px; height: 260px; margin: 25px; transform: scale(0.9)",
            attributes='sandbox="allow-scripts"',
        ),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
async def test_the_click_meets_the_control(layout: str, page: Page) -> None:
    depth, content = LAYOUTS[layout]
    button = await shown(page, content, depth)
    if layout == "scrolled around":
        await page.evaluate("document.querySelector('div').scrollTop = 120; scrollTo(0, 30)")
        await page.frames[1].evaluate("scrollTo(0, 25)")
    pinned = await pin(Submit(control=button))
    await same(pinned)
    await make_gesture(page, pinned)
    assert await button.evaluate("() => got") == ["click"]
    assert await button.evaluate("() => off") < 2, "in pixels of the frame, from the middle of the control"


NOT_FIT = {
    "turned": (framed(BUTTON, "rotate: 8deg; margin: 100px"), "turned, mirrored or skewed"),
    "turned around": (framed(BUTTON, around="transform: rotate(3deg); margin: 100px"), "turned, mirrored or skewed"),
    "mirrored": (framed(BUTTON, "transform: scaleX(-1)"), "turned, mirrored or skewed"),
    "in perspective": (framed(BUTTON, around="transform: perspective(200px) rotateX(10deg)"), "turned, mirrored"),
    "covered": (
        framed(BUTTON, beside="<div style='position: fixed; inset: 0; background: #fff8'></div>"),
        "something else lies on top of it",
    ),
    "cut off": (framed(BUTTON, around="height: 30px; overflow: hidden"), "something else lies on top of it"),
    "out of the window": (framed(BUTTON, "margin-top: 790px"), "outside the window"),
    "out of the frame": (framed(BUTTON, "height: 30px"), "outside the window"),
}


@pytest.mark.parametrize("layout", NOT_FIT)
async def test_what_cannot_take_the_click_is_named(layout: str, page: Page) -> None:
    content, reason = NOT_FIT[layout]
    button = await shown(page, content, 1)
    with pytest.raises(ControlNotFit, match=reason):
        await pin(Submit(control=button))


async def test_a_frame_that_moves_is_noticed(page: Page) -> None:
    button = await shown(page, framed(BUTTON, "margin: 50px"), 1)
    pinned = await pin(Submit(control=button))
    await page.evaluate("document.querySelector('iframe').style.marginTop = '51px'")
    with pytest.raises(ControlNotFit, match="moved"):
        await same(pinned)


async def test_a_key_goes_where_the_focus_is(page: Page) -> None:
    inner = framed(BUTTON)
    button = await shown(page, framed(inner, "width: 500px; height: 300px", beside="<input id='other'>"), 2)
    with pytest.raises(ControlNotFit, match="focus"):
        await pin(Submit(control=button, key="Enter"))
    await button.focus()
    pinned = await pin(Submit(control=button, key="Enter"))
    await page.locator("#other").focus()  # the frame's own document still calls the button active
    with pytest.raises(ControlNotFit, match="focus"):
        await same(pinned)
    await button.focus()
    await same(pinned)
    await make_gesture(page, pinned)
    assert await button.evaluate("() => got") == ["keydown", "click"]


async def test_the_focus_is_found_in_a_shadow_tree(page: Page) -> None:
    await page.set_content("<!doctype html><div id='host'></div>")
    await page.evaluate("document.getElementById('host').attachShadow({mode: 'open'}).innerHTML = '<div><input></div>'")
    field = page.locator("input")
    await field.focus()
    await same(await pin(Submit(control=field, key="Enter")))
