"""A view may declare POSTs that only read (C7). What they may never do: carry a write, pass as one, or go uncounted."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import pytest
from gate_support import RecordingDoor, rules_for
from hypothesis import given
from hypothesis import strategies as st

from executor.gate.rules import Kind, Phase, Reason, Rules, decide
from executor.gate.wire_log import WireLog
from flows import graphql
from flows.bodies import Upload
from flows.declarations import problem
from flows.effect import Effect, Read, Write
from flows.flow import Intent, view
from flows.observations import Observation
from flows.pages import ReadOnlyPage
from flows.playground_api import PlaygroundGraph
from flows.playground_views import Announcement
from flows.wire import OutgoingRequest

SITE = "https://site.example"
FORM = "application/x-www-form-urlencoded"
QUERY = "query Mine { notices { id } }"
PUBLISH = "mutation Publish { publishNotice { id } }"


def ask(target: str, body: Any = None, *, method: str = "POST", host: str = "site.example", **headers: str) -> Any:
    pairs = {"content-type": "application/json", "sec-fetch-dest": "empty"}
    pairs |= {name.replace("_", "-"): value for name, value in headers.items()}
    data = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    if data:
        pairs["content-length"] = str(len(data))
    return OutgoingRequest(method, "https", host, 443, target, tuple(pairs.items()), data)


def publishes(request: OutgoingRequest) -> bool:
    return any(field.name == "publishNotice" for field in graphql.mutations(request))


RULES = Rules(
    destination_origin=SITE,
    effect=Effect(
        name="notice published",
        method="POST",
        path="/graphql",
        matches=publishes,
        count=graphql.count,
        material=lambda request: {},
    ),
    supporting=(Write(name="query", method="POST", path="/graphql", matches=graphql.is_query, may_cause_effect=False),),
    opens=("/mine",),
    reads=(
        Read(name="query", path="/graphql", matches=graphql.is_query),
        Read(name="search", path="/search", matches=lambda request: set(request.json) == {"terms"}),
    ),
    read_budget=5,
)


def said(request: OutgoingRequest, rules: Rules = RULES, phase: Phase = Phase.READ_ONLY, **more: Any) -> str:
    decision = decide(phase, rules, request, **more)
    return decision.reason.value if decision.reason else f"{decision.kind.value} {decision.declared or ''}".strip()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask("/graphql", {"query": QUERY}), "read query"),
        (ask("/graphql", [{"query": QUERY}, {"query": "{ me }"}]), "read query"),
        (ask("/search", {"terms": "mutation { publishNotice }"}), "read search"),
        # A mutation, however it is dressed.
        (ask("/graphql", {"query": PUBLISH}), "effect_closed"),
        (ask("/graphql", {"query": "mutation { deleteNotice(id: 1) }"}), "write_in_read_only"),
        (ask("/graphql", {"query": "# query\nmutation query { publishNotice { id } }"}), "effect_closed"),
        (ask("/graphql", [{"query": QUERY}, {"query": PUBLISH}]), "effect_closed"),
        (ask("/graphql", [{"query": QUERY}, {"query": "mutation { other }"}]), "write_in_read_only"),
        (ask("/graphql", {"query": f"{QUERY} {PUBLISH}", "operationName": "Mine"}), "write_in_read_only"),
        (ask("/graphql", {"query": f"{QUERY} {PUBLISH}", "operationName": "Publish"}), "effect_closed"),
        (ask("/graphql", {"query": "subscription { noticeAdded { id } }"}), "write_in_read_only"),
        (ask("/graphql", {"extensions": {"persistedQuery": {"sha256Hash": "0" * 64}}}), "body_unreadable"),
        (ask("/graphql", {"query": QUERY, "id": "stored"}), "body_unreadable"),
        (ask(f"/graphql?query={quote(PUBLISH)}", {"query": QUERY}), "body_unreadable"),
        (ask("/graphql", QUERY.encode(), content_type="application/graphql"), "body_unreadable"),
        (ask("/graphql", f"query={quote(QUERY)}".encode(), content_type="application/x-www-form-urlencoded"),
         "body_unreadable"),
        (ask("/graphql", {"query": QUERY}, content_encoding="gzip"), "body_unreadable"),
        (ask("/search", [{}]), "predicate_failed"),
        (ask("/search", {"terms": "x", "delete": 1}), "write_in_read_only"),
        # Another method.
        (ask("/graphql", {"query": QUERY}, method="PUT"), "write_in_read_only"),
        (ask("/graphql", {"query": QUERY}, method="post"), "write_in_read_only"),
        (ask("/graphql", {"query": QUERY}, method="GET"), "write_in_read_only"),
        (ask("/graphql", {"query": QUERY}, x_http_method_override="DELETE"), "method_override"),
        (ask("/search?_method=PUT", {"terms": "x"}), "method_override"),
        (ask("/search", {"terms": "x", "_method": "DELETE"}), "method_override"),
        (ask(f"/graphql?query={quote(PUBLISH)}", method="GET"), "method_override"),
        (ask(f"/mine?query={quote(PUBLISH)}", method="GET", sec_fetch_dest="document"), "method_override"),
        (ask(f"/a.png?x={quote(PUBLISH)}", method="GET", sec_fetch_dest="image"), "method_override"),
        # Another place.
        (ask("/graphql", {"query": QUERY}, host="other.example"), "write_in_read_only"),
        (ask("/graphql/", {"query": QUERY}), "write_in_read_only"),
        (ask("//graphql", {"query": QUERY}), "write_in_read_only"),
        (ask("/elsewhere", {"query": QUERY}), "write_in_read_only"),
    ],
)  # fmt: skip
def test_a_declared_read(request_: OutgoingRequest, expected: str) -> None:
    assert said(request_) == expected


def test_counts_as_a_read_whatever_it_is_for() -> None:
    request = ask("/graphql", {"query": QUERY}, sec_fetch_dest="image")
    assert said(request, reads_so_far=4) == "read query"
    assert said(request, reads_so_far=5) == Reason.READ_BUDGET_SPENT


def test_is_one_of_the_view_and_of_no_other_phase() -> None:
    request = ask("/graphql", {"query": QUERY})
    assert said(request, replace(RULES, reads=())) == Reason.WRITE_IN_READ_ONLY
    assert said(request, replace(RULES, reads=RULES.reads * 2)) == Reason.AMBIGUOUS
    assert said(request, phase=Phase.PREPARE) == "supporting query"
    for phase in (Phase.SHUT, Phase.LOGIN, Phase.CLOSED, Phase.REHEARSE, Phase.ARMED):
        assert decide(phase, RULES, request).kind is not Kind.READ
    assert said(ask("/search", {"terms": "x"}), phase=Phase.PREPARE) == Reason.NOT_DECLARED


def test_a_body_that_nobody_sees_does_not_pass() -> None:
    anything = Read(name="any", path="/graphql", matches=lambda request: True)
    request = replace(ask("/graphql"), body_known=False)
    assert said(request, replace(RULES, reads=(anything,))) == Reason.BODY_UNREADABLE


def test_a_read_that_fits_the_effect_too_does_not_pass() -> None:
    anything = Read(name="any", path="/graphql", matches=lambda request: True)
    assert said(ask("/graphql", {"query": PUBLISH}), replace(RULES, reads=(anything,))) == Reason.EFFECT_CLOSED


def test_is_logged_by_name() -> None:
    log, request = WireLog(), ask("/graphql", {"query": QUERY})
    entry = log[log.record(Phase.READ_ONLY, request, decide(Phase.READ_ONLY, RULES, request))]
    assert (entry.kind, entry.write) == (Kind.READ, "query")
    log.leaving(entry.sequence)
    assert log.writes_left_since(monotonic=0) == ()


def test_a_mutation_in_an_address_is_no_read_in_any_phase() -> None:
    request = ask(f"/graphql?query={quote('mutation { a: publishNotice b: publishNotice }')}", method="GET")
    for phase in (Phase.PREPARE, Phase.ARMED, Phase.SHUT, Phase.LOGIN, Phase.REHEARSE):
        assert said(request, phase=phase) == Reason.METHOD_OVERRIDE
    assert RULES.effect is not None
    by_address = replace(RULES, effect=replace(RULES.effect, method="GET"))
    assert said(request, by_address, Phase.ARMED) == Reason.EFFECT_COUNT
    assert said(request, by_address, Phase.PREPARE) == Reason.EFFECT_CLOSED


_PARTS = st.sampled_from(
    ["query", "mutation", " ", "{", "}", "A", "publishNotice", "#", "\n", '"', "...", ":", "(", ")"]
)


@given(st.lists(_PARTS, max_size=14).map("".join), st.sampled_from([None, "A", ""]), st.booleans())
def test_what_passes_as_a_read_holds_no_mutation(text: str, name: str | None, batch: bool) -> None:
    value = {"query": text, "operationName": name}
    request = ask("/graphql", [value] if batch else value)
    if decide(Phase.READ_ONLY, RULES, request).kind is Kind.READ:
        assert all(call.kinds == {"query"} and not call.mutations for call in request.graphql)


@pytest.mark.parametrize(
    ("read", "said"),
    [
        (Read(name=" ", path="/graphql", matches=graphql.is_query), "without a name"),
        (Read(name="query", path="(", matches=graphql.is_query), "no regular expression"),
        (Read(name="query", path="/graphql", matches=graphql.is_query, method="PUT"), "only a POST"),
        ("/graphql", "is no Read"),
    ],
)
def test_a_declaration_that_is_not_complete_is_named(read: Any, said: str) -> None:
    class Broken(PlaygroundGraph):
        @view("mine", opens=("/graph/mine",), reads=(read,))
        async def mine(self, page: ReadOnlyPage, intent: Intent[Announcement]) -> Observation:
            raise NotImplementedError

    assert said in (problem(Broken) or "")
    assert problem(PlaygroundGraph) is None


# On real sockets


async def test_passes_once_for_each_of_the_budget_however_many_ask_at_once(origin, make_gate, connect) -> None:
    query = Read(name="query", path="/graphql", matches=graphql.is_query)
    gate = await make_gate(origin, Phase.READ_ONLY, rules=rules_for(origin, reads=(query,), read_budget=3))
    clients = [await connect(gate, origin.url) for _ in range(6)]
    body = json.dumps({"query": QUERY}).encode()
    answers = await asyncio.gather(
        *(one.ask("POST", "/graphql", body, Content_Type="application/json") for one in clients)
    )
    assert sorted(answer.status for answer in answers)[:3] == [200] * 3
    assert [answer.interlock for answer in answers].count("read_budget_spent") == 3
    refused = await clients[0].ask(
        "POST", "/graphql", json.dumps({"query": PUBLISH}).encode(), Content_Type="application/json"
    )
    assert refused.interlock == "write_in_read_only"
    assert [(one.method, one.target) for one in origin.seen] == [("POST", "/graphql")] * 3
    assert [entry.write for entry in gate.log if entry.kind is Kind.READ and entry.bytes_out] == ["query"] * 3


async def test_a_large_form_is_read_by_its_fields_and_the_digests_of_its_files(origin, make_gate, connect) -> None:
    file = b"x" * 5000
    seen = []

    def publishes(request: OutgoingRequest) -> bool:
        seen.append((request.body, request.body_size, request.form.upload("image")))
        return request.form.get("do") == "publish"

    effect = Effect(name="p", method="POST", path="/publish", matches=publishes, material=lambda request: {})
    door = RecordingDoor()
    gate = await make_gate(
        origin, Phase.ARMED, rules=rules_for(origin, effect=effect, supporting=()), door=door, readable_bytes=1000
    )
    client = await connect(gate, origin.url)
    body = (
        b'--b\r\nContent-Disposition: form-data; name="do"\r\n\r\npublish\r\n'
        b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n'
        + file
        + b"\r\n--b--\r\n"
    )
    answer = await client.ask("POST", "/publish", body, Content_Type="multipart/form-data; boundary=b")
    assert answer.status == 200
    upload = Upload("image", "a.png", "image/png", 5000, hashlib.sha256(file).hexdigest())
    assert seen[0] == (b"", len(body), upload)
    assert [one.body for one in origin.seen] == [body]
    for broken in (body[:-6], body.replace(b"--b--", b"--b-x")):
        got = await client.ask("POST", "/publish", broken, Content_Type="multipart/form-data; boundary=b")
        assert got.interlock == "body_unreadable"
    other = await client.ask("POST", "/publish", b"do=publish&a=" + file, Content_Type=FORM)
    assert other.interlock == "body_unreadable"
    assert len(door.candidates) == 1
