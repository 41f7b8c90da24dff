"""The log of receipts: one line for each that was written, in a tree whose heads are signed, so that a receipt that is
changed, moved or taken out is noticed, and with it the operation that it was of (A8).

Two files: the lines, and the signed heads. A line is appended and synced before the head that counts it is. What is
found here: any change, removal, insertion or reordering of lines that a signed head counts. What is not: both files cut
back to an earlier head, or put back to yesterday's copy; a head kept elsewhere (in a bundle) or the ledger's anchor
shows that. The log does not know what its entries mean.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import rfc8785
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from evidence.dsse import Envelope, Signer, opened, signed
from evidence.merkle import Frontier, inclusion_proof, leaf_hash
from evidence.store import EvidenceError

LINES, HEADS = "receipts.log", "receipts.heads"
HEAD_TYPE = "application/vnd.interlock.tree-head+json"

_LONGEST_HEAD = 65536
"""Bytes; a head with one signature has about 450."""

Sha256 = Field(pattern=r"^[0-9a-f]{64}$")


class LogUnreadable(EvidenceError):
    """The log's files cannot be used."""


class LogDamaged(EvidenceError):
    """The log is not what its newest signed head counts."""


class Entry(BaseModel):
    """One receipt: of which operation, on which state of its record (`events` of them, `head` the last one's hash),
    with which evidence. Hashes are SHA-256 in lower-case hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    operation_id: str
    events: int = Field(ge=1)
    head: str = Sha256
    receipt: str = Sha256
    manifest: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    at: AwareDatetime

    def line(self) -> bytes:
        """The canonical form (RFC 8785) that is hashed, without the line's end."""
        return rfc8785.dumps(self.model_dump(mode="json"))


class Head(BaseModel):
    """The log at some size: what a signature vouches for. `root` in lower-case hex."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    size: int = Field(ge=1)
    root: str = Sha256
    at: AwareDatetime


@dataclass(frozen=True)
class Position:
    """Where an entry stands, by a signed head that counts it, and the path from it to the head's root."""

    index: int
    envelope: Envelope
    head: Head
    path: tuple[bytes, ...]


@dataclass(frozen=True)
class LogReport:
    """What a check of the whole log found. `flaws`: a sentence each; none means that every line is what it was."""

    entries: int
    heads: int
    flaws: tuple[str, ...]

    @property
    def sound(self) -> bool:
        return not self.flaws


