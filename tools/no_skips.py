"""Reads JUnit reports of pytest and fails when a test was left out: a skipped test proves nothing.

One reason is accepted: a skip that says ALLOWED, for a machine on which no browser can be installed.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ALLOWED = "browser that cannot be had here"


@dataclass(frozen=True)
class Summary:
    ran: int
    refused: tuple[str, ...]
    """Skipped for a reason that does not count, as "test: reason"."""
    accepted: tuple[str, ...]


def summarise(report: str) -> Summary:
    """Counts one report, given as the text of its file."""
    ran = 0
    refused: list[str] = []
    accepted: list[str] = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        skipped = case.find("skipped")
        if skipped is None or skipped.get("type") == "pytest.xfail":
            ran += 1
            continue
        reason = skipped.get("message", "without a reason")
        line = f"{case.get('classname')}::{case.get('name')}: {reason}"
        (accepted if ALLOWED in reason else refused).append(line)
    return Summary(ran, tuple(refused), tuple(accepted))


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("usage: no_skips.py REPORT.xml ...", file=sys.stderr)
        return 2
    failed = False
    for name in arguments:
        summary = summarise(Path(name).read_text(encoding="utf-8"))
        print(f"{name}: {summary.ran} ran, {len(summary.refused) + len(summary.accepted)} skipped")
        for line in summary.accepted:
            print(f"  accepted: {line}")
        for line in summary.refused:
            print(f"  not accepted: {line}")
        failed = failed or bool(summary.refused) or summary.ran == 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
