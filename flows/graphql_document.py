"""The grammar of GraphQL documents: text to operations and fragments, with every top field and its arguments.

The executable part of the specification (October 2021, section 2) and nothing else: no schema definitions, no guess at
what is not in the grammar, bounded in tokens and in depth. Pure, and without knowledge of requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

MAX_TOKENS = 20_000
"""Of one document. The editors of large products stay below a tenth of it."""
MAX_DEPTH = 100
"""Of selections, and of values in values."""

Kind = Literal["query", "mutation", "subscription"]


class NotADocument(ValueError):
    """The text is not an executable document; the message says why and holds nothing of it."""


ABSENT: Any = object()
"""The default of a variable that has none."""


@dataclass(frozen=True)
class Variable:
    name: str


@dataclass(frozen=True)
class Top:
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Spread:
    name: str


Selection = Any  # of Top, Spread, and a tuple of selections (an inline fragment); mypy has no recursive alias here


@dataclass(frozen=True)
class Operation:
    kind: Kind
    name: str | None
    variables: Mapping[str, Any]
    """The default of each."""
    selections: tuple[Selection, ...]


@dataclass(frozen=True)
class Document:
    operations: tuple[Operation, ...]
    fragments: Mapping[str, tuple[Selection, ...]]


_TOKEN = re.compile(
    r"""(?P<ignored>[\ufeff\t \n\r,]+|\#[^\n\r\x85\u2028\u2029]*)
    |(?P<name>[_A-Za-z][_0-9A-Za-z]*)
    |(?P<block>\"\"\"(?:\\\"\"\"|(?!\"\"\").)*+\"\"\")
    |(?P<string>"(?:[^"\\\n\r]|\\(?:["\\/bfnrt]|u[0-9A-Fa-f]{4}))+"|""(?!"))
    |(?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.]))
    |(?P<punctuator>\.\.\.|[!$&()\[\]{}:=@|])""",
    re.VERBOSE | re.DOTALL,
)
"""A comment that holds a separator of lines is no token: for some servers (graphql-java) it ends there, and what
follows is executed."""
_KINDS: tuple[Kind, ...] = ("query", "mutation", "subscription")
_SHAPE_OF_BLOCK = re.compile(r"\r\n|[\n\r]")


class Parser:
    """One document, by recursive descent; every token is looked at once."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._at = 0

    def document(self) -> Document:
        """Raises `NotADocument`."""
        operations: list[Operation] = []
        fragments: dict[str, tuple[Selection, ...]] = {}
        while self._peek()[0]:
            if self._peek() == ("name", "fragment"):
                self._at += 1
                name = self._name()
                self._expect("on")
                self._name()
                self._directives()
                if name == "on" or name in fragments:
                    raise NotADocument("a GraphQL fragment is defined twice")
                fragments[name] = self._selections(0)
            else:
                operations.append(self._operation())
        names = [one.name for one in operations]
        if not operations or len(set(names)) != len(names) or (None in names and len(names) > 1):
            raise NotADocument("the GraphQL document holds no operation, or two of one name, or one without")
        return Document(tuple(operations), fragments)

    def _operation(self) -> Operation:
        if self._peek()[1] == "{":
            return Operation("query", None, {}, self._selections(0))
        word = self._name()
        kind = next((one for one in _KINDS if one == word), None)
        if kind is None:
            raise NotADocument("the GraphQL document holds something that is no operation and no fragment")
        name = self._name() if self._peek()[0] == "name" else None
        variables: dict[str, Any] = {}
        if self._take("("):
            while not self._take(")"):
                self._expect("$")
                variable = self._name()
                self._expect(":")
                self._type(0)
                if variable in variables:
                    raise NotADocument("a GraphQL variable is declared twice")
                variables[variable] = self._value(0, constant=True) if self._take("=") else ABSENT
                self._directives()
        self._directives()
        return Operation(kind, name, variables, self._selections(0))

    def _type(self, depth: int) -> None:
        if self._take("["):
            self._within(depth)
            self._type(depth + 1)
            self._expect("]")
        else:
            self._name()
        self._take("!")

    def _selections(self, depth: int) -> tuple[Selection, ...]:
        self._within(depth)
        self._expect("{")
        found: list[Selection] = []
        while not found or not self._take("}"):
            if not self._take("..."):
                found.append(self._field(depth))
            elif self._peek()[0] == "name" and self._peek()[1] != "on":
                found.append(Spread(self._name()))
                self._directives()
            else:
                if self._take("on"):
                    self._name()
                self._directives()
                found.append(self._selections(depth + 1))
        return tuple(found)

    def _field(self, depth: int) -> Top:
        name = self._name()
        if self._take(":"):
            name = self._name()  # what stood before was an alias
        arguments = self._arguments()
        self._directives()
        if self._peek()[1] == "{" and self._peek()[0] == "punctuator":
            self._selections(depth + 1)
        return Top(name, arguments)

    def _arguments(self) -> Mapping[str, Any]:
        if not self._take("("):
            return {}
        return self._members(")", 0, constant=False)

    def _members(self, end: str, depth: int, *, constant: bool) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self._take(end):
            name = self._name()
            self._expect(":")
            if name in found:
                raise NotADocument("a GraphQL argument is given twice")
            found[name] = self._value(depth + 1, constant=constant)
        return found

    def _directives(self) -> None:
        while self._take("@"):
            self._name()
            self._arguments()

    def _value(self, depth: int, *, constant: bool) -> Any:
        self._within(depth)
        kind, text = self._peek()
        self._at += 1
        if kind == "name":
            return {"true": True, "false": False, "null": None}.get(text, text)
        if kind == "number":
            return _number(text)
        if kind == "string":
            return _string(text)
        if kind == "block":
            return _block(text[3:-3])
        if text == "{":
            return self._members("}", depth, constant=constant)
        if text == "[":
            items = []
            while not self._take("]"):
                items.append(self._value(depth + 1, constant=constant))
            return items
        if text == "$" and not constant:
            return Variable(self._name())
        raise NotADocument("the GraphQL document has no value where one belongs")

    @staticmethod
    def _within(depth: int) -> None:
        if depth > MAX_DEPTH:
            raise NotADocument(f"the GraphQL document is nested more than {MAX_DEPTH} deep")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("", "")

    def _take(self, text: str) -> bool:
        kind, found = self._peek()
        if found == text and kind in ("punctuator", "name"):
            self._at += 1
            return True
        return False

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise NotADocument(f"the GraphQL document has no {text!r} where one belongs")

    def _name(self) -> str:
        kind, text = self._peek()
        if kind != "name":
            raise NotADocument("the GraphQL document has no name where one belongs")
        self._at += 1
        return text


_CONTROLS = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def _tokens(text: str) -> list[tuple[str, str]]:
    if _CONTROLS.search(text):
        raise NotADocument("the GraphQL document holds a control character")
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise NotADocument("the GraphQL document holds what is no token of the language")
        at = match.end()
        if match.lastgroup is not None and match.lastgroup != "ignored":
            found.append((match.lastgroup, match[0]))
            if len(found) > MAX_TOKENS:
                raise NotADocument(f"the GraphQL document has more than {MAX_TOKENS} tokens")
    return found


def _number(text: str) -> int | float:
    try:
        return float(text) if set(text) & set(".eE") else int(text)
    except ValueError as error:
        raise NotADocument("the GraphQL document holds a number of too many digits") from error


def _string(literal: str) -> str:
    """GraphQL's escapes are JSON's. Half of a surrogate pair is text for some servers and an error for others."""
    value: str = json.loads(literal, strict=False)
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise NotADocument("a GraphQL string holds half of a surrogate pair") from error
    return value


def _block(raw: str) -> str:
    """A block string without its common indentation (specification, section 2.9.4)."""
    lines = _SHAPE_OF_BLOCK.split(raw.replace('\\"""', '"""'))
    indents = [len(line) - len(line.lstrip(" \t")) for line in lines[1:] if line.strip(" \t")]
    common = min(indents, default=0)
    lines[1:] = [line[common:] for line in lines[1:]]
    while lines and not lines[0].strip(" \t"):
        lines.pop(0)
    while lines and not lines[-1].strip(" \t"):
        lines.pop()
    return "\n".join(lines)
