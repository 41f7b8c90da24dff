"""Rules of the house that import contracts cannot express, read from the syntax tree of every module.

Each rule is shown to bite on an example before it is held against the product.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = ("executor", "flows", "evidence", "playground")
LONGEST_MODULE = 500


@dataclass(frozen=True)
class Module:
    name: str
    """Relative to the root, with slashes: "executor/gate/rules.py"."""
    text: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, filename=self.name)

    def within(self, *places: str) -> bool:
        return any(self.name == place or self.name.startswith(f"{place}/") for place in places)


Rule = Callable[[Module], Iterator[int]]
"""Yields the numbers of the lines that break the rule."""


def calls(module: Module, *methods: str) -> Iterator[ast.Call]:
    """Calls of these names as a method: `anything.release(...)`."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            yield node


def receiver(call: ast.Call) -> str:
    """What the method is called on, as source: `self._ledger` in `self._ledger.release()`."""
    assert isinstance(call.func, ast.Attribute)
    return ast.unparse(call.func.value)


def imported(module: Module) -> Iterator[tuple[str, int]]:
    """Every imported module with its line, `from a import b` as "a" and as "a.b"."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module, node.lineno
            yield from ((f"{node.module}.{alias.name}", node.lineno) for alias in node.names)


def only_one_shot_release_releases(module: Module) -> Iterator[int]:
    # Locks, leases and the like have a `release` of their own; a ledger is always called one.
    if module.within("executor/one_shot/release.py"):
        return
    for call in calls(module, "release"):
        if "ledger" in receiver(call).lower():
            yield call.lineno


def only_the_ledger_writes_tables(module: Module) -> Iterator[int]:
    """Statements that change rows, written out; built ones need SQLAlchemy, which an import contract holds back.
    The playground keeps a database of its own, as a site would."""
    if module.within("executor/ledger", "playground"):
        return
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and re.match(
                r"\s*(INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+\w+\s+SET|DELETE\s+FROM|CREATE\s+TABLE|DROP\s+TABLE)\b",
                node.value,
            )
        ):
            yield node.lineno
    yield from (line for name, line in imported(module) if name == "sqlite3")


def only_the_browser_room_launches(module: Module) -> Iterator[int]:
    if module.within("executor/browser"):
        return
    for name, line in imported(module):
        if name.endswith((".async_playwright", ".sync_playwright")):
            yield line
    for call in calls(module, "launch", "launch_persistent_context", "connect_over_cdp", "new_context"):
        # Our own sessions may have methods of these names; Playwright's objects are the ones that are meant.
        if re.search(r"(playwright|chromium|firefox|webkit|browser|browser_type)$", receiver(call)):
            yield call.lineno


def no_playwright_routing(module: Module) -> Iterator[int]:
    """The gate is the one enforcement point: routing misses paths and switches the HTTP cache off."""
    for call in calls(module, "route", "route_from_har", "route_web_socket"):
        yield call.lineno


def no_capture_beyond_the_viewport(module: Module) -> Iterator[int]:
    """Pictures of the whole page or of an element scroll, and page handlers that see it can POST."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.keyword) and node.arg == "full_page":
            if not (isinstance(node.value, ast.Constant) and node.value.value is False):
                yield node.value.lineno
        elif isinstance(node, ast.Constant) and node.value == "captureBeyondViewport":
            yield node.lineno
    for call in calls(module, "screenshot"):
        if re.search(r"locator|element|handle|get_by_", receiver(call), re.IGNORECASE):
            yield call.lineno


def no_predictable_secrets(module: Module) -> Iterator[int]:
    """`random` and time-based identifiers can be guessed: tokens, nonces and ids come from `secrets` or uuid4."""
    for name, line in imported(module):
        if name == "random" or name.startswith("random."):
            yield line
    for call in calls(module, "uuid1", "getnode"):
        yield call.lineno


def no_path_of_one_machine(module: Module) -> Iterator[int]:
    for number, line in enumerate(module.text.splitlines(), start=1):
        if re.search(r"(?<![\w.])/(work|root|home/\w+|Users/\w+|mnt|media)/\w", line):
            yield number


def no_module_that_does_not_fit_in_the_head(module: Module) -> Iterator[int]:
    if len(module.text.splitlines()) > LONGEST_MODULE:
        yield LONGEST_MODULE + 1


def pure_rooms_do_no_io(module: Module) -> Iterator[int]:
    """Beside the import contract: what of a harmless package does I/O, and the built-ins that do."""
    if not module.within("executor/model", "executor/gate/rules.py"):
        return
    forbidden = (
        "asyncio|socket|ssl|select|subprocess|threading|multiprocessing|sqlite3|sqlalchemy|sqlmodel|alembic|h11"
        "|playwright|http.client|http.server|urllib.request|shutil|tempfile|os|secrets|structlog|logging"
        "|executor.(ledger|browser|one_shot|cli|settings|telemetry)"
    )
    for name, line in imported(module):
        if re.fullmatch(rf"({forbidden})(\..*)?".replace("http.", r"http\."), name):
            yield line
    for node in ast.walk(module.tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in {"open", "print", "input"}
        ):
            yield node.lineno
    for call in calls(module, "read_text", "write_text", "read_bytes", "write_bytes"):
        yield call.lineno
    for call in calls(module, "now", "utcnow", "today", "time", "monotonic"):
        if receiver(call) in {"datetime", "datetime.datetime", "date", "datetime.date", "time"}:
            yield call.lineno  # time is handed in


