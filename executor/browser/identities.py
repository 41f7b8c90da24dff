"""Accounts and their sealed session state (C9).

Session cookies are kept encrypted (AES-256-GCM) in the home folder; the key lives in another folder. Nothing else of a
context survives a run: what a page left in local storage could send later. Files are bound to site and account, so
that one cannot be put in another's place.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from executor.browser.private_files import write_private
from executor.errors import NotReady

_MAGIC = b"interlock-session-1\n"


@dataclass(frozen=True)
class StoredSession:
    """The session of one account. `repr` shows no cookie value."""

    cookies: tuple[Mapping[str, Any], ...]
    saved_at: datetime

    def __repr__(self) -> str:
        return f"StoredSession({len(self.cookies)} cookies, saved {self.saved_at:%Y-%m-%d %H:%M})"

    @property
    def values(self) -> tuple[str, ...]:
        """The secret values, for redaction."""
        return tuple(str(cookie["value"]) for cookie in self.cookies if cookie.get("value"))


def session_cookies(cookies: Sequence[Mapping[str, Any]], patterns: Sequence[str]) -> tuple[Mapping[str, Any], ...]:
    """The cookies that carry the login, by the flow's name patterns."""
    return tuple(c for c in cookies if any(fnmatchcase(str(c["name"]), pattern) for pattern in patterns))


class Identities:
    """Sealed sessions by site and account."""

    def __init__(self, folder: Path, key_folder: Path) -> None:
        self._folder = folder
        self._key_file = key_folder / "identities.key"

    def load(self, site: str, account: str) -> StoredSession | None:
        """The stored session, or None. Raises `NotReady` when it cannot be opened with the key that is there."""
        path = self._path(site, account)
        try:
            sealed = path.read_bytes()
        except FileNotFoundError:
            return None
        try:
            if not sealed.startswith(_MAGIC):
                raise ValueError("not a sealed session")
            nonce, body = sealed[len(_MAGIC) : len(_MAGIC) + 12], sealed[len(_MAGIC) + 12 :]
            opened = AESGCM(self._key()).decrypt(nonce, body, self._bound(site, account))
        except (InvalidTag, ValueError) as error:
            raise NotReady(
                f"The stored session of {account} cannot be opened: the file or the key has changed. "
                "Sign in again with `interlock login`."
            ) from error
        record = json.loads(opened)
        return StoredSession(tuple(record["cookies"]), datetime.fromisoformat(record["saved_at"]))

    def save(self, site: str, account: str, cookies: Sequence[Mapping[str, Any]]) -> None:
        """Seal and write, whole or not at all."""
        record = {"cookies": [dict(cookie) for cookie in cookies], "saved_at": datetime.now(UTC).isoformat()}
        nonce = secrets.token_bytes(12)
        body = AESGCM(self._key()).encrypt(nonce, json.dumps(record).encode(), self._bound(site, account))
        write_private(self._path(site, account), _MAGIC + nonce + body)

    def forget(self, site: str, account: str) -> None:
        self._path(site, account).unlink(missing_ok=True)

    def _path(self, site: str, account: str) -> Path:
        return self._folder / (sha256(self._bound(site, account)).hexdigest()[:40] + ".session")

    @staticmethod
    def _bound(site: str, account: str) -> bytes:
        return json.dumps([site, account]).encode()

    def _key(self) -> bytes:
        try:
            key = self._key_file.read_bytes()
        except FileNotFoundError:
            # Another process may be doing the same: whoever links first wins, and everybody reads what is there.
            write_private(self._key_file, secrets.token_bytes(32), replace=False)
            key = self._key_file.read_bytes()
        if len(key) != 32:
            raise NotReady(
                f"The key file {self._key_file.name} is damaged. Restore it, or remove it and sign in again."
            )
        return key
