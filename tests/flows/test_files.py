"""What a payload may say of a file, and what the wire shows of it."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from flows.bodies import Upload
from flows.files import PayloadFile, material_of

GOOD = {"sha256": "0" * 64, "name": "A picture é.png", "media_type": "image/png", "size": 3}


def test_the_wire_shows_what_was_approved() -> None:
    upload = Upload("image", GOOD["name"], GOOD["media_type"], GOOD["size"], GOOD["sha256"])  # type: ignore[arg-type]
    assert material_of(upload) == PayloadFile.model_validate(GOOD).model_dump(mode="json")


@pytest.mark.parametrize("upload", [None, Upload("image", "", "application/octet-stream", 0, "e3b0")])
def test_a_field_that_was_left_empty_is_no_file(upload: Upload | None) -> None:
    assert material_of(upload) is None


@pytest.mark.parametrize(
    "wrong",
    [
        *({"name": name} for name in ("", 'a"b', "a/b", "a\\b", "C:b", "a\nb", "..", "x" * 201)),
        {"sha256": "0" * 63},
        {"sha256": "A" * 64},
        {"media_type": "image"},
        {"media_type": "image/png; x=y"},
        {"size": -1},
        {"size": 10**9},
        {"path": "/etc/passwd"},
    ],
)
def test_refuses(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PayloadFile.model_validate({**GOOD, **wrong})
