"""The site as a client sees it: sign-in, the lists, and one publish through each composer's requests."""

from __future__ import annotations

import re
from hashlib import sha256

import pytest

from playground.process import Playground


def test_signing_in_sets_a_session_and_leads_to_the_wanted_page(stranger, site: Playground) -> None:
    sent = stranger.get("/drafts")
    assert (sent.status, sent.location) == (302, "/login?next=%2Fdrafts")
    wrong = stranger.form("/login", user="editor", password="guess", next="/drafts")
    assert wrong.status == 200
    assert "do not match" in wrong.text
    assert 'name="next" value="/drafts"' in wrong.text
    signed = stranger.form("/login", user="editor", password="playground", next="/drafts")
    assert (signed.status, signed.location) == (302, "/drafts")
    cookie = signed.headers["Set-Cookie"]
    assert re.fullmatch(r"pg_session=[\w-]+; Path=/; HttpOnly; SameSite=Lax", cookie)
    stranger.session = cookie.split(";")[0].partition("=")[2]
    assert '<span data-testid="account">editor</span>' in stranger.get("/drafts").text
    assert stranger.form("/logout").location == "/login"
    assert stranger.get("/drafts").status == 302


@pytest.mark.parametrize("wanted", ["//elsewhere.test/", "https://elsewhere.test/", "/\\elsewhere.test"])
def test_signing_in_never_leads_to_another_site(stranger, wanted: str) -> None:
    assert stranger.form("/login", user="second", password="playground", next=wanted).location == "/"


@pytest.mark.parametrize("path", ["/", "/login", "/heavy", "/static/style.css", "/assets/3.png"])
def test_a_stranger_may_read_what_is_public(stranger, path: str) -> None:
    assert stranger.get(path).status == 200


@pytest.mark.parametrize("path", ["/mine", "/new", "/form/new", "/api/items", "/nowhere", "/autosave/1/edit"])
def test_a_stranger_is_sent_to_sign_in(stranger, path: str) -> None:
    assert stranger.get(path).location.startswith("/login?next=")


def test_a_draft_is_seen_by_its_author_only(site: Playground, editor, stranger) -> None:
    item = site.truth.create(account="editor", title="Mine", body="", state="draft", variant="form")
    assert editor.get(f"/items/{item.id}").status == 200
    assert stranger.get(f"/items/{item.id}").status == 404


def test_the_list_is_paged_newest_first_with_a_total(site: Playground, stranger) -> None:
    for number in range(45):
        site.truth.create(account="second", title=f"Number {number}", body="", state="published", variant="form")
    first = stranger.get("/")
    titles = re.findall(r"Number \d+", first.text)
    assert titles == [f"Number {n}" for n in range(44, 24, -1)]
    assert '<span data-testid="total">45</span>' in first.text
    assert '<a rel="next" href="/?page=2">' in first.text
    assert re.search(r'<li data-item-id="\d+" data-author="second" data-state="published">', first.text)
    last = stranger.get("/?page=3").text
    assert len(re.findall(r"Number \d+", last)) == 5
    assert 'rel="next"' not in last
    assert stranger.get("/?page=4").status == 404


def test_what_was_typed_is_shown_as_text(site: Playground, editor) -> None:
    editor.form("/form/publish", title="<b>Bold</b>", body="<script>1</script>\r\nline")
    item = site.truth.published()[0]
    assert (item.title, item.body) == ("<b>Bold</b>", "<script>1</script>\nline")
    page = editor.get(f"/items/{item.id}").text
    assert "<h1>&lt;b&gt;Bold&lt;/b&gt;</h1>" in page
    assert "<article>&lt;script&gt;1&lt;/script&gt;\nline</article>" in page


def test_the_native_form_publishes_with_a_redirect(site: Playground, editor) -> None:
    answer = editor.form("/form/publish", title="Closed", body="On Friday")
    (item,) = site.truth.published()
    assert (answer.status, answer.location) == (302, f"/form/done?item={item.id}")
    assert (item.account, item.title, item.body, item.variant, item.commits) == (
        "editor",
        "Closed",
        "On Friday",
        "form",
        1,
    )
    assert "<h1>Published</h1>" in editor.get(answer.location).text
    (commit,) = site.truth.commits()
    arrival = next(r for r in site.truth.requests() if r.seq == commit.request_seq)
    assert (arrival.method, arrival.target, arrival.user) == ("POST", "/form/publish", "editor")


def test_the_form_is_refused_without_its_token_or_a_title(site: Playground, editor) -> None:
    assert editor.form("/form/publish", title="x", csrf="wrong").status == 403
    again = editor.form("/form/publish", title=" ", body="kept")
    assert again.status == 200
    assert "Give your notice a title." in again.text
    assert "kept</textarea>" in again.text
    assert site.truth.commits(None) == []


def test_publishing_again_makes_another_item(site: Playground, editor) -> None:
    for _ in range(2):
        editor.form("/form/publish", title="Twice")
    assert site.truth.publish_count("Twice") == 2
    assert len(site.truth.items(title="Twice")) == 2


