"""What may run now: the order, what stands in the way, waits, and the cost beside much that is settled (B5, B6)."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
from ledger_kit import EXECUTOR, FLOW, PERSON, PROPOSER, SUCCEEDED, Book, from_outside

from executor.ledger.ledger import NotAPerson
from executor.ledger.sql import SqlLedger
from executor.model.admission import refusal
from executor.model.operation import Attempt, Disposition, FlowBinding, Operation

MANY = 10_000


def due(book: Book, *flows: FlowBinding, limit: int = 10, without: tuple[str, ...] = ()) -> list[str]:
    return [one.operation.id for one in book.ledger.due(flows or (FLOW,), limit=limit, without=without)]


def test_the_longest_permitted_comes_first_and_one_for_each_account(book: Book) -> None:
    late = book.proposed("t1", "One", account="ann")
    first = book.approved("t2", "Two", account="bob")
    second = book.approved("t3", "Three", account="bob")
    book.approve(late)
    assert due(book) == [first.id, late.id]
    assert due(book, limit=1) == [first.id]
    assert due(book, without=(first.account_key,)) == [late.id]
    book.lease(first)
    assert due(book) == [late.id], "an account that somebody acts as is nobody else's"
    assert book.ledger.operation(second.id).version == second.version, "asking leaves no trace"


def test_who_has_many_does_not_keep_the_others_waiting(book: Book) -> None:
    many = [book.approved(f"a{number}", f"Title {number}", account="ann") for number in range(3)]
    one = book.approved("b", "Only", account="bob")
    turns = []
    for _ in range(4):
        (first,) = book.ledger.due((FLOW,), limit=1)
        turns.append(first.operation.id)
        _publish(book, first.operation)
    assert turns == [many[0].id, one.id, many[1].id, many[2].id]


def test_a_flow_that_this_process_does_not_know_is_not_due(book: Book) -> None:
    operation = book.approved()
    assert due(book, FlowBinding(name="other", version="1", code_digest="c0de")) == []
    assert due(book, FlowBinding(name="news", version="1", code_digest="new")) == [], (
        "its code is not what was approved"
    )
    assert book.ledger.due((), limit=10) == []
    assert due(book) == [operation.id]


def _revoked(book: Book, operation: Operation) -> None:
    book.ledger.revoke(operation.id, by=PERSON, why="no")


def _set_aside(book: Book, operation: Operation) -> None:
    now = book.ledger.operation(operation.id)
    book.ledger.dispose(operation.id, Disposition.WAIT, by=PERSON, why="later", version=now.version)


def _claimed(book: Book, operation: Operation) -> None:
    book.claim(operation, book.lease(operation))


def _same_text_went_out(book: Book, operation: Operation) -> None:
    other = book.proposed("another", "Hello", account=operation.intent.account)
    book.approve(other, meant=True)
    _publish(book, other)


def _publish(book: Book, operation: Operation) -> None:
    lease = book.lease(operation)
    attempt = book.claim(operation, lease)
    assert isinstance(attempt, Attempt), attempt
    book.let_go(attempt)
    book.close(attempt, SUCCEEDED)
    book.ledger.surrender(lease)


def _task_has_an_unknown(book: Book, operation: Operation) -> None:
    _, attempt = book.released(operation.intent.task, "Another", account="bob")
    book.close(attempt)


IN_THE_WAY: dict[str, Callable[[Book, Operation], object]] = {
    "revoked": _revoked,
    "set aside": _set_aside,
    "claimed": _claimed,
    "look-alike": _same_text_went_out,
    "task unresolved": _task_has_an_unknown,
    "stop": lambda book, operation: book.ledger.stop(by=PERSON, why="hold"),
    "stop of the flow": lambda book, operation: book.ledger.stop(by=PERSON, why="hold", flow="news"),
    "stop of the account": lambda book, operation: book.ledger.stop(
        by=PERSON, why="hold", account_key=operation.account_key
    ),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_what_stands_in_the_way_keeps_it_from_being_due(what: str, book: Book) -> None:
    """And admission says the same: what is due would be admitted, and what is not would not."""
    operation = book.approved()
    assert due(book) == [operation.id]
    IN_THE_WAY[what](book, operation)
    assert due(book) == []
    assert refusal(book.ledger.admission(operation.id, FLOW)) is not None


def test_what_comes_after_waits_for_that(book: Book) -> None:
    first = book.approved("t1", "First", account="bob")
    then = book.approved("t2", "Then", after=(first.id,))
    assert due(book) == [first.id]
    _publish(book, first)
    assert due(book) == [then.id]


def test_an_approval_that_has_run_out_is_not_due(book: Book) -> None:
    operation = book.approved(valid_for_s=0.05)
    approval = operation.approval
    assert approval is not None
    book.until(approval.expires)
    assert due(book) == []


def test_a_wait_ends_by_its_time_or_by_a_person(book: Book) -> None:
    operation = book.approved()
    said = {"by": EXECUTOR, "halt": "halt:browser_lost", "why": "waits"}
    book.ledger.wait(operation.id, seconds=0.2, **said)
    (waiting,) = book.ledger.waiting()
    assert (waiting.operation, waiting.halt) == (operation.id, "halt:browser_lost")
    assert due(book) == []
    assert waiting.until is not None
    book.until(waiting.until)
    assert due(book) == [operation.id]
    assert book.ledger.waiting() == []

    book.ledger.wait(operation.id, seconds=None, **said)
    assert book.ledger.halts("task") == 2
    assert due(book) == []
    with pytest.raises(NotAPerson):
        book.ledger.resume(operation.id, by=PROPOSER, why="now")
    book.ledger.resume(operation.id, by=PERSON, why="signed in")
    assert (due(book), book.ledger.halts("task")) == ([operation.id], 0)

    book.ledger.wait(operation.id, seconds=None, **said)
    book.approve(operation)
    assert (due(book), book.ledger.waiting()) == ([operation.id], [])
    with pytest.raises(ValueError, match="no time"):
        book.ledger.wait(operation.id, seconds=0, **said)
    book.sound()


def test_a_stop_of_the_breaker_is_set_once(book: Book) -> None:
    said = {"by": EXECUTOR, "why": "operation op_1 is unknown", "flow": "news", "account_key": "https://a|ann"}
    first = book.ledger.stop(**said, once=True)
    assert book.ledger.stop(**said, once=True) == first
    assert book.ledger.stops() == [first]
    book.ledger.lift(first.id, by=PERSON, why="looked")
    assert book.ledger.stop(**said, once=True).id != first.id, "a lifted one holds nothing"
    book.sound()


def test_the_price_beside_ten_thousand_that_are_settled(url: str, ledger: SqlLedger) -> None:
    """The settled ones are copies of one row, written past the ledger: what the query costs does not depend on their
    histories. The bound is far above it, for a machine that does much else."""
    book = Book(ledger)
    _, attempt = book.released("done", "Done", account="bob")
    settled = book.close(attempt, SUCCEEDED)
    wanted = [book.approved(f"t{number}", f"Title {number}", account=f"a{number}") for number in range(20)]
    with from_outside(url) as engine, engine.begin() as connection:
        columns = [
            row[0] for row in connection.exec_driver_sql("SELECT * FROM operations WHERE 1 = 0").cursor.description
        ]  # type: ignore[union-attr]
        changed = {
            "id": "'op_x' || n.n",
            "identity": "'identity' || n.n",
            "proposed_position": "100000 + n.n",
            "task": "'task' || (n.n / 5)",
            "look_alike": "'alike' || n.n",
            "slot": "'slot' || n.n",
        }
        chosen = ", ".join(changed.get(name, f"o.{name}") for name in columns)
        connection.exec_driver_sql(
            f"WITH RECURSIVE n(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < {MANY}) "
            f"INSERT INTO operations ({', '.join(columns)}) SELECT {chosen} FROM operations o, n "
            f"WHERE o.id = '{settled.id}'"
        )
        connection.exec_driver_sql("ANALYZE")
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        found = due(book, limit=4)
        taken.append(time.perf_counter() - begun)
        assert found == [one.id for one in wanted[:4]]
    assert statistics.median(taken) < 0.5
