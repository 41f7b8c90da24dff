"""The keys that sign what this installation vouches for: one that signs, those that did, and those of others that are
believed (Ed25519, RFC 8032).

Private keys are files of their owner alone, in a folder apart from the data, and never leave it. A retired key signs
nothing more, because it is gone; its public part stays, so that what it signed can be checked. Nothing here says what
a signature means.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from evidence.store import EvidenceError, write_replacing

LIST = "keys.json"


class KeysUnreadable(EvidenceError):
    """The folder of keys is not as this program left it."""


class NoSuchKey(EvidenceError):
    """Nothing is known under this id."""


class Entry(BaseModel):
    """One key as the list has it. `public` is the raw key in hex; `retired_at` is None while it may sign; `own` is
    false for a key of somebody else that is believed."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    key_id: str
    public: str
    own: bool
    added_at: AwareDatetime
    retired_at: AwareDatetime | None = None
    name: str = ""

    @property
    def key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.public))

    @property
    def pem(self) -> bytes:
        """As other programs read it (SubjectPublicKeyInfo, RFC 8410)."""
        return self.key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


class _Listed(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class FileSigner:
    """Implements `evidence.dsse.Signer` with a key that was read from its file."""

    key_id: str
    _private: Ed25519PrivateKey

    def sign(self, data: bytes) -> bytes:
        return self._private.sign(data)


def key_id_of(key: Ed25519PublicKey) -> str:
    """SHA-256, lower-case hex, of the SubjectPublicKeyInfo in DER: what `openssl pkey -pubin -outform der` gives."""
    info = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return hashlib.sha256(info).hexdigest()


class SigningKeys:
    """The keys in one folder. Several processes may use it at once; what changes it does so under a lock. All methods
    block, and raise `KeysUnreadable` for a folder that cannot be used."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def entries(self) -> tuple[Entry, ...]:
        """Every key that is known, the oldest first."""
        return self._read().keys

    def known(self) -> dict[str, Ed25519PublicKey]:
        """The keys whose signatures count, by id: retired ones too."""
        return {entry.key_id: entry.key for entry in self.entries()}

    def signer(self) -> FileSigner:
        """The key that signs now; made when there is none yet."""
        with self._changing():
            entry = self._active()
            return self._load(self._make() if entry is None else entry)

    def rotate(self) -> FileSigner:
        """A new key that signs from now on. The one before is retired: its private part is deleted."""
        with self._changing():
            before = self._active()
            made = self._make()
            if before is not None:
                self._retire(before)
            return self._load(made)

    def believe(self, pem: bytes, *, name: str) -> Entry:
        """Count the signatures of somebody else's key. Raises `KeysUnreadable` for what is no Ed25519 public key."""
        try:
            key = serialization.load_pem_public_key(pem)
        except (ValueError, UnsupportedAlgorithm) as error:
            raise KeysUnreadable("This is no public key in PEM form.") from error
        if not isinstance(key, Ed25519PublicKey):
            raise KeysUnreadable("This is a public key, but not one for Ed25519 signatures.")
        with self._changing():
            found = next((one for one in self.entries() if one.key_id == key_id_of(key)), None)
            return found if found is not None else self._add(key, own=False, name=name)

    def entry(self, beginning: str) -> Entry:
        """The key whose id begins so. Raises `NoSuchKey` unless exactly one does."""
        found = [one for one in self.entries() if one.key_id.startswith(beginning)]
        if len(found) != 1:
            raise NoSuchKey(
                f"{len(found)} keys have an id that begins with {beginning!r}; `interlock keys list` shows all."
            )
        return found[0]

    # Files

    @contextmanager
    def _changing(self) -> Iterator[None]:
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise KeysUnreadable(f"The keys in {self._folder} cannot be changed: {error.strerror}.") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _read(self) -> _Listed:
        place = self._folder / LIST
        try:
            return _Listed.model_validate_json(place.read_bytes())
        except FileNotFoundError:
            return _Listed()
        except (OSError, ValidationError) as error:
            raise KeysUnreadable(
                f"{place} cannot be read. Restore it from a backup; without it nothing is signed."
            ) from error

    def _active(self) -> Entry | None:
        return next((one for one in reversed(self.entries()) if one.own and one.retired_at is None), None)

    def _load(self, entry: Entry) -> FileSigner:
        place = self._private(entry)
        try:
            private = serialization.load_pem_private_key(place.read_bytes(), password=None)
        except (OSError, ValueError) as error:
            raise KeysUnreadable(
                f"The private key {place} cannot be read. Restore it from a backup, or `interlock keys rotate`."
            ) from error
        if not isinstance(private, Ed25519PrivateKey) or key_id_of(private.public_key()) != entry.key_id:
            raise KeysUnreadable(
                f"{place} holds another key than the list says. `interlock keys rotate` makes a new one."
            )
        return FileSigner(entry.key_id, private)

    def _make(self) -> Entry:
        """The private part is on disk before the list names it: a list never names a key that is not there."""
        private = Ed25519PrivateKey.generate()
        pem = private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        write_replacing(self._folder / f"{key_id_of(private.public_key())}.key", pem)
        return self._add(private.public_key(), own=True, name="")

    def _add(self, key: Ed25519PublicKey, *, own: bool, name: str) -> Entry:
        raw = key.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
        made = Entry(key_id=key_id_of(key), public=raw.hex(), own=own, added_at=datetime.now(UTC), name=name)
        self._write((*self.entries(), made))
        return made

    def _retire(self, entry: Entry) -> None:
        retired = entry.model_copy(update={"retired_at": datetime.now(UTC)})
        self._write(tuple(retired if one.key_id == entry.key_id else one for one in self.entries()))
        self._private(entry).unlink(missing_ok=True)

    def _write(self, keys: tuple[Entry, ...]) -> None:
        write_replacing(self._folder / LIST, _Listed(keys=keys).model_dump_json(indent=1).encode())

    def _private(self, entry: Entry) -> Path:
        return self._folder / f"{entry.key_id}.key"
