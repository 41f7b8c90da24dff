"""Real Chromium against a site on loopback; what the site received is the truth about side effects."""

from __future__ import annotations

import asyncio
import base64
import html
import io
import json
import os
import signal
import socket
import urllib.parse
from typing import Any

import pytest
from PIL import Image
from playwright.async_api import Browser, BrowserContext, Error, Page

from evidence import capture as capture_module
from evidence import worker
from evidence.capture import Capture, Clock, GapReason, Item, ItemKind, Point, Quality, Rect, Target, capture
from evidence.manifest import Manifest
from evidence.picture import MARK_COLOUR, MASK_COLOUR
from evidence.redaction import Kind, Redactor
from evidence.store import FileStore, StoreFull

pytestmark = pytest.mark.browser

COMPOSER = """<!doctype html><html lang=en><head><title>Compose</title><style>
 body{margin:0;font:16px/1.5 sans-serif;color:#1f2933;background:#f5f7fa}
 header{background:#1f2933;color:#fff;padding:14px 28px;font-weight:600} main{margin:24px 28px;max-width:640px}
 label{display:block;margin:14px 0 4px;font-size:14px} input,textarea{width:100%;box-sizing:border-box;padding:9px 11px;
 border:1px solid #cbd2d9;border-radius:6px;font:inherit;background:#fff}
 button{margin-top:20px;padding:11px 26px;border:0;
 border-radius:6px;background:#2563eb;color:#fff;font:inherit;font-weight:600}</style></head><body>
 <header>Town news</header><main><h1>New announcement</h1><form action=/publish method=post>
 <label for=t>Title</label><input id=t name=title><label for=b>Text</label><textarea id=b name=body rows=5></textarea>
 <label for=p>Repeat your password</label><input id=p name=pw type=password>
 <input type=hidden name=csrf_token value=hidden-csrf-canary-1><button>Publish</button></form></main></body></html>"""


@pytest.fixture
async def page(context: BrowserContext) -> Page:
    return await context.new_page()


async def _target(page: Page, selector: str) -> Target:
    x, y, width, height = await page.evaluate(
        "s => { const b = document.querySelector(s).getBoundingClientRect(); return [b.x, b.y, b.width, b.height] }",
        selector,
    )
    return Target(Rect(x, y, width, height), (x + width / 2, y + height / 2))


def _item(taken: Capture, kind: ItemKind) -> Item:
    item = taken.item(kind)
    assert item is not None, taken.gaps
    return item


def _text(store: FileStore, taken: Capture, kind: ItemKind) -> str:
    return store.get(_item(taken, kind).sha256).decode()


def _picture(store: FileStore, taken: Capture) -> Image.Image:
    with Image.open(io.BytesIO(store.get(_item(taken, ItemKind.SCREENSHOT).sha256))) as opened:
        assert opened.format == "WEBP"
        return opened.convert("RGB")


async def test_a_composed_page_yields_every_item_with_the_target_marked(
    site: Any, page: Page, store: FileStore
) -> None:
    await page.goto(site.page("/compose", COMPOSER))
    await page.fill("#t", "Water main repaired")
    await page.fill("#b", "Since noon & for good <really>")
    target = await _target(page, "button")
    taken = await capture(page, Point.COMPOSED, store=store, redactor=Redactor(), target=target)

    assert taken.gaps == ()
    assert [item.kind for item in taken.items] == ["screenshot", "dom", "accessibility", "facts"]
    assert (taken.quality, taken.title, taken.url) == (Quality.USABLE, "Compose", f"{site.url}/compose")
    assert taken.taken_at.tzinfo is not None
    for item in taken.items:
        assert len(store.get(item.sha256)) == item.size

    dom = _text(store, taken, ItemKind.DOM)
    assert 'value="Water main repaired"' in dom
    assert "Since noon &amp; for good &lt;really&gt;</textarea>" in dom
    text = _text(store, taken, ItemKind.ACCESSIBILITY)
    assert '- heading "New announcement" [level=1]' in text
    assert '- textbox "Title": Water main repaired' in text
    assert '- button "Publish"' in text
    facts = json.loads(_text(store, taken, ItemKind.FACTS))
    assert facts["target"] == {
        "box": [target.box.x, target.box.y, target.box.width, target.box.height],
        "point": list(target.point or ()),
    }
    picture = _picture(store, taken)
    assert picture.size == (900, 600)
    outline = (round(target.box.x + target.box.width / 2), round(target.box.y - 4 + 1.25))
    drawn = picture.getpixel(outline)
    assert isinstance(drawn, tuple)
    assert all(abs(a - b) < 40 for a, b in zip(drawn, MARK_COLOUR, strict=True)), drawn
    inside = (round(target.box.x + 3), round(target.box.y + 3))
    assert picture.getpixel(inside) == (37, 99, 235), "the mark must not cover the control"


