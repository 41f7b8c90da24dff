"""`docs/guarantees.md` names tests that exist, one row for each requirement."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IDS = [
    f"{group}{n}"
    for group, last in (("A", 11), ("B", 6), ("C", 10), ("D", 9), ("E", 7), ("F", 5))
    for n in range(1, last + 1)
]
_ROW = re.compile(r"\| (?P<id>[A-F]\d+) \| (?P<what>[^|]+) \| (?P<shown>[^|]+) \|")
_TEST = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)+)`")


@dataclass(frozen=True)
class Row:
    id: str
    what: str
    tests: tuple[str, ...]
    not_yet: str


def rows(text: str) -> list[Row]:
    found = []
    for line in text.splitlines():
        if match := _ROW.fullmatch(line):
            parts = match["shown"].split("<br>")
            tests = [test[1] for part in parts if (test := _TEST.fullmatch(part))]
            later = [part.removeprefix("not yet: ") for part in parts if part.startswith("not yet: ")]
            assert len(tests) + len(later) == len(parts), f"{match['id']}: neither a test nor 'not yet': {parts}"
            found.append(Row(match["id"], match["what"], tuple(tests), " ".join(later)))
    return found


def missing(test: str, root: Path) -> str:
    """Why the test cannot be run under this name; the empty string when it can."""
    path, *names = test.split("::")
    file = root / path
    if not file.is_file():
        return f"there is no file {path}"
    body: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    for name in names:
        kind = ast.ClassDef if name.startswith("Test") else (ast.FunctionDef, ast.AsyncFunctionDef)
        found = next((node for node in body if isinstance(node, kind) and node.name == name), None)
        if found is None:
            return f"{path} has no {name}"
        body = found.body
    return "" if names[-1].startswith("test_") else f"{test} names no test"


ROWS = rows((ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8"))


def test_each_requirement_has_one_row_in_order() -> None:
    assert [row.id for row in ROWS] == IDS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_what_is_named_exists_and_nothing_is_claimed_without_it(row: Row) -> None:
    assert row.what.endswith(".")
    assert row.tests or row.not_yet
    assert [reason for test in row.tests if (reason := missing(test, ROOT))] == []


@pytest.mark.parametrize(
    ("test", "reason"),
    [
        ("tests/test_a.py::test_one", ""),
        ("tests/test_a.py::TestB::test_two", ""),
        ("tests/test_a.py::test_two", "tests/test_a.py has no test_two"),
        ("tests/test_a.py::TestB::test_one", "tests/test_a.py has no test_one"),
        ("tests/test_a.py::TestB", "tests/test_a.py::TestB names no test"),
        ("tests/test_a.py::helper", "tests/test_a.py::helper names no test"),
        ("tests/test_gone.py::test_one", "there is no file tests/test_gone.py"),
    ],
)
def test_a_name_that_is_wrong_is_noticed(tmp_path: Path, test: str, reason: str) -> None:
    file = tmp_path / "tests" / "test_a.py"
    file.parent.mkdir()
    file.write_text(
        "def helper(): pass\nasync def test_one(): pass\nclass TestB:\n    def test_two(self): pass\n", encoding="utf-8"
    )
    assert missing(test, tmp_path) == reason
