from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from evidence.store import EvidenceAltered, EvidenceError, EvidenceMissing, FileStore, StoreFull


def test_put_get_and_the_blob_says_what_it_is(store: FileStore) -> None:
    blob = store.put(b"seen", media_type="text/plain")
    assert blob.sha256 == hashlib.sha256(b"seen").hexdigest()
    assert (blob.size, blob.media_type) == (4, "text/plain")
    assert store.get(blob.sha256) == b"seen"
    assert store.exists(blob.sha256)
    assert store.path(blob.sha256).read_bytes() == b"seen"
    assert list(store.hashes()) == [blob.sha256]


def test_files_and_folders_are_private(store: FileStore) -> None:
    place = store.path(store.put(b"private", media_type="text/plain").sha256)
    assert place.stat().st_mode & 0o777 == 0o600
    assert place.stat().st_nlink == 1
    for folder in (place.parent, place.parent.parent, place.parent.parent.parent):
        assert folder.stat().st_mode & 0o777 == 0o700


def test_the_same_bytes_are_stored_once_and_never_rewritten(store: FileStore) -> None:
    first = store.put(b"twice", media_type="text/plain")
    before = store.path(first.sha256).stat()
    assert store.put(b"twice", media_type="text/plain") == first
    after = store.path(first.sha256).stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_altered_bytes_are_neither_handed_out_nor_overwritten(store: FileStore) -> None:
    blob = store.put(b"original", media_type="text/plain")
    store.path(blob.sha256).write_bytes(b"0riginal")
    with pytest.raises(EvidenceAltered, match=blob.sha256):
        store.get(blob.sha256)
    with pytest.raises(EvidenceAltered):
        store.put(b"original", media_type="text/plain")
    assert store.path(blob.sha256).read_bytes() == b"0riginal"


def test_a_link_in_place_of_a_blob_is_not_followed(store: FileStore, tmp_path: Path) -> None:
    blob = store.put(b"original", media_type="text/plain")
    place = store.path(blob.sha256)
    place.unlink()
    other = tmp_path / "elsewhere"
    other.write_bytes(b"original")
    place.symlink_to(other)
    with pytest.raises(EvidenceError):
        store.get(blob.sha256)


def test_missing_and_malformed_hashes_are_errors(store: FileStore) -> None:
    with pytest.raises(EvidenceMissing):
        store.get("0" * 64)
    with pytest.raises(EvidenceMissing):
        store.path("0" * 64)
    for wrong in ("../../etc/passwd", "A" * 64, ""):
        with pytest.raises(EvidenceError, match="not a SHA-256"):
            store.get(wrong)


def test_many_writers_of_the_same_bytes_leave_one_blob(store: FileStore) -> None:
    blobs = []
    start = threading.Barrier(8)

    def write() -> None:
        start.wait()
        blobs.append(store.put(b"x" * 100_000, media_type="text/plain"))

    threads = [threading.Thread(target=write) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(blobs)) == 1
    assert len(blobs) == 8
    assert _names(store) == {blobs[0].sha256}


def test_below_the_reserve_a_put_is_refused_and_says_what_to_do(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "full", minimum_free_bytes=1 << 60)
    with pytest.raises(StoreFull, match=r"Free some space") as caught:
        store.put(b"too much", media_type="text/plain")
    assert caught.value.needed == 8
    assert list(store.hashes()) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tiny"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", place], check=True, timeout=20)
    yield place
    subprocess.run(["umount", place], check=True, timeout=20)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a file system needs root")
def test_a_really_full_disk_is_store_full_and_leaves_nothing(tiny_disk: Path) -> None:
    store = FileStore(tiny_disk / "evidence", minimum_free_bytes=0)
    kept = store.put(b"fits", media_type="text/plain")
    with pytest.raises(StoreFull):
        store.put(os.urandom(100_000) * 4, media_type="application/octet-stream")

    class NoEstimate(FileStore):
        """Passes the estimate, so that the write itself meets the end of the disk."""

        _minimum_free = -(1 << 40)

        def __setattr__(self, name: str, value: object) -> None:
            if name != "_minimum_free":
                super().__setattr__(name, value)

    late = NoEstimate(tiny_disk / "evidence")
    with pytest.raises(StoreFull):
        late.put(os.urandom(400_000), media_type="application/octet-stream")
    assert _names(late) == {kept.sha256}


_CHILD = """
import os, sys, time
from pathlib import Path
from evidence.store import FileStore

name = sys.argv[2]
store = FileStore(Path(sys.argv[1]), minimum_free_bytes=0)
real = getattr(os, name)

def stop(*args, **kwargs):
    if not list(store.root.glob("blobs/*/.partial-*")):
        return real(*args, **kwargs)
    if sys.argv[3] == "after":
        real(*args, **kwargs)
    print("there", flush=True)
    time.sleep(600)

store.put(b"first", media_type="text/plain")
setattr(os, name, stop)
store.put(b"second" * 10000, media_type="text/plain")
"""


@pytest.mark.parametrize(
    ("call", "when", "listed"),
    [("fsync", "before", False), ("fsync", "after", False), ("link", "before", False), ("link", "after", True)],
)
def test_a_kill_in_the_middle_of_a_put_leaves_no_half_item(tmp_path: Path, call: str, when: str, listed: bool) -> None:
    root = tmp_path / "evidence"
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(root), call, when], stdout=subprocess.PIPE, env=os.environ, cwd=Path.cwd()
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"there\n"
        whole = hashlib.sha256(b"second" * 10000).hexdigest()
        first = hashlib.sha256(b"first").hexdigest()

        beside = FileStore(root, minimum_free_bytes=0)
        assert any(name.startswith(".partial-") for name in _names(beside)), "a live writer's file was taken away"
        assert set(beside.hashes()) == ({first, whole} if listed else {first})

        child.send_signal(signal.SIGKILL)
        child.wait(20)
        after = FileStore(root, minimum_free_bytes=0)
        assert _names(after) == ({first, whole} if listed else {first})
        for sha256 in after.hashes():
            after.get(sha256)
        assert after.put(b"second" * 10000, media_type="text/plain").sha256 == whole
    finally:
        child.kill()
        child.wait(20)
        if child.stdout is not None:
            child.stdout.close()


def _names(store: FileStore) -> set[str]:
    return {file.name for file in (store.root / "blobs").glob("*/*")}
