"""GraphQL as a predicate reads it: which operation the site will execute, its top fields, and their arguments.

Reads executable documents by the grammar of the GraphQL specification (October 2021, section 2) and requests by GraphQL
over HTTP. It knows no schema and executes nothing. What it does not understand is `UnreadableBody`, never a guess: a
stored operation whose text is not in the request, a document with an error, a parameter that is given twice.

A parser of its own, since a general one answers another question. What has to be known here is what leaves at most (a
field under `@skip` counts, a fragment counts where it is spread, an argument counts as it will be executed and not as
the variables beside it say), in bounded time and depth.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flows.bodies import UnreadableBody, strict_json
from flows.graphql_document import (
    ABSENT,
    MAX_DEPTH,
    Document,
    Kind,
    NotADocument,
    Operation,
    Parser,
    Selection,
    Top,
    Variable,
)

if TYPE_CHECKING:
    from flows.wire import OutgoingRequest

MAX_FIELDS = 1_000
"""Top fields of one operation, fragments expanded: spreads in spreads double at every step."""

PARAMETERS = ("query", "operationName", "variables", "extensions")
"""What a request may name (GraphQL over HTTP, section 5.2)."""
_STORED = ("id", "queryId", "query_id", "documentId", "documentID", "doc_id", "hash")
"""Names by which servers take a stored operation; beside a text one of the two would win."""


@dataclass(frozen=True)
class Field:
    """A top field of an operation: its name (not its alias), and its arguments with the variables put in. An enum value
    is its name as text; an argument whose variable was not given and has no default is left out."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """One operation that the site will execute. `kinds` are those of every operation in its document."""

    kind: Kind
    name: str | None
    fields: tuple[Field, ...]
    variables: Mapping[str, Any]
    kinds: frozenset[Kind]

    @property
    def mutations(self) -> tuple[Field, ...]:
        """The top fields when it is a mutation: each is one write."""
        return self.fields if self.kind == "mutation" else ()


# What flows ask


def mutations(request: OutgoingRequest) -> tuple[Field, ...]:
    """Every mutation field that the request would execute, in order, over all calls of a batch."""
    return tuple(field for call in request.graphql for field in call.mutations)


def count(request: OutgoingRequest) -> int:
    """How many mutation fields the request would execute: the `count` of an effect that is one of them."""
    return len(mutations(request))


def is_query(request: OutgoingRequest) -> bool:
    """Whether the request holds nothing but queries: every operation of every document, executed or not."""
    return bool(request.graphql) and all(call.kinds == {"query"} for call in request.graphql)


def mutates(request: OutgoingRequest, *names: str) -> bool:
    """Whether the request is one call, a mutation with exactly these top fields."""
    calls = request.graphql
    return len(calls) == 1 and bool(names) and tuple(field.name for field in calls[0].mutations) == names


def may_mutate_by_address(request: OutgoingRequest) -> bool:
    """Whether a request of a safe method carries what a lenient server would execute as a mutation. Wide on purpose,
    and asked of every read: the keyword and a brace are enough, a document with an error included."""
    if "mutation" not in request.target.lower() and "%" not in request.target:
        return False
    return any("mutation" in value and "{" in value for _, value in request.query)


# Requests


def read(request: OutgoingRequest) -> tuple[Call, ...]:
    """What `OutgoingRequest.graphql` gives: one call, or those of a batch in order. Raises `UnreadableBody`."""
    if request.method in ("GET", "HEAD"):
        given: dict[str, Any] = {name: request.query_value(name) for name in PARAMETERS}
        for name in ("variables", "extensions"):
            given[name] = strict_json(given[name].encode()) if given[name] else None
        _no_other(request, _STORED)
        return (_call({name: value for name, value in given.items() if value is not None}),)
    # Some servers let the address win over the body, others the body over the address.
    _no_other(request, (*PARAMETERS, *_STORED))
    value = request.json
    if not isinstance(value, list):
        return (_call(value),)
    if not value:
        raise UnreadableBody("an empty GraphQL batch")
    return tuple(_call(one) for one in value)


def _no_other(request: OutgoingRequest, names: Sequence[str]) -> None:
    for name in names:
        if request.query_value(name) is not None:
            raise UnreadableBody(f"the address of the GraphQL request names {name!r} as well")


def _call(value: object) -> Call:
    if not isinstance(value, dict):
        raise UnreadableBody("a GraphQL request is an object or a list of objects")
    if unknown := sorted(set(value) - set(PARAMETERS)):
        raise UnreadableBody(f"the GraphQL request has members beyond those of the specification: {len(unknown)}")
    text, wanted = value.get("query"), value.get("operationName")
    variables, extensions = value.get("variables"), value.get("extensions")
    if not isinstance(text, str):
        raise UnreadableBody("the GraphQL request names a stored operation; its text is not in the request")
    if wanted is not None and (not isinstance(wanted, str) or not wanted):
        raise UnreadableBody("the GraphQL operationName is no name")
    if not isinstance(variables, dict | None) or not isinstance(extensions, dict | None):
        raise UnreadableBody("GraphQL variables and extensions are objects")
    stored = (extensions or {}).get("persistedQuery")
    if stored is not None:
        digest = stored.get("sha256Hash") if isinstance(stored, dict) else None
        if digest != hashlib.sha256(text.encode()).hexdigest():
            raise UnreadableBody("the GraphQL request names a stored operation other than its text")
    try:
        document = Parser(text).document()
    except NotADocument as error:
        raise UnreadableBody(str(error)) from error
    return _executed(document, wanted, variables or {})


def _executed(document: Document, wanted: str | None, variables: dict[str, Any]) -> Call:
    """The operation that is executed (specification, section 6.1), fragments expanded and variables put in."""
    operations = document.operations
    chosen = [one for one in operations if wanted in (None, one.name)]
    if len(chosen) != 1:
        raise UnreadableBody("the GraphQL document holds no operation of that name, or several without a choice")
    operation = chosen[0]
    values = {name: default for name, default in operation.variables.items() if default is not ABSENT}
    values |= {name: value for name, value in variables.items() if name in operation.variables}
    fields: list[Field] = []
    for name, arguments in _expanded(operation.selections, document.fragments, frozenset()):
        if len(fields) >= MAX_FIELDS:
            raise UnreadableBody(f"the GraphQL operation has more than {MAX_FIELDS} top fields")
        put_in = {key: _put_in(value, values, operation) for key, value in arguments.items()}
        fields.append(Field(name, {key: value for key, value in put_in.items() if value is not ABSENT}))
    return Call(operation.kind, operation.name, tuple(fields), values, frozenset(one.kind for one in operations))


def _expanded(
    selections: tuple[Selection, ...], fragments: Mapping[str, tuple[Selection, ...]], inside: frozenset[str]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for one in selections:
        if isinstance(one, Top):
            yield one.name, one.arguments
        elif isinstance(one, tuple):
            yield from _expanded(one, fragments, inside)
        elif one.name in inside or one.name not in fragments or len(inside) >= MAX_DEPTH:
            raise UnreadableBody("a GraphQL fragment is missing, or spreads itself")
        else:
            yield from _expanded(fragments[one.name], fragments, inside | {one.name})


def _put_in(value: Any, variables: Mapping[str, Any], operation: Operation) -> Any:
    if isinstance(value, Variable):
        if value.name not in operation.variables:
            raise UnreadableBody("the GraphQL operation uses a variable that it does not declare")
        return variables.get(value.name, ABSENT)
    if isinstance(value, list):
        return [None if (one := _put_in(part, variables, operation)) is ABSENT else one for part in value]
    if isinstance(value, dict):
        put_in = {key: _put_in(part, variables, operation) for key, part in value.items()}
        return {key: part for key, part in put_in.items() if part is not ABSENT}
    return value
