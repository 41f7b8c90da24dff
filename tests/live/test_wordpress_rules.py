"""What the WordPress flow declares, without a WordPress: which requests fit, what the answers mean, and the normal form
of a post. Shapes are those that the editor sent in tests of the real product."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from pydantic import ValidationError
from wordpress_kit import FLOW, decided

from executor.gate.rules import Phase
from flows.declarations import problem
from flows.effect import Says
from flows.wire import Answer, OutgoingRequest
from flows.wordpress import Post, WordPressPost
from flows.wordpress_blocks import block_markup, body_of, material_of, paragraphs

SITE = "http://site.test"
PUT = (("x-http-method-override", "PUT"),)
MARKUP = block_markup("One.\n\nTwo.")
PUBLISH = {"id": 5, "status": "publish", "title": "T", "content": MARKUP}
PLAIN = "/index.php?rest_route=%2Fwp%2Fv2%2Fposts%2F5&_locale=user"
PRETTY = "/wp-json/wp/v2/posts/5?_locale=user"


def sends(target: str, value: Any, headers: tuple[tuple[str, str], ...] = PUT, method: str = "POST") -> OutgoingRequest:
    head = (("content-type", "application/json"), *headers)
    return OutgoingRequest(method, "http", "site.test", 80, target, head, json.dumps(value).encode())


def form(target: str, fields: dict[str, str]) -> OutgoingRequest:
    head = (("content-type", "application/x-www-form-urlencoded; charset=UTF-8"),)
    return OutgoingRequest("POST", "http", "site.test", 80, target, head, urlencode(fields).encode())


def test_the_flow_is_complete() -> None:
    assert problem(WordPressPost) is None


@pytest.mark.parametrize(
    "target",
    [
        PLAIN,
        PRETTY,
        "/index.php?rest_route=/wp/v2/posts/5",
        "/wp-json/wp/v2/posts/5",
        "/blog" + PLAIN,
        "/blog/2030" + PRETTY,
        "/index.php" + PRETTY,
    ],
)
@pytest.mark.parametrize("fields", [{"id", "status"}, {"id", "status", "content"}, set(PUBLISH)])
def test_the_effect(target: str, fields: set[str]) -> None:
    request = sends(target, {name: PUBLISH[name] for name in fields})
    assert decided(SITE, [request]) == [("effect", "")]
    assert FLOW.effect.item(request) == "5"
    assert decided(SITE, [request], Phase.PREPARE) == [("refused", "effect_closed")]


@pytest.mark.parametrize(
    "request_",
    [
        sends(PRETTY, PUBLISH, ()),
        sends(PRETTY, PUBLISH, (("x-http-method-override", "put"),)),
        sends(PRETTY, PUBLISH, (("x-http-method-override", "PATCH"),)),
        sends(PRETTY, PUBLISH, (), "PUT"),
        sends("/wp-json/wp/v2/posts/6", PUBLISH),
        sends("/wp-json/wp/v2/posts/5?rest_route=/wp/v2/posts/5", PUBLISH),
        sends("/wp-json/wp/v2/posts/5?rest.route=/wp/v2/posts/6", PUBLISH),
        sends("/wp-json/wp/v2/posts/5?_locale=de", PUBLISH),
        sends("/wp-json/wp/v2/posts/5?status=private", PUBLISH),
        sends(PLAIN + "&rest_route=/wp/v2/posts/6", PUBLISH),
        sends("/wp-admin/post.php/wp-json/wp/v2/posts/5", PUBLISH),
        sends("/xmlrpc.php/index.php?rest_route=/wp/v2/posts/5", PUBLISH),
        sends("/wp-json/wp/v2/pages/5", PUBLISH),
        sends("/wp-json/batch/v1", {"requests": [{"path": "/wp/v2/posts/5", "body": PUBLISH}]}),
        *(sends(PRETTY, PUBLISH | {"id": other}) for other in (6, "5", True, None)),
        *(sends(PRETTY, PUBLISH | {"status": other}) for other in ("future", "private", "pending", "publish ", None)),
        *(
            sends(PRETTY, PUBLISH | {name: "x"})
            for name in ("date", "date_gmt", "password", "slug", "sticky", "categories", "author", "meta", "excerpt")
        ),
        sends(PRETTY, {"status": "publish", "content": MARKUP}),
        sends(PRETTY, {"id": 5, "content": MARKUP}),
        sends(PRETTY, PUBLISH | {"content": {"raw": MARKUP}}),
        sends(PRETTY, [PUBLISH]),
        sends("/wp-json/wp/v2/posts/5/autosaves", {"status": "publish", "title": "T", "content": MARKUP}, ()),
        sends("/wp-json/wp/v2/posts/5/autosaves", {"title": "T", "content": MARKUP}, ()),
        sends("/wp-json/wp/v2/users/me", {"meta": {"persisted_preferences": {}}, "password": "p"}),
        sends("/wp-json/wp/v2/users/1", {"meta": {"persisted_preferences": {}}}),
        form("/wp-admin/post.php", {"action": "editpost", "post_ID": "5", "publish": "Publish"}),
        form("/wp-admin/admin-ajax.php", {"action": "inline-save", "post_ID": "5", "_status": "publish"}),
        form("/wp-admin/admin-ajax.php?action=inline-save", {"action": "heartbeat"}),
        form(
            "/wp-admin/admin-ajax.php",
            {"action": "heartbeat", "_nonce": "n", "interval": "60", "screen_id": "post", "has_focus": "true"}
            | {"data[wp_autosave][post_id]": "5"},
        ),
    ],
)
def test_what_is_not_declared_is_refused(request_: OutgoingRequest) -> None:
    for phase in (Phase.PREPARE, Phase.ARMED, Phase.SHUT, Phase.LOGIN, Phase.READ_ONLY):
        [(kind, _)] = decided(SITE, [request_], phase)
        assert kind == "refused", phase


BEAT = {"action": "heartbeat", "_nonce": "n", "interval": "60", "screen_id": "post", "has_focus": "false"}
LOCK = {"data[wp-refresh-post-lock][lock]": "1:2", "data[wp-refresh-post-lock][post_id]": "5"}


@pytest.mark.parametrize(
    ("request_", "name"),
    [
        (sends(PRETTY, PUBLISH | {"status": "draft"}), "save draft"),
        (
            sends(
                "/blog/wp-json/wp/v2/posts/5/autosaves?_locale=user",
                {"status": "draft", "title": "T", "content": MARKUP, "excerpt": ""},
                (),
            ),
            "autosave",
        ),
        (
            sends("/index.php?rest_route=%2Fwp%2Fv2%2Fusers%2Fme", {"meta": {"persisted_preferences": {"a": 1}}}),
            "editor preferences",
        ),
        (form("/wp-admin/admin-ajax.php", BEAT), "heartbeat"),
        (form("/blog/wp-admin/admin-ajax.php", BEAT | LOCK), "heartbeat"),
    ],
)
def test_supporting_writes(request_: OutgoingRequest, name: str) -> None:
    for phase in (Phase.PREPARE, Phase.ARMED):
        assert decided(SITE, [request_], phase) == [("supporting", name)]
    for phase in (Phase.SHUT, Phase.READ_ONLY, Phase.LOGIN):
        assert decided(SITE, [request_], phase)[0][0] == "refused"


# Material that was carried ahead


@pytest.mark.parametrize(
    ("target", "answer", "item"),
    [
        ("/wp-json/wp/v2/posts/5/autosaves", Answer(200, body=b'{"id":5}'), "5"),
        ("/wp-json/wp/v2/posts/5/autosaves", Answer(200, body=b'{"id":9,"parent":5}'), None),
        ("/wp-json/wp/v2/posts/5/autosaves", Answer(200, body=b'{"id":5}', complete=False), None),
        ("/wp-json/wp/v2/posts/5/autosaves", Answer(201, body=b'{"id":5}'), None),
        ("/wp-json/wp/v2/posts/5/autosaves", Answer(200, body=b"<html>"), None),
    ],
)
def test_a_save_counts_for_the_post_that_it_went_into(target: str, answer: Answer, item: str | None) -> None:
    [autosave] = [write for write in FLOW.supporting if write.name == "autosave"]
    request = sends(target, {"status": "draft", "title": "T", "content": MARKUP}, ())
    assert autosave.item is not None
    assert autosave.material is not None
    assert autosave.item(request, answer) == item
    assert autosave.material(request, answer) == {"title": "T", "body": "One.\n\nTwo."}


# Answers


def answer(status: int, value: Any, *, complete: bool = True) -> Answer:
    return Answer(status, (("content-type", "application/json"),), json.dumps(value).encode(), complete)


def error(status: int, code: str) -> dict[str, Any]:
    return {"code": code, "message": "Sorry.", "data": {"status": status}}


@pytest.mark.parametrize(
    ("answer_", "says", "item"),
    [
        (answer(200, {"id": 5, "status": "publish", "link": "http://site.test/?p=5"}), Says.DONE, "5"),
        (answer(200, {"id": 5, "status": "future"}), Says.ACCEPTED, "5"),
        (answer(200, {"id": 5, "status": "pending"}), Says.ACCEPTED, "5"),
        (answer(403, error(403, "rest_cookie_invalid_nonce")), Says.NOT_APPLIED, None),
        (answer(401, error(401, "rest_forbidden")), Says.NOT_APPLIED, None),
        (answer(403, error(403, "rest_cannot_publish")), Says.NOT_APPLIED, None),
        (answer(200, {"id": 6, "status": "publish"}), Says.NOTHING, None),
        (answer(200, {"id": "5", "status": "publish"}), Says.NOTHING, None),
        (answer(200, {"id": 5, "status": "draft"}), Says.NOTHING, None),
        (answer(200, {"id": 5, "status": "private"}), Says.NOTHING, None),
        (answer(200, {"id": 5, "status": "publish", "password": "p"}), Says.NOTHING, None),
        (answer(200, {"id": 5, "status": "publish"}, complete=False), Says.NOTHING, None),
        (answer(201, {"id": 5, "status": "publish"}), Says.NOTHING, None),
        (answer(200, [{"id": 5, "status": "publish"}]), Says.NOTHING, None),
        (Answer(200, body=b"<html>Published</html>"), Says.NOTHING, None),
        (answer(500, error(500, "internal_server_error")), Says.NOTHING, None),
        (answer(403, error(401, "rest_forbidden")), Says.NOTHING, None),
        (answer(403, {"code": "rest_forbidden"}), Says.NOTHING, None),
        (answer(200, error(200, "rest_forbidden")), Says.NOTHING, None),
        (answer(403, error(403, "blocked_by_firewall")), Says.NOTHING, None),
        (Answer(403, body=b"<html>Forbidden</html>"), Says.NOTHING, None),
        (Answer(302, (("location", "/wp-login.php"),)), Says.NOTHING, None),
    ],
)
def test_the_contract(answer_: Answer, says: Says, item: str | None) -> None:
    meaning = FLOW.contract.read_answer(sends(PRETTY, PUBLISH), answer_)
    assert (meaning.says, meaning.item) == (says, item)
    assert meaning.clause


# The normal form


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        ("One.\n\nTwo.", ["One.", "Two."]),
        ("One.\r\n\r\n\r\n  Two. \r\nStill two.\r\n", ["One.", "Two.\nStill two."]),
        ("\n \nOne.\n \t \nTwo.", ["One.", "Two."]),
        (" \n ", []),
    ],
)
def test_paragraphs(body: str, parts: list[str]) -> None:
    assert paragraphs(body) == parts
    if parts:
        assert body_of(block_markup(body)) == "\n\n".join(parts)


@pytest.mark.parametrize("text", ["a & b &amp; c", "<p>", "1 < 2 > 0", "-->", "<!-- wp:paragraph -->", "é 🎂 \u00a0x"])
def test_block_markup_is_read_back(text: str) -> None:
    assert body_of(block_markup(text)) == text


P = "<!-- wp:paragraph -->\n<p>{}</p>\n<!-- /wp:paragraph -->"


@pytest.mark.parametrize(
    "markup",
    [
        "",
        "One.",
        "<p>One.</p>",
        P.format(""),
        P.format("a <strong>b</strong>"),
        P.format('<a href="http://other.test/">a</a>'),
        P.format("a").replace("<p>", '<p class="x">'),
        P.format("a").replace("wp:paragraph --", 'wp:paragraph {"align":"center"} --', 1),
        P.format("a") + "\n\n<!-- wp:more -->\n<!--more-->\n<!-- /wp:more -->",
        P.format("a") + "tail",
        P.format("a") + P.format("b"),
        P.format(" a"),
        P.format("a<br><br>b"),
    ],
)
def test_what_is_no_plain_paragraph_is_never_what_was_approved(markup: str) -> None:
    assert body_of(markup) is None
    assert material_of({"content": markup}) == {"body": None}


def test_titles_are_compared_as_readers_see_them() -> None:
    assert material_of({"title": " Tea &amp; cake "}) == {"title": "Tea & cake"}
    assert material_of({"content": MARKUP}) == {"body": "One.\n\nTwo."}
    assert material_of({}) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"title": "", "body": "b"},
        {"title": " ", "body": "b"},
        {"title": "t\nu", "body": "b"},
        {"title": "a <b>b</b>", "body": "b"},
        {"title": "a &amp; b", "body": "b"},
        {"title": "&copy 2030", "body": "b"},
        {"title": "<!-- c", "body": "b"},
        {"title": "t", "body": ""},
        {"title": "t", "body": " \n "},
        {"title": "t", "body": "a\tb"},
        {"title": "t", "body": "b", "date": "2030-01-01"},
    ],
)
def test_a_payload_that_would_come_out_different_is_refused(fields: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        Post(**fields)


@pytest.mark.parametrize("title", ["1 < 2", "AT&T; now", "Q&A", "a > b", "50 % & more"])
def test_titles_that_only_look_like_markup_are_taken(title: str) -> None:
    assert Post(title=title, body="b").title == title


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("https://Site.test:443/", "https://site.test"),
        ("https://site.test/blog/wp-admin/", "https://site.test/blog"),
        ("https://site.test/blog/wp-admin/post-new.php?x=1", "https://site.test/blog"),
        ("https://site.test/wp-login.php", "https://site.test"),
        ("https://site.test/blog/index.php", "https://site.test/blog"),
    ],
)
def test_one_spelling_for_one_site(given: str, canonical: str) -> None:
    assert FLOW.canonical_destination(given) == canonical
