"""Keys in real files: made once, rotated for good, private to their owner, and read by another program."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from evidence.signing_keys import KeysUnreadable, NoSuchKey, SigningKeys, key_id_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "keys" / "signing"


def test_the_first_use_makes_a_key_and_the_next_finds_it(folder: Path) -> None:
    signer = SigningKeys(folder).signer()
    assert SigningKeys(folder).signer() == signer or SigningKeys(folder).signer().key_id == signer.key_id
    SigningKeys(folder).known()[signer.key_id].verify(signer.sign(b"data"), b"data")
    with pytest.raises(InvalidSignature):
        SigningKeys(folder).known()[signer.key_id].verify(signer.sign(b"data"), b"other data")


def test_the_id_is_what_openssl_says(folder: Path, tmp_path: Path) -> None:
    entry = SigningKeys(folder).entry(SigningKeys(folder).signer().key_id[:10])
    (tmp_path / "public.pem").write_bytes(entry.pem)
    openssl = shutil.which("openssl")
    assert openssl is not None
    command = [openssl, "pkey", "-pubin", "-in", str(tmp_path / "public.pem"), "-outform", "der"]
    der = subprocess.run(command, capture_output=True, check=True).stdout
    digest = subprocess.run([openssl, "dgst", "-sha256", "-r"], input=der, capture_output=True, check=True).stdout
    assert digest.decode().split(" ")[0] == entry.key_id


def test_files_are_for_their_owner_alone(folder: Path) -> None:
    SigningKeys(folder).signer()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(file.stat().st_mode) for file in folder.iterdir()} == {0o600}


def test_a_retired_key_signs_no_more_and_is_still_known(folder: Path) -> None:
    keys = SigningKeys(folder)
    first = keys.signer()
    signature = first.sign(b"data")
    second = keys.rotate()
    assert keys.signer().key_id == second.key_id != first.key_id
    assert not (folder / f"{first.key_id}.key").exists()
    keys.known()[first.key_id].verify(signature, b"data")
    before, after = keys.entries()
    assert before.retired_at is not None and after.retired_at is None


def test_somebody_elses_key_is_believed_and_never_signs(folder: Path) -> None:
    keys = SigningKeys(folder)
    theirs = Ed25519PrivateKey.generate().public_key()
    pem = theirs.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert keys.believe(pem, name="the other office") == keys.believe(pem, name="again")
    assert key_id_of(theirs) in keys.known()
    assert keys.signer().key_id != key_id_of(theirs)
    assert [entry.own for entry in keys.entries()] == [False, True]


def test_what_is_no_key_is_refused(folder: Path) -> None:
    other = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = other.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    for data in (b"", b"no key", pem):
        with pytest.raises(KeysUnreadable):
            SigningKeys(folder).believe(data, name="")
    with pytest.raises(NoSuchKey):
        SigningKeys(folder).entry("abc")


def test_damage_is_said_and_nothing_is_signed(folder: Path) -> None:
    keys = SigningKeys(folder)
    signer = keys.signer()
    private = folder / f"{signer.key_id}.key"
    other = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    for damage in (other, b"", b"-----BEGIN PRIVATE KEY-----"):
        private.write_bytes(damage)
        with pytest.raises(KeysUnreadable, match="rotate"):
            keys.signer()
    assert keys.rotate().key_id != signer.key_id
    (folder / "keys.json").write_text("{")
    with pytest.raises(KeysUnreadable, match="backup"):
        keys.signer()


def test_processes_that_start_together_agree_on_one_key(folder: Path) -> None:
    script = "import sys; from pathlib import Path; from evidence.signing_keys import SigningKeys\n"
    script += "sys.stdout.write(SigningKeys(Path(sys.argv[1])).signer().key_id)"
    started = [subprocess.Popen([sys.executable, "-c", script, str(folder)], stdout=subprocess.PIPE) for _ in range(4)]
    ids = {process.communicate(timeout=60)[0] for process in started}
    assert len(ids) == 1
    assert len(list(folder.glob("*.key"))) == 1
