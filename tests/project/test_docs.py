"""The pages for people say what is there: links, commands, settings, places and tests exist, and what is shown as code
or output is held against the code and against a run.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from test_guarantees import missing

from executor import Executor, Settings
from executor.cli.main import app
from executor.errors import Exit
from executor.ledger.ledger import NotEligible
from executor.model import docs as model_docs
from executor.model.admission import Refusal, refusal
from executor.model.operation import Actor, ActorKind, FlowBinding
from executor.model.reasons import NotSent
from executor.model.transitions import Outcome, Transmission
from executor.settings import NOT_SETTINGS, TABLES, variables
from executor.settings_docs import settings as settings_table
from flows.flow import Credentials
from playground.app import PASSWORD
from playground.faults import Fault
from playground.process import Playground
from tools.docs import FILES, GENERATORS
from tools.docs import main as renew

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/*.md"))]
GUIDE = ROOT / "docs" / "writing-flows.md"
OPERATING = ROOT / "docs" / "operating.md"
EXAMPLE = ROOT / "examples" / "noticeboard.py"

by_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def spans(page: Path) -> list[str]:
    return re.findall(r"`([^`\n]+)`", prose(page))


# Links


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as they are made from their text: lower case, no punctuation, hyphens."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@by_page
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_is_reached_from_the_readme() -> None:
    linked = set(re.findall(r"\]\(docs/([\w.-]+\.md)", PAGES[0].read_text(encoding="utf-8")))
    assert linked == {page.name for page in ROOT.glob("docs/*.md")}


# Commands


def commands(page: Path) -> Iterator[list[str]]:
    """Every call of `interlock` on the page: in spans of code, and in lines that begin with a prompt."""
    for line in [
        *spans(page),
        *(line.removeprefix("$ ") for block in blocks(page, "console") for line in block.splitlines()),
    ]:
        words = shlex.split(line, comments=True) if re.search(r"(^|\| )interlock\b", line) else []
        if "|" in words:
            words = words[words.index("|") + 1 :]
        if words and words[0] == "interlock":
            yield words[1:]


def misuse(words: list[str]) -> str:
    """What of a call does not exist; the empty string when all does. Arguments are not looked at."""
    command: Any = typer.main.get_command(app)
    for position, word in enumerate(words):
        if not word.startswith("--"):
            if not hasattr(command, "commands"):
                continue
            if word not in command.commands:
                return f"no command {word!r} in {' '.join(words)}"
            command = command.commands[word]
            continue
        known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
        if word.partition("=")[0] not in known:
            return f"no option {word!r} in {' '.join(words[: position + 1])}"
    return ""


@by_page
def test_commands_exist_with_their_options(page: Path) -> None:
    assert [fault for words in commands(page) if (fault := misuse(words))] == []


@pytest.mark.parametrize("line", ["publish", "run OP --force", "flows check", "stop --everything"])
def test_a_command_that_is_not_there_is_noticed(line: str) -> None:
    assert misuse(line.split())


def test_the_readme_names_every_command() -> None:
    named = {words[0] for words in commands(PAGES[0]) if words}
    assert named == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


@by_page
def test_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    lines = [
        *spans(page),
        *(line.removeprefix("$ ") for block in blocks(page, "console") for line in block.splitlines()),
    ]
    named = {words[1] for line in lines if (words := line.split())[:1] == ["make"] and len(words) > 1}
    assert {name for name in named if "=" not in name} <= targets


# Settings, places, tests


@by_page
def test_settings_that_are_named_exist(page: Path) -> None:
    known = {*variables(), *NOT_SETTINGS}
    assert set(re.findall(r"INTERLOCK_[A-Z_]+", page.read_text(encoding="utf-8"))) <= known


def test_the_other_variables_are_read_somewhere() -> None:
    paths = (path for path in ROOT.glob("executor/**/*.py") if path.name != "settings.py")
    source = "".join(path.read_text(encoding="utf-8") for path in paths)
    assert {name for name in NOT_SETTINGS if f'"{name}"' not in source} == set()


def test_the_table_of_settings_has_each_with_what_it_is_for() -> None:
    rows = [line.strip("| ").split(" | ") for line in settings_table().splitlines()[2:]]
    assert [row[0].strip("`") for row in rows] == [name for name in Settings.model_fields if name not in TABLES]
    assert all(len(row) == 5 and row[4].endswith(".") for row in rows)


@by_page
def test_places_and_tests_that_are_named_exist(page: Path) -> None:
    for span in spans(page):
        if re.fullmatch(r"tests/[\w/]+\.py(::\w+)+", span):
            assert missing(span, ROOT) == ""
        elif re.fullmatch(r"(executor|flows|evidence|playground|tests|docs|tools|examples)/[\w./-]*", span):
            assert (ROOT / span).exists(), span


def test_generated_parts_are_fresh(capsys: pytest.CaptureFixture[str]) -> None:
    stale = renew(["--check"], root=ROOT, generators=GENERATORS, files=FILES)
    assert stale == 0, capsys.readouterr().out


def test_the_readme_has_the_exit_codes_of_the_code() -> None:
    assert model_docs.exit_codes() in PAGES[0].read_text(encoding="utf-8")


# Code and output


def test_the_guide_shows_code_that_is_run() -> None:
    flows = sorted((ROOT / "flows").glob("playground*.py"))
    sources = [path.read_text(encoding="utf-8") for path in (EXAMPLE, *flows)]
    shown = blocks(GUIDE, "python")
    assert shown
    assert [block for block in shown if not any(block in source for source in sources)] == []


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Playground]:
    with Playground.start(tmp_path_factory.mktemp("site")) as running:
        yield running


PERSON = Actor(ActorKind.PERSON, "tester")
QUICK: dict[str, Any] = {"effect_window_s": 3.0, "answer_s": 4.0, "verify_delays_s": (0.0,), "minimum_free_bytes": 1024}


@pytest.fixture
def settings(tmp_path: Path, site: Playground) -> Settings:
    site.truth.reset()
    return Settings(home=tmp_path / "home", key_folder=tmp_path / "keys", trust=(site.ca,), **QUICK)


async def sign_in(executor: Executor, site: Playground, flow: str) -> None:
    credentials = Credentials(user="editor", password=PASSWORD)
    await executor.login(flow=flow, destination=site.tls, account="editor", credentials=credentials, by=PERSON)


async def publish(executor: Executor, site: Playground, *, title: str, task: str) -> Any:
    """Propose, approve and run by the example's own file."""
    operation = (
        await executor.propose(
            flow=f"{EXAMPLE}:Noticeboard",
            destination=site.tls,
            account="editor",
            payload={"title": title, "body": "First line.\nSecond line."},
            task=task,
            by=PERSON,
        )
    ).operation
    await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint)
    return await executor.run(operation.id, by=PERSON)


