"""GraphQL as predicates read it: what would be executed, however the document is dressed."""

from __future__ import annotations

import hashlib
import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows import graphql
from flows.graphql_document import MAX_DEPTH, MAX_TOKENS, NotADocument, Parser
from flows.wire import OutgoingRequest, UnreadableBody

PUBLISH = "mutation Publish($title: String!) { publishNotice(title: $title) { id } }"


def post(value: Any, *, target: str = "/graphql", content_type: str = "application/json") -> OutgoingRequest:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    headers = (("content-type", content_type),)
    return OutgoingRequest("POST", "https", "site.example", 443, target, headers, body)


def get(target: str) -> OutgoingRequest:
    return OutgoingRequest("GET", "https", "site.example", 443, target)


def names(request: OutgoingRequest) -> list[str]:
    return [field.name for field in graphql.mutations(request)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mutation { publishNotice { id } }", ["publishNotice"]),
        ("mutation{a:publishNotice{id}b:publishNotice{id}}", ["publishNotice", "publishNotice"]),
        (
            "mutation { ...A } fragment A on Mutation { publishNotice { id } saveDraft { id } }",
            ["publishNotice", "saveDraft"],
        ),
        ("mutation { ...A ...A } fragment A on Mutation { publishNotice { id } }", ["publishNotice"] * 2),
        (
            "mutation { ... on Mutation { publishNotice { id } } ... @include(if: true) { saveDraft } }",
            ["publishNotice", "saveDraft"],
        ),
        ("mutation { publishNotice @skip(if: true) { id } }", ["publishNotice"]),
        ('# mutation { a }\nquery { notices(search: "mutation { b }") { id } }', []),
        ('query { notices(search: """\nmutation { b }\n\\""" } mutation { c }\n""") { id } }', []),
        ("{ mutation { id } }", []),
        ("query mutation { notices { id } }", []),
        ("\ufeffmutation,,,{,publishNotice,}", ["publishNotice"]),
        ("subscription { noticeAdded { id } }", []),
    ],
)
def test_counts_what_would_be_executed(text: str, found: list[str]) -> None:
    request = post({"query": text})
    assert names(request) == found
    assert graphql.count(request) == len(found)


def test_the_operation_name_chooses() -> None:
    text = "query Read { notices { id } } mutation Publish { publishNotice { id } }"
    assert names(post({"query": text, "operationName": "Publish"})) == ["publishNotice"]
    read = post({"query": text, "operationName": "Read"})
    assert names(read) == []
    assert not graphql.is_query(read), "what is not executed may be, by a server that chooses otherwise"


def test_a_batch_is_all_of_its_calls() -> None:
    batch = post([{"query": "{ notices { id } }"}, {"query": PUBLISH, "variables": {"title": "T"}}, {"query": PUBLISH}])
    assert names(batch) == ["publishNotice", "publishNotice"]
    assert not graphql.is_query(batch)
    assert not graphql.mutates(batch, "publishNotice")
    assert graphql.is_query(post([{"query": "{ notices { id } }"}, {"query": "query B { notices { id } }"}]))


class TestArguments:
    @staticmethod
    def arguments(text: str, variables: dict[str, Any] | None = None) -> dict[str, Any]:
        fields = graphql.mutations(post({"query": text, "variables": variables}))
        assert len(fields) == 1
        return dict(fields[0].arguments)

    def test_are_what_is_executed_and_not_what_the_variables_say(self) -> None:
        text = 'mutation($title: String) { publishNotice(title: "another", body: $title) }'
        assert self.arguments(text, {"title": "approved"}) == {"title": "another", "body": "approved"}

    def test_take_defaults_and_leave_out_what_is_absent(self) -> None:
        declared = '$a: String = "A", $b: String = "B", $c: [Int!]! = [1, 2], $d: X'
        text = f"mutation({declared}) {{ p(a: $a, b: $b, c: $c, d: $d) }}"
        assert self.arguments(text, {"b": None, "unasked": 1}) == {"a": "A", "b": None, "c": [1, 2]}

    def test_of_every_kind(self) -> None:
        text = r'mutation { p(i: -1, f: 1.5e2, s: "a\"\u0062\n", t: true, n: null, e: PUBLISHED, o: {a: [{b: []}]}) }'
        assert self.arguments(text) == {
            "i": -1,
            "f": 150.0,
            "s": 'a"b\n',
            "t": True,
            "n": None,
            "e": "PUBLISHED",
            "o": {"a": [{"b": []}]},
        }

    def test_block_strings_lose_their_common_indentation(self) -> None:
        text = 'mutation { p(s: """\n\n    Hello,\n      World!\r\n\n    Yours,\n      "GraphQL" \\"""\n  """) }'
        assert self.arguments(text) == {"s": 'Hello,\n  World!\n\nYours,\n  "GraphQL" """'}

    def test_variables_inside_values(self) -> None:
        text = "mutation($t: String!, $gone: Int) { p(input: {title: $t, tags: [$t, $gone], rank: $gone}) }"
        assert self.arguments(text, {"t": "T"}) == {"input": {"title": "T", "tags": ["T", None]}}


STORED = {"persistedQuery": {"version": 1, "sha256Hash": hashlib.sha256(PUBLISH.encode()).hexdigest()}}

DOUBLING = "{ ...F0 } fragment F20 on Q { a } " + " ".join(
    f"fragment F{n} on Q {{ ...F{n + 1} ...F{n + 1} }}" for n in range(20)
)


