"""A small, lenient GraphQL executor's reading of a request: which top fields it would carry out, in order.

It takes what servers in use take (batches, several operations, GET, mutations by GET) and does not validate: a site is
not obliged to be strict, and tests shall see what a lenient one would have done. No schema, no I/O.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from playground.messages import BadBody, Request

_TOKEN = re.compile(r'"""(?:[^"]|"(?!""))*"""|"(?:[^"\\\n]|\\.)*"|[_A-Za-z]\w*|-?\d+(?:\.\d+)?|\.\.\.|[^\s,]')
_COMMENT = re.compile(r'("""(?:[^"]|"(?!""))*"""|"(?:[^"\\\n]|\\.)*")|#[^\n]*')


@dataclass(frozen=True)
class Step:
    """One top field to carry out: under which name its result is given back, and with which arguments."""

    key: str
    name: str
    arguments: dict[str, Any]
    mutation: bool


def batches(request: Request) -> tuple[list[list[Step]], bool]:
    """The steps of each call of the request, and whether it was a batch. Raises BadBody."""
    if request.method in ("GET", "HEAD"):
        value: Any = {name: request.query[name] for name in ("query", "operationName") if name in request.query}
        value["variables"] = json.loads(request.query.get("variables") or "{}")
    else:
        try:
            value = json.loads(request.body)
        except ValueError as error:
            raise BadBody("Send JSON.") from error
    calls = value if isinstance(value, list) else [value]
    try:
        return [_steps(call) for call in calls], isinstance(value, list)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise BadBody("This is not GraphQL.") from error


def _steps(call: dict[str, Any]) -> list[Step]:
    reader = _Reader(_COMMENT.sub(lambda found: found[1] or "", call["query"]))
    operations, fragments = reader.document()
    wanted = call.get("operationName") or next(iter(operations))
    kind, selections = operations[wanted]
    variables = call.get("variables") or {}
    steps = []
    for key, name, arguments in _flat(selections, fragments):
        given = {argument: _put_in(value, variables) for argument, value in arguments.items()}
        steps.append(Step(key, name, given, kind == "mutation"))
    return steps


def _flat(selections: list[Any], fragments: dict[str, list[Any]]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for one in selections:
        if isinstance(one, tuple):
            yield one
        else:
            yield from _flat(one if isinstance(one, list) else fragments[one], fragments)


def _put_in(value: Any, variables: dict[str, Any]) -> Any:
    return variables.get(value[1]) if isinstance(value, tuple) else value


class _Reader:
    def __init__(self, text: str) -> None:
        self._tokens = _TOKEN.findall(text)

    def document(self) -> tuple[dict[str, tuple[str, list[Any]]], dict[str, list[Any]]]:
        operations: dict[str, tuple[str, list[Any]]] = {}
        fragments: dict[str, list[Any]] = {}
        while self._tokens:
            kind = "query" if self._tokens[0] == "{" else self._tokens.pop(0)
            name = self._tokens.pop(0) if self._tokens[0] not in "{(@" else ""
            while self._tokens[0] != "{":
                self._tokens.pop(0)  # variables and their types, directives, "on Type"
            selections = self._selections()
            if kind == "fragment":
                fragments[name] = selections
            else:
                operations[name] = (kind, selections)
        return operations, fragments

    def _selections(self) -> list[Any]:
        self._tokens.pop(0)
        found: list[Any] = []
        while self._tokens[0] != "}":
            if self._take("..."):
                found.append(self._spread())
                continue
            key = name = self._tokens.pop(0)
            if self._take(":"):
                name = self._tokens.pop(0)
            arguments = {}
            if self._take("("):
                while not self._take(")"):
                    argument = self._tokens.pop(0)
                    self._tokens.pop(0)
                    arguments[argument] = self._value()
            if self._tokens[0] == "{":
                self._selections()
            found.append((key, name, arguments))
        self._tokens.pop(0)
        return found

    def _spread(self) -> Any:
        if self._take("on"):
            self._tokens.pop(0)
        return self._selections() if self._tokens[0] == "{" else self._tokens.pop(0)

    def _value(self) -> Any:
        token = self._tokens.pop(0)
        if token == "$":
            return ("variable", self._tokens.pop(0))
        if token.startswith('"""'):
            return token[3:-3]
        if token.startswith('"') or token in ("true", "false", "null") or re.fullmatch(r"-?\d+(\.\d+)?", token):
            return json.loads(token)
        return token

    def _take(self, token: str) -> bool:
        if self._tokens[0] != token:
            return False
        self._tokens.pop(0)
        return True
