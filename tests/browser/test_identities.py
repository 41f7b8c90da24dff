"""Sealed sessions: what is on disk opens only with its key, for its site and account, unchanged (C9)."""

from __future__ import annotations

import concurrent.futures
import os
from pathlib import Path

import pytest

from executor.browser.identities import Identities, session_cookies
from executor.errors import NotReady

SITE = "https://example.test"
COOKIES = [
    {"name": "sid", "value": "secret-of-the-session", "domain": "example.test", "path": "/", "secure": True},
    {"name": "sid_admin", "value": "secret-of-the-admin", "domain": "example.test", "path": "/admin", "secure": True},
]


@pytest.fixture
def kept(tmp_path: Path) -> Identities:
    identities = Identities(tmp_path / "data", tmp_path / "keys")
    identities.save(SITE, "editor", COOKIES)
    return identities


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_what_was_sealed_is_opened_again(kept: Identities) -> None:
    stored = kept.load(SITE, "editor")
    assert stored is not None
    assert [dict(cookie) for cookie in stored.cookies] == COOKIES
    assert stored.values == ("secret-of-the-session", "secret-of-the-admin")
    assert "secret" not in repr(stored)
    assert kept.load(SITE, "second") is None
    assert kept.load("https://example.test:8443", "editor") is None


def test_nothing_of_it_can_be_read_on_disk_and_the_key_lies_elsewhere(kept: Identities, tmp_path: Path) -> None:
    (sealed,) = files(tmp_path / "data")
    (key,) = files(tmp_path / "keys")
    assert b"secret" not in sealed.read_bytes()
    assert b"sid" not in sealed.read_bytes()
    assert "example" not in sealed.name
    assert "editor" not in sealed.name
    assert key.read_bytes() not in sealed.read_bytes()
    for path in (sealed, key):
        assert path.stat().st_mode & 0o077 == 0
        assert path.parent.stat().st_mode & 0o077 == 0


def test_any_changed_byte_is_refused(kept: Identities, tmp_path: Path) -> None:
    (sealed,) = files(tmp_path / "data")
    whole = sealed.read_bytes()
    for position in range(len(whole)):
        sealed.write_bytes(whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :])
        with pytest.raises(NotReady, match="Sign in again"):
            kept.load(SITE, "editor")
    sealed.write_bytes(whole[:-1])
    with pytest.raises(NotReady):
        kept.load(SITE, "editor")


def test_one_accounts_session_cannot_be_put_in_anothers_place(kept: Identities, tmp_path: Path) -> None:
    (sealed,) = files(tmp_path / "data")
    kept.save(SITE, "second", [])
    (other,) = [path for path in files(tmp_path / "data") if path != sealed]
    other.write_bytes(sealed.read_bytes())
    with pytest.raises(NotReady):
        kept.load(SITE, "second")


def test_another_key_opens_nothing_and_a_damaged_one_is_named(kept: Identities, tmp_path: Path) -> None:
    (key,) = files(tmp_path / "keys")
    key.write_bytes(os.urandom(32))
    with pytest.raises(NotReady, match="Sign in again"):
        kept.load(SITE, "editor")
    key.write_bytes(b"short")
    with pytest.raises(NotReady, match="damaged"):
        kept.save(SITE, "editor", COOKIES)


def test_many_first_uses_at_once_agree_on_one_key(tmp_path: Path) -> None:
    def first_use(number: int) -> None:
        Identities(tmp_path / "data", tmp_path / "keys").save(SITE, f"account-{number}", COOKIES)

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        list(pool.map(first_use, range(16)))
    identities = Identities(tmp_path / "data", tmp_path / "keys")
    assert all(identities.load(SITE, f"account-{number}") is not None for number in range(16))
    assert len(files(tmp_path / "keys")) == 1


def test_forgotten_is_gone(kept: Identities, tmp_path: Path) -> None:
    kept.forget(SITE, "editor")
    kept.forget(SITE, "editor")
    assert kept.load(SITE, "editor") is None
    assert files(tmp_path / "data") == []


def test_only_cookies_that_carry_the_login_are_kept() -> None:
    seen = [{"name": name, "value": "x"} for name in ("wordpress_1f", "wordpress_logged_in_1f", "wp-settings-1", "_ga")]
    chosen = session_cookies(seen, ["wordpress_*"])
    assert [cookie["name"] for cookie in chosen] == ["wordpress_1f", "wordpress_logged_in_1f"]