async def test_a_view_has_a_label_and_an_injected_clock(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/list", "<!doctype html><title>List</title><p>One item</p>"))
    instant = capture_module.SYSTEM_CLOCK.now()
    taken = await capture(
        page, Point.VIEW, label="published", store=store, redactor=Redactor(), clock=Clock(lambda: instant, lambda: 7.0)
    )
    assert (taken.point, taken.label, taken.taken_at, taken.monotonic) == (Point.VIEW, "published", instant, 7.0)


CANARIES = {
    "typed password": "typed-pass-canary",
    "hidden csrf": "hidden-csrf-canary-1",
    "meta token": "meta-token-canary-2",
    "cookie": "session-cookie-canary-3",
    "script nonce": "script-nonce-canary-4",
    "link nonce": "linknonce5a",
    "configured": 'confi"gured/é canary&6',
    "region": "region canary seven",
    "named field": "field-canary-eight",
    "comment": "comment-canary-9",
    "child password": "child-pass-canary",
    "shadow password": "shadow-pass-canary",
    "bearer": "bearercanary0000000011",
    "jwt": "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOjEyfQ.c2lnbmF0dXJlMTI",
    "address": "address-token-canary-13",
    "long hex": "c0ffee00c0ffee00c0ffee00c0ffee14",
    "one-time code": "otp-canary-15",
}


def _canary_page() -> str:
    configured = CANARIES["configured"]
    return f"""<!doctype html><title>Held: {html.escape(configured)}</title>
    <meta name=csrf-token content={CANARIES["meta token"]}>
    <script>var settings = {{"nonce": "{CANARIES["script nonce"]}"}};</script><!-- {CANARIES["comment"]} -->
    <body style="margin:0"><input id=pw type=password style="position:absolute;left:500px;top:200px;
      width:200px;height:30px">
    <div id=private class=private style="position:absolute;left:100px;top:220px;width:300px;height:40px;
      background:#f00">
      <b style="position:absolute;left:320px;top:10px;background:#f00">{CANARIES["region"]}</b></div>
    <button style="position:absolute;left:100px;top:300px" aria-labelledby=private>?</button>
    <input type=hidden name=csrf value={CANARIES["hidden csrf"]}>
    <input name=iban value={CANARIES["named field"]}>
    <input autocomplete=one-time-code value={CANARIES["one-time code"]}>
    <style>b{{color:#f00}}</style><p>Echoed: <b>{CANARIES["hidden csrf"]}</b>; cookie <b>{CANARIES["cookie"]}</b>;
      typed <b id=echo></b></p><input name=title value="{html.escape(configured)}" style="color:#f00">
    <p data-jwt="{CANARIES["jwt"]}">Bearer {CANARIES["bearer"]} and <b>{CANARIES["long hex"]}</b></p>
    <p title="{html.escape(configured)}"><b>{html.escape(json.dumps(configured)[1:-1])}</b>
      <a href="/x?q={urllib.parse.quote(configured)}&_wpnonce={CANARIES["link nonce"]}">a</a>
      {base64.b64encode(b"id:" + configured.encode()).decode()}</p>
    <iframe src=/child style="position:absolute;left:100px;top:400px;width:300px;height:80px"></iframe><x-box></x-box>
    <script>customElements.define("x-box", class extends HTMLElement {{ constructor() {{ super();
      this.attachShadow({{mode: "open"}}).innerHTML = "shadow text " +
      "<input type=password value={CANARIES["shadow password"]}>" }}
      }});
    </script></body>"""


def _spellings(canary: str) -> set[bytes]:
    raw = canary.encode()
    spelled = {
        canary,
        urllib.parse.quote(canary, safe=""),
        urllib.parse.quote(canary),
        urllib.parse.quote_plus(canary),
        json.dumps(canary)[1:-1],
        json.dumps(canary, ensure_ascii=False)[1:-1],
        html.escape(canary),
        html.escape(html.escape(canary)),
        raw.hex(),
    }
    for before in (b"", b"i", b"id"):
        spelled.add(base64.b64encode(before + raw + b"\0\0").decode()[4:-4])
    return {form.encode() for form in spelled}


async def test_no_canary_is_in_any_stored_byte(
    site: Any, context: BrowserContext, page: Page, store: FileStore
) -> None:
    site.page("/child", f"<!doctype html><body>child <input type=password value={CANARIES['child password']}></body>")
    cookie = f"session={CANARIES['cookie']}; HttpOnly; Path=/"
    url = site.page("/canaries", _canary_page(), Set_Cookie=cookie)
    await page.goto(f"{url}?access_token={CANARIES['address']}&page=2")
    await page.fill("#pw", CANARIES["typed password"])
    await page.evaluate("document.querySelector('#echo').textContent = document.querySelector('#pw').value")
    redactor = Redactor(
        secrets=frozenset({CANARIES["configured"]}), field_names=frozenset({"iban"}), selectors=(".private",)
    )
    taken = await capture(page, Point.OPEN, store=store, redactor=redactor)

    assert taken.gaps == ()
    assert len(taken.items) == 4
    stored = {item.kind: store.get(item.sha256) for item in taken.items}
    stored_bytes = [store.get(sha256) for sha256 in store.hashes()]
    stored_bytes += [Manifest(operation_id="op-1").with_capture(taken).canonical()]
    for name, canary in CANARIES.items():
        for spelling in _spellings(canary):
            assert not any(spelling in data for data in stored_bytes), f"{name} is stored as {spelling!r}"
    assert b"child" in stored[ItemKind.DOM]
    assert b"shadow text" in stored[ItemKind.DOM]
    assert b"page=2" in stored[ItemKind.FACTS]
    kinds = {entry.what for entry in _item(taken, ItemKind.DOM).masked}
    assert {Kind.PASSWORD, Kind.TOKEN, Kind.SECRET, Kind.REGION, Kind.FIELD, Kind.AUTHORIZATION} <= kinds

    picture = _picture(store, taken)
    for x, y in ((501, 201), (699, 229), (101, 221), (399, 259), (425, 235)):
        assert picture.getpixel((x, y)) == MASK_COLOUR, (x, y)
    colours = picture.getcolors(1 << 20) or []
    assert not [colour for _, colour in colours if colour[0] > 200 and colour[1] < 60 and colour[2] < 60]
    in_picture = {entry.what: entry.count for entry in _item(taken, ItemKind.SCREENSHOT).masked}
    assert in_picture[Kind.PASSWORD] >= 3
    assert in_picture[Kind.REGION] >= 2


async def test_only_the_secret_part_of_a_text_is_painted_over(site: Any, page: Page, store: FileStore) -> None:
    style = "position:absolute;left:0;top:0;margin:0;font:20px/30px monospace"
    text = f"<p id=p style='{style}'>seen S3cretCanary too</p>"
    await page.goto(site.page("/part", f"<!doctype html><title>p</title>{text}"))
    width = await page.evaluate("document.querySelector('#p').getBoundingClientRect().width") / 21
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor(secrets=frozenset({"S3cretCanary"})))
    picture = _picture(store, taken)

    def colours(first: float, last: float) -> set[Any]:
        part = picture.crop((round(first * width), 5, round(last * width), 25))
        return {colour for _, colour in part.getcolors(1 << 16) or []}

    assert MASK_COLOUR not in colours(0, 4.4) | colours(17.6, 21)
    assert (0, 0, 0) in colours(0, 4.4)
    assert (0, 0, 0) in colours(17.6, 21)
    assert MASK_COLOUR in colours(5, 17)
    assert not {colour for colour in colours(5, 17) if sum(colour) < 100}
    assert {(entry.what, entry.count) for entry in _item(taken, ItemKind.SCREENSHOT).masked} == {(Kind.SECRET, 1)}


