"""`interlock demo`: three announcements on a local site, and beside each what the site's own record says.

One is published once; one loses its answer and halts with a handoff receipt; one is refused before anything is
dispatched, because the page is signed in as somebody else. Ends in under a minute.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.rule import Rule
from rich.table import Table

from executor.cli.steps_shown import StepsShown
from executor.cli.surroundings import AsJson, cell, executor, out, print_json, run
from executor.errors import BadInput, Exit
from executor.model.operation import Actor, ActorKind

if TYPE_CHECKING:
    from executor.service import Ended
    from executor.settings import Settings
    from playground.process import Playground

FLOW = "playground-form"
EDITOR, SECOND = "editor", "second"
PERSON = Actor(ActorKind.PERSON, "demo")
PROPOSER = Actor(ActorKind.PROPOSER, "demo-agent")
LOST_ANSWER_S = 3.0
"""The demo waits no longer for the answer that never comes; in earnest it is a minute."""


@dataclass(frozen=True)
class Scene:
    """One of the three. `expects` are the exit code and the number of publications of its title by the site."""

    title: str
    body: str
    task: str
    account: str
    heading: str
    explains: str
    expects: tuple[Exit, int]


PUBLISHED = Scene(
    title="The harbour library opens on Sundays",
    body="From next month on the reading room is open on Sundays from ten to four.",
    task="demo-published",
    account=EDITOR,
    heading="Published once",
    explains="The ordinary case: the request leaves once, its answer names the item, a read-only look agrees.",
    expects=(Exit.SUCCEEDED, 1),
)
LOST = Scene(
    title="The ferry is out of service on Monday",
    body="The ferry is serviced on Monday. Buses run from the north quay instead.",
    task="demo-lost",
    account=EDITOR,
    heading="The answer is lost",
    explains="The site stores it and never answers, and this run may not look afterwards. Whether it is out cannot be "
    "known from here, so the run halts and says so.",
    expects=(Exit.UNKNOWN, 1),
)
REFUSED = Scene(
    title="The swimming hall closes at noon",
    body="The swimming hall closes at noon on Friday.",
    task="demo-refused",
    account=SECOND,
    heading="Refused before dispatch",
    explains="Approved for the account `second`, and the page turns out to be signed in as `editor`.",
    expects=(Exit.REFUSED, 0),
)


@dataclass(frozen=True)
class Act:
    """What came of a scene, beside the site's own record."""

    scene: Scene
    ended: Ended
    again: Exit | None
    """Exit code of running the same operation a second time, where the demo did."""
    published: int

    @property
    def as_it_should(self) -> bool:
        return (self.ended.exit, self.published) == self.scene.expects and self.again in (None, Exit.REFUSED)