@pytest.mark.browser
async def test_the_example_publishes_once_and_finds_what_lost_its_answer(site: Playground, settings: Settings) -> None:
    async with Executor(settings) as executor:
        await sign_in(executor, site, str(EXAMPLE))
        plain = await publish(executor, site, title=" Tide tables ", task="t1")
        site.truth.inject(Fault.LOST, path_prefix="/form/publish")
        lost = await publish(executor, site, title="Ferry times", task="t2")

    first, second = site.truth.published()
    assert [(one.title, one.account) for one in (first, second)] == [
        ("Tide tables", "editor"),
        ("Ferry times", "editor"),
    ]
    assert site.truth.publish_count() == 2
    assert (plain.exit, plain.ending.item, plain.operation.state.transmission) == (
        Exit.SUCCEEDED,
        str(first.id),
        Transmission.ANSWERED,
    )
    assert plain.ending.effect.from_page_only == ()
    assert [(look.when, look.result) for look in plain.ending.looks] == [("before", "not_found"), ("after", "found")]
    assert (lost.exit, lost.ending.item, lost.operation.state.transmission) == (
        Exit.SUCCEEDED,
        str(second.id),
        Transmission.POSSIBLE,
    )


@pytest.mark.browser
async def test_the_example_halts_where_it_should(site: Playground, settings: Settings) -> None:
    async with Executor(settings) as executor:
        await sign_in(executor, site, str(EXAMPLE))
        refused_input = await publish(executor, site, title=" ", task="t1")
        site.truth.inject(Fault.STATUS_500_BEFORE, path_prefix="/form/publish")
        unknown = await publish(executor, site, title="Ferry times", task="t2")
        stopped = await publish(executor, site, title="Market day", task="t3")

    assert site.truth.publish_count() == 0
    assert (refused_input.exit, refused_input.ending.coded_reason()) == (Exit.NOT_SENT, NotSent.VALIDATION_MESSAGE)
    assert (unknown.exit, unknown.operation.state.outcome) == (Exit.UNKNOWN, Outcome.UNKNOWN)
    assert stopped.exit is Exit.REFUSED  # the circuit breaker, for a flow from a file too
    assert stopped.receipt.reason is not None
    assert stopped.receipt.reason.code == "refusal:stopped"


