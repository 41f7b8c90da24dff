"""Real processes on one ledger: racing, paused across their lease, killed during commits (A5, A6, C8)."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from ledger_kit import EXECUTOR, Book, from_outside
from sqlalchemy import text

from executor.ledger.ledger import LedgerUnavailable
from executor.ledger.sql import open_ledger
from executor.model.transitions import Outcome

WORKER = Path(__file__).with_name("ledger_worker.py")
RACE = Path(__file__).with_name("ledger_race.py")
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(url: str) -> Iterator[Start]:
    """Start a worker on the test's ledger; what still runs at the end is killed."""
    running: list[subprocess.Popen[str]] = []

    def begin(task: str, *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, str(WORKER), url, task, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield begin
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(*processes: subprocess.Popen[str]) -> list[list[str]]:
    """Let them run at the same moment, once all are ready; what each said."""
    for process in processes:
        assert line(process) == "ready", process.communicate()[1]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        said.append(out.splitlines())
    return said


@pytest.mark.timeout(900)  # a minute where nothing else runs
def test_32_processes_race_for_200_operations_and_each_is_won_once(url: str, book: Book) -> None:
    """The rows are read past the ledger, and every process says whether anything went wrong in it."""
    operations = [book.approved(f"t{n}", f"title {n}", account=f"account{n}").id for n in range(200)]
    ran = subprocess.run(
        [sys.executable, str(RACE), url, "32", *operations], stdout=subprocess.PIPE, check=True, timeout=840
    )
    said = json.loads(ran.stdout)
    processes = said["processes"]
    assert [one["error"] for one in processes if one["error"]] == []
    assert sorted(operation for one in processes for operation in one["won"]) == sorted(operations)
    calls, longest = sum(one["calls"] for one in processes), max(one["longest_s"] for one in processes)
    print(f"{said['seconds']:.1f} s, {calls / said['seconds']:.0f} calls/s, the longest took {longest:.1f} s")  # noqa: T201

    with from_outside(url) as engine, engine.connect() as connection:

        def rows(statement: str) -> list[tuple[object, ...]]:
            return [tuple(row) for row in connection.execute(text(statement))]

        assert rows("SELECT count(*), count(DISTINCT operation_id), count(DISTINCT release_slot) FROM attempts") == [
            (200, 200, 200)
        ]
        assert rows("SELECT used, count(*) FROM approvals GROUP BY used") == [(1, 200)]
        assert rows("SELECT dispatch, transmission, outcome, count(*) FROM operations GROUP BY 1, 2, 3") == [
            ("completed", "answered", "succeeded", 200)
        ]
        assert rows(
            "SELECT kind, count(*), count(DISTINCT subject) FROM events "
            "WHERE kind IN ('claimed', 'released', 'closed') GROUP BY kind ORDER BY kind"
        ) == [("claimed", 200, 200), ("closed", 200, 200), ("released", 200, 200)]
        assert rows(
            "SELECT events - (SELECT count(*) FROM events), events - (SELECT max(position) FROM events) FROM ledger"
        ) == [(0, 0)]
        winners = {f"worker{n}": 0 for n in range(16)}
        for number, one in enumerate(processes):
            winners[f"worker{number // 2}"] += len(one["won"])
        assert dict(rows("SELECT holder, count(*) FROM attempts GROUP BY holder")) == {  # type: ignore[arg-type]
            name: count for name, count in winners.items() if count
        }
    book.sound()


def test_two_processes_race_to_release_one_attempt(book: Book, start: Start) -> None:
    operation, attempt = book.claimed()
    said = go(*(start("race_release", attempt.id) for _ in range(2)))
    assert sorted(lines[-1] for lines in said) == ["already_released", "released"]
    assert book.kinds(operation).count("released") == 1
    book.sound()


def test_several_processes_create_one_ledger(url: str, start: Start) -> None:
    """All of them find it missing at the same time, and all of them open the same one."""
    processes = [start("race_release", "at_none") for _ in range(4)]
    for process in processes:
        assert line(process) == "ready", process.communicate()[1]
    ledger = open_ledger(url)
    try:
        assert ledger.verify_all().flaws == ()
        assert ledger.identity().events == 0
    finally:
        ledger.close_connections()


def test_a_process_paused_across_its_lease_wakes_to_a_refusal(book: Book, start: Start) -> None:
    operation = book.approved()
    worker = start("claim_and_sleep", operation.id, "2.0")
    attempt = line(worker)
    worker.send_signal(signal.SIGSTOP)
    while attempt not in [a.id for a in book.ledger.open_attempts()]:
        pass  # until the database's clock says that the lease has run out
    settled = book.ledger.settle(attempt, by=EXECUTOR, why="its lease ran out")
    assert settled.state.outcome is Outcome.UNOBSERVED
    worker.send_signal(signal.SIGCONT)
    assert go(worker) == [["lease_lost"]]
    assert book.ledger.operation(operation.id).releases == 0
    book.sound()


@pytest.mark.parametrize("url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("ends", ["it goes on", "it is killed"])
def test_a_process_stopped_in_the_middle_of_a_write_holds_sqlite_and_says_so(
    start: Start, ends: str, monkeypatch: pytest.MonkeyPatch, url: str
) -> None:
    """The limit of one file: nobody can undo another process's transaction. The wait is bounded, looking goes on, and
    nothing is lost. (PostgreSQL undoes it after a while: `test_a_process_that_sleeps_in_a_transaction_...`.)"""
    monkeypatch.setattr("executor.ledger.database.BUSY_TIMEOUT_S", 0.3)
    ledger = open_ledger(url)
    try:
        book = Book(ledger)
        operation = book.proposed()
        worker = start("stop_in_the_middle", operation.id)
        _, status = os.waitpid(worker.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        with pytest.raises(LedgerUnavailable, match=r"locked.*stopped in the middle"):
            book.approve(operation)
        assert ledger.operation(operation.id) == operation
        worker.send_signal(signal.SIGCONT if ends == "it goes on" else signal.SIGKILL)
        assert worker.communicate(timeout=60)[1] == ""
        book.approve(operation)
        noted = ["step"] if ends == "it goes on" else []
        assert book.kinds(operation) == ["proposed", *noted, "approved"]
        book.sound()
    finally:
        ledger.close_connections()


STEPS = {"claimed": "approved", "gesture": "claimed", "released": "gesture", "closed": "released"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_at_a_commit_leaves_all_of_the_step_or_nothing(book: Book, start: Start, when: str) -> None:
    operation = book.approved()
    for step in STEPS:
        before = book.ledger.operation(operation.id)
        died = start("die_at_the_commit", step, when, operation.id)
        assert died.wait(timeout=60) == -signal.SIGKILL, died.communicate()[1]
        book.sound()
        if when == "before":
            assert book.ledger.operation(operation.id) == before
            attempt = before.attempt
            match step:  # take the step after all, to try the next one
                case "claimed":
                    book.claim(operation, book.lease(operation))
                case "gesture":
                    book.ledger.gesture(attempt.id, by=EXECUTOR)  # type: ignore[union-attr]
                case "released":
                    book.let_go(attempt)  # type: ignore[arg-type]
        assert book.kinds(operation)[-1] == (step if (when, step) != ("before", "closed") else STEPS[step])
    book.sound()


def test_processes_killed_at_any_moment_leave_whole_steps_and_every_promise_kept(book: Book, start: Start) -> None:
    """Three writers at once, each killed in the middle of its work, twice over. Whatever a step's call returned is in
    the ledger; whatever is in it is whole."""
    promised: dict[str, list[str]] = {}

    def killed(name: str) -> None:
        worker = start("work_without_end", name)
        lines = [line(worker) for _ in range(3 + secrets.randbelow(25))]
        worker.kill()
        assert worker.stdout is not None
        rest = worker.stdout.read()  # not by communicate(), which knows nothing of what readline() has buffered
        err = worker.communicate(timeout=60)[1]
        assert not err, err
        for entry in [*lines, *rest.splitlines()]:
            with suppress(ValueError):  # the last line may be cut
                operation, step = entry.split()
                promised.setdefault(operation, []).append(step)

    for turn in range(2):
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(killed, [f"turn{turn}writer{n}" for n in range(3)]))
        book.sound()

    assert promised
    for operation, steps in promised.items():
        kinds = [kind for kind in book.kinds(book.ledger.operation(operation)) if kind != "seen_succeeded"]
        assert kinds[: len(steps)] == steps
        assert len(kinds) <= len(steps) + 1  # at most the one step that was under way
    for attempt in book.ledger.open_attempts(expired_only=False):
        left = book.ledger.settle(attempt.id, by=EXECUTOR, why="killed")
        released = attempt.released_at is not None
        assert left.state.outcome is (Outcome.UNKNOWN if released else Outcome.UNOBSERVED)
    assert all(len(book.ledger.operation(op).attempts) <= 1 for op in promised)
    book.sound()