@pytest.mark.parametrize(
    "value",
    [
        {"extensions": STORED, "variables": {}},
        {"query": PUBLISH + " ", "extensions": STORED},
        {"query": PUBLISH, "extensions": {"persistedQuery": "x"}},
        {"doc_id": "1", "query": PUBLISH},
        {"id": "1"},
        {"query": None},
        {"query": PUBLISH, "operationName": ""},
        {"query": PUBLISH, "operationName": "Other"},
        {"query": PUBLISH, "variables": "{}"},
        {"query": PUBLISH, "variables": [1]},
        {"query": "query A { a } query B { b }"},
        {"query": "query A { a } mutation A { b }", "operationName": "A"},
        {"query": "{ a } mutation { b }"},
        {"query": ""},
        {"query": "fragment A on B { c }"},
        {"query": "{ ...A }"},
        {"query": "{ ...A } fragment A on B { ...A }"},
        {"query": "{ ...A } fragment A on B { ...C } fragment C on B { ...A }"},
        {"query": "{ ...A } fragment A on B { c } fragment A on B { d }"},
        {"query": "{ }"},
        {"query": "{ a"},
        {"query": "{ a } }"},
        {"query": "{ a(b: 1, b: 2) }"},
        {"query": "{ a(b: {c: 1, c: 2}) }"},
        {"query": "{ a(b: $c) }"},
        {"query": "query($a: Int, $a: Int) { a }"},
        {"query": "query($a: Int = $b) { a }"},
        {"query": "{ a(b: 01) }"},
        {"query": "{ a(b: 1x) }"},
        {"query": "{ a(b: " + "9" * 5000 + ") }"},
        {"query": '{ a(b: "x\ny") }'},
        {"query": '{ a(b: "\\x41") }'},
        {"query": '{ a(b: "\\ud800") }'},
        {"query": '{ a(b: """x) } mutation { p }'},
        {"query": "{ a \x00 }"},
        {"query": "type A { b: C }"},
        {"query": "extend schema { query: Q }"},
        {"query": '"described" query { a }'},
        {"query": "{ " + "a { " * (MAX_DEPTH + 2) + "b" + " }" * (MAX_DEPTH + 3)},
        {"query": "{ a(b: " + "[" * (MAX_DEPTH + 2) + "]" * (MAX_DEPTH + 2) + ") }"},
        {"query": "{ " + "a " * (MAX_TOKENS + 1) + "}"},
        {"query": DOUBLING},
        [],
        [1],
        "query { a }",
        b'{"query": "{ a }", "query": "mutation { b }"}',
    ],
)
def test_what_is_not_understood_is_unreadable(value: Any) -> None:
    for ask in (graphql.mutations, graphql.is_query, graphql.count):
        with pytest.raises(UnreadableBody):
            ask(post(value))


def test_the_text_of_a_stored_operation_counts_where_it_is_there() -> None:
    assert names(post({"query": PUBLISH, "extensions": STORED, "variables": {"title": "T"}})) == ["publishNotice"]


@pytest.mark.parametrize("name", ["query", "operationName", "variables", "extensions", "id", "doc_id"])
def test_an_address_that_speaks_too_is_unreadable(name: str) -> None:
    with pytest.raises(UnreadableBody):
        graphql.is_query(post({"query": "{ notices { id } }"}, target=f"/graphql?{name}=x"))


@pytest.mark.parametrize(
    "content_type",
    ["application/graphql", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain", ""],
)
def test_another_encoding_is_unreadable(content_type: str) -> None:
    with pytest.raises(UnreadableBody):
        graphql.is_query(post({"query": "{ notices { id } }"}, content_type=content_type))


class TestByAddress:
    def test_is_read_as_a_body_is(self) -> None:
        request = get(f"/graphql?query={quote(PUBLISH)}&variables={quote(json.dumps({'title': 'T'}))}")
        assert [dict(field.arguments) for field in graphql.mutations(request)] == [{"title": "T"}]
        assert graphql.is_query(get("/graphql?query=%7Bnotices%7Bid%7D%7D"))

    @pytest.mark.parametrize(
        "query", ["query={a}&query={b}", "query={a}&variables=1", "query={a}&variables={", "id=1", "query={a}&id=1", ""]
    )
    def test_unreadable(self, query: str) -> None:
        with pytest.raises(UnreadableBody):
            graphql.is_query(get(f"/graphql?{query}"))

    @pytest.mark.parametrize(
        ("target", "may"),
        [
            (f"/graphql?query={quote(PUBLISH)}", True),
            ("/graphql?QUERY=mutation%7Bp%7D", True),
            ("/x?a=1&b=%6d%75tation%20%7Bp", True),
            ("/search?q=mutation", False),
            ("/graphql?query=%7Bnotices%7D", False),
            ("/mutation/%7B", False),
        ],
    )
    def test_a_mutation_behind_a_safe_method_is_seen(self, target: str, may: bool) -> None:
        assert graphql.may_mutate_by_address(get(target)) is may


@given(st.text(alphabet='{}()[]$!@:="\\#.,\n a1_-mutation', max_size=60))
def test_any_text_is_a_document_or_is_none(text: str) -> None:
    """Never another error, and never a count above zero without the keyword outside strings and comments."""
    try:
        document = Parser(text).document()
    except NotADocument:
        return
    if any(one.kind == "mutation" for one in document.operations):
        assert "mutation" in text