async def test_a_frame_of_another_site_is_covered(site: Any, page: Page, store: FileStore) -> None:
    site.page("/red", "<!doctype html><body style='background:#f00'>other site, other process</body>")
    other = site.url.replace("127.0.0.1", "localhost")
    body = f"<iframe src={other}/red style='position:absolute;left:50px;top:50px;width:200px;height:100px'></iframe>"
    await page.goto(site.page("/outer", f"<!doctype html><title>o</title><p>outer</p>{body}"))
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor())
    assert taken.gaps == ()
    picture = _picture(store, taken)
    assert picture.getpixel((60, 60)) == MASK_COLOUR
    assert Kind.FRAME in {entry.what for entry in _item(taken, ItemKind.SCREENSHOT).masked}
    assert "other process" not in _text(store, taken, ItemKind.DOM)


async def test_masks_follow_scrolling_frames_and_scale(site: Any, browser: Browser, store: FileStore) -> None:
    context = await browser.new_context(viewport={"width": 800, "height": 500}, device_scale_factor=2)
    page = await context.new_page()
    inner = "<!doctype html><body style='margin:0'><div style='height:300px'></div><div class=private"
    inner += " style='height:60px;background:#f00'>x</div><div style='height:900px'></div></body>"
    site.page("/inner", inner)
    frame = "<iframe src=/inner style='margin-top:700px;width:300px;height:200px;border:7px solid;padding:11px;"
    frame += "transform:scale(.5);transform-origin:0 0'></iframe>"
    await page.goto(site.page("/outer", f"<!doctype html><title>o</title><body>{frame}<p style='height:2000px'>"))
    await page.evaluate("scrollTo(0, 600); frames[0].scrollTo(0, 250)")
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor(selectors=(".private",)))
    assert taken.gaps == ()
    picture = _picture(store, taken)
    scale = picture.width / 800
    assert picture.size == (800 * scale, 500 * scale)
    colours = {colour: count for count, colour in picture.getcolors(1 << 20) or []}
    assert not [colour for colour in colours if colour[0] > 200 and colour[1] < 60]
    covered = 150 * 30 * scale * scale  # half size by the transform; ten of its sixty pixels are scrolled out
    assert 0.8 * covered < colours[MASK_COLOUR] < 1.4 * covered


