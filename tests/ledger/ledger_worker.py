"""A process of its own for the tests that need one: `ledger_worker.py URL TASK ARGUMENT...`, one line in, lines out."""

from __future__ import annotations

import os
import signal
import sys

from ledger_kit import EXECUTOR, SUCCEEDED, Book
from sqlalchemy import Connection, Engine, event

from executor.ledger.sql import open_ledger
from executor.model.operation import Attempt


def say(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def wait_for_the_word() -> None:
    say("ready")
    sys.stdin.readline()


def race_release(book: Book, attempt: str) -> None:
    wait_for_the_word()
    said = book.ledger.release(attempt, by=EXECUTOR)
    say("released" if isinstance(said, Attempt) else said.reason.value)


def claim_and_sleep(book: Book, operation: str, ttl_s: str) -> None:
    """A worker that claims, is paused by whoever started it, and goes on as if nothing had been."""
    found = book.ledger.operation(operation)
    attempt = book.claim(found, book.lease(found, ttl_s=float(ttl_s)))
    assert isinstance(attempt, Attempt), attempt
    say(attempt.id)
    race_release(book, attempt.id)


def work_without_end(book: Book, name: str) -> None:
    """Whole runs, each step reported once the ledger said that it is durable."""
    number = 0
    while True:
        number += 1
        operation = book.proposed(f"{name}-{number}", f"{name} {number}", account=name)
        say(operation.id, "proposed")
        book.approve(operation)
        say(operation.id, "approved")
        attempt = book.claim(operation, book.lease(operation))
        assert isinstance(attempt, Attempt), attempt
        say(operation.id, "claimed")
        book.ledger.gesture(attempt.id, by=EXECUTOR)
        say(operation.id, "gesture")
        assert isinstance(book.let_go(attempt), Attempt)
        say(operation.id, "released")
        book.ledger.answered(attempt.id, by=EXECUTOR, data={"status": 201})
        say(operation.id, "answered")
        book.close(attempt, SUCCEEDED)
        say(operation.id, "closed")


def die_at_the_commit(book: Book, step: str, when: str, subject: str) -> None:
    """Take one step, and be killed before or after its commit took effect."""

    def die(connection: Connection) -> None:
        if when == "after":
            dbapi = connection.connection.dbapi_connection
            assert dbapi is not None
            dbapi.commit()
        os.kill(os.getpid(), signal.SIGKILL)

    operation = book.ledger.operation(subject)
    attempt = operation.attempt.id if operation.attempt else ""
    lease = None if attempt else book.lease(operation)
    event.listen(Engine, "commit", die)
    match step:
        case "claimed":
            assert lease is not None
            book.claim(operation, lease)
        case "gesture":
            book.ledger.gesture(attempt, by=EXECUTOR)
        case "released":
            book.ledger.release(attempt, by=EXECUTOR)
        case "closed":
            book.ledger.close(attempt, by=EXECUTOR, reason="done", why="", judgement=None)
        case _:
            raise ValueError(step)


def stop_in_the_middle(book: Book, subject: str) -> None:
    """Be paused inside a transaction, once."""

    def stop(connection: object, cursor: object, statement: str, *_: object) -> None:
        if statement.startswith("INSERT INTO events"):
            os.kill(os.getpid(), signal.SIGSTOP)

    event.listen(Engine, "before_cursor_execute", stop)
    book.ledger.note(subject, kind="step", by=EXECUTOR, why="late")
    say("noted")


TASKS = {
    function.__name__: function
    for function in (race_release, claim_and_sleep, work_without_end, die_at_the_commit, stop_in_the_middle)
}


def main() -> None:
    url, task, *arguments = sys.argv[1:]
    ledger = open_ledger(url)
    try:
        TASKS[task](Book(ledger), *arguments)
    finally:
        ledger.close_connections()


if __name__ == "__main__":
    main()