@pytest.mark.browser
async def test_the_readmes_python_publishes(
    site: Playground, settings: Settings, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", str(settings.home))
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(settings.key_folder))
    monkeypatch.setenv("INTERLOCK_TRUST", json.dumps([str(site.ca)]))
    async with Executor() as executor:
        await sign_in(executor, site, "playground-form")
    (block,) = blocks(PAGES[0], "python")
    names: dict[str, Any] = {}
    exec(compile(block, "README.md", "exec"), names)
    await names["publish"](site.tls, "editor", "Office closed", "On Friday.")
    with pytest.raises(NotEligible):  # the same intent is the operation that it was, and that one has succeeded
        await names["publish"](site.tls, "editor", "Office closed", "On Friday.")
    assert capsys.readouterr().out.startswith("SUCCEEDED SUCCEEDED — it was published.")
    assert site.truth.publish_count("Office closed") == 1


async def test_a_restored_ledger_is_accepted_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INTERLOCK_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("INTERLOCK_KEY_FOLDER", str(tmp_path / "keys"))
    ledger = tmp_path / "home" / "ledger.sqlite"

    async def against(operation: str) -> Refusal | None:
        async with Executor() as executor:
            flow = executor.flows.get("playground-form")
            binding = FlowBinding(name=flow.name, version=flow.version, code_digest=flow.code_digest())
            refused = refusal(await executor.ledger.admission(operation, binding))
            return refused.reason if refused else None

    async with Executor() as executor:
        operation = (
            await executor.propose(
                flow="playground-form",
                destination="https://site.example",
                account="editor",
                payload={"title": "Tide tables", "body": ""},
                task="t1",
                by=PERSON,
            )
        ).operation
        await executor.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint)
    shutil.copy(ledger, tmp_path / "backup.sqlite")
    async with Executor() as executor:
        stop = await executor.stop(by=PERSON, why="something that the copy does not know")
        await executor.lift(stop.id, by=PERSON, why="")
    assert await against(operation.id) is None
    for rest in ledger.parent.glob("ledger.sqlite*"):
        rest.unlink()
    shutil.copy(tmp_path / "backup.sqlite", ledger)
    assert await against(operation.id) is Refusal.LEDGER_BEHIND_ANCHOR

    (block,) = blocks(OPERATING, "python")
    names: dict[str, Any] = {}
    exec(compile(block, "operating.md", "exec"), names)
    await names["accept"]("tester", "restored on purpose")
    assert await against(operation.id) is None


@pytest.mark.browser
async def test_the_readme_shows_what_the_demo_prints(tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("INTERLOCK_")}
    if "INTERLOCK_BROWSER" in os.environ:
        environment["INTERLOCK_BROWSER"] = os.environ["INTERLOCK_BROWSER"]
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", "from executor.cli.main import main; main()", "demo", "--keep", str(tmp_path / "demo")],
        env=environment | {"COLUMNS": "80", "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    printed = iter(line.rstrip() for line in done.stdout.splitlines())
    (shown,) = blocks(PAGES[0], "text")
    # In this order, with others between: the page is shortened and says so.
    assert [line for line in shown.splitlines() if line and line not in printed] == []
