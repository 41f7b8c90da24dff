"""The pages in a plain Chromium: each composer publishes with one click, every hazard reaches the server, and
a connection that dies makes the browser itself send a publish twice."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from playground.hazards import Hazard
from playground.process import Playground

pytestmark = pytest.mark.browser

OWN_PUBLISH = {Hazard.DOUBLE_SUBMIT, Hazard.PUBLISH_IN_PREPARE, Hazard.RELOAD_AFTER}


@pytest.fixture(scope="module")
def browser(chromium) -> Iterator[Browser]:
    with sync_playwright() as driver:
        browser = driver.chromium.launch(**chromium)
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser, site: Playground) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, base_url=site.plain)
    session = site.truth.open_session("editor")
    context.add_cookies([{"name": "pg_session", "value": session, "url": site.plain}])
    yield context.new_page()
    context.close()


def write(page: Page, path: str, title: str = "T", body: str = "one\ntwo") -> None:
    page.goto(path)
    page.get_by_label("Title").fill(title)
    page.get_by_label("Body").fill(body)


def press(page: Page, name: str = "Publish") -> None:
    page.get_by_role("button", name=name, exact=True).click()


def published(page: Page) -> None:
    expect(page.get_by_role("status")).to_contain_text("Published.")


def writes(site: Playground) -> list[tuple[str, str]]:
    return [(r.method, r.target) for r in site.truth.requests(writes_only=True)]


def test_a_person_can_sign_in_and_out(site: Playground, browser: Browser) -> None:
    context = browser.new_context(base_url=site.plain)
    page = context.new_page()
    page.goto("/mine")
    page.get_by_label("User name").fill("second")
    page.get_by_label("Password").fill("playground")
    press(page, "Sign in")
    expect(page).to_have_url(f"{site.plain}/mine")
    expect(page.get_by_test_id("account")).to_have_text("second")
    press(page, "Sign out")
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    context.close()


def test_the_native_form(site: Playground, page: Page) -> None:
    write(page, "/form/new")
    press(page)
    expect(page.get_by_role("heading", name="Published")).to_be_visible()
    assert writes(site) == [("POST", "/form/publish")]
    assert [(i.title, i.body, i.commits) for i in site.truth.published()] == [("T", "one\ntwo", 1)]


def test_the_single_page(site: Playground, page: Page) -> None:
    write(page, "/spa/new")
    press(page)
    published(page)
    assert writes(site) == [("POST", "/api/items")]
    write(page, "/spa/new", title="Later")
    press(page, "Save draft")
    expect(page.get_by_role("status")).to_contain_text("Draft saved.")
    assert [i.title for i in site.truth.drafts()] == ["Later"]


def test_the_panel_saves_while_typing_and_publishes_in_two_steps(site: Playground, page: Page) -> None:
    page.goto("/panel/new")
    assert writes(site) == []
    page.get_by_label("Title").fill("T")
    expect(page.get_by_test_id("saving")).to_have_text("Saved")
    page.get_by_label("Body").fill("one\ntwo")
    press(page, "Publish…")
    expect(page.get_by_role("dialog", name="Ready to publish?")).to_be_visible()
    press(page, "Publish now")
    published(page)
    (item,) = site.truth.published()
    assert (item.title, item.body, item.commits) == ("T", "one\ntwo", 1)
    assert writes(site) == [
        ("POST", "/api/drafts"),
        ("POST", f"/api/drafts/{item.id}"),
        ("PUT", f"/api/items/{item.id}"),
    ]


def test_the_autosaving_form_saves_once_more_just_before_it_publishes(site: Playground, page: Page) -> None:
    write(page, "/autosave/new")
    expect(page.get_by_test_id("saving")).to_have_text("Saved")
    press(page)
    expect(page.get_by_role("heading", name="Published")).to_be_visible()
    (item,) = site.truth.published()
    assert (item.title, item.body, item.commits) == ("T", "one\ntwo", 1)
    assert writes(site) == [("POST", f"/autosave/{item.id}/edit")] * 3
    *_, publish = site.truth.commits(None)
    assert (publish.kind, publish.request_seq) == ("publish", site.truth.requests(writes_only=True)[-1].seq)


@pytest.mark.parametrize(
    ("path", "button"),
    [
        ("/form/new", "Publish"),
        ("/spa/new", "Publish"),
        ("/panel/new", "Publish…"),
        ("/autosave/new", "Publish"),
    ],
)
def test_without_a_title_nothing_is_sent(site: Playground, page: Page, path: str, button: str) -> None:
    page.goto(path)
    press(page, button)
    expect(page.get_by_role("alert").filter(visible=True)).to_have_text("Give your notice a title.")
    assert writes(site) == []


@pytest.mark.parametrize("fault", ["lost_before", "reset_before", "status_500_before", "redirect_login"])
def test_the_single_page_says_that_it_failed_and_sends_nothing_again(site: Playground, page: Page, fault: str) -> None:
    write(page, "/spa/new")
    site.truth.inject(fault, path_prefix="/api", times=9)
    press(page)
    if fault == "lost_before":
        expect(page.get_by_role("status")).to_have_text("Publishing…")
    else:
        expect(page.locator("#alert")).to_contain_text("Publishing failed.")
        expect(page.get_by_label("Title")).to_have_value("T")
    assert site.truth.publish_count() == 0


@pytest.mark.parametrize("fault", ["reset_after", "close_after", "status_408_after"])
@pytest.mark.parametrize("composer", ["form", "spa"])
def test_one_click_is_sent_twice_when_a_reused_connection_dies(
    site: Playground, page: Page, composer: str, fault: str
) -> None:
    """Why all this exists: the page sends once, the browser twice, and two items are published."""
    write(page, f"/{composer}/new")
    site.truth.inject(fault, path_prefix="/", argument="reused")
    press(page)
    if composer == "form":
        expect(page.get_by_role("heading", name="Published")).to_be_visible()
    else:
        published(page)
    first, second = site.truth.requests(writes_only=True)
    assert (first.fault, second.fault) == (fault, None)
    assert first.body_sha256 == second.body_sha256
    assert first.request_no_on_connection > 1
    assert site.truth.publish_count("T") == 2


def provoke(page: Page, hazard: Hazard) -> None:
    if hazard is Hazard.HOVER_POST:
        page.get_by_role("button", name="Publish").hover()
    elif hazard is Hazard.SCROLL_POST:
        page.mouse.wheel(0, 300)
    elif hazard is Hazard.RESIZE_POST:
        page.set_viewport_size({"width": 900, "height": 700})
    elif hazard in (Hazard.VISIBILITY_POST, Hazard.BEFOREUNLOAD_POST):
        page.goto("about:blank")
    elif hazard in (Hazard.DOUBLE_SUBMIT, Hazard.RELOAD_AFTER):
        press(page)


@pytest.mark.parametrize("hazard", list(Hazard))
def test_every_hazard_reaches_the_server(site: Playground, page: Page, hazard: Hazard) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stun:
        stun.bind(("127.0.0.1", 0))
        stun.settimeout(5)
        argument = str(stun.getsockname()[1]) if hazard is Hazard.WEBRTC else None
        place = "done" if hazard is Hazard.RELOAD_AFTER else "composer"
        site.truth.set_hazard(hazard, place, argument)
        page.goto("/form/new")
        page.get_by_label("Title").fill("T")
        provoke(page, hazard)
        if hazard is Hazard.WEBRTC:
            assert stun.recv(64)[:2] == b"\x00\x01"  # a STUN binding request (RFC 8489 section 5)
            return
    for _ in range(100):
        if reached(site, hazard):
            return
        page.wait_for_timeout(50)  # the page must go on; the record is in another process
    pytest.fail(f"{hazard} did not reach the server")


def reached(site: Playground, hazard: Hazard) -> bool:
    if hazard in OWN_PUBLISH:
        return site.truth.publish_count("T") == (1 if hazard is Hazard.PUBLISH_IN_PREPARE else 2)
    hits = site.truth.hazard_hits(hazard)
    if hazard is Hazard.REDIRECT307:
        return any(hit.target == "/hazard/redirect307" for hit in hits)
    if hazard is Hazard.WS:
        return any(hit.method == "WEBSOCKET" for hit in hits)
    return bool(hits)


@pytest.mark.parametrize("path", ["/", "/mine", "/drafts", "/items/1", "/form/done?item=1"])
def test_a_hazard_is_carried_by_the_pages_of_its_place_only(site: Playground, page: Page, path: str) -> None:
    item = site.truth.create(account="editor", title="T", body="", state="published", variant="form")
    path = path.replace("1", str(item.id))
    place = {"/items": "item", "/form": "done"}.get(path[: path.find("/", 1)], "list")
    other = "done" if place == "list" else "list"
    site.truth.set_hazard("fetch", other)
    page.goto(path, wait_until="networkidle")
    assert site.truth.hazard_hits() == []
    for where in (place, "anywhere"):
        site.truth.set_hazard("fetch", where)
        with page.expect_response("**/hazard/fetch"):
            page.goto(path)
    assert len(site.truth.hazard_hits("fetch")) == 2


def test_a_page_that_stays_counts_as_done_once_it_has_published(site: Playground, page: Page) -> None:
    site.truth.set_hazard("beacon", "done")
    write(page, "/spa/new")
    assert site.truth.hazard_hits() == []
    with page.expect_response("**/hazard/beacon"):
        press(page)
    assert len(site.truth.hazard_hits("beacon")) == 1


@pytest.mark.parametrize("composer", ["spa", "panel", "autosave"])
def test_a_composer_can_submit_twice(site: Playground, page: Page, composer: str) -> None:
    site.truth.set_hazard("double_submit", "composer")
    write(page, f"/{composer}/new")
    if composer == "panel":
        press(page, "Publish…")
        press(page, "Publish now")
    else:
        press(page)
    for _ in range(100):
        if site.truth.publish_count("T") == 2:
            return
        page.wait_for_timeout(50)
    pytest.fail("the second publish did not arrive")


@pytest.mark.parametrize("composer", ["spa", "panel", "autosave"])
def test_a_composer_can_publish_before_anybody_asks(site: Playground, page: Page, composer: str) -> None:
    site.truth.set_hazard("publish_in_prepare", "composer")
    page.goto(f"/{composer}/new")
    page.get_by_label("Title").fill("T")
    for _ in range(100):
        if site.truth.publish_count("T") == 1:
            return
        page.wait_for_timeout(50)
    pytest.fail("nothing was published")
