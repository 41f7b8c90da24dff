"""The decision table of the gate, and what no request may ever reach (C1, C2, C7)."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from executor.gate.rules import (
    Kind,
    Phase,
    Reason,
    Rules,
    could_be_effect,
    decide,
    is_safe,
    overrides_method,
    session_digest_of,
)
from flows.effect import Effect, Write
from flows.wire import OutgoingRequest

SITE = "https://site.example"


def ask(method: str, target: str, body: Any = None, *, host: str = "site.example", **headers: str) -> OutgoingRequest:
    pairs = [(name.lower().replace("_", "-"), value) for name, value in headers.items()]
    data = b""
    if body is not None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        if not any(name == "content-type" for name, _ in pairs):
            pairs.append(("content-type", "application/json"))
        pairs.append(("content-length", str(len(data))))
    return OutgoingRequest(method, "https", host, 443, target, tuple(pairs), data)


def write(name: str, path: str, matches: Any = lambda request: True, method: str = "POST") -> Write:
    return Write(name=name, method=method, path=path, matches=matches, may_cause_effect=False)


def broken(request: OutgoingRequest) -> bool:
    raise KeyError("a flow author's mistake")


EFFECT = Effect(
    name="post published",
    method="POST",
    path=r"/posts/\d+",
    matches=lambda request: request.json.get("status") == "publish",
    material=lambda request: {},
    count=lambda request: len(request.json.get("items", [1])),
)
RULES = Rules(
    destination_origin=SITE,
    effect=EFFECT,
    supporting=(
        write("autosave", r"/posts/\d+", lambda request: request.json.get("status", "draft") == "draft"),
        write("upload", "/media"),
    ),
    trailing=(write("unlock", "/unlock"),),
    login=(write("sign in", "/login"),),
    opens=(r"/list(\?page=\d+)?",),
    fetches=(r"/api/items\?.*",),
)
LINK = replace(
    RULES,
    effect=Effect(
        name="published by a link",
        method="GET",
        path="/act/publish",
        matches=lambda request: request.query_value("id") is not None,
        material=lambda request: {},
    ),
)
PUBLISH = ask("POST", "/posts/5", {"status": "publish"})
AUTOSAVE = ask("POST", "/posts/5", {"title": "x"})


def said(phase: Phase, request: OutgoingRequest, rules: Rules = RULES, **more: Any) -> str:
    decision = decide(phase, rules, request, **more)
    assert (decision.reason is None) == decision.passes
    return decision.reason.value if decision.reason else decision.kind.value


@pytest.mark.parametrize(
    ("phase", "request_", "expected"),
    [
        (Phase.PREPARE, ask("GET", "/any"), "safe"),
        (Phase.PREPARE, AUTOSAVE, "supporting"),
        (Phase.PREPARE, PUBLISH, "effect_closed"),
        (Phase.PREPARE, ask("POST", "/elsewhere", {}), "not_declared"),
        (Phase.PREPARE, ask("POST", "/media", b"x", host="other.example"), "not_declared"),
        (Phase.PREPARE, ask("POST", "/login", {}), "not_declared"),
        (Phase.ARMED, PUBLISH, "effect"),
        (Phase.ARMED, AUTOSAVE, "supporting"),
        (Phase.ARMED, ask("POST", "/posts/5", {"status": "publish", "items": [1, 2]}), "effect_count"),
        (Phase.ARMED, ask("POST", "/posts/5", {"status": "publish", "items": []}), "effect_count"),
        (Phase.ARMED, ask("POST", "/batch/v1", {"requests": [{}, {}]}), "not_declared"),
        (Phase.ARMED, ask("POST", "/posts/5;a=b", {"status": "publish"}), "ambiguous"),
        (Phase.ARMED, ask("POST", "//posts/5", {"status": "publish"}), "ambiguous"),
        (Phase.ARMED, ask("POST", "/posts/%35", {"status": "publish"}), "ambiguous"),
        (Phase.ARMED, ask("POST", "/media/../posts/5", {"status": "publish"}), "malformed_target"),
        (Phase.ARMED, ask("POST", "/media/%2e%2e/posts/5", {"status": "publish"}), "malformed_target"),
        (Phase.ARMED, ask("POST", "/posts/5", b"status=publish", content_type="text/plain"), "body_unreadable"),
        (Phase.ARMED, ask("post", "/posts/5", {"status": "publish"}), "not_declared"),
        (Phase.REHEARSE, PUBLISH, "effect_closed"),
        (Phase.REHEARSE, AUTOSAVE, "supporting"),
        (Phase.SHUT, PUBLISH, "effect_closed"),
        (Phase.SHUT, AUTOSAVE, "write_after_shut"),
        (Phase.SHUT, ask("POST", "/unlock", b"x"), "write_after_shut"),
        (Phase.SHUT, ask("GET", "/any"), "safe"),
        (Phase.LOGIN, ask("POST", "/login", b"x"), "login"),
        (Phase.LOGIN, AUTOSAVE, "not_declared"),
        (Phase.LOGIN, PUBLISH, "effect_closed"),
        (Phase.WATCH, PUBLISH, "watched"),
        (Phase.WATCH, ask("GET", "/a"), "safe"),
        (Phase.WATCH, ask("GET", "/a?_method=PUT", sec_fetch_dest="image"), "watched"),
        (Phase.CLOSED, ask("GET", "/a"), "phase_closed"),
        (Phase.CLOSED, PUBLISH, "phase_closed"),
        (Phase.READ_ONLY, PUBLISH, "write_in_read_only"),
        (Phase.READ_ONLY, AUTOSAVE, "write_in_read_only"),
        (Phase.READ_ONLY, ask("GET", "/list?page=2", sec_fetch_dest="document"), "safe"),
        (Phase.READ_ONLY, ask("GET", "/list?page=2&x", sec_fetch_dest="document"), "unlisted_document"),
        (Phase.READ_ONLY, ask("GET", "/list", host="other.example"), "unlisted_document"),
        (Phase.READ_ONLY, ask("GET", "/other", sec_fetch_dest="iframe"), "unlisted_document"),
        (Phase.READ_ONLY, ask("GET", "/other"), "unlisted_document"),
        (Phase.READ_ONLY, ask("GET", "/api/items?a=1", sec_fetch_dest="empty"), "safe"),
        (Phase.READ_ONLY, ask("GET", "/api/items?a=1", sec_fetch_dest="document"), "unlisted_document"),
        (Phase.READ_ONLY, ask("GET", "/api/other", sec_fetch_dest="empty"), "unlisted_fetch"),
        (Phase.READ_ONLY, ask("GET", "/w.js", sec_fetch_dest="sharedworker"), "unlisted_fetch"),
        (Phase.READ_ONLY, ask("GET", "/a.png", sec_fetch_dest="image", host="cdn.example"), "safe"),
        (Phase.READ_ONLY, ask("GET", "/a.png", sec_fetch_dest="something-new"), "unlisted_document"),
        (Phase.READ_ONLY, ask("GET", "/a.png", sec_fetch_dest="image", sec_purpose="prefetch"), "prefetch"),
        (Phase.ARMED, ask("GET", "/a", purpose="prefetch"), "prefetch"),
        (Phase.ARMED, ask("GET", "/a", sec_purpose="prefetch;prerender"), "prefetch"),
        (Phase.WATCH, ask("GET", "/a", upgrade="websocket", connection="Upgrade"), "websocket"),
        (Phase.PREPARE, ask("GET", "/a\\b"), "malformed_target"),
        (Phase.PREPARE, ask("GET", "http://x/"), "malformed_target"),
        (Phase.PREPARE, ask("OPTIONS", "*"), "malformed_target"),
        (Phase.PREPARE, ask("TRACE", "/"), "not_declared"),
    ],
)
def test_decision_table(phase: Phase, request_: OutgoingRequest, expected: str) -> None:
    assert said(phase, request_) == expected


@pytest.mark.parametrize(
    "request_",
    [
        ask("GET", "/posts/5?_method=PUT&status=publish"),
        ask("GET", "/posts/5?status=publish&%5Fmethod=PUT"),
        ask("GET", "/posts/5?.method=PUT"),
        ask("GET", "/posts/5?_method[]=PUT"),
        ask("GET", "/posts/5?a=b;_method=PUT"),
        ask("GET", "/posts/5?_METHOD=PUT"),
        ask("GET", "/posts/5", x_http_method_override="PUT"),
        replace(ask("GET", "/posts/5"), headers=(("x_http_method_override", "PUT"),)),
        ask("HEAD", "/posts/5", x_http_method="DELETE"),
        ask("OPTIONS", "/posts/5", x_method_override="PATCH"),
        ask("POST", "/posts/5?_method=DELETE", {"title": "x"}, x_http_method_override="PUT"),
    ],
)
def test_method_overrides_are_refused(request_: OutgoingRequest) -> None:
    assert overrides_method(request_)
    assert not is_safe(request_)
    for phase in set(Phase) - {Phase.CLOSED, Phase.WATCH}:
        assert said(phase, request_) == "method_override"


def test_override_names_of_the_flow_count() -> None:
    rules = replace(RULES, override_names=("x-verb", "action_method"))
    assert said(Phase.PREPARE, ask("GET", "/a", x_verb="DELETE"), rules) == "method_override"
    assert said(Phase.PREPARE, ask("GET", "/a?action_method=DELETE"), rules) == "method_override"
    assert said(Phase.PREPARE, ask("GET", "/a", x_verb="DELETE")) == "safe"


def test_a_declared_write_may_carry_one_override() -> None:
    """WordPress sends its writes as POST with X-HTTP-Method-Override: PUT."""
    assert said(Phase.PREPARE, replace(AUTOSAVE, headers=(*AUTOSAVE.headers, ("x-http-method-override", "PUT")))) == (
        "supporting"
    )


def test_an_override_to_the_effect_is_seen_as_the_effect() -> None:
    rules = replace(RULES, effect=replace(EFFECT, method="PUT"))
    disguised = replace(PUBLISH, headers=(*PUBLISH.headers, ("x-http-method-override", "put")))
    assert said(Phase.PREPARE, disguised, rules) == "effect_closed"
    assert said(Phase.ARMED, disguised, rules) == "ambiguous"


@pytest.mark.parametrize(
    "target", ["/act/publish?id=5", "/act//publish?id=5", "/act/%70ublish?id=5", "/act/publish/?id=5"]
)
@pytest.mark.parametrize("wanted", ["document", "image", "empty"])
@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_an_effect_by_get_is_never_a_safe_read(target: str, wanted: str, method: str) -> None:
    request = ask(method, target, sec_fetch_dest=wanted)
    for phase in (Phase.PREPARE, Phase.READ_ONLY, Phase.SHUT, Phase.LOGIN, Phase.REHEARSE):
        assert said(phase, request, LINK) == "effect_closed"
    exact = method == "GET" and target == "/act/publish?id=5"
    assert said(Phase.ARMED, request, LINK) == ("effect" if exact else "ambiguous")
    assert said(Phase.ARMED, ask("GET", "/act/publish", sec_fetch_dest=wanted), LINK) == "safe"


def test_ambiguity_is_refused() -> None:
    both = replace(RULES, supporting=(*RULES.supporting, write("too wide", r"/posts/\d+")))
    assert said(Phase.ARMED, PUBLISH, both) == "ambiguous"
    assert said(Phase.PREPARE, AUTOSAVE, both) == "ambiguous"
    assert said(Phase.PREPARE, PUBLISH, both) == "effect_closed"


def test_a_failing_predicate_refuses() -> None:
    effect = replace(RULES, effect=replace(EFFECT, matches=broken))
    supporting = replace(RULES, supporting=(*RULES.supporting, write("broken", "/media", broken)))
    count = replace(RULES, effect=replace(EFFECT, count=broken))
    assert said(Phase.PREPARE, AUTOSAVE, effect) == "predicate_failed"
    assert said(Phase.PREPARE, ask("POST", "/media", b"x"), supporting) == "predicate_failed"
    assert said(Phase.ARMED, PUBLISH, count) == "predicate_failed"


def test_a_body_that_nobody_sees_matches_only_what_does_not_read_it() -> None:
    upload = replace(ask("POST", "/media"), body_known=False)
    assert said(Phase.PREPARE, upload) == "supporting"
    assert said(Phase.PREPARE, replace(AUTOSAVE, body=b"", body_known=False)) == "body_unreadable"
    assert said(Phase.READ_ONLY, replace(ask("GET", "/list"), body_known=False)) == "write_in_read_only"


def test_trailing_writes_only_while_their_window_is_open() -> None:
    assert said(Phase.SHUT, ask("POST", "/unlock", b"x"), trailing_open=True) == "trailing"
    assert said(Phase.SHUT, AUTOSAVE, trailing_open=True) == "write_after_shut"
    assert said(Phase.ARMED, ask("POST", "/unlock", b"x"), trailing_open=True) == "not_declared"
    wide = replace(RULES, trailing=(write("too wide", r"/posts/\d+"),))
    assert said(Phase.SHUT, PUBLISH, wide, trailing_open=True) == "effect_closed"


def test_the_budget_of_reads_counts_pages_and_fetches() -> None:
    rules = replace(RULES, read_budget=1)
    page = ask("GET", "/list", sec_fetch_dest="document")
    assert said(Phase.READ_ONLY, page, rules, reads_so_far=0) == "safe"
    assert said(Phase.READ_ONLY, page, rules, reads_so_far=1) == "read_budget_spent"
    assert said(Phase.READ_ONLY, ask("GET", "/a.png", sec_fetch_dest="image"), rules, reads_so_far=9) == "safe"


@pytest.mark.parametrize(
    "request_",
    [
        ask("GET", "/a", b"x"),
        replace(ask("GET", "/a"), headers=(("transfer-encoding", "chunked"),)),
        replace(ask("GET", "/a"), headers=(("content-length", "0"), ("content-length", "3"))),
        ask("get", "/a"),
        ask("TRACE", "/a"),
        ask("PROPFIND", "/a"),
    ],
)
def test_not_safe(request_: OutgoingRequest) -> None:
    assert not is_safe(request_)


def test_could_be_the_effect_by_its_head() -> None:
    assert could_be_effect(RULES, AUTOSAVE)
    assert not could_be_effect(RULES, ask("POST", "/media"))
    assert not could_be_effect(RULES, replace(AUTOSAVE, host="other.example"))


def test_session_digest_names_values_and_patterns() -> None:
    def with_cookies(text: str) -> OutgoingRequest:
        return replace(ask("GET", "/"), headers=(("cookie", text),))

    one = session_digest_of(with_cookies("sid_a=1; other=2"), ["sid_*"])
    assert one == session_digest_of(with_cookies("other=3; sid_a=1"), ["sid_*"])
    assert one != session_digest_of(with_cookies("sid_a=2"), ["sid_*"])
    assert one != session_digest_of(with_cookies("sid_a=1; sid_a=2"), ["sid_*"])
    assert session_digest_of(with_cookies("xsid_a=1; [a]=1"), ["sid_*", "[ab]"]) is None
    assert session_digest_of(ask("GET", "/"), ["*"]) is None


METHODS = st.sampled_from(["GET", "HEAD", "OPTIONS", "POST", "PUT", "DELETE", "get", "TRACE"])
TARGETS = st.sampled_from(
    [
        "/",
        "/list",
        "/posts/5",
        "//posts/5",
        "/posts/5?_method=POST",
        "/media",
        "/unlock",
        "/login",
        "/act/publish?id=1",
        "/x y",
    ]
) | st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=12).map(lambda text: "/" + text)
HEADERS = st.lists(
    st.sampled_from(
        [
            ("sec-fetch-dest", "document"),
            ("sec-fetch-dest", "image"),
            ("sec-fetch-dest", "empty"),
            ("content-type", "application/json"),
            ("x-http-method-override", "POST"),
            ("transfer-encoding", "chunked"),
            ("sec-purpose", "prefetch"),
            ("upgrade", "websocket"),
        ]
    ),
    max_size=4,
).map(tuple)
BODIES = st.sampled_from(
    [b"", b'{"status": "publish"}', b'{"status": "publish", "items": [1, 2]}', b"{}", b"\xff", b'{"status": "draft"}']
)
REQUESTS = st.builds(
    OutgoingRequest,
    METHODS,
    st.just("https"),
    st.sampled_from(["site.example", "other.example"]),
    st.just(443),
    TARGETS,
    HEADERS,
    BODIES,
    st.booleans(),
)


@given(request=REQUESTS, rules=st.sampled_from([RULES, LINK]), trailing=st.booleans(), phase=st.sampled_from(Phase))
def test_what_no_request_ever_reaches(request: OutgoingRequest, rules: Rules, trailing: bool, phase: Phase) -> None:
    decision = decide(phase, rules, request, trailing_open=trailing)
    if phase is not Phase.ARMED:
        assert decision.kind is not Kind.EFFECT
    if phase in (Phase.READ_ONLY, Phase.CLOSED) and not is_safe(request):
        assert not decision.passes
    if phase is Phase.CLOSED:
        assert decision.reason is Reason.PHASE_CLOSED
    if decision.kind is Kind.SAFE:
        assert is_safe(request)
    if decision.kind is Kind.EFFECT:
        assert rules.effect is not None
        assert rules.effect.fits(request, SITE)
        assert rules.effect.count(request) == 1
    if decision.kind is Kind.TRAILING:
        assert trailing
        assert phase is Phase.SHUT
    if request.header("sec-purpose") or request.header("upgrade"):
        assert not decision.passes
