"""Where evidence is kept: bytes under their SHA-256, written once and never changed.

The `EvidenceStore` protocol is the contract; `FileStore` keeps it on a local file system. A store knows nothing of
what the bytes mean and never redacts: by the time bytes arrive here they must already be masked (D2). It may not
overwrite, and it may not hand out bytes whose hash is not the one asked for (D3).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

MINIMUM_FREE_BYTES = 64 * 1024 * 1024
"""Default reserve: room for the ledger to commit an outcome after evidence has stopped fitting."""

_SHA256 = re.compile(r"[0-9a-f]{64}")
_PARTIAL = ".partial-"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class EvidenceError(Exception):
    """Evidence could not be kept or read."""


class EvidenceAltered(EvidenceError):
    """The stored bytes are not the ones that were put."""

    def __init__(self, sha256: str, found: str) -> None:
        self.sha256 = sha256
        self.found = found
        super().__init__(
            f"evidence {sha256} was altered: its bytes now hash to {found}. Keep the file as it is and restore the "
            "original from a backup; whatever relied on this item is not established."
        )


class EvidenceMissing(EvidenceError):
    """Nothing is stored under this hash."""

    def __init__(self, sha256: str) -> None:
        self.sha256 = sha256
        super().__init__(f"evidence {sha256} is not in the store. Restore it from a backup.")


class StoreFull(EvidenceError):
    """There is no room for more evidence, so nothing consequential may start."""

    def __init__(self, root: Path, needed: int, free: int, minimum_free: int) -> None:
        self.root = root
        self.needed = needed
        self.free = free
        super().__init__(
            f"no room for evidence in {root}: {needed} bytes to write, {free} bytes free, "
            f"{minimum_free} bytes must stay free. Free some space or move the home folder, then run "
            "again."
        )


@dataclass(frozen=True)
class Blob:
    """What was put: hash of the bytes (lower-case hex), their number, and what they are."""

    sha256: str
    size: int
    media_type: str


class EvidenceStore(Protocol):
    """Content-addressed, create-only storage. An implementation promises all of this:

    * **Durable on return.** When `put` returns, the bytes survive a kill of the process and a loss of power.
    * **All or nothing.** A `put` that did not return leaves nothing that `get`, `exists` or `hashes` would show.
    * **Create-only.** Bytes stored once are never rewritten. Putting the same bytes again stores nothing and returns
      the same `Blob`; if what is stored under that hash was altered meanwhile, it raises `EvidenceAltered` instead.
    * **Checked on the way out.** `get` hashes what it read and raises `EvidenceAltered` when it differs.
    * **Concurrent.** Several threads and processes may use one store at once.

    All methods block; call them from a thread where an event loop runs.
    """

    def put(self, data: bytes, *, media_type: str) -> Blob:
        """Keep the bytes. Raises `StoreFull` when there is no room, `EvidenceError` for any other failure."""
        ...

    def get(self, sha256: str) -> bytes:
        """The bytes. Raises `EvidenceMissing` or `EvidenceAltered`."""
        ...

    def path(self, sha256: str) -> Path:
        """A local file for a person to open; not re-hashed. A remote store fetches one first. Raises
        `EvidenceMissing`."""
        ...

    def exists(self, sha256: str) -> bool:
        """Is something stored under this hash? Says nothing about whether it is intact."""
        ...

    def hashes(self) -> Iterator[str]:
        """Every stored hash, in ascending order."""
        ...


class FileStore:
    """An `EvidenceStore` in a folder: ``root/blobs/ab/abcd…``, folders 0700, files 0600.

    `minimum_free_bytes` must stay free after a write; 0 means that only a really full disk refuses. A write goes to a
    locked temporary file beside its final place, is synced, linked (which fails if the name exists), and the folder
    is synced. What a killed writer left is removed when a store is opened; a lock tells it from the file of a writer
    that is still alive.
    """

    def __init__(self, root: Path, *, minimum_free_bytes: int = MINIMUM_FREE_BYTES) -> None:
        self.root = root
        self._blobs = root / "blobs"
        self._minimum_free = minimum_free_bytes
        try:
            _make_private_folder(root)
            _make_private_folder(self._blobs)
            self._blobs.chmod(0o700)
            self._remove_leftovers()
        except OSError as error:
            raise self._explained(error, 0) from error

    def put(self, data: bytes, *, media_type: str) -> Blob:
        blob = Blob(hashlib.sha256(data).hexdigest(), len(data), media_type)
        if self.exists(blob.sha256):
            self.get(blob.sha256)
            return blob
        final = self._place(blob.sha256)
        try:
            free = shutil.disk_usage(self._blobs).free
            if free - len(data) < self._minimum_free:
                raise StoreFull(self.root, len(data), free, self._minimum_free)
            _make_private_folder(final.parent)
            while not _write_new(final, data):
                pass
        except OSError as error:
            raise self._explained(error, len(data)) from error
        return blob

    def get(self, sha256: str) -> bytes:
        try:
            descriptor = os.open(self._place(sha256), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise EvidenceMissing(sha256) from error
        except OSError as error:
            raise self._explained(error, 0) from error
        with os.fdopen(descriptor, "rb") as file:
            data = file.read()
        found = hashlib.sha256(data).hexdigest()
        if found != sha256:
            raise EvidenceAltered(sha256, found)
        return data

    def path(self, sha256: str) -> Path:
        place = self._place(sha256)
        if not place.exists():
            raise EvidenceMissing(sha256)
        return place

    def exists(self, sha256: str) -> bool:
        return self._place(sha256).exists()

    def hashes(self) -> Iterator[str]:
        for folder in sorted(self._blobs.iterdir()):
            for file in sorted(folder.iterdir()):
                if _SHA256.fullmatch(file.name) and file.name.startswith(folder.name):
                    yield file.name

    def _place(self, sha256: str) -> Path:
        if not _SHA256.fullmatch(sha256):
            raise EvidenceError(f"{sha256!r} is not a SHA-256 in lower-case hex")
        return self._blobs / sha256[:2] / sha256

    def _remove_leftovers(self) -> None:
        for partial in self._blobs.glob(f"*/{_PARTIAL}*"):
            try:
                descriptor = os.open(partial, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue  # its writer finished meanwhile
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                partial.unlink(missing_ok=True)
            except BlockingIOError:
                continue  # its writer is alive
            finally:
                os.close(descriptor)

    def _explained(self, error: OSError, needed: int) -> EvidenceError:
        if error.errno in _FULL:
            return StoreFull(self.root, needed, shutil.disk_usage(self._blobs).free, self._minimum_free)
        return EvidenceError(f"cannot use the evidence folder {self.root}: {error}. Check that it exists and is yours.")


def write_replacing(place: Path, data: bytes) -> None:
    """Write a small file so that a reader sees the old bytes or the new ones, never a mixture; durable on return;
    mode 0600.

    For files that are meant to change, such as a manifest that grows, and that have one writer. What a killed writer
    left is taken over by the next. Raises OSError.
    """
    _make_private_folder(place.parent)
    partial = place.parent / f"{_PARTIAL}{place.name}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(place)
    except OSError:
        partial.unlink(missing_ok=True)
        raise
    _sync_folder(place.parent)


def why_unfit(folder: Path) -> str | None:
    """Why evidence cannot be kept in a folder that is there, in one sentence; None where it can. Tries what a store
    does, with a file that is gone afterwards."""
    try:
        with tempfile.TemporaryDirectory(dir=folder, prefix=_PARTIAL) as tried:
            _write_new(Path(tried) / "evidence", b"evidence")
    except OSError as error:
        return (
            f"{folder} does not take what evidence needs ({error.strerror}): files that are synced, locked and linked. "
            "Use a folder on an ordinary local file system"
        )
    return None


def _write_new(final: Path, data: bytes) -> bool:
    """Write `data` under a name that must not exist yet. False: a store that was just opened took our file away, try
    again."""
    partial = final.parent / f"{_PARTIAL}{secrets.token_hex(8)}"
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            try:
                os.link(partial, final)
            except FileExistsError:
                pass  # another writer was quicker with the same bytes
            except FileNotFoundError:
                return False  # between our open and our lock it looked like the leftover of a dead writer
            _sync_folder(final.parent)
    finally:
        partial.unlink(missing_ok=True)
    return True


def _make_private_folder(folder: Path) -> None:
    if not folder.exists():
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