WATCHFUL = """<!doctype html><title>Watchful</title><body style="height:3000px"><p id=t tabindex=0>text</p><input id=i>
<x-watch></x-watch><script>
 window.seen = []; window.armed = false;
 const note = (name) => { if (!armed) return; seen.push(name); navigator.sendBeacon("/event/" + name) };
 for (const name of ["focus","blur","focusin","focusout","scroll","scrollend","resize","mouseover","mousemove",
   "mouseenter","mouseleave","mouseout","pointerover","pointerenter","pointermove","mousedown","mouseup","click","keydown",
   "visibilitychange","beforeprint","afterprint","select","selectionchange","copy","pagehide","pageshow","freeze","resume","beforeunload","input",
   "change","load","error","transitionstart","animationstart","contextmenu","wheel","touchstart","message","hashchange",
   "fullscreenchange","beforematch","toggle","slotchange","contentvisibilityautostatechange","beforetoggle"])
   for (const on of [window, document]) on.addEventListener(name, () => note(name), true);
 visualViewport.addEventListener("resize", () => note("visual resize"));
 matchMedia("print").addEventListener("change", () => note("print"));
 matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => note("scheme"));
 new MutationObserver(() => note("mutation")).observe(document, {subtree: true, childList: true, attributes: true,
   characterData: true});
 new ResizeObserver(() => note("resize observer")).observe(document.body);
 new IntersectionObserver(() => note("intersection")).observe(document.querySelector("#t"));
 let made = 0;
 customElements.define("x-watch", class extends HTMLElement { static observedAttributes = ["a"];
   constructor() { super(); note("constructor") } connectedCallback() { note("connected") }
   attributeChangedCallback() { note("attribute") } });
 for (const [type, name] of [[Element, "getAttribute"], [Element, "getBoundingClientRect"], [Element, "getClientRects"],
   [Element, "matches"], [Node, "cloneNode"], [Document, "querySelectorAll"], [Element, "querySelectorAll"]]) {
   const real = type.prototype[name];
   type.prototype[name] = function (...rest) { note("call " + name); return real.apply(this, rest) };
 }
 Object.defineProperty(document.querySelector("#i"), "value", { get() { note("value getter"); return "" } });
</script></body>"""


