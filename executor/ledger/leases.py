"""Account leases and their fencing token (A5): order among runs, never a permit to retry. Functions inside one
transaction. The token only ever rises: by every lease taken and by every settlement.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import insert, select, update

from executor.ledger.database import Transaction, at, now_us
from executor.ledger.ledger import AccountBusy, LeaseLost
from executor.ledger.tables import accounts, attempts
from executor.model.operation import Attempt, Lease


def lease(tx: Transaction, account_key: str, *, holder: str, ttl_s: float) -> Lease:
    if not ttl_s > 0:
        raise ValueError("a lease lasts more than 0 seconds")
    open_one = open_attempt(tx, account_key)
    if open_one is not None:
        raise AccountBusy(
            f"the attempt {open_one} as this account is open. It must be settled before another run acts as it."
        )
    row = tx.connection.execute(select(accounts).where(accounts.c.account_key == account_key)).one_or_none()
    expires_us = tx.now_us + round(ttl_s * 1_000_000)
    if row is None:
        tx.connection.execute(
            insert(accounts).values(account_key=account_key, token=1, holder=holder, expires_us=expires_us)
        )
        return Lease(account_key=account_key, holder=holder, token=1, until=at(expires_us))
    if row.holder not in (None, holder) and row.expires_us > tx.now_us:
        raise AccountBusy(f"{row.holder} acts as this account. Wait for it to end.")
    tx.hit_one(
        update(accounts)
        .where(accounts.c.account_key == account_key, accounts.c.token == row.token)
        .values(token=row.token + 1, holder=holder, expires_us=expires_us),
        "the account's token moved under a transaction that had locked the ledger",
    )
    return Lease(account_key=account_key, holder=holder, token=row.token + 1, until=at(expires_us))


def renew(tx: Transaction, mine: Lease, *, ttl_s: float) -> Lease:
    if not ttl_s > 0:
        raise ValueError("a lease lasts more than 0 seconds")
    expires_us = tx.now_us + round(ttl_s * 1_000_000)
    changed = tx.connection.execute(
        update(accounts)
        .where(*_is(mine.account_key, mine.holder, mine.token), accounts.c.expires_us > now_us())
        .values(expires_us=expires_us)
    )
    if changed.rowcount != 1:
        raise LeaseLost("the account's lease has run out or belongs to another run. Do not submit; look at the record.")
    return Lease(account_key=mine.account_key, holder=mine.holder, token=mine.token, until=at(expires_us))


def surrender(tx: Transaction, mine: Lease) -> None:
    tx.connection.execute(
        update(accounts)
        .where(*_is(mine.account_key, mine.holder, mine.token))
        .values(holder=None, expires_us=tx.now_us)
    )


def is_current(tx: Transaction, account_key: str, *, holder: str, token: int) -> bool:
    """Whether this holder has the lease under this token, unexpired by the database's clock."""
    query = select(accounts.c.token).where(*_is(account_key, holder, token), accounts.c.expires_us > now_us())
    return tx.connection.execute(query).first() is not None


def must_be_current(tx: Transaction, account_key: str, attempt: Attempt) -> None:
    if not is_current(tx, account_key, holder=attempt.holder, token=attempt.token):
        raise LeaseLost("this attempt's lease has run out or was raised. Do not act on; look at the record.")


def raise_token(tx: Transaction, account_key: str) -> int:
    """Make every token of this account that anybody holds stale; the new one, which nobody holds (rule 5)."""
    tx.hit_one(
        update(accounts)
        .where(accounts.c.account_key == account_key)
        .values(token=accounts.c.token + 1, holder=None, expires_us=tx.now_us),
        "the account of this attempt was never leased",
    )
    query = select(accounts.c.token).where(accounts.c.account_key == account_key)
    return int(tx.connection.execute(query).scalar_one())


def open_attempt(tx: Transaction, account_key: str) -> str | None:
    """The id of the open attempt as this account."""
    query = select(attempts.c.id).where(attempts.c.open_account == account_key)
    return tx.connection.execute(query).scalar_one_or_none()


def _is(account_key: str, holder: str, token: int) -> tuple[Any, ...]:
    return (accounts.c.account_key == account_key, accounts.c.holder == holder, accounts.c.token == token)
