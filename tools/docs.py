"""Writes the parts of docs/*.md that are made from the code, or checks that they are fresh (`--check`).

A part stands between two markers, each alone on its line, and is replaced as a whole:

    <!-- generated: NAME -->
    ...
    <!-- end -->

NAME is a key of GENERATORS. A generator is a callable without parameters that returns Markdown; it must be
deterministic, or the check fails at random. Text outside the markers is never touched.

FILES names files in docs/ that are generated as a whole, by generators of the same kind.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GENERATORS: dict[str, str] = {
    "model-state-tables": "executor.model.docs:state_tables",
    "model-state-diagrams": "executor.model.docs:state_diagrams",
    "model-joint-states": "executor.model.docs:joint_states",
    "model-steps": "executor.model.docs:step_table",
    "model-refusals": "executor.model.docs:refusals",
    "model-reasons": "executor.model.docs:reasons",
    "model-failure-classes": "executor.model.docs:failure_classes",
    "model-retry": "executor.model.docs:retry_table",
    "model-discrepancies": "executor.model.docs:discrepancies",
    "model-exit-codes": "executor.model.docs:exit_codes",
    "receipt-standings": "executor.receipts.docs:standings",
    "receipt-permitted": "executor.receipts.docs:permitted_actions",
    "receipt-prohibited": "executor.receipts.docs:prohibited_actions",
    "settings": "executor.settings_docs:settings",
}
"""Name of a part -> "module:callable"."""

FILES: dict[str, str] = {
    "receipt.schema.json": "executor.receipts:schema_json",
}
"""Name of a file in docs/ that is generated as a whole -> "module:callable"."""

_OPENING = re.compile(r"<!-- generated: (?P<name>\S+) -->")
_CLOSING = "<!-- end -->"


class DocsError(Exception):
    """A marker or a generator that cannot be used; the message says where and what to change."""


@dataclass(frozen=True)
class Rendered:
    text: str
    stale: tuple[str, ...]
    """Names of the parts whose old content differs from what their generator says."""


def render(text: str, generators: Mapping[str, str]) -> Rendered:
    """The text with every generated part renewed. Raises DocsError for a marker that is wrong."""
    lines: list[str] = []
    stale: list[str] = []
    name: str | None = None
    old: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        opening = _OPENING.fullmatch(line.strip())
        if opening and name is not None:
            raise DocsError(f"line {number}: the part {name!r} is still open; close it with {_CLOSING}")
        if opening:
            name, old = opening["name"], []
            lines.append(line)
        elif line.strip() == _CLOSING:
            if name is None:
                raise DocsError(f"line {number}: {_CLOSING} closes nothing")
            new = ["", *_generate(name, generators).strip("\n").splitlines(), ""]
            if new != old:
                stale.append(name)
            lines += [*new, line]
            name = None
        elif name is not None:
            old.append(line)
        else:
            lines.append(line)
    if name is not None:
        raise DocsError(f"the part {name!r} is never closed; close it with {_CLOSING}")
    return Rendered("\n".join(lines) + "\n" if lines else text, tuple(stale))


def _generate(name: str, generators: Mapping[str, str]) -> str:
    target = generators.get(name)
    if target is None:
        raise DocsError(f"no generator is named {name!r}; add it to GENERATORS in tools/docs.py")
    module_name, _, attribute = target.partition(":")
    try:
        generator: Callable[[], str] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise DocsError(f"the generator {name!r} cannot be loaded from {target}: {error}") from error
    return generator()


def main(arguments: Sequence[str], *, root: Path, generators: Mapping[str, str], files: Mapping[str, str]) -> int:
    parser = argparse.ArgumentParser(description="Renew what of docs/ is made from the code.")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a part is stale")
    check = parser.parse_args(arguments).check
    stale_anywhere = False
    for path in sorted(root.joinpath("docs").glob("*.md")):
        try:
            rendered = render(path.read_text(encoding="utf-8"), generators)
        except DocsError as error:
            print(f"docs/{path.name}: {error}", file=sys.stderr)
            return 2
        for name in rendered.stale:
            stale_anywhere = True
            print(f"docs/{path.name}: {name} {'is stale: run `make docs`' if check else 'renewed'}")
        if rendered.stale and not check:
            path.write_text(rendered.text, encoding="utf-8")
    for file in files:
        path = root / "docs" / file
        text = _generate(file, files)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale_anywhere = True
        print(f"docs/{file} {'is stale: run `make docs`' if check else 'renewed'}")
        if not check:
            path.write_text(text, encoding="utf-8")
    return 1 if check and stale_anywhere else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], root=Path(__file__).resolve().parent.parent, generators=GENERATORS, files=FILES))