class ReceiptLog:
    """The log in one folder. Several processes may append at once. All methods block and raise `LogUnreadable`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def append(
        self, entry: Entry, signers: Sequence[Signer], keys: Mapping[str, Ed25519PublicKey] | None = None
    ) -> Head:
        """Add an entry and sign the head that counts it; both durable on return. What a killed writer left in the
        middle of a line, which nobody was told of, is taken away. With `keys`, raises `LogDamaged` and signs nothing
        when the lines are not those that the newest head counts: a new head would vouch for what was changed."""
        with self._alone():
            lines = self._lines(LINES)
            counted = self._unharmed(lines, keys) if keys is not None else Frontier()
            line = entry.line()
            self._add(LINES, sum(len(one) + 1 for one in lines), line)
            frontier = counted.with_leaves([leaf_hash(one) for one in (*lines[counted.size :], line)])
            head = Head(size=frontier.size, root=frontier.root.hex(), at=datetime.now(UTC))
            envelope = signed(rfc8785.dumps(head.model_dump(mode="json")), HEAD_TYPE, signers)
            self._add(HEADS, self._end_of_heads(), envelope.to_json())
            return head

    def entries(self) -> tuple[Entry, ...]:
        """Every entry in its order, read and not checked. Raises `LogUnreadable` for a line that is none."""
        found = []
        for number, line in enumerate(self._lines(LINES), 1):
            try:
                found.append(Entry.model_validate_json(line))
            except ValidationError as error:
                raise LogUnreadable(f"line {number} of {self._folder / LINES} is no entry of this log.") from error
        return tuple(found)

    def position(self, operation_id: str, receipt: str, keys: Mapping[str, Ed25519PublicKey]) -> Position | None:
        """Where the newest entry of a receipt stands, by the newest head; None where it is not in the log."""
        entries = self.entries()
        at = [n for n, one in enumerate(entries) if (one.operation_id, one.receipt) == (operation_id, receipt)]
        heads = self._lines(HEADS)
        if not at or not heads:
            return None
        envelope = Envelope.from_json(heads[-1])
        head = _opened(envelope, keys)
        if at[-1] >= head.size or head.size > len(entries):
            return None
        leaves = [leaf_hash(line) for line in self._lines(LINES)[: head.size]]
        return Position(at[-1], envelope, head, inclusion_proof(leaves, at[-1]))

    def check(self, keys: Mapping[str, Ed25519PublicKey]) -> LogReport:
        """Every head against its signature and against the lines that it counts. Never raises for what it finds."""
        lines = self._lines(LINES)
        flaws = [
            f"line {number} is not an entry in its one spelling"
            for number, line in enumerate(lines, 1)
            if not _is_entry(line)
        ]
        roots = _roots(lines)
        counted = 0
        heads = self._lines(HEADS)
        for number, raw in enumerate(heads, 1):
            try:
                head = _opened(Envelope.from_json(raw), keys)
            except EvidenceError as error:
                flaws.append(f"head {number}: {error}")
                continue
            if head.size < counted:
                flaws.append(f"head {number} counts {head.size} receipts, fewer than one before it")
            elif head.size > len(lines):
                flaws.append(f"head {number} counts {head.size} receipts, of which {head.size - len(lines)} are gone")
            elif roots[head.size] != head.root:
                flaws.append(f"of the first {head.size} receipts at least one was changed, moved or taken out")
            counted = max(counted, head.size)
        if counted < len(lines):
            flaws.append(f"{len(lines) - counted} receipts at the end are counted by no signed head")
        return LogReport(len(lines), len(heads), tuple(flaws))

    def _unharmed(self, lines: Sequence[bytes], keys: Mapping[str, Ed25519PublicKey]) -> Frontier:
        """The tree that the newest head counts. One line more is what a writer leaves that is killed before it
        signs."""
        newest = self._newest_head()
        head = _opened(Envelope.from_json(newest), keys) if newest is not None else None
        size = head.size if head is not None else 0
        counted = Frontier().with_leaves([leaf_hash(line) for line in lines[:size]])
        if not size <= len(lines) <= size + 1 or (head is not None and counted.root.hex() != head.root):
            raise LogDamaged(
                f"the log of receipts in {self._folder} is not what was signed, so nothing is added to it. "
                f"`interlock evidence verify --all` says where; restore {LINES} and {HEADS} from a backup, or keep "
                "them elsewhere and let a new log begin."
            )
        return counted

    # Files

    @contextmanager
    def _alone(self) -> Iterator[None]:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._folder / ".log.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LogUnreadable(f"the log of receipts in {self._folder} cannot be used: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        except OSError as error:
            raise LogUnreadable(
                f"the log of receipts in {self._folder} cannot be written: {error.strerror}."
            ) from error
        finally:
            os.close(lock)

    def _lines(self, name: str) -> list[bytes]:
        """Those that came to their end."""
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return []
        except OSError as error:
            raise LogUnreadable(f"{self._folder / name} cannot be read: {error.strerror}.") from error
        return data.split(b"\n")[:-1]

    def _newest_head(self) -> bytes | None:
        """The last that came to its end, without reading those before it."""
        end = self._end_of_heads()
        if end == 0:
            return None
        with (self._folder / HEADS).open("rb") as file:
            file.seek(max(0, end - _LONGEST_HEAD))
            return file.read(end - file.tell()).removesuffix(b"\n").rpartition(b"\n")[2]

    def _end_of_heads(self) -> int:
        """Where the last whole line ends."""
        try:
            with (self._folder / HEADS).open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                start = file.seek(max(0, size - _LONGEST_HEAD))
                tail = file.read()
        except FileNotFoundError:
            return 0
        end = tail.rfind(b"\n") + 1
        if end == 0 and start > 0:
            raise LogUnreadable(f"{self._folder / HEADS} ends in what is no signed head.")
        return start + end

    def _add(self, name: str, end: int, line: bytes) -> None:
        descriptor = os.open(self._folder / name, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.truncate(end)
            file.seek(end)
            file.write(line + b"\n")
            file.flush()
            os.fsync(file.fileno())
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _is_entry(line: bytes) -> bool:
    try:
        return Entry.model_validate_json(line).line() == line
    except ValidationError:
        return False


def _opened(envelope: Envelope, keys: Mapping[str, Ed25519PublicKey]) -> Head:
    data, _ = opened(envelope, HEAD_TYPE, keys)
    try:
        return Head.model_validate_json(data)
    except ValidationError as error:
        raise LogUnreadable("a signed head of the log is of a kind that this program does not know.") from error


def _roots(lines: Sequence[bytes]) -> list[str]:
    """The root at every size, in lower-case hex."""
    frontier = Frontier()
    roots = [frontier.root.hex()]
    for line in lines:
        frontier = frontier.with_leaf(leaf_hash(line))
        roots.append(frontier.root.hex())
    return roots
