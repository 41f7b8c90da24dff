"""A run in a process of its own (`killed_run.py`), and its end: nothing that it started survives the test.

The driver puts the browser into a process group of its own, so killing the child's group does not reach it. It ends by
itself when its driver goes; here it is found by the folder for temporary files that the child was given, and killed by
its own group where it does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desk import Desk
from sqlalchemy import create_engine, text

from executor.ledger.database import resolve
from executor.model.transitions import Dispatch, Outcome, Transmission
from executor.one_shot.recovery import RUN_ENDED
from executor.service import Executor
from executor.settings import Settings

SCRIPT = Path(__file__).with_name("killed_run.py")
PATIENCE_S = 120.0
"""For one run on a machine that does much else."""

Shape = tuple[Dispatch, Transmission | None, Outcome]
IDLE: Shape = (Dispatch.NOT_STARTED, None, Outcome.UNOBSERVED)
NOT_SENT: Shape = (Dispatch.COMPLETED, Transmission.NONE_PROVEN, Outcome.UNOBSERVED)
UNKNOWN: Shape = (Dispatch.COMPLETED, Transmission.POSSIBLE, Outcome.UNKNOWN)
SUCCEEDED: Shape = (Dispatch.COMPLETED, Transmission.ANSWERED, Outcome.SUCCEEDED)
SEEN: Shape = (Dispatch.COMPLETED, Transmission.POSSIBLE, Outcome.SUCCEEDED)
"""Without an answer, and then seen by looking."""


@dataclass
class Child:
    process: subprocess.Popen[str]
    folder: Path

    @classmethod
    def start(cls, settings: Settings, operation: str, *at: tuple[int, str], sent: str, group: bool = False) -> Child:
        order = {
            "settings": settings.model_dump(mode="json"),
            "operation": operation,
            "at": at,
            "signal": sent,
            "group": group,
        }
        return cls.begin(SCRIPT, order)

    @classmethod
    def begin(cls, script: Path, order: Any) -> Child:
        # A short path: the browser puts a socket into it, whose whole name has room for 107 bytes.
        folder = Path(tempfile.mkdtemp(prefix="run-"))
        process = subprocess.Popen(
            [sys.executable, str(script), json.dumps(order)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "TMPDIR": str(folder)},
            start_new_session=True,
        )
        return cls(process, folder)

    def ended(self) -> tuple[int, dict[str, Any]]:
        """Wait for its end: the exit code (negative: the signal), and what it said."""
        out, error = self.process.communicate(timeout=PATIENCE_S)
        assert "Traceback" not in error, error
        return self.process.returncode, json.loads(out) if out else {}

    def told(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def said(self) -> dict[str, Any]:
        """Wait for its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.communicate(timeout=PATIENCE_S)[1]
        return json.loads(line)  # type: ignore[no-any-return]

    def stopped(self) -> None:
        """Wait until it has stopped itself."""
        _, status = os.waitpid(self.process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"it ended instead ({status})"

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def browser_groups(self) -> set[int]:
        """The process groups of what runs on this child's folder."""
        groups = set()
        for entry in Path("/proc").iterdir():
            if not entry.name.isdecimal():
                continue
            with contextlib.suppress(OSError):
                if str(self.folder).encode() in (entry / "cmdline").read_bytes():
                    groups.add(os.getpgid(int(entry.name)))
        return groups - {os.getpgrp()}

    def end(self) -> None:
        """Kill what is left of it, by the groups that it started."""
        for group in (self.process.pid, *self.browser_groups()):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        self.process.communicate(timeout=PATIENCE_S)
        eventually(lambda: not self.browser_groups())
        shutil.rmtree(self.folder, ignore_errors=True)


@contextlib.contextmanager
def child(settings: Settings, operation: str, *at: tuple[int, str], sent: str, group: bool = False) -> Iterator[Child]:
    """Start one; the moments at which it sends itself the signal are those of its listener."""
    with ending(Child.start(settings, operation, *at, sent=sent, group=group)) as started:
        yield started


@contextlib.contextmanager
def ending(started: Child) -> Iterator[Child]:
    """End it with the test."""
    try:
        yield started
    finally:
        started.end()


def eventually(condition: Callable[[], bool], within_s: float = 20.0) -> None:
    """What another process does cannot be awaited."""
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.02)


def let_the_leases_run_out(desk: Desk) -> None:
    """Time passes: every lease ends now. Leases are not part of any history, so nothing else changes."""
    engine = create_engine(resolve(desk.settings.ledger_url))
    try:
        with engine.begin() as database:
            database.execute(text("UPDATE accounts SET expires_us = 1"))
    finally:
        engine.dispose()


async def shape_of(executor: Executor, operation: str) -> Shape:
    state = (await executor.operation(operation)).state
    return state.dispatch, state.transmission, state.outcome


async def check_the_record(desk: Desk, executor: Executor, operation: str) -> Shape:
    """What holds after every recovery: the chain is whole, the receipt tells the state, an unknown has its stop, and
    the record claims nothing that the site's own record does not bear out. Returns the state."""
    found = await executor.operation(operation)
    shape = await shape_of(executor, operation)
    assert (await executor.ledger.verify_all()).flaws == ()

    receipt = await executor.receipt(operation)
    dimensions = receipt.dimensions
    assert (dimensions.dispatch, dimensions.transmission, dimensions.outcome) == shape
    if found.attempts:
        kept = json.loads((desk.settings.receipts_folder / f"{operation}.json").read_text())
        assert kept["dimensions"] == dimensions.model_dump(mode="json")
        assert kept["ids"]["attempt"] == found.attempts[-1].id
        assert RUN_ENDED in [event.kind for event in await executor.events(operation)]

    unknown = shape[2] is Outcome.UNKNOWN
    stops = [(stop.flow, stop.account_key) for stop in await executor.stops()]
    assert stops == ([(found.flow.name, found.account_key)] if unknown else [])

    published = desk.playground.truth.publish_count()
    assert published <= 1
    if shape[1] in (None, Transmission.NONE_PROVEN):
        assert published == 0
    if shape[2] is Outcome.SUCCEEDED:
        assert published == 1
    return shape