@pytest.mark.parametrize("scale", [1, 2])
async def test_a_capture_fires_nothing_in_the_page(site: Any, browser: Browser, store: FileStore, scale: int) -> None:
    context = await browser.new_context(viewport={"width": 900, "height": 600}, device_scale_factor=scale)
    page = await context.new_page()
    await page.goto(site.page("/watchful", WATCHFUL))
    in_front = await context.new_page()
    await in_front.goto(site.page("/front", "<!doctype html><p>in front"))
    await page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    await page.evaluate("armed = true")
    target = Target(Rect(10, 10, 100, 20), (60, 20))
    for point in (Point.OPEN, Point.COMPOSED, Point.AFTER):
        taken = await capture(page, point, store=store, redactor=Redactor(selectors=("#t",)), target=target)
        assert taken.gaps == ()
    await page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert await page.evaluate("seen") == []
    assert await page.evaluate("[scrollX, scrollY]") == [0, 0]
    await page.evaluate("note('the watch itself'); fetch('/sync', {method: 'POST'})")
    assert await asyncio.to_thread(site.asked("/sync").wait, 20)
    assert [post for post in site.posts if "watch%20itself" not in post and post != "/sync"] == []


async def test_a_frozen_page_gives_gaps_in_bounded_time(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/frozen", "<!doctype html><title>f</title><p>soon frozen"))
    frozen = site.asked("/now-frozen")
    await page.evaluate(
        "() => { setTimeout(() => { const r = new XMLHttpRequest(); r.open('GET', '/now-frozen', false); r.send();"
        " while (true) {} }, 0) }"
    )
    await asyncio.to_thread(frozen.wait, 20)
    loop = asyncio.get_running_loop()
    before = loop.time()
    taken = await capture(page, Point.AFTER, store=store, redactor=Redactor(), step_timeout=1.0, total_timeout=3.0)
    assert loop.time() - before < 4.0
    assert {gap.step: gap.reason for gap in taken.gaps} == dict.fromkeys(
        ("look", "screenshot", "dom", "accessibility"), GapReason.TIMED_OUT
    )
    assert taken.quality is Quality.NOT_SEEN
    assert json.loads(_text(store, taken, ItemKind.FACTS))["url"] == f"{site.url}/frozen"


async def test_a_font_that_never_comes_does_not_hold_a_capture(site: Any, page: Page, store: FileStore) -> None:
    style = "<style>@font-face{font-family:N;src:url(/never.woff2)} p{font-family:N}</style>"
    await page.goto(site.page("/font", f"<!doctype html><title>n</title>{style}<p>text"), wait_until="commit")
    assert await asyncio.to_thread(site.asked("/never.woff2").wait, 20)
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor(), step_timeout=3.0)
    assert taken.gaps == ()
    assert taken.quality is Quality.HALF_LOADED


