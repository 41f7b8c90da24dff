"""The ledger's tables, and nothing else: no query, no rule. Only modules of this room may import it.

Times are whole microseconds since 1970-01-01T00:00:00Z in 64 bits, by the database's clock. Identifiers, digests and
canonical JSON are text. The constraints are the last line of defence: a defect in the code above them meets a refusal
by the database instead of a second effect.

    operations.identity      an intent exists once (A4)
    attempts.open_account    at most one open attempt per account; empty once the attempt is closed
    attempts.release_slot    at most one release per operation under `absolute`, per attempt otherwise (A6, B3)
    approvals.used           never more claims than the approval allows
    events (subject, sequence), events.position
                             a place in a history, and in the ledger, is taken once (A8)
"""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, Index, Integer, MetaData, Table, Text, UniqueConstraint
from sqlmodel import Field, SQLModel


class _Row(SQLModel):
    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "ck": "ck_%(table_name)s_%(constraint_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


class LedgerRow(_Row, table=True):
    """The ledger itself: one row. Every writing transaction locks it first, so writers follow one another."""

    __tablename__ = "ledger"
    __table_args__ = (CheckConstraint("only_row = 1", name="one_row"),)

    only_row: int = Field(default=1, primary_key=True, sa_type=Integer, sa_column_kwargs={"autoincrement": False})
    id: str = Field(sa_type=Text)
    created_us: int = Field(sa_type=BigInteger)
    events: int = Field(sa_type=BigInteger)
    """How many events were ever appended."""
    head: str = Field(sa_type=Text)
    """Running hash over all events in commit order; empty before the first."""


class OperationRow(_Row, table=True):
    """The projection of an operation's events, with its intent. `proposed_position` is that of its first event."""

    __tablename__ = "operations"

    id: str = Field(primary_key=True, sa_type=Text)
    identity: str = Field(unique=True, sa_type=Text)
    proposed_position: int = Field(unique=True, sa_type=BigInteger)
    task: str = Field(index=True, sa_type=Text)
    action: str = Field(sa_type=Text)
    destination: str = Field(sa_type=Text)
    account: str = Field(sa_type=Text)
    account_key: str = Field(index=True, sa_type=Text)
    slot: str = Field(index=True, sa_type=Text)
    look_alike: str = Field(index=True, sa_type=Text)
    fingerprint: str = Field(sa_type=Text)
    intent: str = Field(sa_type=Text)
    """Canonical JSON. Payload, material and common projection appear nowhere else, so that they can be erased later
    without breaking a chain (D3)."""
    policy: str = Field(sa_type=Text)
    provider_key: str | None = Field(default=None, sa_type=Text)
    flow_name: str = Field(sa_type=Text)
    flow_version: str = Field(sa_type=Text)
    flow_digest: str = Field(sa_type=Text)
    permission: str = Field(sa_type=Text)
    dispatch: str = Field(index=True, sa_type=Text)
    transmission: str | None = Field(default=None, sa_type=Text)
    outcome: str = Field(index=True, sa_type=Text)
    disposition: str = Field(sa_type=Text)
    meant: bool = Field(default=False)
    proposed_by: str = Field(sa_type=Text)
    created_us: int = Field(sa_type=BigInteger)
    deadline_us: int | None = Field(default=None, sa_type=BigInteger)
    version: int = Field(sa_type=BigInteger)
    head: str = Field(sa_type=Text)


class ApprovalRow(_Row, table=True):
    """One permission. The one with the highest number is in force."""

    __tablename__ = "approvals"
    __table_args__ = (
        UniqueConstraint("operation_id", "number"),
        CheckConstraint("used >= 0 AND used <= attempts", name="used_within_attempts"),
    )

    id: str = Field(primary_key=True, sa_type=Text)
    operation_id: str = Field(foreign_key="operations.id", sa_type=Text)
    number: int = Field(sa_type=Integer)
    by: str = Field(sa_type=Text)
    at_us: int = Field(sa_type=BigInteger)
    expires_us: int = Field(sa_type=BigInteger)
    attempts: int = Field(sa_type=Integer)
    used: int = Field(sa_type=Integer)
    fingerprint: str = Field(sa_type=Text)
    account: str = Field(sa_type=Text)
    destination: str = Field(sa_type=Text)
    action: str = Field(sa_type=Text)
    flow_name: str = Field(sa_type=Text)
    flow_version: str = Field(sa_type=Text)
    flow_digest: str = Field(sa_type=Text)
    revoked_us: int | None = Field(default=None, sa_type=BigInteger)


