"""Files of payloads: taken in once, kept for this user alone, given out only as approved, and without their path."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path

import pytest

from executor.errors import BadInput, NotReady
from executor.payload_files import PayloadFiles
from flows.files import MAX_FILE_BYTES, PayloadFile

CONTENT = b"\x89PNG not really"


@pytest.fixture
def files(tmp_path: Path) -> PayloadFiles:
    return PayloadFiles(tmp_path / "kept")


@pytest.fixture
def picture(tmp_path: Path) -> Path:
    path = tmp_path / "a private folder" / "picture.png"
    path.parent.mkdir()
    path.write_bytes(CONTENT)
    return path


def test_a_file_is_kept_by_its_content(files: PayloadFiles, picture: Path, tmp_path: Path) -> None:
    taken = files.take_all({"title": "T", "image": {"path": "a private folder/picture.png"}}, tmp_path)
    file = PayloadFile.model_validate(taken["image"])
    assert (file.name, file.media_type, file.size) == ("picture.png", "image/png", len(CONTENT))
    assert file.sha256 == hashlib.sha256(CONTENT).hexdigest()
    assert "private" not in json.dumps(taken)
    picture.unlink()
    assert asyncio.run(files.content(file)) == CONTENT
    files.check(taken)


def test_the_same_content_is_kept_once_and_for_this_user_alone(
    files: PayloadFiles, picture: Path, tmp_path: Path
) -> None:
    other = picture.rename(picture.with_name("other.png"))
    assert files.take(other, "image/x-png") != files.take(other)
    (kept,) = (tmp_path / "kept").iterdir()
    assert (kept.stat().st_mode & 0o077, kept.parent.stat().st_mode & 0o077) == (0, 0)


def test_what_is_not_as_approved_is_not_given_out(files: PayloadFiles, picture: Path, tmp_path: Path) -> None:
    file = files.take(picture)
    kept = tmp_path / "kept" / file.sha256
    kept.write_bytes(CONTENT[:-1] + b"?")
    with pytest.raises(NotReady, match="was changed"):
        asyncio.run(files.content(file))
    assert files.take(picture) == file, "taking it in again mends it"
    assert asyncio.run(files.content(file)) == CONTENT
    kept.unlink()
    with pytest.raises(NotReady, match="not kept any more"):
        asyncio.run(files.content(file))
    with pytest.raises(BadInput, match="of the field image is not here"):
        files.check({"image": file.model_dump(mode="json")})


@pytest.mark.parametrize(
    "value", [{"path": "nowhere.png"}, {"path": "."}, {"path": 1}, {"path": "a.png", "media_type": "no type"}]
)
def test_what_cannot_be_taken_in(files: PayloadFiles, tmp_path: Path, value: dict[str, object]) -> None:
    (tmp_path / "a.png").write_bytes(CONTENT)
    with pytest.raises(BadInput):
        files.take_all({"image": value}, tmp_path)
    assert not (tmp_path / "kept").exists()


def test_a_file_that_no_browser_could_be_given(files: PayloadFiles, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    with large.open("wb") as sparse:
        sparse.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(BadInput, match="larger than 48 MiB"):
        files.take(large)


def test_other_values_are_left_as_they_are(files: PayloadFiles, tmp_path: Path) -> None:
    payload = {"a": {"path": "x", "more": 1}, "b": ["path"], "c": "path", "d": None}
    assert files.take_all(payload, tmp_path) == payload