async def test_a_closed_page_gives_gaps(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/closed", "<!doctype html><p>x"))
    await page.close()
    taken = await capture(page, Point.AFTER, store=store, redactor=Redactor())
    assert {gap.reason for gap in taken.gaps} == {GapReason.PAGE_CLOSED}
    assert [item.kind for item in taken.items] == [ItemKind.FACTS]
    assert taken.quality is Quality.NOT_SEEN


async def test_a_page_closed_meanwhile_gives_gaps_at_once(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/closing", "<!doctype html><p>x"))
    frozen = site.asked("/busy")
    await page.evaluate(
        "() => { setTimeout(() => { const r = new XMLHttpRequest(); r.open('GET', '/busy', false); r.send();"
        " while (true) {} }, 0) }"
    )
    await asyncio.to_thread(frozen.wait, 20)
    looking = asyncio.Event()

    def monotonic() -> float:
        looking.set()
        return 0.0

    clock = Clock(capture_module.SYSTEM_CLOCK.now, monotonic)
    running = asyncio.create_task(
        capture(page, Point.AFTER, store=store, redactor=Redactor(), step_timeout=60, total_timeout=60, clock=clock)
    )
    await looking.wait()
    await page.close()
    taken = await asyncio.wait_for(running, 20)
    assert {gap.reason for gap in taken.gaps} == {GapReason.PAGE_CLOSED}


@pytest.mark.parametrize("when", ["before", "meanwhile"])
async def test_a_crashed_page_gives_gaps(
    site: Any, context: BrowserContext, page: Page, store: FileStore, when: str
) -> None:
    await page.goto(site.page("/crash", "<!doctype html><p>x"))
    session = await context.new_cdp_session(page)
    crashed = asyncio.Event()
    page.on("crash", lambda _: crashed.set())

    async def crash() -> None:
        task = asyncio.ensure_future(session.send("Page.crash"))
        await asyncio.wait_for(crashed.wait(), 20)
        task.cancel()
        await asyncio.wait({task})

    if when == "before":
        await crash()
        taken = await capture(page, Point.AFTER, store=store, redactor=Redactor())
    else:
        running = asyncio.create_task(capture(page, Point.AFTER, store=store, redactor=Redactor()))
        await crash()
        taken = await running
    assert {gap.reason for gap in taken.gaps} == {GapReason.PAGE_CRASHED}
    assert taken.item(ItemKind.FACTS) is not None


async def test_a_full_disk_raises(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/full", "<!doctype html><p>x"))
    full = FileStore(store.root.parent / "full", minimum_free_bytes=1 << 60)
    with pytest.raises(StoreFull):
        await capture(page, Point.COMPOSED, store=full, redactor=Redactor())


async def test_a_selector_that_is_none_keeps_nothing_unmasked(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/s", "<!doctype html><p>x"))
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor(selectors=("p[",)))
    assert [item.kind for item in taken.items] == [ItemKind.FACTS]
    assert "not a valid selector" in taken.gaps[0].detail


async def test_a_page_that_is_too_large_is_a_gap(
    site: Any, page: Page, store: FileStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("evidence.dom_snapshot.MAXIMUM_SIZE", 1000)
    await page.goto(site.page("/large", "<!doctype html><title>l</title>" + "<p>text</p>" * 500))
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor())
    assert [(gap.step, gap.reason) for gap in taken.gaps] == [("dom", GapReason.TOO_LARGE)]


async def test_a_worker_that_was_killed_is_replaced(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/w", "<!doctype html><title>w</title><p>x"))
    os.kill(await worker.run(worker.process_id), signal.SIGKILL)
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor())
    assert taken.gaps == ()


@pytest.mark.parametrize(
    ("body", "headers", "quality"),
    [
        ("<!doctype html><title>e</title><body></body>", {}, Quality.BLANK),
        ("<!doctype html><p>Sorry", {"status": "500"}, Quality.ERROR_PAGE),
        ("<!doctype html><p>Fine", {}, Quality.USABLE),
        ("<!doctype html><img src=data:,x>", {}, Quality.USABLE),
        (
            "<!doctype html><form name=body><input name=attributes></form><img name=title><p>Clobbered",
            {},
            Quality.USABLE,
        ),
    ],
)
async def test_quality(
    site: Any, page: Page, store: FileStore, body: str, headers: dict[str, str], quality: Quality
) -> None:
    await page.goto(site.page("/q", body, **headers))
    taken = await capture(page, Point.VIEW, store=store, redactor=Redactor())
    assert taken.gaps == ()
    assert taken.quality is quality


async def test_quality_of_pages_that_never_came(site: Any, page: Page, store: FileStore) -> None:
    assert (await capture(page, Point.OPEN, store=store, redactor=Redactor())).quality is Quality.BLANK
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(Error, match="ERR_CONNECTION_REFUSED"):
        await page.goto(f"http://127.0.0.1:{port}/")
    assert (await capture(page, Point.OPEN, store=store, redactor=Redactor())).quality is Quality.ERROR_PAGE


async def test_a_page_answered_by_the_gate_says_so(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/gate", "<!doctype html><title>g</title><p>refused"))
    taken = await capture(page, Point.AFTER, store=store, redactor=Redactor(), answered_by_interlock=True)
    assert taken.quality is Quality.ANSWERED_BY_INTERLOCK
    assert {item.note for item in taken.items} == {"answered by Interlock, not by the site"}
    picture = _picture(store, taken)
    assert picture.height > 600
    assert picture.getpixel((890, 605)) == MARK_COLOUR


async def test_a_stored_snapshot_shows_the_same_and_runs_and_loads_nothing(
    site: Any, context: BrowserContext, page: Page, store: FileStore
) -> None:
    hostile = """<!doctype html><title>h</title><body onload="fetch('/ran', {method: 'POST'})"><p id=p>Shown</p>
    <style id=s></style><img src=/pixel onerror="fetch('/ran2', {method: 'POST'})">
    <a href="javascript:fetch('/ran3')">l</a>
    <iframe srcdoc="<p>inside<script>fetch('/ran4', {method: 'POST'})</script>"></iframe><svg><style><a
    title="</style><img src=x onerror=fetch('/ran5')>"></a></style></svg>
    <script>document.querySelector("#s").textContent = "</style><script>fetch('/ran6', {method: 'POST'})</scr"
     + "ipt><img src=x onerror=fetch('/ran7')>"</script>"""
    await page.goto(site.page("/hostile", hostile))
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor())
    assert taken.gaps == ()
    snapshot = _text(store, taken, ItemKind.DOM)
    for bad in ("<script", "onload", "javascript:"):
        assert bad not in snapshot
    site.posts.clear()
    site.gets.clear()
    opened = await context.new_page()
    await opened.goto(site.page("/snapshot", snapshot))
    assert await opened.inner_text("#p") == "Shown"
    assert await opened.frame_locator("iframe").locator("p").inner_text() == "inside"
    handlers = "[...document.querySelectorAll('*')].flatMap(e => e.getAttributeNames()).filter(n => n.startsWith('on'))"
    assert await opened.evaluate(handlers) == []
    assert (site.gets, site.posts) == (["/snapshot"], [])


async def test_a_tree_that_would_hold_up_the_event_loop_is_a_gap(site: Any, page: Page, store: FileStore) -> None:
    await page.goto(site.page("/many", "<!doctype html><title>m</title>" + "<p>text</p>" * 4100))
    taken = await capture(page, Point.OPEN, store=store, redactor=Redactor(), step_timeout=20, total_timeout=60)
    assert [(gap.step, gap.reason) for gap in taken.gaps] == [("accessibility", GapReason.TOO_LARGE)]
    assert taken.item(ItemKind.DOM) is not None
