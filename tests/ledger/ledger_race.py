"""Many processes on one ledger at the same moment: `ledger_race.py URL PROCESSES OPERATION...`.

All of them are forked from this one, open the ledger for themselves, and wait for the same word. Each then goes through
all operations, four beginning at the same one, tries to claim every one that it does not see dispatched, and takes what
it wins to its end. Nothing is caught but the two answers
that a race is about: `AccountBusy`, and a refusal. It prints one line of JSON: {seconds, processes: [{won, refused,
busy, calls, longest_s, error}]}; `error` is a traceback, and empty where there was none.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, TypeVar

from ledger_kit import EXECUTOR, SUCCEEDED, Book

from executor.ledger.ledger import AccountBusy
from executor.ledger.sql import open_ledger
from executor.model.operation import Attempt

T = TypeVar("T")

AHEAD = 25
"""How far apart the groups of four begin."""


@dataclass
class Told:
    """What one process has to say."""

    won: list[str] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=dict)
    busy: int = 0
    calls: int = 0
    longest_s: float = 0.0
    error: str = ""

    def timed(self, call: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        started = time.monotonic()
        try:
            return call(*args, **kwargs)
        finally:
            self.calls += 1
            self.longest_s = max(self.longest_s, time.monotonic() - started)


def race(book: Book, holder: str, operations: list[str], begin_at: int, told: Told) -> None:
    left = deque(operations)
    left.rotate(-begin_at)
    while left:
        own = left.popleft()
        operation = told.timed(book.ledger.operation, own)
        if operation.attempts:
            continue
        try:
            lease = told.timed(book.lease, operation, holder=holder)
        except AccountBusy:
            told.busy += 1
            left.append(own)  # whoever acts as this account may be about to be refused
            continue
        said = told.timed(book.claim, operation, lease)
        if not isinstance(said, Attempt):
            told.refused[said.reason.value] = told.refused.get(said.reason.value, 0) + 1
            told.timed(book.ledger.surrender, lease)
            left.append(own)
            continue
        told.won.append(own)
        assert isinstance(told.timed(book.let_go, said), Attempt)
        told.timed(book.ledger.answered, said.id, by=EXECUTOR, data={"status": 201})
        told.timed(book.close, said, SUCCEEDED)
        told.timed(book.ledger.surrender, lease)


def one(url: str, number: int, operations: list[str], ready: int, word: int) -> Told:
    told = Told()
    try:
        ledger = open_ledger(url)
        try:
            book = Book(ledger)
            ledger.identity()
            os.write(ready, b".")
            os.read(word, 1)  # ends for all of them at once
            # Every two have the same name: a twin may take a lease over, and may not claim under it.
            race(book, f"worker{number // 2}", operations, number // 4 * AHEAD, told)
        finally:
            ledger.close_connections()
    except BaseException:  # noqa: BLE001  whatever it is, it is told
        told.error = traceback.format_exc()
        os.write(ready, b"!")
    return told


def main() -> None:
    url, count, *operations = sys.argv[1:]
    ready, told_ready = os.pipe()
    word, say_the_word = os.pipe()
    outlets = []
    for number in range(int(count)):
        outlet, inlet = os.pipe()
        if os.fork() == 0:
            os.close(say_the_word)
            told = one(url, number, operations, told_ready, word)
            with os.fdopen(inlet, "w") as out:
                json.dump(asdict(told), out)
            os._exit(0)
        os.close(inlet)
        outlets.append(outlet)
    for _ in outlets:
        os.read(ready, 1)
    started = time.monotonic()
    os.close(say_the_word)
    said = []
    for outlet in outlets:
        with os.fdopen(outlet) as line:
            said.append(json.load(line))
    print(json.dumps({"seconds": time.monotonic() - started, "processes": said}))  # noqa: T201


if __name__ == "__main__":
    main()