class AttemptRow(_Row, table=True):
    """One reserved submit."""

    __tablename__ = "attempts"
    __table_args__ = (UniqueConstraint("operation_id", "number"),)

    id: str = Field(primary_key=True, sa_type=Text)
    operation_id: str = Field(foreign_key="operations.id", sa_type=Text)
    number: int = Field(sa_type=Integer)
    approval_id: str = Field(foreign_key="approvals.id", sa_type=Text)
    account_key: str = Field(sa_type=Text)
    holder: str = Field(sa_type=Text)
    token: int = Field(sa_type=BigInteger)
    transmission: str = Field(sa_type=Text)
    claimed_us: int = Field(sa_type=BigInteger)
    gesture_us: int | None = Field(default=None, sa_type=BigInteger)
    exposed: bool = Field(default=False)
    released_us: int | None = Field(default=None, sa_type=BigInteger)
    answered_us: int | None = Field(default=None, sa_type=BigInteger)
    closed_us: int | None = Field(default=None, sa_type=BigInteger)
    reason: str | None = Field(default=None, sa_type=Text)
    open_account: str | None = Field(default=None, unique=True, sa_type=Text)
    release_slot: str | None = Field(default=None, unique=True, sa_type=Text)


class EventRow(_Row, table=True):
    """One line of a history. `subject` is the id of an operation or of a stop; `position` the place among all events,
    `ledger_head` the running hash at that place."""

    __tablename__ = "events"

    subject: str = Field(primary_key=True, sa_type=Text)
    sequence: int = Field(primary_key=True, sa_type=BigInteger, sa_column_kwargs={"autoincrement": False})
    position: int = Field(unique=True, sa_type=BigInteger)
    at_us: int = Field(sa_type=BigInteger)
    actor: str = Field(sa_type=Text)
    kind: str = Field(sa_type=Text)
    why: str = Field(sa_type=Text)
    data: str = Field(sa_type=Text)
    evidence: str = Field(sa_type=Text)
    previous: str = Field(sa_type=Text)
    hash: str = Field(sa_type=Text)
    ledger_head: str = Field(sa_type=Text)


class AccountRow(_Row, table=True):
    """The lease of one account. `token` only ever rises; `holder` is empty when nobody has the lease."""

    __tablename__ = "accounts"

    account_key: str = Field(primary_key=True, sa_type=Text)
    token: int = Field(sa_type=BigInteger)
    holder: str | None = Field(default=None, sa_type=Text)
    expires_us: int = Field(sa_type=BigInteger)


class StopRow(_Row, table=True):
    """An order that nothing be claimed or released."""

    __tablename__ = "stops"
    __table_args__ = (Index(None, "lifted_us"),)

    id: str = Field(primary_key=True, sa_type=Text)
    flow: str | None = Field(default=None, sa_type=Text)
    account_key: str | None = Field(default=None, sa_type=Text)
    by: str = Field(sa_type=Text)
    at_us: int = Field(sa_type=BigInteger)
    why: str = Field(sa_type=Text)
    lifted_us: int | None = Field(default=None, sa_type=BigInteger)
    version: int = Field(sa_type=BigInteger)
    head: str = Field(sa_type=Text)


METADATA: MetaData = _Row.metadata

ledger: Table = METADATA.tables["ledger"]
operations: Table = METADATA.tables["operations"]
approvals: Table = METADATA.tables["approvals"]
attempts: Table = METADATA.tables["attempts"]
events: Table = METADATA.tables["events"]
accounts: Table = METADATA.tables["accounts"]
stops: Table = METADATA.tables["stops"]
