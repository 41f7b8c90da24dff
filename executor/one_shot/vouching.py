"""Vouching for a receipt: it is written, signed and logged as one step, under a lock that all processes share.

Three files follow one another: the receipt, its signed statement (`OPERATION.dsse.json`), the line in the log. A kill
between two of them leaves a receipt that `unvouched` finds. Nothing that is found on a disk is ever signed: what is
missing is made anew from the record, so that a receipt that was altered cannot come by a signature.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

from evidence.attestation import Made, Predicate, Statement, attested, statement
from evidence.receipt_log import Entry, ReceiptLog
from evidence.signing_keys import SigningKeys
from evidence.store import EvidenceError, write_replacing
from executor.receipts import Receipt, write_receipt
from executor.settings import Settings

_LOCK = ".receipts.lock"
_WAIT_S = 10.0
"""How long a receipt waits for others to be written: each takes a few syncs of the disk."""
_AGAIN_S = 0.01


@dataclass(frozen=True)
class Kept:
    """`written`: what is in the receipt's file; empty when it could not be written, which `problem` says. `unsigned`:
    why there is a receipt without a signature or without its line in the log."""

    written: bytes = b""
    problem: str = ""
    unsigned: str = ""


def envelope_of(folder: Path, operation: str) -> Path:
    """Where the signed statement about a receipt is."""
    return folder / f"{operation}.dsse.json"


def signing_keys(settings: Settings) -> SigningKeys:
    """The keys by which this installation signs. The folder is made with the first key."""
    return SigningKeys(settings.key_folder / "signing")


def keep(receipt: Receipt, settings: Settings) -> Kept:
    """Write the receipt, sign what it is, and log it. Blocks; never raises for a place that cannot be written to."""
    folder = settings.receipts_folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _alone(folder, _WAIT_S):
            paths = write_receipt(receipt, folder)
            files = {path.name: path.read_bytes() for path in (paths.json, paths.text)}
            return Kept(files[paths.json.name], unsigned=_vouched(receipt, files, settings))
    except OSError as error:
        said = error.strerror or type(error).__name__
        return Kept(problem=f"The receipt could not be written to {folder}: {said}.")


def unvouched(operations: Sequence[str], settings: Settings) -> Sequence[str]:
    """Those whose receipt is there and has no signature, or is in no line of the log. Empty while others write. Blocks;
    raises OSError and `EvidenceError`."""
    folder = settings.receipts_folder
    if not folder.is_dir():
        return ()
    try:
        with _alone(folder, 0.0):
            logged = {(one.operation_id, one.receipt) for one in ReceiptLog(folder).entries()}
            return [one for one in operations if _lacks(folder, one, logged)]
    except TimeoutError:
        return ()


def is_logged(operation: str, receipt: str, settings: Settings) -> bool:
    """Whether the log has a line for the receipt of that digest. Blocks; raises `LogUnreadable`."""
    entries = ReceiptLog(settings.receipts_folder).entries()
    return any((one.operation_id, one.receipt) == (operation, receipt) for one in entries)


def _vouched(receipt: Receipt, files: dict[str, bytes], settings: Settings) -> str:
    """Sign and log; why that failed, as a sentence."""
    folder, operation = settings.receipts_folder, receipt.ids.operation
    try:
        keys = signing_keys(settings)
        signer = keys.signer()
        made = _statement(receipt, files)
        write_replacing(envelope_of(folder, operation), attested(made, [signer]).to_json())
        entry = Entry(
            operation_id=operation,
            events=receipt.record.version,
            head=receipt.record.chain_head,
            receipt=hashlib.sha256(files[f"{operation}.json"]).hexdigest(),
            manifest=receipt.evidence.manifest_sha256 if receipt.evidence is not None else None,
            at=made.predicate.at,
        )
        ReceiptLog(folder).append(entry, [signer], keys.known())
    except (EvidenceError, OSError) as error:
        said = (str(error) if isinstance(error, EvidenceError) else error.strerror or type(error).__name__).rstrip(".")
        return f"The receipt is written, and not signed and logged: {said}. The next start tries again."
    return ""


def _statement(receipt: Receipt, files: dict[str, bytes]) -> Statement:
    return statement(
        Predicate(
            operation=receipt.ids.operation,
            attempt=receipt.ids.attempt,
            events=receipt.record.version,
            at=datetime.now(UTC),
            program=Made(name="interlock", version=_version()),
        ),
        files=files,
        manifest=receipt.evidence.manifest_sha256 if receipt.evidence is not None else None,
        head=receipt.record.chain_head,
    )


def _lacks(folder: Path, operation: str, logged: set[tuple[str, str]]) -> bool:
    try:
        digest = hashlib.sha256((folder / f"{operation}.json").read_bytes()).hexdigest()
    except FileNotFoundError:
        return False
    return (operation, digest) not in logged or not envelope_of(folder, operation).exists()


@contextmanager
def _alone(folder: Path, wait_s: float) -> Iterator[None]:
    """Hold the lock of the receipts. Raises TimeoutError: a process that is paused must not hold all others up."""
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        until = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise TimeoutError(None, "another process holds it for too long") from None
                time.sleep(_AGAIN_S)
        yield
    finally:
        os.close(lock)


@cache
def _version() -> str:
    return version("interlock")
