"""Is what was kept still what was signed? Offline, from the files and the ledger (A8, D3).

It reads and judges; nothing is mended here. Not found by it: who may be trusted for a key (its owner says which key is
theirs), and a log whose two files were cut back together with the receipts, the envelopes and the ledger.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import ValidationError

from evidence.attestation import EVENTS, MANIFEST, Statement, read_statement
from evidence.dsse import Envelope
from evidence.manifest import Manifest
from evidence.merkle import leaf_hash, verify_inclusion
from evidence.receipt_log import Entry, ReceiptLog
from evidence.store import EvidenceError, FileStore
from evidence.verification import verify
from executor.ledger.ledger import ChainBroken, LedgerError, NoSuchOperation, Verification
from executor.model.operation import EventRecord

NOT_CHECKED = (
    "whose the key is: compare its id with the one that its owner names",
    "the site: a receipt is this program's word about what it saw",
    "an older copy of everything at once, the ledger, the receipts and the log, in the place of this one",
)
"""What no check of these files can show."""


class History(Protocol):
    """What is asked of a ledger."""

    def events(self, operation: str) -> Sequence[EventRecord]: ...

    def verify_all(self) -> Verification: ...


@dataclass
class Finding:
    """What the check of one operation came to, a sentence each. `flaws`: what is altered or missing. `not_checked`:
    what there was nothing to check with."""

    operation: str
    checked: list[str] = field(default_factory=list)
    flaws: list[str] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    later_events: int = 0
    signed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Whole:
    """What the check of everything came to, beside the operations. `without_receipt` counts operations of which no
    receipt was ever written, because nothing was run."""

    checked: tuple[str, ...]
    flaws: tuple[str, ...]
    not_checked: tuple[str, ...]
    without_receipt: int


@dataclass(frozen=True)
class Kept:
    """Where things are. `ledger` is None where there is none to be read."""

    home: Path
    receipts: Path
    evidence: Path
    keys: Mapping[str, Ed25519PublicKey]
    ledger: History | None

    def named(self) -> set[str]:
        """Operations that a line of the log or a file of the receipts names."""
        files = (
            {place.name.split(".")[0] for place in self.receipts.glob("*.json")} if self.receipts.is_dir() else set()
        )
        try:
            return files | {entry.operation_id for entry in self._log.entries()}
        except EvidenceError:
            return files

    @property
    def _log(self) -> ReceiptLog:
        return ReceiptLog(self.receipts)

    # -- one operation ------------------------------------------------------------------------------------------------
    def check(self, operation: str) -> Finding:
        """Everything that is kept of one operation. Never raises for what it finds."""
        found = Finding(operation)
        made = self._statement(found)
        if made is None:
            found.not_checked.append("the receipt, the evidence and the record: nothing signed says what they were")
            return found
        receipt = self._receipt(found, made)
        self._logged(found, made)
        self._evidence(found, made, receipt)
        self._record(found, made)
        return found

    def _statement(self, found: Finding) -> Statement | None:
        place = self.receipts / f"{found.operation}.dsse.json"
        try:
            made, found.signed_by = read_statement(Envelope.from_json(place.read_bytes()), self.keys)
        except FileNotFoundError:
            found.flaws.append(f"signature: {place.name} is missing")
        except (EvidenceError, OSError) as error:
            found.flaws.append(f"signature: {place.name}: {error}")
        else:
            if made.predicate.operation == found.operation:
                found.checked.append(f"signature by {', '.join(one[:16] for one in found.signed_by)}")
                return made
            found.flaws.append(f"signature: {place.name} is about {made.predicate.operation}: the files were swapped")
        return None

    def _receipt(self, found: Finding, made: Statement) -> dict[str, Any] | None:
        """The receipt, where it is the signed one."""
        sound: dict[str, bytes] = {}
        for name in (f"{found.operation}.json", f"{found.operation}.txt"):
            data = _bytes(self.receipts / name)
            if data is None:
                found.flaws.append(f"receipt: {name} is missing")
            elif hashlib.sha256(data).hexdigest() != made.digest_of(name):
                found.flaws.append(f"receipt: {name} is not what was signed")
            else:
                sound[name] = data
                found.checked.append(f"receipt {name}")
        data = sound.get(f"{found.operation}.json")
        return dict(json.loads(data)) if data is not None else None

    def _logged(self, found: Finding, made: Statement) -> None:
        digest = made.digest_of(f"{found.operation}.json") or ""
        try:
            own = [one for one in self._log.entries() if one.operation_id == found.operation]
            place = self._log.position(found.operation, digest, self.keys)
        except EvidenceError as error:
            found.flaws.append(f"log: {error}")
            return
        entry = next((one for one in reversed(own) if one.receipt == digest), None)
        if entry is None or place is None:
            found.flaws.append("log: no signed head counts a line for this receipt")
        elif entry != own[-1]:
            found.flaws.append("log: it has a newer receipt of this operation; an older one was put back")
        elif not verify_inclusion(
            leaf_hash(entry.line()), place.index, place.head.size, place.path, bytes.fromhex(place.head.root)
        ):
            found.flaws.append("log: the line for this receipt is not under the newest signed head")
        elif (entry.events, entry.head, entry.manifest) != (
            made.predicate.events,
            made.digest_of(EVENTS),
            made.digest_of(MANIFEST),
        ):
            found.flaws.append("log: its line and the signed statement differ")
        else:
            found.checked.append(f"log: line {place.index + 1} of {place.head.size}")

    def _evidence(self, found: Finding, made: Statement, receipt: dict[str, Any] | None) -> None:
        digest = made.digest_of(MANIFEST)
        if digest is None:
            found.not_checked.append("evidence: the receipt names none")
            return
        place = self._manifest_of(found.operation, receipt, digest)
        data = _bytes(place) if place is not None else None
        if place is None or data is None:
            found.flaws.append("manifest: it is missing; without it the evidence cannot be checked")
            return
        if hashlib.sha256(data).hexdigest() != digest:
            found.flaws.append(f"manifest: {place.relative_to(self.home)} is not what was signed")
            return
        found.checked.append("manifest")
        try:
            manifest = Manifest.model_validate_json(data)
        except ValidationError:
            found.not_checked.append("evidence: the manifest is of a kind that this program does not read")
            return
        self._items(found, manifest, digest)

    def _items(self, found: Finding, manifest: Manifest, digest: str) -> None:
        if not (self.evidence / "blobs").is_dir():
            found.flaws.append("evidence: the whole store is missing")
            return
        try:
            store = FileStore(self.evidence)
        except EvidenceError as error:
            found.not_checked.append(f"evidence: {error}")
            return
        names = {item.sha256: f"{item.kind.value} {item.sha256}" for item in manifest.items()}
        report = verify(manifest, store, digest=digest)
        found.flaws += [f"evidence: {names[one]} is missing" for one in report.missing]
        found.flaws += [f"evidence: {names[one]} was altered" for one in report.altered]
        found.flaws += [f"evidence: {names[one]} cannot be read: {why}" for one, why in report.not_checked]
        found.checked.append(f"evidence: {len(report.checked)} of {len(names)} items")

    def _manifest_of(self, operation: str, receipt: dict[str, Any] | None, digest: str) -> Path | None:
        """Where the receipt says; where it cannot be asked, the one of the operation's that has the digest, or any."""
        named = (receipt.get("evidence") or {}).get("manifest") if receipt is not None else None
        if isinstance(named, str):
            return self.home / named
        there = sorted((self.evidence / "operations" / operation).glob("*/manifest.json"))
        fitting = (one for one in there if hashlib.sha256(_bytes(one) or b"").hexdigest() == digest)
        return next(fitting, there[-1] if there else None)

    def _record(self, found: Finding, made: Statement) -> None:
        if self.ledger is None:
            found.not_checked.append("record: there is no ledger here to compare it with")
            return
        count, head = made.predicate.events, made.digest_of(EVENTS)
        try:
            events = self.ledger.events(found.operation)
        except NoSuchOperation:
            found.flaws.append("record: the operation is not in the ledger")
            return
        except ChainBroken as error:
            found.flaws.append(f"record: {error}")
            return
        except LedgerError as error:
            found.not_checked.append(f"record: {error}")
            return
        if len(events) < count:
            found.flaws.append(f"record: {count - len(events)} of the {count} signed events are gone")
        elif events[count - 1].hash != head:
            found.flaws.append(f"record: the first {count} events are not those that were signed")
        else:
            found.later_events = len(events) - count
            found.checked.append(f"record: {count} events, by the signed head; {found.later_events} came later")

    # -- everything ---------------------------------------------------------------------------------------------------
    def check_whole(self, operations: Sequence[str]) -> Whole:
        """The log as a whole, the ledger as a whole, and each against the other. `operations` are the ledger's."""
        checked, flaws, not_checked = [], [], []
        entries: Sequence[Entry] = ()
        try:
            report = self._log.check(self.keys)
            entries = self._log.entries()
            flaws += [f"log: {flaw}" for flaw in report.flaws]
            checked.append(f"log: {report.entries} lines, {report.heads} signed heads")
        except EvidenceError as error:
            flaws.append(f"log: {error}")
        without = 0
        if self.ledger is None:
            not_checked.append("ledger: there is none here, so an operation without a receipt cannot be noticed")
        else:
            verified = self.ledger.verify_all()
            flaws += [f"ledger: {flaw}" for flaw in verified.flaws]
            checked.append(f"ledger: {verified.operations} operations, {verified.events} events")
            known = set(operations)
            gone = sorted({one.operation_id for one in entries} - known)
            flaws += [f"ledger: {one} is in the log of receipts and not in the ledger" for one in gone]
            lines: dict[str, list[Entry]] = {}
            for entry in entries:
                lines.setdefault(entry.operation_id, []).append(entry)
            for operation in operations:
                flaw = self._against_the_log(operation, lines.get(operation, ()))
                without += flaw is None
                flaws += [flaw] if flaw else []
        return Whole(tuple(checked), tuple(flaws), tuple(not_checked), without)

    def _against_the_log(self, operation: str, entries: Sequence[Entry]) -> str | None:
        """What does not fit, or an empty text; None for an operation of which no receipt was ever written."""
        assert self.ledger is not None
        try:
            events = self.ledger.events(operation)
        except LedgerError:
            return ""  # the check of the whole ledger has said so
        noted = [str(event.data["sha256"]) for event in events if event.kind == "receipt"]
        if not noted and not entries:
            return None
        logged = {entry.receipt for entry in entries}
        if noted and noted[-1] not in logged:
            return f"log: the receipt that the record of {operation} names is in no line"
        for entry in entries:
            if len(events) < entry.events or events[entry.events - 1].hash != entry.head:
                return f"ledger: the record of {operation} is not the one that a line of the log was made of"
        return ""


def _bytes(place: Path) -> bytes | None:
    """None where it cannot be read."""
    try:
        return place.read_bytes()
    except OSError:
        return None
