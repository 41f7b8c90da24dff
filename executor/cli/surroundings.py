"""What every command needs: who acts, which settings, how output goes out. No rule of the product is here.

Nothing that opens a browser or a database is imported at the top, so that `--help` answers at once.
"""

from __future__ import annotations

import getpass
import json
import os
import sys
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.text import Text

from executor.model.operation import Actor, ActorKind

if TYPE_CHECKING:
    from executor.one_shot.run import StepEvent
    from executor.service import Executor
    from executor.settings import Settings

T = TypeVar("T")

PROPOSER = "INTERLOCK_PROPOSER"
"""Environment variable that names a proposer (an agent, a token); who sets it acts as that, never as a person."""

AsJson = Annotated[bool, typer.Option("--json", help="One JSON document on standard output, nothing else.")]
OperationId = Annotated[
    str, typer.Argument(metavar="OP", help="An operation's id, or the beginning of one: 8 characters or more.")
]


def settings() -> Settings:
    """The settings of this call; `--home` has been put into the environment before."""
    from executor.settings import Settings

    return Settings()


def use_home(home: Path) -> None:
    """Let everything of this process, settings file included, take `home`."""
    os.environ["INTERLOCK_HOME"] = str(home.expanduser().resolve())


def executor(
    on_step: Callable[[StepEvent], None] | None = None, *, given: Settings | None = None
) -> AbstractAsyncContextManager[Executor]:
    """An executor for this call, to be opened by `async with`."""
    from executor.service import Executor

    return Executor(given or settings(), on_step=on_step)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run asynchronous work to its end. SIGINT and SIGTERM cancel it, each time they come, and nothing more: work that
    must not be torn (a run after its gesture) ends by its own deadlines first. Raises `KeyboardInterrupt` when it was
    cancelled and did not come to an end of its own."""
    import asyncio
    import signal

    async def until_signalled() -> T:
        task = asyncio.ensure_future(work)
        loop = asyncio.get_running_loop()
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(one, task.cancel)
        await asyncio.wait([task])
        return task.result()

    try:
        return asyncio.run(until_signalled())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None


def actor() -> Actor:
    """Who calls: the proposer that the environment names, else the person who is logged in on this machine."""
    if name := os.environ.get(PROPOSER, "").strip():
        return Actor(ActorKind.PROPOSER, name)
    try:
        return Actor(ActorKind.PERSON, getpass.getuser())
    except (OSError, KeyError):  # a container's user without an entry in the user database
        return Actor(ActorKind.PERSON, f"uid-{os.getuid()}")


def person(what: str) -> Actor:
    """Who calls, where only a person may. Raises `NotAllowed`."""
    from executor.errors import NotAllowed

    who = actor()
    if who.kind is not ActorKind.PERSON:
        raise NotAllowed(f"{who} may not {what}: only a person may, in a session without {PROPOSER}.")
    return who


def out() -> Console:
    """Standard output, for people."""
    return Console(soft_wrap=False, highlight=False)


def err() -> Console:
    """Standard error: questions, progress and warnings, so that standard output stays what was asked for."""
    return Console(stderr=True, highlight=False)


def print_json(value: object) -> None:
    """The one JSON document of a call."""
    plain = value.model_dump(mode="json") if isinstance(value, BaseModel) else value
    sys.stdout.write(json.dumps(plain, indent=2, ensure_ascii=False) + "\n")


def visible(text: str) -> str:
    """Text of somebody else for a terminal: line breaks stay, every other control, format or private character is
    shown as its escape, so that what a person approves is what there is."""
    return "".join(one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode() for one in text)


def cell(text: object, style: str = "") -> Text:
    """Somebody else's text as a cell of a table: no markup is read in it."""
    return Text(visible(str(text)), style=style)