RULES: tuple[Rule, ...] = (
    only_one_shot_release_releases,
    only_the_ledger_writes_tables,
    only_the_browser_room_launches,
    no_playwright_routing,
    no_capture_beyond_the_viewport,
    no_predictable_secrets,
    no_path_of_one_machine,
    no_module_that_does_not_fit_in_the_head,
    pure_rooms_do_no_io,
)

BREAKS: tuple[tuple[Rule, str, str], ...] = (
    (only_one_shot_release_releases, "executor/schedule.py", "await self._ledger.release(token)"),
    (only_the_ledger_writes_tables, "executor/receipts.py", "run('UPDATE attempt SET token = 2')"),
    (only_the_ledger_writes_tables, "flows/wordpress.py", "import sqlite3"),
    (only_the_browser_room_launches, "executor/cli/main.py", "await playwright.chromium.launch()"),
    (only_the_browser_room_launches, "evidence/capture.py", "from playwright.async_api import async_playwright"),
    (only_the_browser_room_launches, "executor/one_shot/steps.py", "await self._browser.new_context()"),
    (no_playwright_routing, "executor/browser/sessions.py", "await context.route('**', handler)"),
    (no_playwright_routing, "executor/browser/sessions.py", "await page.route_web_socket('**', handler)"),
    (no_capture_beyond_the_viewport, "evidence/screenshot.py", "await page.screenshot(full_page=True)"),
    (no_capture_beyond_the_viewport, "evidence/screenshot.py", "await page.locator('main').screenshot()"),
    (no_predictable_secrets, "executor/gate/path_proof.py", "from random import choice"),
    (no_path_of_one_machine, "executor/settings.py", "HOME = '/home/someone/interlock'"),
    (no_module_that_does_not_fit_in_the_head, "flows/ghost.py", "x = 1\n" * (LONGEST_MODULE + 1)),
    (pure_rooms_do_no_io, "executor/model/operation.py", "from urllib.request import urlopen"),
    (pure_rooms_do_no_io, "executor/model/operation.py", "from executor import ledger"),
    (pure_rooms_do_no_io, "executor/gate/rules.py", "text = open('rules').read()"),
    (pure_rooms_do_no_io, "executor/gate/rules.py", "import http.client"),
    (pure_rooms_do_no_io, "executor/model/retry.py", "at = datetime.now(UTC)"),
)

KEEPS: tuple[tuple[Rule, str, str], ...] = (
    (only_one_shot_release_releases, "executor/one_shot/release.py", "await self._ledger.release(token)"),
    (only_one_shot_release_releases, "executor/ledger/sql.py", "self._lock.release()"),
    (only_the_ledger_writes_tables, "executor/ledger/sql.py", "text('UPDATE attempt SET token = 2')"),
    (only_the_browser_room_launches, "executor/browser/sessions.py", "await playwright.chromium.launch()"),
    (only_the_browser_room_launches, "executor/one_shot/steps.py", "await sessions.new_context(gate)"),
    (no_capture_beyond_the_viewport, "evidence/screenshot.py", "await page.screenshot(full_page=False)"),
    (pure_rooms_do_no_io, "executor/model/operation.py", "from http import HTTPStatus\nimport urllib.parse"),
)


def product_modules() -> list[Module]:
    return [
        Module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for package in PRODUCT
        for path in sorted(ROOT.joinpath(package).rglob("*.py"))
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_product_keeps(rule: Rule) -> None:
    assert [f"{module.name}:{line}" for module in product_modules() for line in rule(module)] == []


def test_no_page_or_script_names_a_path_of_one_machine() -> None:
    places = ("*.md", "*.toml", "Makefile", "Dockerfile", ".ci/run", "docs/**/*.md", "tools/*")
    paths = {path for place in places for path in ROOT.glob(place) if path.is_file()}
    assert ROOT / "pyproject.toml" in paths
    modules = [Module(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in sorted(paths)]
    assert [f"{module.name}:{line}" for module in modules for line in no_path_of_one_machine(module)] == []


@pytest.mark.parametrize(("rule", "name", "text"), BREAKS)
def test_the_rule_bites(rule: Rule, name: str, text: str) -> None:
    assert list(rule(Module(name, text)))


@pytest.mark.parametrize(("rule", "name", "text"), KEEPS)
def test_the_rule_spares(rule: Rule, name: str, text: str) -> None:
    assert not list(rule(Module(name, text)))


def test_every_rule_has_an_example_that_breaks_it() -> None:
    assert {rule for rule, _, _ in BREAKS} == set(RULES)