def demo(
    keep: Annotated[
        Path | None, typer.Option("--keep", metavar="FOLDER", help="Keep ledger, receipts and pictures there.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Publish once, lose an answer, refuse a difference: on a local site, with receipts."""
    from playground.process import Playground

    console = Console(stderr=True, quiet=True) if as_json else out()
    began = time.monotonic()
    folder = (keep or Path(tempfile.mkdtemp(prefix="interlock-demo-"))).expanduser().resolve()
    if (folder / "home").exists():
        raise BadInput(f"{folder} holds an earlier demo. Name another folder, or remove that one.")
    folder.mkdir(parents=True, exist_ok=True)
    with Playground.start(folder / "site") as site:
        acts = run(_perform(site, folder, console))
    took = time.monotonic() - began
    good = all(act.as_it_should for act in acts)
    if as_json:
        print_json(
            {"as_it_should": good, "seconds": round(took, 1), "folder": str(folder), "acts": [*map(_plain, acts)]}
        )
    else:
        _sum_up(console, acts, folder, took, good)
    if not good:
        raise typer.Exit(Exit.DEFECT)


async def _perform(site: Playground, folder: Path, console: Console) -> list[Act]:
    from playground.faults import Fault

    usual = _settings(site, folder)
    hasty = usual.model_copy(update={"answer_s": LOST_ANSWER_S, "verify_delays_s": ()})
    console.print(cell(f"A local site runs at {site.tls}; its own record is {site.truth.path}"), soft_wrap=True)
    await _sign_in(site, usual, EDITOR)
    # The mistake of the third scene: somebody kept the editor's session under the other account's name.
    await _sign_in(site, usual, SECOND)
    return [
        await _act(PUBLISHED, site, usual, console),
        await _act(
            LOST,
            site,
            hasty,
            console,
            before=lambda: site.truth.inject(Fault.LOST, path_prefix="/form/publish"),
            again=True,
        ),
        await _act(REFUSED, site, usual, console),
    ]


def _settings(site: Playground, folder: Path) -> Settings:
    from executor.settings import Settings

    return Settings(home=folder / "home", key_folder=folder / "keys", trust=(site.ca,))


async def _sign_in(site: Playground, settings: Settings, account: str) -> None:
    from flows.flow import Credentials
    from playground.app import PASSWORD

    async with executor(given=settings) as service:
        await service.login(
            flow=FLOW,
            destination=site.tls,
            account=account,
            credentials=Credentials(user=EDITOR, password=PASSWORD),
            by=PERSON,
        )


async def _act(
    scene: Scene,
    site: Playground,
    settings: Settings,
    console: Console,
    *,
    before: Callable[[], None] | None = None,
    again: bool = False,
) -> Act:
    console.print()
    console.print(Rule(scene.heading, align="left", style="dim"))
    _say(console, scene.explains)
    with ExitStack() as stack:
        shown = None if console.quiet else stack.enter_context(StepsShown(console))
        async with executor(shown.hear if shown else None, given=settings) as service:
            proposed = await service.propose(
                flow=FLOW,
                destination=site.tls,
                account=scene.account,
                payload={"title": scene.title, "body": scene.body},
                task=scene.task,
                by=PROPOSER,
            )
            operation = proposed.operation
            await service.approve(operation.id, by=PERSON, fingerprint=operation.fingerprint, why="the demo")
            if before is not None:
                before()
            ended = await service.run(operation.id, by=PERSON)
    second = None
    if again:
        async with executor(given=settings) as service:
            second = (await service.run(operation.id, by=PERSON)).exit
    act = Act(scene, ended, second, site.truth.publish_count(scene.title))
    _tell(console, act)
    return act


def _tell(console: Console, act: Act) -> None:
    receipt = act.ended.receipt
    console.print(cell(receipt.verdict, "bold"))
    if receipt.reason is not None and receipt.standing.value != "succeeded":
        _say(console, receipt.reason.sentence)
    if receipt.ownership.owner is not None and receipt.ownership.respond_by is not None:
        until = receipt.ownership.respond_by.isoformat(sep=" ", timespec="minutes")
        _say(console, f"Handed to {receipt.ownership.owner}, to be answered by {until}.")
    if act.again is not None:
        _say(console, f"Run a second time: refused (exit {int(act.again)}), the stored receipt is given.")
    _say(console, f"The playground's own record says: {_items(act.published)}.")


def _sum_up(console: Console, acts: list[Act], folder: Path, took: float, good: bool) -> None:
    console.print()
    console.print(Rule("What the executor says, and what the site's own record says", align="left", style="dim"))
    table = Table(box=None, pad_edge=False)
    for heading in ("announcement", "executor", "exit", "site's record", ""):
        table.add_column(heading, overflow="fold")
    for act in acts:
        mark, style = ("✓", "green") if act.as_it_should else ("✗", "bold red")
        standing = act.ended.receipt.standing.value.replace("_", " ")
        table.add_row(act.scene.heading, standing, str(int(act.ended.exit)), _items(act.published), cell(mark, style))
    console.print(table)
    console.print()
    for act in acts:
        console.print(cell(f"{act.scene.heading}:"))
        console.print(cell(f"  receipt  {act.ended.receipt_paths.text}"), soft_wrap=True)
        for picture in _pictures(act, folder):
            console.print(cell(f"  picture  {picture}"), soft_wrap=True)
    verdict = "All three ended as they should" if good else "Not all three ended as they should"
    console.print()
    console.print(cell(f"{verdict}, in {took:.0f} s. Everything is in {folder}", "bold"), soft_wrap=True)


def _pictures(act: Act, folder: Path) -> list[str]:
    evidence = act.ended.receipt.evidence
    if evidence is None:
        return []
    return [f"{folder / 'home' / one.path}  ({one.point})" for one in evidence.pictures]


def _plain(act: Act) -> dict[str, Any]:
    return {
        "scene": act.scene.task,
        "operation": act.ended.operation.id,
        "standing": act.ended.receipt.standing.value,
        "exit": int(act.ended.exit),
        "second_run_exit": None if act.again is None else int(act.again),
        "published_by_the_sites_record": act.published,
        "as_it_should": act.as_it_should,
        "receipt": str(act.ended.receipt_paths.json),
        "evidence": act.ended.receipt.evidence.model_dump(mode="json") if act.ended.receipt.evidence else None,
    }


def _items(number: int) -> str:
    return f"{number} item{'' if number == 1 else 's'}"


def _say(console: Console, text: str) -> None:
    console.print(cell(text))
