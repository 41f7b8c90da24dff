"""The effect in disguise: what a page can send and a server in use would read as the effect, and a flow's rules not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from executor.gate.rules import Phase, Rules, decide
from flows.effect import Effect, Write
from flows.wire import OutgoingRequest

FORM = "application/x-www-form-urlencoded"
JSON = "application/json"


def ask(method: str, url: str, body: bytes = b"", content_type: str = FORM, **more: Any) -> OutgoingRequest:
    parts = urlsplit(url)
    assert parts.hostname is not None
    port = parts.port or (443 if parts.scheme == "https" else 80)
    target = parts.path + (f"?{parts.query}" if parts.query else "")
    headers = (("content-type", content_type),) if body else ()
    return OutgoingRequest(method, parts.scheme, parts.hostname, port, target, headers, body, **more)


def effect(method: str, path: str, matches: Any) -> Effect:
    return Effect(name="published", method=method, path=path, matches=matches, material=lambda request: {})


def supporting(method: str, path: str, matches: Any) -> Write:
    return Write(name="draft", method=method, path=path, matches=matches, may_cause_effect=False)


def said(rules: Rules, request: OutgoingRequest, phase: Phase = Phase.ARMED) -> str:
    decision = decide(phase, rules, request)
    return decision.reason.value if decision.reason else decision.kind.value


SITE = "https://cms.example"
LINK = Rules(
    destination_origin=SITE,
    effect=effect("GET", "/post/act", lambda request: request.query_value("action") == "publish"),
)


@pytest.mark.parametrize(
    "url",
    [
        "https://cms.example./post/act?action=publish",
        "http://cms.example/post/act?action=publish",
        "https://www.cms.example/post/act?action=publish",
        "https://cms.example:8443/post/act?action=publish",
        "https://cms.example/Post/ACT?action=publish",
        "https://cms.example/post/%2561ct?action=publish",
        "https://cms.example/post/act?action=view&action=publish",
        "https://cms.example/post/act?action[]=publish",
        "https://cms.example/post/act?x=1;action=publish",
    ],
)
@pytest.mark.parametrize("phase", [Phase.PREPARE, Phase.READ_ONLY, Phase.ARMED, Phase.SHUT])
def test_a_link_under_another_spelling_does_not_pass_as_a_read(url: str, phase: Phase) -> None:
    assert said(LINK, ask("GET", "https://cms.example/post/act?action=publish")) == "effect"
    assert said(LINK, ask("GET", url), phase) in ("ambiguous", "body_unreadable", "effect_closed")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.2", "[::1]", "a.localhost"])
def test_every_name_of_this_machine_is_one_place(host: str) -> None:
    rules = replace(LINK, destination_origin="http://127.0.0.1:8080")
    assert said(rules, ask("GET", f"http://{host}:8080/post/act?action=publish"), Phase.PREPARE) == "effect_closed"


def test_other_places_and_other_pages_are_read() -> None:
    for url in (
        "https://other.example/post/act?action=publish",
        "https://cms.example/post/act?action=view",
        "https://cms.example/post/show?action=publish",
    ):
        assert said(LINK, ask("GET", url), Phase.PREPARE) == "safe"


DRAFTS = Rules(
    destination_origin=SITE,
    effect=effect("POST", "/post", lambda request: request.form.get("status") == "publish"),
    # As a careful author writes it: absent or draft.
    supporting=(supporting("POST", "/post", lambda request: request.form.get("status") in (None, "draft")),),
)


@pytest.mark.parametrize(
    "body",
    [
        b"status=draft&status=publish",
        b"status=publish&status=draft",
        b"status[]=publish",
        b"status%00=publish",
        b"+status=publish",
        b"status=draft&status%5B0%5D=publish",
    ],
)
def test_a_field_that_servers_read_in_two_ways_is_not_an_absent_one(body: bytes) -> None:
    assert said(DRAFTS, ask("POST", f"{SITE}/post", b"title=x")) == "supporting"
    assert said(DRAFTS, ask("POST", f"{SITE}/post", b"status=publish")) == "effect"
    assert said(DRAFTS, ask("POST", f"{SITE}/post", body)) == "body_unreadable"


PATCH = Rules(
    destination_origin=SITE,
    effect=effect("PATCH", r"/posts/\d+", lambda request: True),
    supporting=(supporting("POST", r"/posts/\d+", lambda request: True),),
)


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        (b"_method=patch&a=b", FORM),
        (b"a=b&_method=PATCH", FORM),
        (b"%5Fmethod=patch", FORM),
        (b'{"_method": "PATCH"}', JSON),
        (
            b'--b\r\nContent-Disposition: form-data; name="_method"\r\n\r\nPATCH\r\n--b--\r\n',
            "multipart/form-data; boundary=b",
        ),
    ],
)
def test_a_method_in_the_body_is_the_effects(body: bytes, content_type: str) -> None:
    assert said(PATCH, ask("POST", f"{SITE}/posts/5", b"a=b")) == "supporting"
    assert said(PATCH, ask("POST", f"{SITE}/posts/5", body, content_type)) == "ambiguous"


def test_a_method_in_a_body_that_nobody_can_read_lets_nothing_pass() -> None:
    assert said(PATCH, ask("POST", f"{SITE}/posts/5", b"_method=patch;a=b")) == "body_unreadable"
    assert said(PATCH, ask("POST", f"{SITE}/posts/5", b"", body_known=False)) in ("body_unreadable", "supporting")


def test_a_form_that_names_its_method_in_the_body_is_still_an_effect() -> None:
    """Rails: every form that changes something does."""
    rules = Rules(
        destination_origin=SITE,
        effect=effect("POST", "/posts/5", lambda request: request.form.get("_method") == "patch"),
    )
    assert said(rules, ask("POST", f"{SITE}/posts/5", b"_method=patch")) == "effect"


def test_an_effect_whose_body_nobody_has_seen_does_not_leave() -> None:
    rules = Rules(destination_origin=SITE, effect=effect("POST", "/post", lambda request: True))
    assert said(rules, ask("POST", f"{SITE}/post", b"", body_known=False)) == "body_unreadable"


@pytest.mark.parametrize("content_type", [FORM, "multipart/form-data; boundary=b"])
@pytest.mark.parametrize(("fields", "expected"), [(1000, "supporting"), (1001, "body_unreadable")])
def test_fields_after_those_that_php_reads(content_type: str, fields: int, expected: str) -> None:
    """PHP would not see a status that stands last: `draft` for the gate, whatever is the default for the site."""
    names = [f"f{number}" for number in range(fields - 1)] + ["status"]
    part = '--b\r\nContent-Disposition: form-data; name="{}"\r\n\r\ndraft\r\n'
    body = "&".join(f"{name}=draft" for name in names)
    if content_type != FORM:
        body = "".join(part.format(name) for name in names) + "--b--\r\n"
    assert said(DRAFTS, ask("POST", f"{SITE}/post", body.encode(), content_type)) == expected
