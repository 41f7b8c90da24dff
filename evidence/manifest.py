"""The list of an operation's evidence: what was kept, what is missing and why, what was masked (D1, D2).

A manifest is a frozen value that grows by making a new one. Its digest is the SHA-256 of its canonical form (RFC
8785), which is also its address when it is put into a store. It holds hashes and redacted text, never evidence
itself. It is not signed here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import rfc8785
from pydantic import BaseModel, ConfigDict, ValidationError

from evidence.records import Capture, Item
from evidence.store import Blob, EvidenceError, EvidenceStore, write_replacing

SCHEMA_VERSION = 1
MEDIA_TYPE = "application/vnd.interlock.manifest+json"
FILE_NAME = "manifest.json"


class ManifestUnreadable(EvidenceError):
    """A manifest that this program cannot read: damaged, or written by a newer one."""


class Manifest(BaseModel):
    """`entries` are in the order in which they were taken; `wire_log` is there once the run's log was stored."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    operation_id: str
    attempt_id: str | None = None
    entries: tuple[Capture, ...] = ()
    wire_log: Item | None = None

    def with_capture(self, capture: Capture) -> Manifest:
        return self.model_copy(update={"entries": (*self.entries, capture)})

    def with_wire_log(self, item: Item) -> Manifest:
        return self.model_copy(update={"wire_log": item})

    def with_attempt(self, attempt_id: str) -> Manifest:
        return self.model_copy(update={"attempt_id": attempt_id})

    def items(self) -> Iterator[Item]:
        """Every stored item, captures first, the wire log last."""
        for entry in self.entries:
            yield from entry.items
        if self.wire_log is not None:
            yield self.wire_log

    def canonical(self) -> bytes:
        return rfc8785.dumps(self.model_dump(mode="json"))

    def digest(self) -> str:
        """SHA-256 of `canonical`, lower-case hex."""
        return hashlib.sha256(self.canonical()).hexdigest()


def put_manifest(store: EvidenceStore, manifest: Manifest) -> Blob:
    """Keep this state of the manifest for good; the blob's hash is the manifest's digest."""
    return store.put(manifest.canonical(), media_type=MEDIA_TYPE)


def get_manifest(store: EvidenceStore, digest: str) -> Manifest:
    return _parsed(store.get(digest), digest)


def save_manifest(folder: Path, manifest: Manifest) -> Path:
    """Write ``manifest.json`` into the operation's own folder, replacing the shorter one of before as a whole;
    durable on return. Raises `EvidenceError`."""
    place = folder / FILE_NAME
    try:
        write_replacing(place, manifest.canonical())
    except OSError as error:
        raise EvidenceError(
            f"cannot write {place}: {error}. Free some space or check that the folder is yours."
        ) from error
    return place


def load_manifest(folder: Path) -> Manifest:
    """Read what `save_manifest` wrote. Raises `ManifestUnreadable`."""
    place = folder / FILE_NAME
    try:
        data = place.read_bytes()
    except OSError as error:
        raise ManifestUnreadable(f"cannot read {place}: {error}. Restore the folder from a backup.") from error
    return _parsed(data, str(place))


def _parsed(data: bytes, origin: str) -> Manifest:
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        if where == "schema_version":
            advice = (
                f"it has schema version {first['input']!r}, this program reads {SCHEMA_VERSION}: use a newer Interlock"
            )
        else:
            advice = f"{where or 'it'}: {first['msg']}. Restore it from a backup"
        raise ManifestUnreadable(f"the manifest {origin} cannot be read; {advice}.") from error
