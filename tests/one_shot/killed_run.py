"""One run in a process of its own, which sends itself a signal at moments of its steps, once at each:
`killed_run.py ORDER`, where the order is JSON: {settings, operation, at: [[step, moment], ...], signal, group}. With
`group` the signal goes to the whole process group, as Ctrl-C in a terminal does. SIGTERM and SIGINT cancel the run, as
in any service.

It prints one line of JSON when the run is over: {exit} as the run said, or {cancelled: true}.
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

CANCELLED = 130


async def run(order: dict[str, Any]) -> int:
    due = [tuple(moment) for moment in order["at"]]
    target = signal.Signals[order["signal"]]

    def hear(event: StepEvent) -> None:
        if (event.number, event.moment) in due:
            due.remove((event.number, event.moment))  # a stopped process goes on from here
            if order["group"]:
                os.killpg(os.getpgrp(), target)
            else:
                os.kill(os.getpid(), target)

    async with Executor(Settings(**order["settings"]), on_step=hear) as executor:
        running = asyncio.ensure_future(executor.run(order["operation"], by=PERSON))
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.cancel)
        try:
            ended = await running
        except asyncio.CancelledError:
            say({"cancelled": True})
            return CANCELLED
        say({"exit": int(ended.exit)})
        return int(ended.exit)


def say(what: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(asyncio.run(run(json.loads(sys.argv[1]))))