def test_the_single_page_publishes_json(site: Playground, editor) -> None:
    answer = editor.json("POST", "/api/items", title="T", body="B", status="published")
    (item,) = site.truth.published()
    assert answer.status == 201
    assert answer.text == f'{{"id": {item.id}, "state": "published", "url": "/items/{item.id}"}}'
    assert editor.json("POST", "/api/items", title="D", body="", status="draft").status == 201
    assert [draft.title for draft in site.truth.drafts()] == ["D"]
    assert editor.json("POST", "/api/items", title="", body="", status="published").status == 422
    assert editor.json("POST", "/api/items", title="T").status == 400
    assert site.truth.publish_count() == 1


def test_the_panel_publishes_the_saved_draft(site: Playground, editor) -> None:
    assert editor.json("POST", "/api/drafts", title="T", body="first").status == 201
    (draft,) = site.truth.drafts()
    assert editor.json("POST", f"/api/drafts/{draft.id}", title="T", body="second").status == 200
    answer = editor.json("PUT", f"/api/items/{draft.id}", status="published", body="last")
    assert answer.status == 200
    (item,) = site.truth.published()
    assert (item.id, item.title, item.body, item.commits) == (draft.id, "T", "last", 1)
    editor.json("PUT", f"/api/items/{draft.id}", status="published", body="last")
    assert site.truth.publish_count("T") == 2
    assert [commit.kind for commit in site.truth.commits(None)] == ["draft", "draft", "publish", "publish"]


def test_nobody_publishes_the_draft_of_another(site: Playground, editor) -> None:
    item = site.truth.create(account="second", title="T", body="", state="draft", variant="panel")
    assert editor.json("PUT", f"/api/items/{item.id}", status="published", body="").status == 404
    assert editor.form(f"/autosave/{item.id}/edit", title="x").status == 404
    assert editor.form(f"/items/{item.id}/delete").status == 404
    assert site.truth.items() == [item]


def test_the_autosaving_form_saves_and_publishes_at_one_address(site: Playground, editor) -> None:
    address = editor.get("/autosave/new").location
    (draft,) = site.truth.drafts()
    assert address == f"/autosave/{draft.id}/edit"
    boundary = "----edge"
    parts = {"csrf": editor.csrf, "title": "T", "body": "a\r\nb"}
    body = "".join(
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
        for name, value in parts.items()
    )
    kind = f"multipart/form-data; boundary={boundary}"
    editor.send("POST", address, f"{body}--{boundary}--\r\n".encode(), {"Content-Type": kind})
    assert editor.receive().text == f'{{"id": {draft.id}}}'
    assert [(d.title, d.body) for d in site.truth.drafts()] == [("T", "a\nb")]
    answer = editor.form(address, title="T", body="a\r\nb", **{"action-publish": "Publish"})
    assert answer.location == f"/autosave/done?item={draft.id}"
    editor.form(address, title="Later", body="")  # an autosave that comes after leaves the public text alone
    (item,) = site.truth.published()
    assert (item.title, item.body, item.commits) == ("T", "a\nb", 1)


def test_a_draft_can_be_discarded(site: Playground, editor) -> None:
    assert editor.form("/form/draft", title="Away").location == "/drafts"
    (item,) = site.truth.drafts()
    assert editor.form(f"/items/{item.id}/delete").location == "/drafts"
    assert site.truth.items() == []
    assert [commit.kind for commit in site.truth.commits(None)] == ["draft", "delete"]


def test_an_upload_is_a_write_that_stores_no_item(site: Playground, editor) -> None:
    editor.send("POST", "/upload", b"picture", {"Content-Type": "image/png"})
    assert sha256(b"picture").hexdigest() in editor.receive().text
    (write,) = site.truth.requests(writes_only=True)
    assert (write.target, write.body_sha256) == ("/upload", sha256(b"picture").hexdigest())
    assert site.truth.items() == []


def test_the_heavy_page_loads_170_cacheable_files(site: Playground, stranger) -> None:
    assets = re.findall(r"/assets/\d+\.(?:js|css|png)", stranger.get("/heavy").text)
    assert len(set(assets)) == 170
    first = stranger.get(assets[0])
    assert first.headers["Cache-Control"] == "public, max-age=31536000, immutable"
    stranger.send("GET", assets[0], headers={"If-None-Match": first.headers["ETag"]})
    assert stranger.receive().status == 304


def test_requests_are_counted_per_connection(site: Playground, editor) -> None:
    for _ in range(3):
        editor.get("/")
    assert [r.request_no_on_connection for r in site.truth.requests()] == [1, 2, 3]
    assert len({r.connection for r in site.truth.requests()}) == 1
    assert {(r.version, r.scheme, r.is_write) for r in site.truth.requests()} == {("1.1", "http", 0)}


def test_a_wrong_method_says_what_is_allowed(editor) -> None:
    answer = editor.json("PUT", "/form/publish")
    assert (answer.status, answer.headers["Allow"]) == (405, "POST")
