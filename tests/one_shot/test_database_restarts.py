"""The database restarted, at once and without a word, in the middle of a whole run's commits (A6, C8, F2).

Before a commit arrives: then nothing of it is there. After it is durable and before its answer comes back: then all of
it is there, and the run does not know. Neither may write the effect request under a release that it does not know of,
and both leave a record that another process brings to a true end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from child import IDLE, NOT_SENT, SEEN, SUCCEEDED, Shape, check_the_record, let_the_leases_run_out
from desk import PERSON, Desk
from postgresql_server import Server
from sqlalchemy import Connection, Engine, event

from executor.errors import Exit
from executor.ledger.ledger import LedgerError
from executor.one_shot.steps import NotRecorded
from executor.service import Executor

pytestmark = pytest.mark.browser


@dataclass
class Restart:
    """Restarts the server once, at the first commit of an event of this kind: before it arrives, or when it is durable
    and before its answer."""

    server: Server
    kind: str
    when: str
    done: bool = False
    _due: set[int] = field(default_factory=set)

    def look(self, connection: Connection, cursor: object, statement: str, parameters: Any, *_: object) -> None:
        if not self.done and statement.startswith("INSERT INTO events") and self.kind in parameters.values():
            self._due.add(id(connection))

    def commit(self, connection: Connection) -> None:
        if id(connection) not in self._due:
            return
        self._due.clear()
        self.done = True
        if self.when == "durable":
            dbapi = connection.connection.dbapi_connection
            assert dbapi is not None
            dbapi.commit()
        self.server.restart()
        if self.when == "durable":
            raise ConnectionResetError("the answer to COMMIT was lost")

    @contextmanager
    def watching(self) -> Iterator[None]:
        event.listen(Engine, "before_cursor_execute", self.look)
        event.listen(Engine, "commit", self.commit)
        try:
            yield
        finally:
            event.remove(Engine, "before_cursor_execute", self.look)
            event.remove(Engine, "commit", self.commit)


@dataclass(frozen=True)
class Case:
    kind: str
    """Of the event whose commit is hit."""
    when: str
    expected: Shape
    published: int
    exit: Exit | None
    """None: it could not be recorded how the run ended."""

    def __str__(self) -> str:
        return f"{self.kind}-{self.when}"


CASES = (
    Case("run_started", "before", IDLE, 0, None),
    Case("claimed", "before", IDLE, 0, Exit.DEFECT),
    # The run does not know of its claim and halts; the attempt that is there is settled.
    Case("claimed", "durable", NOT_SENT, 0, Exit.DEFECT),
    Case("gesture", "before", NOT_SENT, 0, Exit.NOT_SENT),
    Case("gesture", "durable", NOT_SENT, 0, Exit.NOT_SENT),
    # Whatever became of the commit: its result was not known, so nothing was written, and this process knows that.
    Case("released", "before", NOT_SENT, 0, Exit.NOT_SENT),
    Case("released", "durable", NOT_SENT, 0, Exit.NOT_SENT),
    # The answer is not recorded, or not known to be: the run has read it all the same, and looks.
    Case("answered", "before", SEEN, 1, Exit.SUCCEEDED),
    Case("answered", "durable", SUCCEEDED, 1, Exit.SUCCEEDED),
    Case("closed", "before", SUCCEEDED, 1, None),
    Case("closed", "durable", SUCCEEDED, 1, None),
    Case("run_ended", "before", SUCCEEDED, 1, None),
    Case("run_ended", "durable", SUCCEEDED, 1, None),
    Case("receipt", "before", SUCCEEDED, 1, None),
    Case("receipt", "durable", SUCCEEDED, 1, None),
)
ALWAYS = {"claimed-durable", "released-before", "released-durable", "answered-before", "closed-durable"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if str(case) in ALWAYS else pytest.mark.long, id=str(case)) for case in CASES]
)
async def test_restarted_in_the_middle_of_a_commit(case: Case, desk: Desk, server: Server) -> None:
    desk.overrides["database_url"] = server.empty_database()
    restart = Restart(server, case.kind, case.when)
    async with desk.executor() as executor:
        operation = (await desk.approved(executor)).id
        with restart.watching():
            assert await _ran(executor, operation) == case.exit
        assert restart.done
    let_the_leases_run_out(desk)
    async with desk.executor() as executor:
        assert await check_the_record(desk, executor, operation) == case.expected
        kinds = [event.kind for event in await executor.events(operation)]
        assert kinds.count("released") <= 1
        # Nothing that was durable is forgotten, and nothing that was not has come about.
        assert kinds.count("claimed") == (0 if case.expected == IDLE else 1)
    truth = desk.playground.truth
    assert truth.publish_count() == len(truth.published()) == case.published


async def _ran(executor: Executor, operation: str) -> Exit | None:
    try:
        return (await executor.run(operation, by=PERSON)).exit
    except (NotRecorded, LedgerError):
        return None
