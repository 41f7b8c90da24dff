"""Several runs in one process, which stops itself (SIGSTOP) at one moment of each: `paused_runs.py ORDER`, where the
order is JSON: {settings, runs: [[operation, step, moment], ...]}.

A line of JSON before it stops, {stops: operation}, and one when a run is over, {operation, exit}.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from typing import Any

from desk import PERSON

from executor.one_shot.run import StepEvent
from executor.service import Executor
from executor.settings import Settings


async def run(order: dict[str, Any]) -> None:
    due = {operation: (step, moment) for operation, step, moment in order["runs"]}

    def hear(event: StepEvent) -> None:
        if due.get(event.operation) == (event.number, event.moment):
            del due[event.operation]
            # Not in the middle of a transaction, where it would hold the whole ledger: tests/ledger has that.
            executor.ledger._thread._thread.submit(int).result()
            say({"stops": event.operation})
            os.kill(os.getpid(), signal.SIGSTOP)

    async with Executor(Settings(**order["settings"]), on_step=hear) as executor:
        for operation, _, _ in order["runs"]:
            sys.stdin.readline()  # the site is ready for this one
            ended = await executor.run(operation, by=PERSON)
            say({"operation": operation, "exit": int(ended.exit)})


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(run(json.loads(sys.argv[1])))
