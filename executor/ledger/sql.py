"""The ledger in a SQL database: `executor.ledger.ledger.Ledger` on SQLite and, by the same statements, on PostgreSQL.

One method is one transaction. What happens inside is in `intents`, `permissions`, `leases`, `claims` and `endings`;
this module opens, commits, and keeps the anchor. It may be used from any thread; a program with an event loop uses
`executor.ledger.thread`.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import URL, select

from executor.ledger import claims, endings, history, intents, leases, permissions, projection, records, waiting
from executor.ledger.anchor import Anchor, Anchored, compare
from executor.ledger.database import Database, Transaction, resolve
from executor.ledger.history import Line
from executor.ledger.ledger import (
    AnchorUnreadable,
    ChainBroken,
    CommitUncertain,
    Due,
    Judgement,
    LedgerIdentity,
    LedgerUnavailable,
    Proposed,
    Verification,
    Waiting,
)
from executor.ledger.migrations import SCHEMA
from executor.ledger.tables import events, operations, stops
from executor.model.admission import Refused, Snapshot
from executor.model.operation import (
    Actor,
    Approval,
    Attempt,
    Disposition,
    EventRecord,
    FlowBinding,
    Intent,
    Lease,
    Operation,
    Policy,
    Stop,
)
from executor.model.transitions import Dispatch
from flows.effect import ClientKey


class SqlLedger:
    """See the contract in `executor.ledger.ledger.Ledger`.

    Opening creates the file (mode 0600, in a folder of mode 0700) and the schema where they are missing. Raises
    `LedgerUnavailable` when the database does not answer or belongs to something else, `SchemaTooNew` when a newer
    version of the program wrote it.
    """

    def __init__(self, url: str | URL, *, anchor: Anchor | None = None) -> None:
        self._database = Database(resolve(url))
        self._anchor = anchor

    # -- operations ---------------------------------------------------------------------------------------------------
    def propose(
        self,
        intent: Intent,
        *,
        flow: FlowBinding,
        policy: Policy,
        by: Actor,
        provider_key: str | None = None,
    ) -> Proposed:
        with self._database.writing() as tx:
            return intents.propose(tx, intent, flow=flow, policy=policy, provider_key=provider_key, line=Line(by))

    def operation(self, operation: str) -> Operation:
        with self._database.reading() as tx:
            found = records.load(tx, records.full_id(tx, operation))
            if not _wait_is_over(tx, found):
                return found
        return self._with_expiry([found.id])[0]

    def operations(self, *, unresolved_only: bool = False, limit: int = 200) -> Sequence[Operation]:
        with self._database.reading() as tx:
            found = records.newest(tx, unresolved_only=unresolved_only, limit=limit)
            over = [operation.id for operation in found if _wait_is_over(tx, operation)]
        if not over:
            return found
        now = {operation.id: operation for operation in self._with_expiry(over)}
        return [now.get(operation.id, operation) for operation in found]

    def _with_expiry(self, ids: Sequence[str]) -> list[Operation]:
        """Record the approvals that have run out, as found on looking."""
        with self._database.writing() as tx:
            for operation in ids:
                found = records.load(tx, operation)
                if _wait_is_over(tx, found):
                    history.record_expiry(tx, found)
            return [records.load(tx, operation) for operation in ids]

    def events(self, operation: str) -> Sequence[EventRecord]:
        with self._database.reading() as tx:
            table = stops if operation.startswith("st_") else operations
            subject = operation if table is stops else records.full_id(tx, operation)
            found = list(history.read(tx, subject))
            row = tx.connection.execute(select(table.c.version, table.c.head).where(table.c.id == subject)).first()
            if row is None or not found or (row.version, row.head) != (len(found), found[-1].hash):
                raise ChainBroken(f"the history of {subject} does not end where its row says; the ledger was changed.")
            return found

    def note(
        self,
        operation: str,
        *,
        kind: str,
        by: Actor,
        why: str,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Operation:
        with self._database.writing() as tx:
            return intents.annotate(tx, operation, kind, Line(by, why, data, evidence))

    def dispose(self, operation: str, disposition: Disposition, *, by: Actor, why: str, version: int) -> Operation:
        with self._database.writing() as tx:
            return intents.dispose(tx, operation, disposition, version=version, line=Line(by, why))

    # -- permission ---------------------------------------------------------------------------------------------------
    def approve(
        self,
        operation: str,
        *,
        by: Actor,
        flow: FlowBinding,
        fingerprint: str,
        valid_for_s: float,
        attempts: int = 1,
        meant: bool = False,
        key: ClientKey | None = None,
        why: str = "",
    ) -> Approval:
        with self._database.writing() as tx:
            return permissions.approve(
                tx,
                operation,
                flow=flow,
                fingerprint=fingerprint,
                valid_for_s=valid_for_s,
                attempts=attempts,
                meant=meant,
                key=key,
                line=Line(by, why),
            )

    def revoke(self, operation: str, *, by: Actor, why: str) -> Operation:
        with self._anchored(at_least_try=True) as tx:
            return permissions.revoke(tx, operation, line=Line(by, why))

    # -- order and stops ----------------------------------------------------------------------------------------------
    def lease(self, account_key: str, *, holder: str, ttl_s: float) -> Lease:
        with self._database.writing() as tx:
            return leases.lease(tx, account_key, holder=holder, ttl_s=ttl_s)

    def renew(self, lease: Lease, *, ttl_s: float) -> Lease:
        with self._database.writing() as tx:
            return leases.renew(tx, lease, ttl_s=ttl_s)

    def surrender(self, lease: Lease) -> None:
        with self._database.writing() as tx:
            leases.surrender(tx, lease)

    def stop(
        self, *, by: Actor, why: str, flow: str | None = None, account_key: str | None = None, once: bool = False
    ) -> Stop:
        with self._anchored(at_least_try=True) as tx:
            return permissions.stop(tx, flow=flow, account_key=account_key, once=once, line=Line(by, why))

    def lift(self, stop: str, *, by: Actor, why: str) -> Stop:
        with self._database.writing() as tx:
            return permissions.lift(tx, stop, line=Line(by, why))

    def stops(self, *, in_force_only: bool = True) -> Sequence[Stop]:
        with self._database.reading() as tx:
            return records.load_stops(tx, in_force_only=in_force_only)

    # -- what may run -------------------------------------------------------------------------------------------------
    def due(self, flows: Collection[FlowBinding], *, limit: int, without: Collection[str] = ()) -> Sequence[Due]:
        kept = self._kept()
        with self._database.reading() as tx:
            behind = self._is_behind(tx, kept)
            return waiting.due(tx, flows, limit=limit, without=without, behind_anchor=behind)

    def wait(self, operation: str, *, by: Actor, halt: str, seconds: float | None, why: str) -> Operation:
        with self._database.writing() as tx:
            return waiting.wait(tx, operation, halt=halt, seconds=seconds, line=Line(by, why))

    def resume(self, operation: str, *, by: Actor, why: str) -> Operation:
        with self._database.writing() as tx:
            return waiting.resume(tx, operation, line=Line(by, why))

    def halts(self, task: str) -> int:
        with self._database.reading() as tx:
            return waiting.halts(tx, task)

    def waiting(self) -> Sequence[Waiting]:
        with self._database.reading() as tx:
            return waiting.waiting(tx)

    # -- one attempt --------------------------------------------------------------------------------------------------
    def admission(self, operation: str, flow: FlowBinding, *, key: ClientKey | None = None) -> Snapshot:
        kept = self._kept()  # before the database is read: it may only be older, never ahead by itself
        with self._database.reading() as tx:
            found = records.load(tx, records.full_id(tx, operation))
            return claims.snapshot(tx, found, flow, key=key, behind_anchor=self._is_behind(tx, kept))

    def claim(
        self,
        operation: str,
        *,
        attempt: str,
        lease: Lease,
        flow: FlowBinding,
        by: Actor,
        key: ClientKey | None = None,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Attempt | Refused:
        with self._anchored() as tx:
            return claims.claim(
                tx,
                operation,
                attempt=attempt,
                lease=lease,
                flow=flow,
                key=key,
                behind_anchor=self._is_behind(tx, self._kept()),
                line=Line(by, "the one submit is reserved", data, evidence),
            )

    def gesture(self, attempt: str, *, by: Actor) -> Attempt:
        with self._database.writing() as tx:
            return claims.gesture(tx, attempt, line=Line(by, "the gesture comes next"))

    def expose(self, attempt: str, *, by: Actor, write: str, url: str) -> Attempt:
        with self._database.writing() as tx:
            return claims.expose(tx, attempt, write=write, url=url, line=Line(by, "a write that could cause it leaves"))

    def release(
        self, attempt: str, *, by: Actor, data: Mapping[str, Any] | None = None, not_after: float | None = None
    ) -> Attempt | Refused:
        with self._anchored() as tx:
            behind = self._is_behind(tx, self._kept())
            released = claims.release(
                tx, attempt, behind_anchor=behind, line=Line(by, "the effect request may leave", data)
            )
            if not_after is not None and isinstance(released, Attempt) and time.monotonic() > not_after:
                raise LedgerUnavailable(
                    "the release had to wait for other writers until it was too late to write under it. Nothing was "
                    "changed. Run fewer at a time, or look at what holds the ledger up."
                )
            return released

    def nothing_written(self, attempt: str, *, by: Actor, why: str) -> Attempt:
        with self._database.writing() as tx:
            return endings.nothing_written(tx, attempt, line=Line(by, why))

    def answered(self, attempt: str, *, by: Actor, data: Mapping[str, Any], evidence: Sequence[str] = ()) -> Attempt:
        with self._database.writing() as tx:
            return endings.answered(tx, attempt, line=Line(by, "a whole answer was read", data, evidence))

    def close(
        self,
        attempt: str,
        *,
        by: Actor,
        reason: str,
        why: str,
        judgement: Judgement | None = None,
        data: Mapping[str, Any] | None = None,
        evidence: Sequence[str] = (),
    ) -> Operation:
        with self._database.writing() as tx:
            return endings.close(tx, attempt, reason=reason, judgement=judgement, line=Line(by, why, data, evidence))

    def judge(self, operation: str, judgement: Judgement, *, by: Actor) -> Operation:
        with self._database.writing() as tx:
            return endings.judge(tx, operation, judgement, by=by)

    # -- recovery -----------------------------------------------------------------------------------------------------
    def open_attempts(self, *, expired_only: bool = True) -> Sequence[Attempt]:
        with self._database.reading() as tx:
            return endings.open_attempts(tx, expired_only=expired_only)

    def settle(self, attempt: str, *, by: Actor, why: str, judgement: Judgement | None = None) -> Operation:
        with self._database.writing() as tx:
            return endings.settle(tx, attempt, judgement=judgement, line=Line(by, why))

    # -- the ledger itself --------------------------------------------------------------------------------------------
    def identity(self) -> LedgerIdentity:
        with self._database.reading() as tx:
            return _identity(tx)

    def verify_all(self) -> Verification:
        with self._database.reading() as tx:
            return projection.verify(tx)

    def accept_as_it_is(self, *, by: Actor, why: str) -> None:
        if self._anchor is None:
            raise ValueError("this ledger was opened without an anchor: there is nothing to accept")
        with self._database.writing() as tx:  # nobody else moves the ledger while the anchor is put to it
            self._anchor.accept(_identity(tx), by=by, why=why, at=tx.now)

    def now(self) -> datetime:
        with self._database.reading() as tx:
            return tx.now

    def durability_problems(self) -> tuple[str, ...]:
        """Settings of the database, and places for its file, under which it may forget what it reported: a sentence
        each, with what to do. Those that no release can rest on are refused at the opening."""
        return self._database.durability_problems()

    def close_connections(self) -> None:
        self._database.close()

    # -- the anchor ---------------------------------------------------------------------------------------------------
    @contextmanager
    def _anchored(self, *, at_least_try: bool = False) -> Iterator[Transaction]:
        """A writing transaction after which the anchor follows, before the caller hears that it was committed.

        `at_least_try` is for what forbids: a stop or a revocation must take force whatever state the anchor is in, and
        a broken anchor holds every claim by itself.
        """
        follow = False
        with self._database.writing() as tx:
            yield tx
            if self._anchor is not None and tx.appended:
                try:
                    follow = not self._is_behind(tx, self._anchor.read())
                except AnchorUnreadable:
                    if not at_least_try:
                        raise
        if not follow or self._anchor is None:
            return
        try:
            self._anchor.advance(_identity(tx))
        except (OSError, AnchorUnreadable) as error:
            if at_least_try:
                return
            raise CommitUncertain(
                f"the change was committed, but the anchor could not follow ({error}). Act on nothing that "
                "rests on it before the anchor's folder can be written again."
            ) from error

    def behind_anchor(self) -> bool:
        """Whether the ledger is older than its anchor, so that it claims and releases nothing until a person accepts
        it (C8). Raises `AnchorUnreadable`."""
        kept = self._kept()
        with self._database.reading() as tx:
            return self._is_behind(tx, kept)

    def _kept(self) -> Anchored | None:
        return None if self._anchor is None else self._anchor.read()

    def _is_behind(self, tx: Transaction, kept: Anchored | None) -> bool:
        def head_at(position: int) -> str | None:
            query = select(events.c.ledger_head).where(events.c.position == position)
            return tx.connection.execute(query).scalar_one_or_none()

        return not compare(kept, _identity(tx), head_at).may_claim


def open_ledger(path_or_url: str | Path | URL, *, anchor: Anchor | None = None) -> SqlLedger:
    """Open the ledger in a SQLite file, or at a database URL; create what is missing. See `SqlLedger`."""
    return SqlLedger(resolve(path_or_url), anchor=anchor)


def _identity(tx: Transaction) -> LedgerIdentity:
    return LedgerIdentity(id=tx.ledger_id, events=tx.events, head=tx.head, schema=SCHEMA)


def _wait_is_over(tx: Transaction, operation: Operation) -> bool:
    """Whether an operation waits for its run with an approval that has run out, and nobody has recorded it."""
    return operation.state.dispatch is Dispatch.NOT_STARTED and history.approval_ran_out(tx, operation)
