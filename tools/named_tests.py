"""Reads JUnit reports of pytest and fails when a test that `docs/guarantees.md` names did not run and pass.

A guarantee whose test is there and never runs is not shown.
"""

from __future__ import annotations

import re
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NAMED = re.compile(r"`(tests/[\w/]+\.py(?:::\w+)+)`")


def named(text: str) -> frozenset[str]:
    """The tests that a page names, as `tests/room/test_file.py::test_name`."""
    return frozenset(_NAMED.findall(text))


def passed(report: str) -> frozenset[str]:
    """The tests of one report that passed in every case that they have, under the names that pages use."""
    good: set[str] = set()
    bad: set[str] = set()
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = _name(case.get("classname", ""), case.get("name", ""))
        (bad if any(case.find(tag) is not None for tag in ("failure", "error", "skipped")) else good).add(name)
    return frozenset(good - bad)


def missing(pages: Iterable[str], reports: Iterable[str]) -> tuple[str, ...]:
    """What the pages name and no report shows as passed, in order."""
    ran = frozenset[str]().union(*map(passed, reports))
    return tuple(sorted(frozenset[str]().union(*map(named, pages)) - ran))


def _name(classname: str, name: str) -> str:
    """`tests.room.test_file.TestClass` and `test_name[case]` as pages write them."""
    parts = classname.split(".")
    file = next((n for n, part in enumerate(parts) if part.startswith("test_")), len(parts) - 1)
    path = "/".join(parts[: file + 1]) + ".py"
    return "::".join((path, *parts[file + 1 :], name.partition("[")[0]))


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("usage: named_tests.py REPORT.xml ...", file=sys.stderr)
        return 2
    page = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
    lacking = missing([page], [Path(name).read_text(encoding="utf-8") for name in arguments])
    print(f"docs/guarantees.md names {len(named(page))} tests; {len(lacking)} of them did not run and pass")
    for test in lacking:
        print(f"  {test}")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
